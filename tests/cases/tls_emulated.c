// What the refusal of thread-local storage advises has to work.
//# tools: clang-19 clang-22
//# compile: -femulated-tls
//# libs: libgcc_s.so.1
//# call: next() = 6
//# call: next() = 7
__thread int counter = 5;
int next(void) { return ++counter; }
