// Vector registers, and constants that are loaded into them (page-relative, 128 bits wide).
//# arch: aarch64 (its twin is simd.c)
//# call: dot() = 1240
//# call: blend() = 36
#include <arm_neon.h>
static float a[16] __attribute__((aligned(16))), b[16] __attribute__((aligned(16)));
int dot(void) {
    for (int i = 0; i < 16; i++) a[i] = b[i] = (float)i;
    float32x4_t s = vdupq_n_f32(0);
    for (int i = 0; i < 16; i += 4) s = vfmaq_f32(s, vld1q_f32(a + i), vld1q_f32(b + i));
    return (int)vaddvq_f32(s);
}
static const uint8_t reversed[16] = {15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
int blend(void) {
    uint8_t from[16];
    for (int i = 0; i < 16; i++) from[i] = i < 8 ? 0 : i - 7;
    uint8x16_t r = vqtbl1q_u8(vld1q_u8(from), vld1q_u8(reversed));
    return vgetq_lane_u8(r, 0) == 8 ? vaddvq_u8(r) : -1;
}
