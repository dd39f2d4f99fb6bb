/* Softmax of one row of f32, and its gradient. */
#include "tensor/cpu/levels.h"
#include "tensor/cpu/math_f32.h"

enum { LANES = 16 };

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

static void loop_softmax_backward(int64_t n, const float *y, const float *g, float *dx) {
    float part[LANES] = {0};
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES)
        for (int k = 0; k < LANES; k++)
            part[k] += y[i + k] * g[i + k];
    for (int k = 0; i < n; i++, k++)
        part[k] += y[i] * g[i];
    for (int width = LANES / 2; width > 0; width /= 2)
        for (int k = 0; k < width; k++)
            part[k] += part[k + width];
    for (i = 0; i < n; i++)
        dx[i] = y[i] * (g[i] - part[0]);
}

const tt__softmax_kernels TT__LEVEL_NAME(tt__softmax_kernels) = {
    .sum_exp = loop_sum_exp,
    .shift = loop_shift,
    .exp_scale = loop_exp_scale,
    .softmax_backward = loop_softmax_backward,
    .log_softmax_backward = loop_log_softmax_backward,
};
