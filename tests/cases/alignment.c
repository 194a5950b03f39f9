//# call: misaligned() = 0
//# call: function_misaligned() = 0
#include <stdint.h>
#pragma GCC visibility push(hidden)
__attribute__((aligned(64))) int a64 = 1;
__attribute__((aligned(4096))) int a4096 = 2;
__attribute__((aligned(65536))) int a65536 = 3;
__attribute__((aligned(64))) const int r64 = 1;
__attribute__((aligned(4096))) const int r4096 = 2;
__attribute__((aligned(65536))) const int r65536 = 3;
__attribute__((aligned(64))) int b64;
__attribute__((aligned(4096))) int b4096;
__attribute__((aligned(65536))) int b65536;
char after;
#pragma GCC visibility pop
__attribute__((aligned(4096))) int function(void) { return 1; }
// The compiler knows the alignments it asked for; do not let it answer from that.
static uintptr_t at(const volatile void *p) { uintptr_t v = (uintptr_t)p; __asm__("" : "+r"(v)); return v; }
int misaligned(void) {
    return (int)(at(&a64) % 64 + at(&a4096) % 4096 + at(&a65536) % 65536 + at(&r64) % 64 + at(&r4096) % 4096 +
                 at(&r65536) % 65536 + at(&b64) % 64 + at(&b4096) % 4096 + at(&b65536) % 65536);
}
int function_misaligned(void) { return (int)(at(function) % 4096); }
