# Old and new spellings mixed; the linker's order decides. The numbers in .ctors.N and .dtors.N count down from 65535.
## call: ready() = 1
## trace: 1 2 3 4 5 6 7 8 | -8 -7 -6 -5 -4 -3 -2 -1
    .include "arch.inc"
    .macro tracer name, value
    .type \name, @function
\name:
    tail_trace \value
    .size \name, . - \name
    .endm

    .text
    tracer t1, 1
    tracer t2, 2
    tracer t3, 3
    tracer t4, 4
    tracer t5, 5
    tracer t6, 6
    tracer t7, 7
    tracer t8, 8
    tracer f1, -1
    tracer f2, -2
    tracer f3, -3
    tracer f4, -4
    tracer f5, -5
    tracer f6, -6
    tracer f7, -7
    tracer f8, -8

    .globl ready
    .type ready, @function
ready:
    return_value 1
    .size ready, . - ready

    # priority 100 (.ctors.65435), 200 (.init_array.200), 300 (.ctors.65235), 400, then those without a priority
    .section .init_array.400,"aw",@init_array
    .quad t4
    .section .ctors.65235,"aw",@progbits
    .quad t3
    .section .init_array.200,"aw",@init_array
    .quad t2
    .section .ctors.65435,"aw",@progbits
    .quad t1
    .section .init_array,"aw",@init_array
    .quad t5
    .quad t6
    .section .ctors,"aw",@progbits
    .quad t8
    .quad t7

    .section .fini_array.400,"aw",@fini_array
    .quad f4
    .section .dtors.65235,"aw",@progbits
    .quad f3
    .section .fini_array.200,"aw",@fini_array
    .quad f2
    .section .dtors.65435,"aw",@progbits
    .quad f1
    .section .fini_array,"aw",@fini_array
    .quad f5
    .quad f6
    .section .dtors,"aw",@progbits
    .quad f8
    .quad f7
    .section .note.GNU-stack,"",@progbits
