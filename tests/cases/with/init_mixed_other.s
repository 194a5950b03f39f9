    .include "arch.inc"
    .macro tracer name, value
    .type \name, @function
\name:
    tail_trace \value
    .size \name, . - \name
    .endm
    .text
    tracer i4, 4
    tracer f4, -4
    tracer i6, 6
    tracer f6, -6
    tracer i7, 7
    tracer f7, -7
    tracer i11, 11
    tracer f11, -11
    .section .init_array,"aw",@init_array
    .quad i11
    .section .fini_array,"aw",@fini_array
    .quad f11
    .section .init_array.200,"aw",@init_array
    .quad i6
    .section .fini_array.200,"aw",@fini_array
    .quad f6
    .section .init_array.00200,"aw",@init_array
    .quad i4
    .section .fini_array.00200,"aw",@fini_array
    .quad f4
    .section .ctors.65235,"aw",@progbits
    .quad i7
    .section .dtors.65235,"aw",@progbits
    .quad f7
    .section .note.GNU-stack,"",@progbits
