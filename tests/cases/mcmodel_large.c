//# image[gcc]: none (depends on the load address)
//# image[aarch64]: none (depends on the load address)
//# compile: -mcmodel=large
//# compile[gcc]: -fno-pic
//# compile[aarch64]: -fno-pic
//# oracle[aarch64]: none (ld -shared refuses R_AARCH64_MOVW_UABS_G0_NC, "can not be used when making a shared object")
//# call: use_all(4) = 51
//# call: call_libc() = 5
#include <string.h>
static int data[] = {1, 2, 3, 4, 5};
int bss[1000];
const int constant = 46;
static __attribute__((noinline)) int local(int i) { return data[i]; }
int use_all(int i) { bss[999] = 0; return local(i) + constant + bss[999]; }
int call_libc(void) { volatile const char *s = "large"; return (int)strlen((const char *)s); }
