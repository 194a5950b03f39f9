//# libs: libm.so.6
//# call: product() = 3
//# call: root() = 1414213
#include <math.h>
long double third = 1.0L / 3.0L;
int product(void) { return (int)(third * 9.0L + 1e-15L); }
int root(void) { volatile long double two = 2.0L; return (int)(sqrtl(two) * 1000000.0L); }
