# LLVM's assembler makes a section named .text executable whatever is asked for, and writable on top of that here.
## tools: clang-19 clang-22
## error: WritableAndExecutable /.text/
## oracle: none (nothing is loaded)
    .section .text,"aw",@progbits,unique,1
    .globl counter
counter:
    .long 41
    .section .note.GNU-stack,"",@progbits
