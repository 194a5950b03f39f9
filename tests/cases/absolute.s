## call: global_absolute() = 4660
## call: local_absolute() = 77
## call: difference() = 16
    .globl foo
foo = 0x1234
    .set bar, 77
    .text
    .globl global_absolute
    .type global_absolute, @function
global_absolute:
    movabs $foo, %rax
    ret
    .globl local_absolute
    .type local_absolute, @function
local_absolute:
    mov $bar, %eax
    ret
    .globl difference
    .type difference, @function
difference:
    mov $(table_end-table), %eax
    ret
    .data
table:
    .quad foo, bar
table_end:
    .section .note.GNU-stack,"",@progbits
