//# compile: -fPIC
//# call: next() = 1
//# call: next() = 2
static __thread int counter;
int next(void) { return ++counter; }
