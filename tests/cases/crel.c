// Relocations in the compact form; GNU ld 2.40 cannot read it, lld can.
//# tools: clang-22
//# compile: -fPIC -Wa,--crel,--allow-experimental-crel
//# linker: clang-22 -fuse-ld=lld
//# call: use(2) = 48
//# call: text() = 5
#include <string.h>
static int add(int a, int b) { return a + b; }
static int sub(int a, int b) { return a - b; }
int (*const volatile table[])(int, int) = {add, sub, add};
int data = 46;
const char *volatile name = "slabs";
int use(int i) { return table[i](data, i); }
int text(void) { return (int)strlen((const char *)name); }
