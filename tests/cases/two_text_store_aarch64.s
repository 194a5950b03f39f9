# Two sections named .text, AX and WA; the code stores into the second at run time.
## arch: aarch64 (its twin is two_text_store.s)
## tools: gcc
## oracle: none (ld merges both into one read-only .text, the store is SIGSEGV there)
## call: bump() = 42
## call: bump() = 43
## call: through_pointer(5) = 8
    .text
    .globl bump
    .type bump, @function
bump:
    adrp x1, counter
    ldr w0, [x1, :lo12:counter]
    add w0, w0, #1
    str w0, [x1, :lo12:counter]
    ret
    .globl through_pointer
    .type through_pointer, @function
through_pointer:
    adrp x1, pointer
    ldr x1, [x1, :lo12:pointer]
    br x1
    .type helper, @function
helper:
    add w0, w0, #3
    ret
    .section .text,"aw",@progbits,unique,1
counter:
    .long 41
    .long 0
pointer:
    .quad helper
    .section .note.GNU-stack,"",@progbits
