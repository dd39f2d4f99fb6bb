/* Loops over f32, element by element: arithmetic, the formulas of pointwise_formulas.h, dropout, conversion from and to
 * 16-bit floats. */
#include "base/dtype.h"
#include "tensor/cpu/half/wide.h"
#include "tensor/cpu/levels.h"
#include "tensor/cpu/math_f32.h"
#include "tensor/cpu/philox_words.h"

/* Steps that vectorise are written out; the last case takes any. */
#define BINARY(name, op)                                                                                           \
    static void loop_##name(int64_t n, const float *a, int64_t a_step, const float *b, int64_t b_step, float *y) { \
        if (a_step == 1 && b_step == 1) {                                                                          \
            for (int64_t i = 0; i < n; i++)                                                                        \
                y[i] = a[i] op b[i];                                                                               \
        } else if (a_step == 1 && b_step == 0) {                                                                   \
            float v = *b;                                                                                          \
            for (int64_t i = 0; i < n; i++)                                                                        \
                y[i] = a[i] op v;                                                                                  \
        } else if (a_step == 0 && b_step == 1) {                                                                   \
            float v = *a;                                                                                          \
            for (int64_t i = 0; i < n; i++)                                                                        \
                y[i] = v op b[i];                                                                                  \
        } else {                                                                                                   \
            for (int64_t i = 0; i < n; i++)                                                                        \
                y[i] = a[i * a_step] op b[i * b_step];                                                             \
        }                                                                                                          \
    }

BINARY(add, +)
BINARY(sub, -)
BINARY(mul, *)

static void loop_scale(int64_t n, const float *x, float factor, float *y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] * factor;
}

static void loop_relu(int64_t n, const float *x, float *y) {
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] < 0 ? 0 : x[i];
}

static void loop_relu_backward(int64_t n, const float *y, const float *g, float *dx) {
    for (int64_t i = 0; i < n; i++) {
        float v = g[i];
        dx[i] = y[i] <= 0 ? 0 : v;
    }
}

static void loop_diff(int64_t n, const float *a, const float *b, float factor, float *dx) {
    for (int64_t i = 0; i < n; i++)
        dx[i] = (a[i] - b[i]) * factor;
}

const tt__elementwise_kernels TT__LEVEL_NAME(tt__elementwise_kernels) = {
    .add = loop_add,
    .sub = loop_sub,
    .mul = loop_mul,
    .scale = loop_scale,
    .relu = loop_relu,
    .relu_backward = loop_relu_backward,
    .diff = loop_diff,
};

/* ---- formulas and dropout */

#define K(c) c##f
#define SELECT(condition, p, q) ((condition) ? (p) : (q))
#define EXP exp_any_f32
#define LOG log_f32
#define SQRT sqrtf
#define ABS fabsf
#define TANH tanh_f32
#define SILU_SLOPE silu_slope_f32
#define GELU gelu_f32
#define GELU_SLOPE gelu_slope_f32
#define GELU_TANH gelu_tanh_f32
#define GELU_TANH_SLOPE gelu_tanh_slope_f32
#include "tensor/ops/pointwise_parts.h"

#define UNARY_LOOPS(name, saves, forward, backward)                                                          \
    static void loop_##name(int64_t n, const float *from, float a, float b, float *to) {                     \
        (void)a, (void)b;                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                    \
            float x = from[i];                                                                               \
            to[i] = forward;                                                                                 \
        }                                                                                                    \
    }                                                                                                        \
    static void back_##name(int64_t n, const float *saved, const float *grad, float a, float b, float *to) { \
        (void)a, (void)b;                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                                    \
            float v = saved[i], g = grad[i];                                                                 \
            (void)v;                                                                                         \
            to[i] = backward;                                                                                \
        }                                                                                                    \
    }
TT__UNARY_FORMULAS(UNARY_LOOPS)

