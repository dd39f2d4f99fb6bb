/* Functions in f32 without branches, so that loops over them become vector code; the same bits at every level. */
#ifndef TT_TENSOR_CPU_MATH_F32_H
#define TT_TENSOR_CPU_MATH_F32_H

#include "base/dtype.h"

#include <math.h>
#include <stdint.h>

/* e^x = 2^n e^r: x = n ln 2 + r, |r| <= ln 2 / 2. Return e^r, by Cephes' polynomial, and n. Adding 1.5 * 2^23 rounds to
 * an integer and leaves it in the low bits of the sum. */
static inline float exp_parts(float x, uint32_t *n) {
    const float round = 12582912.0f;
    float t = fmaf(x, 1.44269504f, round);
    float whole = t - round;
    float r = fmaf(whole, 2.12194440e-4f, fmaf(whole, -0.693359375f, x));
    float p = fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    *n = tt__bits_of_float(t) - 0x4B400000u;
    return fmaf(p * r, r, r) + 1.0f;
}

/* e^x for x up to 88, 0 below -87.3; NaN stays. Error below 2 ulp. */
static inline float exp_f32(float x) {
    uint32_t n;
    float p = exp_parts(x < -87.3f ? -87.3f : x, &n);
    return x < -87.3f ? 0.0f : p * tt__float_of_bits((n + 127u) << 23);
}

/* e^x for any x, down to the smallest numbers: 2^n in two factors. */
static inline float exp_any_f32(float x) {
    float v = x < -105.0f ? -105.0f : x;
    v = v > 90.0f ? 90.0f : v;
    uint32_t n;
    float p = exp_parts(v, &n);
    uint32_t half = (uint32_t)((int32_t)n >> 1);
    return p * tt__float_of_bits((half + 127u) << 23) * tt__float_of_bits((n - half + 127u) << 23);
}

/* Natural logarithm, by Cephes' polynomial on sqrt(1/2) .. sqrt(2); -inf for 0, NaN below. Error below 2 ulp. */
static inline float log_f32(float x) {
    float tiny = x < 1.17549435e-38f ? 8388608.0f : 1.0f; /* numbers below the normal ones are moved up by 2^23 */
    uint32_t bits = tt__bits_of_float(x * tiny);
    uint32_t e = (bits - 0x3F3504F3u) >> 23 << 23; /* of sqrt(1/2), so that what remains is around 1 */
    float n = (float)((int32_t)e >> 23) - (tiny > 1.0f ? 23.0f : 0.0f);
    float m = tt__float_of_bits(bits - e) - 1.0f, z = m * m;
    float p = fmaf(7.0376836292e-2f, m, -1.1514610310e-1f);
    p = fmaf(p, m, 1.1676998740e-1f);
    p = fmaf(p, m, -1.2420140846e-1f);
    p = fmaf(p, m, 1.4249322787e-1f);
    p = fmaf(p, m, -1.6668057665e-1f);
    p = fmaf(p, m, 2.0000714765e-1f);
    p = fmaf(p, m, -2.4999993993e-1f);
    p = fmaf(p, m, 3.3333331174e-1f);
    float low = fmaf(n, -2.12194440e-4f, fmaf(-0.5f, z, p * m * z));
    float y = fmaf(n, 0.693359375f, m + low);
    y = x == 0.0f ? -INFINITY : y;
    y = x < 0.0f ? NAN : y;
    return x < INFINITY ? y : x; /* infinity and NaN stay */
}

/* Cephes' polynomial near 0; elsewhere 1 - 2 / (e^(2|x|) + 1). Error below 2 ulp. */
static inline float tanh_f32(float x) {
    float t = fabsf(x), z = x * x;
    float p = fmaf(-5.70498872745e-3f, z, 2.06390887954e-2f);
    p = fmaf(p, z, -5.37397155531e-2f);
    p = fmaf(p, z, 1.33314422036e-1f);
    p = fmaf(p, z, -3.33332819422e-1f);
    float near = fmaf(p * z, x, x);
    float far = copysignf(1.0f - 2.0f / (exp_any_f32(2.0f * t) + 1.0f), x);
    return t < 0.625f ? near : (x != x ? x : far);
}

/* A gate at x: sigmoid(x) and 1 - sigmoid(x), both without cancellation. */
typedef struct gate_f32 {
    float open, shut;
} gate_f32;

static inline gate_f32 gate_at_f32(float x) {
    float e = exp_f32(-fabsf(x)), large = 1.0f / (1.0f + e), small = e * large;
    return x < 0 ? (gate_f32){small, large} : (gate_f32){large, small};
}

/* The normal distribution below x, and its density there: one exponential for both. The part beyond t = |x| is
 * e^(-t^2/2) k P(k) with k = 1 / (1 + t/4), a minimax polynomial of the relative error up to t = 13. Near 0 k P(k)
 * changes by some 2.5 times as much as k, so the rounding error of k is corrected. */
typedef struct normal_f32 {
    float below, density;
} normal_f32;

static inline normal_f32 normal_at_f32(float x) {
    float t = fabsf(x) > 14.0f ? 14.0f : fabsf(x); /* beyond it all is 0 */
    float e = exp_f32(-0.5f * t * t), k = 1.0f / fmaf(0.25f, t, 1.0f);
    float p = fmaf(1.382826176e-2f, k, -4.756191373e-2f);
    p = fmaf(p, k, 1.510581747e-2f);
    p = fmaf(p, k, 7.823505253e-2f);
    p = fmaf(p, k, -2.966941893e-2f);
    p = fmaf(p, k, 1.099732444e-1f);
    p = fmaf(p, k, 6.372133642e-2f);
    p = fmaf(p, k, 9.734205157e-2f);
    p = fmaf(p, k, 9.926556051e-2f);
    p = fmaf(p, k, 9.976001084e-2f) * k;
    float lost = fmaf(-0.25f * k, t, 1.0f - k);
    float beyond = fmaf(p, 2.5f * lost, p) * e;
    return (normal_f32){x < 0 ? beyond : 1.0f - beyond, 0.398942280f * e};
}

static inline float gelu_f32(float x) { return x * normal_at_f32(x).below; }

static inline float gelu_slope_f32(float x) {
    normal_f32 at = normal_at_f32(x);
    return fmaf(x, at.density, at.below);
}

/* 2 sqrt(2 / pi) (x + 0.044715 x^3), twice what tanh is taken of: (1 + tanh u) / 2 = sigmoid(2u). */
static inline float gelu_tanh_f32(float x) {
    return x * gate_at_f32(1.595769122f * x * fmaf(0.044715f * x, x, 1.0f)).open;
}

static inline float gelu_tanh_slope_f32(float x) {
    gate_f32 gate = gate_at_f32(1.595769122f * x * fmaf(0.044715f * x, x, 1.0f));
    return gate.open * fmaf(x * gate.shut, 1.595769122f * fmaf(0.134145f * x, x, 1.0f), 1.0f);
}

static inline float silu_slope_f32(float x) {
    gate_f32 gate = gate_at_f32(x);
    return gate.open * fmaf(x, gate.shut, 1.0f);
}

#endif
