# .preinit_array runs before everything else of its library.
## oracle: none (ld -shared refuses .preinit_array: "PREINIT_ARRAY section is not allowed in DSO")
## trace: 1 2 3 | -4
    .text
one:
    mov $1, %edi
    jmp trace@PLT
two:
    mov $2, %edi
    jmp trace@PLT
three:
    mov $3, %edi
    jmp trace@PLT
four:
    mov $-4, %edi
    jmp trace@PLT
    .section .init_array,"aw",@init_array
    .quad three
    .section .preinit_array,"aw",@preinit_array
    .quad one
    .quad two
    .section .fini_array,"aw",@fini_array
    .quad four
    .section .note.GNU-stack,"",@progbits
