#include "tensor/cpu/levels.h"

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
