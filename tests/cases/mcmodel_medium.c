//# arch: x86_64 (AArch64 has no medium code model)
//# compile: -mcmodel=medium -mlarge-data-threshold=100
//# call: use_all() = 12
static int big[1000] = {5};
int big_bss[100000];
static const int big_const[1000] = {7};
int use_all(void) { volatile int i = 0; big_bss[99999] = 0; return big[i] + big_const[i] + big_bss[99999 - i]; }
