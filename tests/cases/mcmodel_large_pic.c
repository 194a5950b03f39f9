// gcc calls functions elsewhere through PLTOFF64, which no LLVM up to 22 knows.
//# arch: x86_64 (GCC has no position-independent large code model for AArch64)
//# tools: gcc
//# compile: -mcmodel=large
//# call: call_libc() = 5
#include <string.h>
int call_libc(void) {
  const char *volatile s = "slab";
  return (int)strlen(s) + 1;
}
