#include "tensor/cpu/levels.h"

#include <math.h>
#include <string.h>

enum { LANES = 16 };

/* e^x for x up to 88, 0 below -87.3; NaN stays. x = n ln 2 + r, |r| <= ln 2 / 2; e^r by Cephes' polynomial; error below
 * 2 ulp. Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits of the sum. */
static inline float exp_f32(float x) {
    const float round = 12582912.0f;
    float v = x < -87.3f ? -87.3f : x;
    float t = fmaf(v, 1.44269504f, round);
    uint32_t bits;
    memcpy(&bits, &t, sizeof bits);
    float n = t - round;
    float r = fmaf(n, 2.12194440e-4f, fmaf(n, -0.693359375f, v));
    float p = fmaf(1.9875691500e-4f, r, 1.3981999507e-3f);
    p = fmaf(p, r, 8.3334519073e-3f);
    p = fmaf(p, r, 4.1665795894e-2f);
    p = fmaf(p, r, 1.6666665459e-1f);
    p = fmaf(p, r, 5.0000001201e-1f);
    p = fmaf(p * r, r, r) + 1.0f;
    bits = (bits + 127u - 0x4B400000u) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return x < -87.3f ? 0.0f : p * power;
}

static inline float larger(float a, float b) { return a > b ? a : b; }

static float row_max(int64_t n, const float *x) {
    float part[LANES];
    for (int k = 0; k < LANES; k++)
        part[k] = x[0];
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            part[k] = larger(x[i + k], part[k]);
    for (; i < n; i++)
        part[0] = larger(x[i], part[0]);
    for (int k = 1; k < LANES; k++)
        part[0] = larger(part[k], part[0]);
    return part[0];
}

/* A NaN among x may escape the maximum, never the sum. */
static tt__sum_exp loop_sum_exp(int64_t n, const float *x) {
    float max = row_max(n, x), part[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            part[k] += exp_f32(x[i + k] - max);
    for (int k = 0; i < n; i++, k++)
        part[k] += exp_f32(x[i] - max);
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int k = 0; k < width; k++)
            part[k] += part[k + width];
    return (tt__sum_exp){.max = max, .sum = part[0]};
}

static void loop_shift(int64_t n, const float *x, float max, float log_sum, float *y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] - max - log_sum;
}

static void loop_exp_scale(int64_t n, const float *x, tt__sum_exp s, float factor, float *dx) {
    for (int64_t i = 0; i < n; i++)
        dx[i] = exp_f32(x[i] - s.max) / s.sum * factor;
}

static void loop_log_softmax_backward(int64_t n, const float *y, const float *g, float g_sum, float *dx) {
    for (int64_t i = 0; i < n; i++)
        dx[i] = g[i] - exp_f32(y[i]) * g_sum;
}

const tt__softmax_kernels TT__LEVEL_NAME(tt__softmax_kernels) = {
    .sum_exp = loop_sum_exp,
    .shift = loop_shift,
    .exp_scale = loop_exp_scale,
    .log_softmax_backward = loop_log_softmax_backward,
};
