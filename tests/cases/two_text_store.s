# Two sections named .text, AX and WA; the code stores into the second at run time.
## arch: x86_64 (its twin is two_text_store_aarch64.s)
## tools: gcc
## oracle: none (ld merges both into one read-only .text, the store is SIGSEGV there)
## call: bump() = 42
## call: bump() = 43
## call: through_pointer(5) = 8
    .text
    .globl bump
    .type bump, @function
bump:
    mov counter(%rip), %eax
    add $1, %eax
    mov %eax, counter(%rip)
    ret
    .globl through_pointer
    .type through_pointer, @function
through_pointer:
    jmp *pointer(%rip)
    .type helper, @function
helper:
    lea 3(%rdi), %eax
    ret
    .section .text,"aw",@progbits,unique,1
counter:
    .long 41
    .long 0
pointer:
    .quad helper
    .section .note.GNU-stack,"",@progbits
