// RMSNorm of each row: y[i] = x[i] / sqrt(mean(x²) + eps) * weight[i].
//
// It imports nothing. The CPU is asked once, at the first call, by cpuid: __builtin_cpu_supports would need a hidden
// symbol of libgcc.a, which only a linker's command line has.
//
// With -DFOUNDING_SHAPE the object looks like what CuTe DSL 4.4.1 writes: pointers to functions lie in a second section
// named .text, which is writable (AX + WA), and there is a .fini_array.

typedef void rmsnorm_fn(const float *x, const float *weight, float *y, long rows, long columns, float eps);

static void portable(const float *x, const float *weight, float *y, long rows, long columns, float eps) {
    for (long row = 0; row < rows; row++, x += columns, y += columns) {
        // Eight sums, for accuracy and for what SIMD there is.
        float sums[8] = {0};
        long i = 0;
        for (; i + 8 <= columns; i += 8)
            for (long j = 0; j < 8; j++) sums[j] += x[i + j] * x[i + j];
        for (; i < columns; i++) sums[0] += x[i] * x[i];
        float sum = ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
        float scale = 1.0f / __builtin_sqrtf(sum / (float)columns + eps);
        for (i = 0; i < columns; i++) y[i] = x[i] * scale * weight[i];
    }
}

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

__attribute__((target("arch=x86-64-v3"))) static void x86_64_v3(const float *x, const float *weight, float *y, long rows,
                                                               long columns, float eps) {
    for (long row = 0; row < rows; row++, x += columns, y += columns) {
        __m256 a = _mm256_setzero_ps(), b = a, c = a, d = a;
        long i = 0;
        for (; i + 32 <= columns; i += 32) {
            __m256 p = _mm256_loadu_ps(x + i), q = _mm256_loadu_ps(x + i + 8);
            __m256 r = _mm256_loadu_ps(x + i + 16), s = _mm256_loadu_ps(x + i + 24);
            a = _mm256_fmadd_ps(p, p, a);
            b = _mm256_fmadd_ps(q, q, b);
            c = _mm256_fmadd_ps(r, r, c);
            d = _mm256_fmadd_ps(s, s, d);
        }
        a = _mm256_add_ps(_mm256_add_ps(a, b), _mm256_add_ps(c, d));
        __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        half = _mm_add_ps(half, _mm_movehl_ps(half, half));
        float sum = _mm_cvtss_f32(_mm_add_ss(half, _mm_shuffle_ps(half, half, 1)));
        for (; i < columns; i++) sum += x[i] * x[i];
        float scale = 1.0f / __builtin_sqrtf(sum / (float)columns + eps);
        __m256 scales = _mm256_set1_ps(scale);
        for (i = 0; i + 8 <= columns; i += 8) {
            __m256 v = _mm256_mul_ps(_mm256_loadu_ps(x + i), scales);
            _mm256_storeu_ps(y + i, _mm256_mul_ps(v, _mm256_loadu_ps(weight + i)));
        }
        for (; i < columns; i++) y[i] = x[i] * scale * weight[i];
    }
}

static int has(unsigned value, unsigned bits) { return (value & bits) == bits; }

// All of x86-64-v3, and an operating system that keeps the wide registers.
static int has_x86_64_v3(void) {
    unsigned a, b, c, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || !has(c, 1u << 12 | 1u << 22 | 1u << 27 | 1u << 28 | 1u << 29)) return 0;
    __asm__("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
    if (!has(a, 6)) return 0;
    if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !has(b, 1u << 3 | 1u << 5 | 1u << 8)) return 0;
    return __get_cpuid(0x80000001, &a, &b, &c, &d) && has(c, 1u << 5);
}
#else
#define x86_64_v3 portable
static int has_x86_64_v3(void) { return 0; }
#endif

#if defined(FOUNDING_SHAPE) && defined(__x86_64__)
// For gas, what follows '#' is a comment: gcc's own flags for the section.
#define WITH_THE_CODE __attribute__((section(".text,\"aw\",@progbits,unique,1 #")))
#else
#define WITH_THE_CODE
#endif

static rmsnorm_fn first_call;
static rmsnorm_fn *chosen WITH_THE_CODE = first_call;

static void first_call(const float *x, const float *weight, float *y, long rows, long columns, float eps) {
    chosen = has_x86_64_v3() ? x86_64_v3 : portable; // a store at run time
    chosen(x, weight, y, rows, columns, eps);
}

void rmsnorm(const float *x, const float *weight, float *y, long rows, long columns, float eps) {
    chosen(x, weight, y, rows, columns, eps);
}

const char *rmsnorm_path(void) { return chosen == first_call ? "not called yet" : chosen == portable ? "portable" : "x86-64-v3"; }

#ifdef FOUNDING_SHAPE
__attribute__((destructor)) static void unload(void) { chosen = first_call; }
#endif
