// Distances from the thread pointer in the instructions: what linkers refuse in shared objects.
//# image: none (depends on the load address)
//# compile: -ftls-model=local-exec -fPIE
//# oracle: none (ld -shared refuses R_X86_64_TPOFF32 and R_AARCH64_TLSLE_*)
//# call: next() = 6
//# call: next() = 7
//# call: other(4) = 14
__thread int counter = 5;
static __thread int more[4];
int next(void) { return ++counter; }
int other(int x) { more[3] += x; return more[3] + 10; }
