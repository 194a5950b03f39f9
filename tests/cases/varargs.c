//# call: ints() = 15
//# call: doubles() = 10
#include <stdarg.h>
static int sum(int n, ...) {
    va_list l; va_start(l, n); int s = 0;
    while (n--) s += va_arg(l, int);
    va_end(l); return s;
}
static double dsum(int n, ...) {
    va_list l; va_start(l, n); double s = 0;
    while (n--) s += va_arg(l, double);
    va_end(l); return s;
}
int ints(void) { return sum(5, 1, 2, 3, 4, 5); }
int doubles(void) { return (int)dsum(4, 1.0, 2.0, 3.0, 4.0); }
