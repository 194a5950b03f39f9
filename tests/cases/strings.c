//# call: print(42) = 15
//# call: sorted() = 12589
//# call: copied() = 1
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
int print(int n) {
    char text[64];
    int r = snprintf(text, sizeof text, "%s=%d %.2f", "answer", n, 0.25);
    return strcmp(text, "answer=42 0.25") == 0 ? r + 1 : -1;
}
static int less(const void *a, const void *b) { return *(const int *)a - *(const int *)b; }
int sorted(void) {
    int v[] = {9, 1, 8, 2, 5}, r = 0;
    qsort(v, 5, sizeof *v, less);
    for (int i = 0; i < 5; i++) r = r * 10 + v[i];
    return r;
}
int copied(void) {
    char a[100], b[100];
    memset(a, 'x', 100);
    memcpy(b, a, 100);
    return memcmp(a, b, 100) == 0 && strlen("slab") == 4;
}
