/* f32 loops over contiguous arrays, one table per instruction-set level (base/cpu.h). The bits are the same at every
 * level: each result is one expression, and sums go through a fixed number of partial sums, in a fixed order. */
#ifndef TT_TENSOR_CPU_LEVELS_H
#define TT_TENSOR_CPU_LEVELS_H

#include "base/cpu.h"
#include "tensor/kernels_pointwise.h"

#include <stdint.h>

/* Element by element. y may be x. */
typedef struct tt__elementwise_kernels {
    /* y = a + b, a - b, a * b. Steps of a and b (0: one value for all, 1, or any); y is contiguous. */
    void (*add)(int64_t n, const float *a, int64_t a_step, const float *b, int64_t b_step, float *y);
    void (*sub)(int64_t n, const float *a, int64_t a_step, const float *b, int64_t b_step, float *y);
    void (*mul)(int64_t n, const float *a, int64_t a_step, const float *b, int64_t b_step, float *y);
    /* y = x * factor. */
    void (*scale)(int64_t n, const float *x, float factor, float *y);
    /* y = x < 0 ? 0 : x; dx = y <= 0 ? 0 : g (y is the forward's result). */
    void (*relu)(int64_t n, const float *x, float *y);
    void (*relu_backward)(int64_t n, const float *y, const float *g, float *dx);
    /* dx = (a - b) * factor. */
    void (*diff)(int64_t n, const float *a, const float *b, float factor, float *dx);
} tt__elementwise_kernels;

/* The formulas of pointwise_formulas.h in f32. NULL: those that are computed in double. y may be x. */
typedef struct tt__pointwise_kernels {
    void (*unary[TT__UNARY_OPS])(int64_t n, const float *x, float a, float b, float *y);
    void (*unary_backward[TT__UNARY_OPS])(int64_t n, const float *v, const float *g, float a, float b, float *dx);
    /* Steps of x, z and g (0: one value for all, 1, or any); y and d are contiguous. */
    void (*binary[TT__BINARY_OPS])(int64_t n, const float *x, int64_t x_step, const float *z, int64_t z_step, float a,
                                   float *y);
    void (*binary_backward[2][TT__BINARY_OPS])(int64_t n, const float *x, int64_t x_step, const float *z,
                                               int64_t z_step, const float *g, int64_t g_step, float a, float *d);
    /* y[i] = x[i] * scale where dropout keeps element i, else 0, for i in begin..end-1; begin is a multiple of 4. */
    void (*dropout)(int64_t begin, int64_t end, const float *x, uint64_t key, uint32_t limit, float scale, float *y);
} tt__pointwise_kernels;

/* Sums, in double. */
typedef struct tt__reduce_kernels {
    double (*sum)(int64_t n, const float *x);
    double (*sum_square_diff)(int64_t n, const float *a, const float *b);
    /* y[c] = factor * sum over r of x[r * stride + c], rounded once, for c below cols. */
    void (*sum_rows)(int64_t rows, int64_t cols, int64_t stride, const float *x, double factor, float *y);
} tt__reduce_kernels;

/* The largest of x, and the sum of exp(x - max). log sum exp x = max + log sum is never made one number: where max is
 * large, f32 has no digits left for the rest. */
typedef struct tt__sum_exp {
    float max, sum;
} tt__sum_exp;

/* Softmax of one row x[0..n), n >= 1. */
typedef struct tt__softmax_kernels {
    tt__sum_exp (*sum_exp)(int64_t n, const float *x);
    /* y = x - max - log_sum. */
    void (*shift)(int64_t n, const float *x, float max, float log_sum, float *y);
    /* dx = exp(x - max) / sum * factor. */
    void (*exp_scale)(int64_t n, const float *x, tt__sum_exp s, float factor, float *dx);
    /* dx = y * (g - sum of g * y). */
    void (*softmax_backward)(int64_t n, const float *y, const float *g, float *dx);
    /* dx = g - exp(y) * g_sum. */
    void (*log_softmax_backward)(int64_t n, const float *y, const float *g, float g_sum, float *dx);
} tt__softmax_kernels;

TT__LEVEL_DECLARE(tt__elementwise_kernels, tt__elementwise_kernels);
TT__LEVEL_DECLARE(tt__pointwise_kernels, tt__pointwise_kernels);
TT__LEVEL_DECLARE(tt__reduce_kernels, tt__reduce_kernels);
TT__LEVEL_DECLARE(tt__softmax_kernels, tt__softmax_kernels);

static inline const tt__elementwise_kernels *tt__elementwise(void) { return TT__LEVEL_CHOOSE(tt__elementwise_kernels); }
static inline const tt__pointwise_kernels *tt__pointwise(void) { return TT__LEVEL_CHOOSE(tt__pointwise_kernels); }
static inline const tt__reduce_kernels *tt__reduce(void) { return TT__LEVEL_CHOOSE(tt__reduce_kernels); }
static inline const tt__softmax_kernels *tt__softmax(void) { return TT__LEVEL_CHOOSE(tt__softmax_kernels); }

#endif
