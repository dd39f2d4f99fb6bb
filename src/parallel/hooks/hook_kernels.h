/* The loops of communication hooks, one table per instruction-set level. */
#ifndef TT_PARALLEL_HOOKS_HOOK_KERNELS_H
#define TT_PARALLEL_HOOKS_HOOK_KERNELS_H

#include "base/machine/cpu.h"

#include <stddef.h>
#include <stdint.h>

/* To and from one 16-bit type. */
typedef struct tt__hook_half_kernels {
    /* out[i] := in[i] rounded, divided by `divisor` and rounded again */
    void (*narrow_f32)(uint16_t *out, const float *in, size_t n, float divisor);
    void (*narrow_f64)(uint16_t *out, const double *in, size_t n, float divisor); /* by way of f32 */
    void (*divide)(uint16_t *x, size_t n, float divisor);
    void (*widen_f32)(float *out, const uint16_t *in, size_t n);
    void (*widen_f64)(double *out, const uint16_t *in, size_t n);
} tt__hook_half_kernels;

typedef struct tt__hook_kernels {
    tt__hook_half_kernels f16, bf16;
    void (*add)(float *x, const float *y, size_t n);
    void (*divide)(float *x, size_t n, float divisor);
    /* The largest magnitude's bits: above 0x7f800000 if there is a NaN. */
    uint32_t (*largest)(const float *x, size_t n);
    /* q[i] := x[i] / scale, to the nearest, ties to even; error[i] := x[i] - scale q[i]. 1 / scale is finite. error:
     * NULL, or not x. */
    void (*quantise)(int8_t *q, float *error, const float *x, size_t n, float scale);
    void (*add_scaled)(float *sum, const int8_t *q, size_t n, float scale);
    void (*scale)(float *out, const int8_t *q, size_t n, float scale);
    /* m (rows,columns), p (rank,rows), q (rank,columns): error := m - p' q, m := p' q. error: NULL, or not m. */
    void (*low_rank)(float *m, float *error, const float *p, const float *q, size_t rows, size_t columns, size_t rank);
} tt__hook_kernels;

TT__LEVEL_DECLARE(tt__hook_kernels, tt__hook_kernels);

#endif
