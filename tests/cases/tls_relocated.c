// Variables that begin with addresses: of functions, of other variables' neighbours, of what another object defines.
//# with: tls_relocated_other.c
//# call: value() = 11
//# call: value() = 12
//# call: called(5) = 15
//# call: shared() = 40
static int counter = 10;
extern int in_other;
static __thread int *pointer = &counter;
static __thread int pad[3] = {1, 2, 3};
static int add(int x) { return x + 10; }
__thread int (*function)(int) = add;
__thread int *other = &in_other;
int value(void) { return ++*pointer + pad[0] - 1; }
int called(int x) { return function(x); }
int shared(void) { return *other; }
