// What LLVM's ORC runtime tests say their result with, in LLVM's own tool.
#include <stdio.h>

#ifdef __cplusplus
extern "C"
#endif
// Their `main` calls it without aligning the stack, which glibc's functions may rely on.
__attribute__((force_align_arg_pointer))
void llvm_jitlink_setTestResultOverride(long value) { dprintf(1, "result: %ld\n", value); }
