// Handlers run at removal, the last registered first; those registered at run time too. Finalisers come before them, as
// in dlclose.
//# call: register_more() = 0
//# trace: 0 | -5 -3 -2 -1
#include <stdlib.h>
void trace(int);
static void one(void) { trace(-1); }
static void two(void) { trace(-2); }
static void three(void) { trace(-3); }
__attribute__((constructor)) static void init(void) { trace(0); atexit(one); atexit(two); }
__attribute__((destructor)) static void fini(void) { trace(-5); }
int register_more(void) { return atexit(three); }