/* Steps that vectorise are written out; the last case takes any. */
#define BINARY_LOOP(name, formula)                                                                         \
    static void name(int64_t n, const float *xs, int64_t x_step, const float *zs, int64_t z_step, float a, \
                     float *to) {                                                                          \
        (void)a;                                                                                           \
        if (x_step == 1 && z_step == 1) {                                                                  \
            for (int64_t i = 0; i < n; i++) {                                                              \
                float x = xs[i], z = zs[i];                                                                \
                to[i] = formula;                                                                           \
            }                                                                                              \
        } else if (x_step == 1 && z_step == 0) {                                                           \
            float z = *zs;                                                                                 \
            for (int64_t i = 0; i < n; i++) {                                                              \
                float x = xs[i];                                                                           \
                to[i] = formula;                                                                           \
            }                                                                                              \
        } else {                                                                                           \
            for (int64_t i = 0; i < n; i++) {                                                              \
                float x = xs[i * x_step], z = zs[i * z_step];                                              \
                to[i] = formula;                                                                           \
            }                                                                                              \
        }                                                                                                  \
    }

#define BACK_LOOP(name, formula)                                                                                   \
    static void name(int64_t n, const float *xs, int64_t x_step, const float *zs, int64_t z_step, const float *gs, \
                     int64_t g_step, float a, float *to) {                                                         \
        (void)a;                                                                                                   \
        if (x_step == 1 && z_step == 1 && g_step == 1) {                                                           \
            for (int64_t i = 0; i < n; i++) {                                                                      \
                float x = xs[i], z = zs[i], g = gs[i];                                                             \
                (void)x, (void)z;                                                                                  \
                to[i] = formula;                                                                                   \
            }                                                                                                      \
        } else {                                                                                                   \
            for (int64_t i = 0; i < n; i++) {                                                                      \
                float x = xs[i * x_step], z = zs[i * z_step], g = gs[i * g_step];                                  \
                (void)x, (void)z;                                                                                  \
                to[i] = formula;                                                                                   \
            }                                                                                                      \
        }                                                                                                          \
    }

#define BINARY_LOOPS(name, forward, dx, dz) \
    BINARY_LOOP(loop_##name, forward)       \
    BACK_LOOP(back_x_##name, dx)            \
    BACK_LOOP(back_z_##name, dz)
TT__BINARY_FORMULAS(BINARY_LOOPS)

/* Compute the words of COUNTERS counters side by side. */
enum { COUNTERS = 64 };

static void random_words(uint64_t key, uint64_t counter, uint32_t *words) {
    for (int k = 0; k < COUNTERS; k += PHILOX_COUNTERS)
        philox_words(key, counter + (uint64_t)k, words + 4 * k);
}

static void loop_dropout(int64_t begin, int64_t end, const float *x, uint64_t key, uint32_t limit, float scale,
                         float *y) {
    uint32_t words[4 * COUNTERS];
    for (int64_t at = begin; at < end; at += 4 * COUNTERS) {
        int64_t n = end - at < 4 * COUNTERS ? end - at : 4 * COUNTERS;
        random_words(key, (uint64_t)at / 4, words);
        for (int64_t i = 0; i < n; i++)
            y[at + i] = words[i] >= limit ? x[at + i] * scale : 0;
    }
}

const tt__pointwise_kernels TT__LEVEL_NAME(tt__pointwise_kernels) = {
#define UNARY_ENTRY(name, saves, forward, backward) \
    .unary[TT__##name] = loop_##name, .unary_backward[TT__##name] = back_##name,
#define BINARY_ENTRY(name, forward, dx, dz)                                             \
    .binary[TT__##name] = loop_##name, .binary_backward[0][TT__##name] = back_x_##name, \
    .binary_backward[1][TT__##name] = back_z_##name,
    .dropout = loop_dropout, TT__UNARY_FORMULAS(UNARY_ENTRY) TT__BINARY_FORMULAS(BINARY_ENTRY)};

/* ---- between f32 and the floats of 16 bits */

#define LOOPS(name)                                                                       \
    static void widen_##name(int64_t n, const uint16_t *restrict x, float *restrict y) {  \
        for (int64_t i = 0; i < n; i++)                                                   \
            y[i] = tt__float_of_##name(x[i]);                                             \
    }                                                                                     \
    static void narrow_##name(int64_t n, const float *restrict x, uint16_t *restrict y) { \
        for (int64_t i = 0; i < n; i++)                                                   \
            y[i] = tt__##name##_of_float(x[i]);                                           \
    }

LOOPS(f16)
LOOPS(bf16)

const tt__half_kernels TT__LEVEL_NAME(tt__half_kernels_of_types) = {
    .f16 = {widen_f16, narrow_f16},
    .bf16 = {widen_bf16, narrow_bf16},
};
