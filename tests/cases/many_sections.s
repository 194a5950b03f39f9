# More sections than e_shnum and st_shndx hold: extended numbering and SHT_SYMTAB_SHNDX.
## call: last() = 66000
    .include "arch.inc"
    .macro one_more
    .section .data.number\@,"aw",@progbits
    .quad here
    .endm
    .text
here:
    ret
    .rept 66000
    one_more
    .endr
    .section .data.the_last,"aw",@progbits
value:
    .long 66000
    .section .text.the_last,"ax",@progbits
    .globl last
    .type last, @function
last:
    return_int_at value
    .section .note.GNU-stack,"",@progbits
