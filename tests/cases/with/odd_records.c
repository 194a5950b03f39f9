// Two functions that call another one, and an unwind table that was written by hand. The assembler's own would be
// aligned.
#ifdef __x86_64__
#define CODE "sub $8, %rsp\n mov %rdi, %rax\n mov %esi, %edi\n call *%rax\n add $8, %rsp\n ret\n"
// def_cfa rsp 8; the return address (16) at cfa-8. After 4 bytes def_cfa_offset 16.
#define CIE ".uleb128 1\n.sleb128 -8\n.byte 16\n.uleb128 1\n.byte 0x1b\n.byte 0x0c, 7, 8, 0x90, 1\n"
#define FDE ".byte 0x44, 0x0e, 16\n"
#else
#define CODE "stp x29, x30, [sp, #-16]!\n mov x2, x0\n mov w0, w1\n blr x2\n ldp x29, x30, [sp], #16\n ret\n"
// def_cfa sp 0. After 4 bytes def_cfa_offset 16, x29 at cfa-16, x30 at cfa-8.
#define CIE ".uleb128 1\n.sleb128 -8\n.byte 30\n.uleb128 1\n.byte 0x1b\n.byte 0x0c, 31, 0\n"
#define FDE ".byte 0x44, 0x0e, 16, 0x9d, 2, 0x9e, 1\n"
#endif
#define FUNCTION(name) ".globl " name "\n.hidden " name "\n.type " name ", %function\n" name ": " CODE ".size " name ", . - " name "\n"
asm(".text\n" FUNCTION("odd_through") "0:\n" ".section .text.too,\"ax\",%progbits\n" FUNCTION("odd_through_too") "1:\n"
    ".section .eh_frame,\"a\",%progbits\n.balign 8\n"
    "5: .long 7f - 6f\n6: .long 0\n.byte 1\n.asciz \"zR\"\n" CIE "7:\n"
    ".long 9f - 8f\n8: .long 8b - 5b\n.long odd_through - .\n.long 0b - odd_through\n.uleb128 0\n"
    FDE ".balign 2\n.byte 0\n9:\n"
    ".long 9f - 8f\n8: .long 8b - 5b\n.long odd_through_too - .\n.long 1b - odd_through_too\n.uleb128 0\n"
    FDE ".balign 8\n9:\n"
    ".text\n");
