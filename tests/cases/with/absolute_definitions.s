    .globl abs_small, abs_large
abs_small = 0x1234
abs_large = 0x123456789abcdef0
    .section .note.GNU-stack,"",@progbits
