# Within one array finalisers run from the last to the first.
## call: ready() = 1
## trace: | 3 2 1
    .text
    .globl ready
    .type ready, @function
ready:
    mov $1, %eax
    ret
one:
    mov $1, %edi
    jmp trace@PLT
two:
    mov $2, %edi
    jmp trace@PLT
three:
    mov $3, %edi
    jmp trace@PLT
    .section .fini_array,"aw",@fini_array
    .quad one
    .quad two
    .quad three
    .section .note.GNU-stack,"",@progbits
