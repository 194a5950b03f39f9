// Exceptions cross inline functions that both objects define: the unwind table of the second loses its records of them,
// and keeps those before, between and behind.
//# with: comdat_unwind_other.cc
//# call: here(3) = 1103
//# call: here(-4) = 2004
//# call: there(5) = 3105
//# call: there(-6) = 4006
//# call: cleaned() = 12
#include "with/comdat_unwind.h"
int cleanups;
extern "C" int there_counted(int n);
extern "C" int before_here(int n) { return first(n) + 1000; }
extern "C" int here(int n) {
    try { return before_here(n); } catch (Negative &problem) { return 2000 - problem.n; }
}
extern "C" int cleaned() {
    int before = cleanups;
    int caught = there_counted(-1) + there_counted(-2);
    return caught + cleanups - before;
}
