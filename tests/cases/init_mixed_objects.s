# Old and new spellings in several objects. Those of one priority go by name for ld, 00200 before 200, and then by object; a plain .ctors
# lies among plain .init_array as the objects do.
## with: init_mixed_other.s init_mixed_third.c
## call: ready() = 1
## trace: 1 2 3 4 5 6 7 8 9 10 11 12 | -12 -11 -10 -9 -8 -7 -6 -5 -4 -3 -2 -1
    .include "arch.inc"
    .macro tracer name, value
    .type \name, @function
\name:
    tail_trace \value
    .size \name, . - \name
    .endm
    .macro both number, init, fini
    .pushsection .text
    tracer i\number, \number
    tracer f\number, -\number
    .popsection
    .section .\init,"aw",@init_array
    .quad i\number
    .section .\fini,"aw",@fini_array
    .quad f\number
    .endm
    .macro old number, init, fini
    .pushsection .text
    tracer i\number, \number
    tracer f\number, -\number
    .popsection
    .section .\init,"aw",@progbits
    .quad i\number
    .section .\fini,"aw",@progbits
    .quad f\number
    .endm

    .text
    .globl ready
    .type ready, @function
ready:
    return_value 1
    .size ready, . - ready

    both 8, init_array.300, fini_array.300
    both 5, init_array.200, fini_array.200
    old 3, ctors.65335, dtors.65335
    old 10, ctors, dtors
    both 1, init_array.101, fini_array.101
    .section .note.GNU-stack,"",@progbits
