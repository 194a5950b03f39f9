// gcc calls functions elsewhere through PLTOFF64, which no LLVM up to 22 knows.
//# arch: x86_64 (GCC has no position-independent large code model for AArch64)
//# tools: gcc
//# compile: -mcmodel=large
//# error: UnsupportedRelocation /R_X86_64_PLTOFF64 against 'strlen'/
//# oracle: none (nothing is loaded)
#include <string.h>
int call_libc(const char *s) { return (int)strlen(s) + 1; }
