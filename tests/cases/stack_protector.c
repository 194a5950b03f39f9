//# compile: -fstack-protector-all -fcf-protection=full
//# call: guarded() = 9
#include <string.h>
int guarded(void) { char a[32]; strcpy(a, "protector"); return (int)strlen(a); }
