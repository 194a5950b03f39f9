//# compile: -ftls-model=local-exec
//# error: ThreadLocal
//# oracle: none (nothing is loaded)
__thread int counter = 5;
int next(void) { return ++counter; }
