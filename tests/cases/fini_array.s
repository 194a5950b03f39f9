# Within one array finalisers run from the last to the first.
## call: ready() = 1
## trace: | 3 2 1
    .include "arch.inc"
    .text
    .globl ready
    .type ready, @function
ready:
    return_value 1
one:
    tail_trace 1
two:
    tail_trace 2
three:
    tail_trace 3
    .section .fini_array,"aw",@fini_array
    .quad one
    .quad two
    .quad three
    .section .note.GNU-stack,"",@progbits
