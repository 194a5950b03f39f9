//# compile: -fPIC -ftls-model=initial-exec
//# error: ThreadLocal
//# oracle: none (nothing is loaded)
extern __thread int elsewhere;
int next(void) { return ++elsewhere; }
