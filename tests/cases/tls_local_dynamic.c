// One call for several variables, of which one is hidden in another object: they have to be in one module.
//# with: tls_other.c tls_hidden_other.c
//# levels: -O2
//# call: next() = 128
//# call: next() = 131
extern __thread int first __attribute__((visibility("hidden")));
extern __thread int second __attribute__((visibility("hidden")));
static __thread int here = 10;
int next(void) { return ++first + ++second + ++here; }
