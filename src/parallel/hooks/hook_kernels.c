/* The loops of communication hooks. Every operation rounds by itself, so that each level gives the same bits. */
#include "parallel/hooks/comm_hook.h"

#include "base/dtype.h"

#include <string.h>

/* ---- 16 bits ---- */

#define HALF_LOOPS(type)                                                                                        \
    static void type##_narrow_f32(uint16_t *restrict out, const float *restrict in, size_t n, float divisor) {  \
        for (size_t i = 0; i < n; i++)                                                                          \
            out[i] = tt__##type##_of_float(tt__float_of_##type(tt__##type##_of_float(in[i])) / divisor);        \
    }                                                                                                           \
    static void type##_narrow_f64(uint16_t *restrict out, const double *restrict in, size_t n, float divisor) { \
        for (size_t i = 0; i < n; i++)                                                                          \
            out[i] = tt__##type##_of_float(tt__float_of_##type(tt__##type##_of_float((float)in[i])) / divisor); \
    }                                                                                                           \
    static void type##_divide(uint16_t *x, size_t n, float divisor) {                                           \
        for (size_t i = 0; i < n; i++)                                                                          \
            x[i] = tt__##type##_of_float(tt__float_of_##type(x[i]) / divisor);                                  \
    }                                                                                                           \
    static void type##_widen_f32(float *restrict out, const uint16_t *restrict in, size_t n) {                  \
        for (size_t i = 0; i < n; i++)                                                                          \
            out[i] = tt__float_of_##type(in[i]);                                                                \
    }                                                                                                           \
    static void type##_widen_f64(double *restrict out, const uint16_t *restrict in, size_t n) {                 \
        for (size_t i = 0; i < n; i++)                                                                          \
            out[i] = (double)tt__float_of_##type(in[i]);                                                        \
    }
HALF_LOOPS(f16)
HALF_LOOPS(bf16)
#define HALF_KERNELS(type) \
    { type##_narrow_f32, type##_narrow_f64, type##_divide, type##_widen_f32, type##_widen_f64 }

/* ---- f32 ---- */

static void hook_add(float *restrict x, const float *restrict y, size_t n) {
    for (size_t i = 0; i < n; i++)
        x[i] += y[i];
}

static void hook_divide(float *x, size_t n, float divisor) {
    for (size_t i = 0; i < n; i++)
        x[i] /= divisor;
}

/* Magnitudes are ordered as their bits are. */
static uint32_t hook_largest(const float *x, size_t n) {
    uint32_t most = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t bits = tt__bits_of_float(x[i]) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

/* Adding 1.5 * 2^23 leaves no digits behind the point, so the addition rounds. */
static inline float to_whole(float x) { return (x + 0x1.8p23f) - 0x1.8p23f; }

static void hook_quantise(int8_t *restrict q, float *restrict error, const float *restrict x, size_t n, float scale) {
    const float inverse = 1 / scale;
    if (!error) {
        for (size_t i = 0; i < n; i++)
            q[i] = (int8_t)(int32_t)to_whole(x[i] * inverse);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        float whole = to_whole(x[i] * inverse);
        q[i] = (int8_t)(int32_t)whole;
        error[i] = x[i] - whole * scale;
    }
}

static void hook_add_scaled(float *restrict sum, const int8_t *restrict q, size_t n, float scale) {
    for (size_t i = 0; i < n; i++)
        sum[i] += scale * (float)q[i];
}

static void hook_scale(float *restrict out, const int8_t *restrict q, size_t n, float scale) {
    for (size_t i = 0; i < n; i++)
        out[i] = scale * (float)q[i];
}

enum { STRIP = 256 };

/* A strip of one row: sum over k of p_k q_k, in the order of k. */
static void low_rank_strip(float *restrict sum, const float *restrict p, size_t rows, const float *restrict q,
                           size_t columns, size_t rank, size_t n) {
    memset(sum, 0, STRIP * sizeof *sum);
    for (size_t k = 0; k < rank; k++) {
        const float factor = p[k * rows];
        const float *restrict row = q + k * columns;
        for (size_t j = 0; j < n; j++)
            sum[j] += factor * row[j];
    }
}

static void hook_low_rank(float *restrict m, float *restrict error, const float *p, const float *q, size_t rows,
                          size_t columns, size_t rank) {
    float sum[STRIP];
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < columns; j += STRIP) {
            size_t n = columns - j < STRIP ? columns - j : STRIP, at = i * columns + j;
            low_rank_strip(sum, p + i, rows, q + j, columns, rank, n);
            if (error)
                for (size_t t = 0; t < n; t++)
                    error[at + t] = m[at + t] - sum[t];
            memcpy(m + at, sum, n * sizeof *sum);
        }
}

const tt__hook_kernels TT__LEVEL_NAME(tt__hook_kernels) = {.f16 = HALF_KERNELS(f16),
                                                           .bf16 = HALF_KERNELS(bf16),
                                                           .add = hook_add,
                                                           .divide = hook_divide,
                                                           .largest = hook_largest,
                                                           .quantise = hook_quantise,
                                                           .add_scaled = hook_add_scaled,
                                                           .scale = hook_scale,
                                                           .low_rank = hook_low_rank};
