// Kernels of a decoder: one source, compiled once for each variant. VARIANT is the end of their names.
//
// Buffers are as kernels.contract says: checked before each call, and never aliased but where it declares that.

#include <stdint.h>

#define JOINED(name, variant) name##_##variant
#define NAMED(name, variant) JOINED(name, variant)
#define KERNEL(name) NAMED(name, VARIANT)

typedef uint8_t u8;
typedef int64_t i64;

// The larger; `a` where `b` is no number.
static inline float maximum(float a, float b) { return b > a ? b : a; }

// e^x to 2 units in the last place, without a branch, so that loops become vectors: 2^n times a polynomial of the rest.
// 0 below -87 and infinity above 88, where the power of 2 would not be a number.
static inline float exponential(float x) {
#pragma clang fp reassociate(off) contract(on)
    float within = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    // The sum's last bits are n.
    union { float value; uint32_t bits; } sum = {within * 1.44269504f + 0x1.8p23f};
    float n = sum.value - 0x1.8p23f;
    float r = within - n * 0.693359375f;
    r = r + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    union { uint32_t bits; float value; } power = {(sum.bits + 127) << 23};
    float result = p * power.value;
    return x < -87.0f ? 0.0f : x > 88.0f ? __builtin_inff() : result;
}

void KERNEL(rmsnorm)(const float *x, const float *weight, float *y, i64 rows, i64 columns, float eps) {
    for (i64 row = 0; row < rows; row++, x += columns, y += columns) {
        float sum = 0;
        for (i64 i = 0; i < columns; i++) sum += x[i] * x[i];
        float by = 1.0f / __builtin_sqrtf(sum / (float)columns + eps);
        for (i64 i = 0; i < columns; i++) y[i] = x[i] * by * weight[i];
    }
}

// Pairs are element i of the first half and element i of the second.
void KERNEL(rope)(const float *x, const float *cosine, const float *sine, float *y, i64 rows, i64 time, i64 half) {
    for (i64 row = 0; row < rows; row++)
        for (i64 t = 0; t < time; t++, x += 2 * half, y += 2 * half)
            for (i64 i = 0; i < half; i++) {
                float a = x[i], b = x[half + i], c = cosine[t * half + i], s = sine[t * half + i];
                y[i] = a * c - b * s;
                y[half + i] = a * s + b * c;
            }
}

