// What LLVM's ORC runtime tests say their result with, in LLVM's own tool.
#include <stdio.h>

#ifdef __cplusplus
extern "C"
#endif
void llvm_jitlink_setTestResultOverride(long value) { dprintf(1, "result: %ld\n", value); }
