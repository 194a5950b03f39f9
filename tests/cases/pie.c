// Compiled for an executable: the object's own data is reached directly, functions elsewhere through the PLT.
//# compile: -fPIE
//# link: -Wl,-Bsymbolic
//# with: data_user.c
//# call: total() = 66
#include <stdlib.h>
int values[3] = {10, 20, 30};
int scale = -6;
int bss[100];
int sum(void);
int total(void) { bss[99] = abs(scale); return sum() + bss[99]; }
