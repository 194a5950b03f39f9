// A handler of a removed library does not run: not at removal, and not later. That it runs at quick_exit is in
// lifetime.rs.
//# call: registered() = 0
//# trace: |
#include <stdlib.h>
void trace(int);
static void handler(void) { trace(1); }
int registered(void) { return at_quick_exit(handler); }
