//# call: through_table(0, 5) = 6
//# call: through_table(1, 5) = 10
//# call: through_table(2, -5) = 5
//# call: through_struct(4) = 24
#include <stdlib.h>
static int inc(int x) { return x + 1; }
int twice(int x) { return x * 2; }
static int (*const table[])(int) = {inc, twice, abs};
int through_table(int i, int x) { return table[i](x); }
struct ops { const char *name; int (*f)(int); int (**g)(int); };
static int (*slot)(int) = twice;
struct ops ops = {"slab", inc, &slot};
int through_struct(int x) { return ops.f(x) * (*ops.g)(2) + (ops.name[0] == 's') * 4; }
