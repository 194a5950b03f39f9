// Indirect functions: called, pointed to, compared, from initialisers and from another object.
//# with: ifunc_other.c
//# call: use(5) = 105
//# call: through(5) = 105
//# call: same() = 1
//# call: in_initialiser() = 101
//# call: from_other(7) = 117
//# call: local(3) = 203
//# call: asked() = 1
static int calls;
static int fast(int x) { return x + 100; }
static int faster(int x) { return x + 200; }
static int (*resolve(void))(int) {
    calls++;
    return fast;
}
static int (*resolve_local(void))(int) { return faster; }
int pick(int) __attribute__((ifunc("resolve")));
static int pick_local(int) __attribute__((ifunc("resolve_local")));
int (*pointer)(int) = pick;
static int seen;
__attribute__((constructor)) static void initialise(void) { seen = pick(1); }
int from_other(int);
int (*address_in_other(void))(int);
int use(int x) { return pick(x); }
int through(int x) { return pointer(x); }
int same(void) { return pointer == pick && address_in_other() == pointer; }
int in_initialiser(void) { return seen; }
int local(int x) { return pick_local(x); }
int asked(void) { return calls > 0; }
