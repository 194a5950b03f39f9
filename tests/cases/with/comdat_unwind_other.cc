#include "comdat_unwind.h"
static int only_here(int n) { Cleanup cleanup; return first(n); }
extern "C" int there(int n) {
    try { return second(n) + 3000; } catch (Negative &problem) { return 4000 - problem.n; }
}
// Two throws run three cleanups each, of this file and of `first` and `check`.
extern "C" int there_counted(int n) {
    try { return only_here(n); } catch (Negative &problem) { return 3; }
}
