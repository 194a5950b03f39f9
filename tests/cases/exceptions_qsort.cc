// The exception passes through frames of libc.
//# call: through_qsort() = 23
#include <cstdlib>
static int compare(const void *, const void *) { throw 23; }
extern "C" int through_qsort() {
    int v[] = {3, 1, 2};
    try { qsort(v, 3, sizeof *v, compare); } catch (int e) { return e; }
    return -1;
}
