// With debug information, which refers to the variable by its offset in the block.
//# compile: -fPIC -g
//# call: next() = 1
//# call: next() = 2
static __thread int counter;
int next(void) { return ++counter; }
