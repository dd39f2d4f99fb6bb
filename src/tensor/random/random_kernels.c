/* mt19937 (Matsumoto and Nishimura, 1998) and the float transforms behind it, as torch computes them on AVX2: every fma
 * is written out, everything else rounds by itself, so that each level gives the same bits. */
#include "tensor/random/generator.h"

#include "base/dtype.h"

#include <math.h>
#include <string.h>

/* ---- mt19937 ---- */

enum { WORDS = 624, SHIFT = 397 };

static inline uint32_t mt_twist(uint32_t a, uint32_t b) {
    uint32_t y = (a & 0x80000000u) | (b & 0x7fffffffu);
    return (y >> 1) ^ (-(b & 1u) & 0x9908b0dfu);
}

static void mt_refill(uint32_t *mt) {
    for (int i = 0; i < WORDS - SHIFT; i++)
        mt[i] = mt[i + SHIFT] ^ mt_twist(mt[i], mt[i + 1]);
    for (int i = WORDS - SHIFT; i < WORDS - 1; i++)
        mt[i] = mt[i + SHIFT - WORDS] ^ mt_twist(mt[i], mt[i + 1]);
    mt[WORDS - 1] = mt[SHIFT - 1] ^ mt_twist(mt[WORDS - 1], mt[0]);
}

static void mt_temper(uint32_t *restrict out, const uint32_t *restrict mt, size_t n) {
    for (size_t i = 0; i < n; i++) {
        uint32_t y = mt[i];
        y ^= y >> 11;
        y ^= (y << 7) & 0x9d2c5680u;
        y ^= (y << 15) & 0xefc60000u;
        out[i] = y ^ (y >> 18);
    }
}

/* ---- uniform ---- */

static void uniform_f32(float *restrict out, const uint32_t *restrict bits, size_t n, float low, float width) {
    for (size_t i = 0; i < n; i++)
        out[i] = fmaf((float)(int32_t)(bits[i] & 0xffffffu) * 0x1p-24f, width, low);
}

static void uniform_f64(double *restrict out, const uint32_t *restrict bits, size_t n, double low, double width) {
    for (size_t i = 0; i < n; i++) {
        uint64_t r = (uint64_t)bits[2 * i] << 32 | bits[2 * i + 1];
        out[i] = fma((double)(int64_t)(r & ((UINT64_C(1) << 53) - 1)) * 0x1p-53, width, low);
    }
}

/* ---- normal ----
 * log, sin and cos in single precision after Cephes (S. Moshier), arranged as in torch's vectorised normal. */

/* x > 0, normal. x = m 2^e with m in [sqrt(1/2), sqrt(2)), and a polynomial in m - 1. */
static inline float cephes_logf(float x) {
    uint32_t bits = tt__bits_of_float(x);
    float m = tt__float_of_bits((bits & 0x007fffffu) | 0x3f000000u);
    float e = (float)((int32_t)(bits >> 23) - 126);
    int low = m < 0.707106781186547524f;
    e = low ? e - 1.0f : e;
    float t = (m - 1.0f) + (low ? m : 0.0f);
    float z = t * t;
    float y = 7.0376836292e-2f;
    y = fmaf(y, t, -1.1514610310e-1f);
    y = fmaf(y, t, 1.1676998740e-1f);
    y = fmaf(y, t, -1.2420140846e-1f);
    y = fmaf(y, t, 1.4249322787e-1f);
    y = fmaf(y, t, -1.6668057665e-1f);
    y = fmaf(y, t, 2.0000714765e-1f);
    y = fmaf(y, t, -2.4999993993e-1f);
    y = fmaf(y, t, 3.3333331174e-1f);
    y = y * t;
    y = fmaf(y, z, e * -2.12194440e-4f);
    y = fmaf(z, -0.5f, y);
    return fmaf(e, 0.693359375f, t + y);
}

/* a >= 0. Reduced to [-pi/4, pi/4] in three steps; j is the octant. */
static inline void cephes_sincosf(float a, float *sine, float *cosine) {
    int32_t j = ((int32_t)(a * 1.27323954473516f) + 1) & ~1;
    float q = (float)j;
    a = fmaf(q, -0.78515625f, a);
    a = fmaf(q, -2.4187564849853515625e-4f, a);
    a = fmaf(q, -3.77489497744594108e-8f, a);
    float z = a * a;
    float c = 2.443315711809948e-5f;
    c = fmaf(c, z, -1.388731625493765e-3f);
    c = fmaf(c, z, 4.166664568298827e-2f);
    c = c * z;
    c = fmaf(c, z, -(z * 0.5f));
    c = c + 1.0f;
    float s = -1.9515295891e-4f;
    s = fmaf(s, z, 8.3321608736e-3f);
    s = fmaf(s, z, -1.6666654611e-1f);
    s = s * z;
    s = fmaf(s, a, a);
    float by_sine = j & 2 ? c : s, by_cosine = j & 2 ? s : c;
    *sine = j & 4 ? -by_sine : by_sine;
    *cosine = (j - 2) & 4 ? by_cosine : -by_cosine;
}

static void normal16_f32(float *d, float mean, float std) {
    float first[8], second[8];
    memcpy(first, d, sizeof first);
    memcpy(second, d + 8, sizeof second);
    for (int j = 0; j < 8; j++) {
        float radius = sqrtf(-2.0f * cephes_logf(1.0f - first[j]));
        float sine, cosine;
        cephes_sincosf(6.28318530717958647692f * second[j], &sine, &cosine);
        first[j] = fmaf(radius * cosine, std, mean);
        second[j] = fmaf(radius * sine, std, mean);
    }
    memcpy(d, first, sizeof first);
    memcpy(d + 8, second, sizeof second);
}

const tt__random_kernels TT__LEVEL_NAME(tt__random_kernels) = {mt_refill, mt_temper, uniform_f32, uniform_f64,
                                                               normal16_f32};
