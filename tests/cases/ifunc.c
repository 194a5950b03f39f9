//# error: IndirectFunction /pick/
//# oracle: none (nothing is loaded)
static int slow(int x) { return x; }
static int (*resolve(void))(int) { return slow; }
int pick(int) __attribute__((ifunc("resolve")));
int use(int x) { return pick(x); }
