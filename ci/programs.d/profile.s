# What the compiler driver gives the linker for -fprofile-instr-generate, as an object: `-u __llvm_profile_runtime`, for the member of
# libclang_rt.profile that writes the profile at exit; and the header of a file, with no segments, in which it looks for a build ID.
.section .data.rel,"aw"
.quad __llvm_profile_runtime
.section .rodata,"a"
.balign 8
.globl __ehdr_start
.hidden __ehdr_start
__ehdr_start: .zero 64
.section .note.GNU-stack,"",@progbits
