# .preinit_array runs before everything else of its library.
## oracle: none (ld -shared refuses .preinit_array: "PREINIT_ARRAY section is not allowed in DSO")
## trace: 1 2 3 | -4
    .include "arch.inc"
    .text
one:
    tail_trace 1
two:
    tail_trace 2
three:
    tail_trace 3
four:
    tail_trace -4
    .section .init_array,"aw",@init_array
    .quad three
    .section .preinit_array,"aw",@preinit_array
    .quad one
    .quad two
    .section .fini_array,"aw",@fini_array
    .quad four
    .section .note.GNU-stack,"",@progbits
