//# compile: -fPIC
//# error: ThreadLocal
//# oracle: none (nothing is loaded)
static __thread int counter;
int next(void) { return ++counter; }