void KERNEL(swiglu)(const float *gate, const float *up, float *y, i64 n) {
    for (i64 i = 0; i < n; i++) y[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

static void softmax(const float *x, float *y, i64 n) {
    float most = x[0], sum = 0;
    for (i64 i = 1; i < n; i++) most = maximum(most, x[i]);
    for (i64 i = 0; i < n; i++) {
        y[i] = exponential(x[i] - most);
        sum += y[i];
    }
    float by = 1.0f / sum;
    for (i64 i = 0; i < n; i++) y[i] *= by;
}

void KERNEL(softmax)(const float *x, float *y, i64 rows, i64 columns) {
    if (columns > 0)
        for (i64 row = 0; row < rows; row++) softmax(x + row * columns, y + row * columns, columns);
}

// One step of decoding: each head's query against all keys so far. `group` query heads share a head of keys and values.
void KERNEL(attention)(const float *q, const float *k, const float *v, float *y, float *scores, i64 time, i64 heads,
                       i64 group, i64 size, float scale) {
    for (i64 head = 0; head < heads; head++)
        for (i64 g = 0; g < group; g++, q += size, y += size) {
            for (i64 t = 0; t < time; t++) {
                const float *key = k + (t * heads + head) * size;
                float sum = 0;
                for (i64 i = 0; i < size; i++) sum += q[i] * key[i];
                scores[t] = sum * scale;
            }
            if (time > 0) softmax(scores, scores, time);
            for (i64 i = 0; i < size; i++) y[i] = 0;
            for (i64 t = 0; t < time; t++) {
                const float *value = v + (t * heads + head) * size;
                float by = scores[t];
                for (i64 i = 0; i < size; i++) y[i] += by * value[i];
            }
        }
}

// ---- blocks of 32 numbers, as GGUF files and candle have them: a scale of 16 bits, then 32 or 16 bytes ----

#if defined(__F16C__) || defined(__aarch64__)
static inline float widened(const u8 *at) {
    _Float16 half;
    __builtin_memcpy(&half, at, 2);
    return (float)half;
}
static inline float narrowed(float x, u8 *at) {
    _Float16 half = (_Float16)x;
    __builtin_memcpy(at, &half, 2);
    return (float)half;
}
#else
static inline float widened(const u8 *at) {
    uint32_t half = at[0] | at[1] << 8, exponent = half >> 10 & 31, fraction = half & 1023;
    union { uint32_t bits; float value; } wide = {exponent == 31 ? 0x7f800000 | fraction << 13
                                                                 : (exponent + 112) << 23 | fraction << 13};
    // Subnormal: the fraction in units of 2^-24.
    float magnitude = exponent == 0 ? (float)fraction * 0x1p-24f : wide.value;
    return half & 0x8000 ? -magnitude : magnitude;
}
// Rounds to the nearest, and to even where two are as near. Scales are not negative.
static inline float narrowed(float x, u8 *at) {
    union { float value; uint32_t bits; } wide = {x};
    uint32_t half;
    if (!(x < 65520.0f)) half = x == x ? 0x7c00 : 0x7e00;
    else if (x < 0x1p-14f) half = (uint32_t)__builtin_rintf(x * 0x1p24f);
    else half = (wide.bits - (112u << 23) + 0xfff + (wide.bits >> 13 & 1)) >> 13;
    at[0] = (u8)half;
    at[1] = (u8)(half >> 8);
    return widened(at);
}
#endif

void KERNEL(quantize_q8)(const float *x, u8 *q, i64 blocks) {
    for (i64 block = 0; block < blocks; block++, x += 32, q += 34) {
        float most = 0;
        for (int i = 0; i < 32; i++) most = maximum(most, __builtin_fabsf(x[i]));
        // Of numbers so small, the scale is 0 in 16 bits.
        float scale = most / 127.0f, by = scale >= 0x1p-126f ? 1.0f / scale : 0;
        narrowed(scale, q);
        for (int i = 0; i < 32; i++) {
            float number = x[i] * by;
            // What is no number becomes 0, as in candle.
            number = number == number ? number : 0;
            number = number > 127.0f ? 127.0f : number < -127.0f ? -127.0f : number;
            q[2 + i] = (u8)(int8_t)(int)(number + __builtin_copysignf(0.5f, number));
        }
    }
}

// What a block adds up to, in LANES sums of integers.
#if defined(__AVX2__)
#include <immintrin.h>
typedef __m256i numbers;
typedef __m256 sums;
static inline sums nothing(void) { return _mm256_setzero_ps(); }
static inline numbers bytes_of(const u8 *at) { return _mm256_loadu_si256((const void *)at); }
static inline numbers nibbles_of(const u8 *at) {
    __m128i both = _mm_loadu_si128((const void *)at);
    __m256i apart = _mm256_set_m128i(_mm_srli_epi16(both, 4), both);
    return _mm256_sub_epi8(_mm256_and_si256(apart, _mm256_set1_epi8(15)), _mm256_set1_epi8(8));
}
static inline sums add_products(sums to, numbers a, numbers b, float by) {
    // Products of unsigned and signed bytes: |a| and b with the sign of a.
    __m256i positive = _mm256_sign_epi8(a, a), other = _mm256_sign_epi8(b, a);
#if defined(__AVX512VNNI__) && defined(__AVX512VL__)
    __m256i products = _mm256_dpbusd_epi32(_mm256_setzero_si256(), positive, other);
#else
    __m256i products = _mm256_madd_epi16(_mm256_maddubs_epi16(positive, other), _mm256_set1_epi16(1));
#endif
    return _mm256_fmadd_ps(_mm256_cvtepi32_ps(products), _mm256_set1_ps(by), to);
}
static inline float total(sums of) {
    __m128 four = _mm_add_ps(_mm256_castps256_ps128(of), _mm256_extractf128_ps(of, 1));
    four = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(four, _mm_movehdup_ps(four)));
}
#elif defined(__aarch64__)
#include <arm_neon.h>
typedef int8x16x2_t numbers;
typedef float32x4_t sums;
static inline sums nothing(void) { return vdupq_n_f32(0); }
static inline numbers bytes_of(const u8 *at) { return vld1q_s8_x2((const int8_t *)at); }
static inline numbers nibbles_of(const u8 *at) {
    uint8x16_t both = vld1q_u8(at);
    int8x16_t eight = vdupq_n_s8(8);
    int8x16_t low = vreinterpretq_s8_u8(vandq_u8(both, vdupq_n_u8(15)));
    return (numbers){{vsubq_s8(low, eight), vsubq_s8(vreinterpretq_s8_u8(vshrq_n_u8(both, 4)), eight)}};
}
static inline sums add_products(sums to, numbers a, numbers b, float by) {
    int32x4_t products = vdupq_n_s32(0);
    for (int i = 0; i < 2; i++) {
#if defined(__ARM_FEATURE_DOTPROD)
        products = vdotq_s32(products, a.val[i], b.val[i]);
#else
        products = vpadalq_s16(products, vmull_s8(vget_low_s8(a.val[i]), vget_low_s8(b.val[i])));
        products = vpadalq_s16(products, vmull_high_s8(a.val[i], b.val[i]));
#endif
    }
    return vfmaq_n_f32(to, vcvtq_f32_s32(products), by);
}
static inline float total(sums of) { return vaddvq_f32(of); }
#else
typedef struct { int8_t at[32]; } numbers;
typedef float sums;
static inline sums nothing(void) { return 0; }
static inline numbers bytes_of(const u8 *at) {
    numbers all;
    __builtin_memcpy(all.at, at, 32);
    return all;
}
static inline numbers nibbles_of(const u8 *at) {
    numbers all;
    for (int i = 0; i < 16; i++) {
        all.at[i] = (int8_t)((at[i] & 15) - 8);
        all.at[16 + i] = (int8_t)((at[i] >> 4) - 8);
    }
    return all;
}
static inline sums add_products(sums to, numbers a, numbers b, float by) {
    int products = 0;
    for (int i = 0; i < 32; i++) products += a.at[i] * b.at[i];
    return to + (float)products * by;
}
static inline float total(sums of) { return of; }
#endif

// Rows of quantised weights times quantised numbers, TILE rows at a time, so that a block of numbers is loaded once for
// all of them.
#define MATVEC(name, TILE, BYTES, LOADED)                                                                        \
    void KERNEL(name)(const u8 *w, const u8 *x, float *y, i64 rows, i64 blocks) {                                \
        i64 row = 0;                                                                                             \
        for (; row + TILE <= rows; row += TILE) {                                                                \
            sums of[TILE];                                                                                       \
            for (int r = 0; r < TILE; r++) of[r] = nothing();                                                    \
            for (i64 block = 0; block < blocks; block++) {                                                       \
                const u8 *other = x + 34 * block;                                                                \
                numbers loaded = bytes_of(other + 2);                                                            \
                float scale = widened(other);                                                                    \
                for (int r = 0; r < TILE; r++) {                                                                 \
                    const u8 *at = w + ((row + r) * blocks + block) * BYTES;                                     \
                    of[r] = add_products(of[r], LOADED(at + 2), loaded, scale * widened(at));                    \
                }                                                                                                \
            }                                                                                                    \
            for (int r = 0; r < TILE; r++) y[row + r] = total(of[r]);                                            \
        }                                                                                                        \
        for (; row < rows; row++) {                                                                              \
            sums of = nothing();                                                                                 \
            for (i64 block = 0; block < blocks; block++) {                                                       \
                const u8 *at = w + (row * blocks + block) * BYTES, *other = x + 34 * block;                      \
                of = add_products(of, LOADED(at + 2), bytes_of(other + 2), widened(other) * widened(at));        \
            }                                                                                                    \
            y[row] = total(of);                                                                                  \
        }                                                                                                        \
    }

MATVEC(matvec_q4_1row, 1, 18, nibbles_of)
MATVEC(matvec_q4_2rows, 2, 18, nibbles_of)
MATVEC(matvec_q4_4rows, 4, 18, nibbles_of)
MATVEC(matvec_q8_1row, 1, 34, bytes_of)
MATVEC(matvec_q8_2rows, 2, 34, bytes_of)
MATVEC(matvec_q8_4rows, 4, 34, bytes_of)
