//# call: jumped() = 12
#include <setjmp.h>
static jmp_buf place;
static volatile int steps;
static void down(int n) { steps++; if (n == 0) longjmp(place, 7); down(n - 1); steps += 100; }
int jumped(void) { steps = 0; int r = setjmp(place); if (r == 0) { down(4); return -1; } return r + steps; }
