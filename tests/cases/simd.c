//# arch: x86_64 (its twin is simd_aarch64.c)
//# compile: -mavx2 -mfma
//# needs: avx2 fma
//# call: dot() = 1240
//# call: blend() = 36
#include <immintrin.h>
static float a[16] __attribute__((aligned(32))), b[16] __attribute__((aligned(32)));
int dot(void) {
    for (int i = 0; i < 16; i++) a[i] = b[i] = (float)i;
    __m256 s = _mm256_setzero_ps();
    for (int i = 0; i < 16; i += 8) s = _mm256_fmadd_ps(_mm256_load_ps(a + i), _mm256_load_ps(b + i), s);
    float r[8], t = 0;
    _mm256_storeu_ps(r, s);
    for (int i = 0; i < 8; i++) t += r[i];
    return (int)t;
}
int blend(void) {
    __m256i v = _mm256_setr_epi32(1, 2, 3, 4, 5, 6, 7, 8);
    __m256i p = _mm256_permutevar8x32_epi32(v, _mm256_setr_epi32(7, 6, 5, 4, 3, 2, 1, 0));
    int r[8], t = 0;
    _mm256_storeu_si256((__m256i *)r, p);
    for (int i = 0; i < 8; i++) t += r[i];
    return r[0] == 8 ? t : -1;
}
