//# compile: -fstack-protector-all
//# compile[x86_64]: -fcf-protection=full
//# compile[aarch64]: -mbranch-protection=standard
//# call: guarded() = 9
#include <string.h>
int guarded(void) { char a[32]; strcpy(a, "protector"); return (int)strlen(a); }
