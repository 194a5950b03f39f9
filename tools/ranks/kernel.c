// y[i] = w[i % 8] * step 2 (step 1 (step 0 (x[i]))): steps are called through pointers, constants lie in sections of
// their own.
//
// -DSHAPE: 0 for an ordinary object; 1 and 2 for the shapes of CuTe DSL 4.4.1 and 4.4.2, in which the pointers lie in a
// second section named .text, writable (AX + WA; a store at run time shows it) or read-only (AX + A). The assembler
// makes everything executable that has that name, so it is .tekt here; rank.rs changes a letter of the object's string
// table.

#if defined(__x86_64__)
#define COMMENT "#" // For the assembler, what follows is a comment: the compiler's own flags for the section.
#else
#define COMMENT "//"
#endif

#if SHAPE == 1
#define POINTERS __attribute__((section(".tekt,\"aw\",%progbits " COMMENT)))
#elif SHAPE == 2
#define POINTERS __attribute__((section(".tekt,\"a\",%progbits " COMMENT)))
#else
#define POINTERS
#endif

typedef float step(float);

static float scaled(float x) { return x * 0.75f; }
static float squared(float x) { return x * x + 0.125f; }
static float shifted(float x) { return x - 3.5f; }

#if SHAPE == 2
static step *const volatile steps[] POINTERS
#else
static step *volatile steps[] POINTERS
#endif
    = {scaled, squared, shifted};
static const float weights[8] = {1.5f, -2.25f, 0.5f, 3.0f, -1.0f, 0.25f, 7.5f, -0.75f};
static volatile int calls;

int kernel(const float *x, float *y, long n) {
#if SHAPE == 1
    steps[0] = scaled;
#endif
    for (long i = 0; i < n; i++) {
        float v = x[i];
        for (int s = 0; s < 3; s++) v = steps[s](v);
        y[i] = v * weights[i % 8];
    }
    return ++calls;
}
