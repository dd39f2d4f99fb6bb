/* f32 loops over contiguous arrays, one table per instruction-set level (base/machine/cpu.h). The bits are the same at
 * every level: each result is one expression, and sums go through a fixed number of partial sums, in a fixed order. */
#ifndef TT_TENSOR_CPU_LEVELS_H
#define TT_TENSOR_CPU_LEVELS_H

#include "base/machine/cpu.h"
#include "tensor/kernels/kernels_calls.h"

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

/* The largest of x, and the sum of exp(x - max). They are never joined to log sum exp x = max + log sum: next to a
 * large max, f32 has no digits left for the rest. */
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

/* Max pooling of n channels, or windows, at once: y is the largest so far, at its place; NaN counts as largest. */
typedef struct tt__pooling_kernels {
    void (*max_first)(int64_t n, const float *x, int32_t place, float *y, int32_t *at);
    void (*max_next)(int64_t n, const float *x, int32_t place, float *y, int32_t *at);
    /* dx += g where at is this place. */
    void (*max_give)(int64_t n, const int32_t *at, int32_t place, const float *g, float *dx);
    /* n windows of 2 x 2 side by side: a has their upper rows, from `place` on, and b the lower ones, `below` places
     * further on. */
    void (*max_pairs)(int64_t n, const float *a, const float *b, int32_t place, int32_t below, float *y, int32_t *at);
} tt__pooling_kernels;

/* Normalisation of a row x[0..n); `w` and `b` may be NULL (ones, zeros). */
typedef struct tt__norm_kernels {
    /* The sum of (x - mean)^2. */
    double (*deviations)(int64_t n, const float *x, double mean);
    /* y = (x - mean) rstd w + b. */
    void (*apply)(int64_t n, const float *x, float mean, float rstd, const float *w, const float *b, float *y);
    /* h = g w; sums = those of h and of h (x - mean) rstd. */
    void (*weigh)(int64_t n, const float *g, const float *w, const float *x, float mean, float rstd, float *h,
                  double sums[2]);
    /* dx = rstd (dx - shift - (x - mean) rstd slope). */
    void (*give)(int64_t n, const float *x, float mean, float rstd, float shift, float slope, float *dx);
    /* Of rows `stride` apart, for c below cols: db[c] = the sum of g, dw[c] = of g (x - mean) rstd; either may be
     * NULL. */
    void (*give_weights)(int64_t rows, int64_t cols, int64_t stride, const float *g, const float *x, const double *mean,
                         const double *rstd, float *dw, float *db);
} tt__norm_kernels;

/* What batch_norm does to a channel. */
typedef struct tt__channel {
    float mean, scale, shift, slope;
} tt__channel;

/* batch_norm: of the n elements of one channel, or of rows whose columns are channels. */
typedef struct tt__batch_norm_kernels {
    /* sums += those of g and of g (x - mean). */
    void (*dots)(int64_t n, const float *g, const float *x, double mean, double sums[2]);
    /* y = (x - mean) scale + shift; dx = scale (g - shift - (x - mean) slope). */
    void (*affine)(int64_t n, const float *x, const tt__channel *c, float *y);
    void (*give)(int64_t n, const float *g, const float *x, const tt__channel *c, float *dx);
    /* At most 16 columns of rows `stride` apart: the mean of each, and the sum of (x - mean)^2; sums as of `dots`. */
    void (*column_moments)(int64_t rows, int64_t stride, int width, const float *x, double *mean, double *dev);
    void (*column_dots)(int64_t rows, int64_t stride, int width, const float *g, const float *x, const double *mean,
                        double *sum, double *dot);
    /* A row of n columns, as `affine` and `give`. */
    void (*column_affine)(int64_t n, const float *x, const float *mean, const float *scale, const float *shift,
                          float *y);
    void (*column_give)(int64_t n, const float *g, const float *x, const float *mean, const float *scale,
                        const float *shift, const float *slope, float *dx);
} tt__batch_norm_kernels;

/* A row of what a recurrent cell reads and writes: kernels_calls.h. */
typedef struct tt__cell_row {
    const float *x, *bias, *h, *c;
    float *gates, *c_next, *y;
} tt__cell_row;

typedef struct tt__cell_grad_row {
    const float *gates, *y, *h, *c, *c_next, *g;
    float *dx, *dh, *dc, *dhidden;
} tt__cell_grad_row;

/* One sequence of H hidden values; by tt__cell. */
typedef struct tt__rnn_kernels {
    void (*cell[4])(int64_t H, const tt__cell_row *row);
    void (*grad[4])(int64_t H, const tt__cell_grad_row *row);
} tt__rnn_kernels;

TT__LEVEL_DECLARE(tt__batch_norm_kernels, tt__batch_norm_kernels);
TT__LEVEL_DECLARE(tt__elementwise_kernels, tt__elementwise_kernels);
TT__LEVEL_DECLARE(tt__pointwise_kernels, tt__pointwise_kernels);
TT__LEVEL_DECLARE(tt__reduce_kernels, tt__reduce_kernels);
TT__LEVEL_DECLARE(tt__softmax_kernels, tt__softmax_kernels);
TT__LEVEL_DECLARE(tt__norm_kernels, tt__norm_kernels);
TT__LEVEL_DECLARE(tt__rnn_kernels, tt__rnn_kernels);
TT__LEVEL_DECLARE(tt__pooling_kernels, tt__pooling_kernels);

static inline const tt__elementwise_kernels *tt__elementwise(void) { return TT__LEVEL_CHOOSE(tt__elementwise_kernels); }
static inline const tt__pointwise_kernels *tt__pointwise(void) { return TT__LEVEL_CHOOSE(tt__pointwise_kernels); }
static inline const tt__reduce_kernels *tt__reduce(void) { return TT__LEVEL_CHOOSE(tt__reduce_kernels); }
static inline const tt__softmax_kernels *tt__softmax(void) { return TT__LEVEL_CHOOSE(tt__softmax_kernels); }
static inline const tt__batch_norm_kernels *tt__batch_norm_loops(void) {
    return TT__LEVEL_CHOOSE(tt__batch_norm_kernels);
}
static inline const tt__norm_kernels *tt__norm_loops(void) { return TT__LEVEL_CHOOSE(tt__norm_kernels); }
static inline const tt__rnn_kernels *tt__rnn_loops(void) { return TT__LEVEL_CHOOSE(tt__rnn_kernels); }
static inline const tt__pooling_kernels *tt__pooling_loops(void) { return TT__LEVEL_CHOOSE(tt__pooling_kernels); }

#endif
