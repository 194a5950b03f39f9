// One source for all kinds of objects. What each computes is written down a second time in `objects.rs`.
#include <stdlib.h>

int seed = 1;

#if KIND == 1 // a variable that each thread has of its own
static __thread int weight = 3;
int *weight_here(void) { return &weight; }
#elif KIND == 2 // an indirect function
static int three(void) { return 3; }
static int (*resolve(void))(void) { return three; }
int chosen(void) __attribute__((ifunc("resolve")));
#define weight chosen()
#elif KIND == 3 // initialised, finalised, with an exit handler, that look up, load and remove
void hook(void);
static int weight;
static void at_exit(void) { weight = -1; }
__attribute__((constructor)) static void init(void) { hook(); weight = 3; atexit(at_exit); }
__attribute__((destructor)) static void fini(void) { hook(); weight = -2; }
#elif KIND == 4 // of another library
int weight_of_base(void);
#define weight weight_of_base()
#elif KIND == 5 // what others are linked against
int weight_of_base(void) { return 3; }
#define weight weight_of_base()
#else
#define weight 3
#endif

int sum(const int *values, int n) {
    int total = 0;
    for (int i = 0; i < n; i++)
        total += values[i] * weight + seed;
    return total;
}
