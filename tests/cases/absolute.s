## call: global_absolute() = 4660
## call: local_absolute() = 77
## call: difference() = 16
    .include "arch.inc"
    .globl foo
foo = 0x1234
    .set bar, 77
    .text
    .globl global_absolute
    .type global_absolute, @function
global_absolute:
    return_value foo
    .globl local_absolute
    .type local_absolute, @function
local_absolute:
    return_value bar
    .globl difference
    .type difference, @function
difference:
    return_value table_end-table
    .data
table:
    .quad foo, bar
table_end:
    .section .note.GNU-stack,"",@progbits
