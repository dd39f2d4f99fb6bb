/* Elementwise reduction of two buffers: one table for each instruction-set level, made from pair_kernels.c. */
#ifndef TT_COMM_PAIR_KERNELS_H
#define TT_COMM_PAIR_KERNELS_H

#include "base/cpu.h"

#include <stddef.h>

/* What is done with two elements. An average is a sum whose leaves, the ranks' own elements, are scaled while they are read. */
typedef enum tt__pair_op {
    TT__PAIR_SUM,
    TT__PAIR_PRODUCT,
    TT__PAIR_MIN,
    TT__PAIR_MAX,
    TT__PAIR_AVG_LEAVES, /* a * scale + b * scale */
    TT__PAIR_AVG_RIGHT,  /* a + b * scale */
    TT__PAIR_OPS
} tt__pair_op;

enum { TT__PAIR_DTYPES = 5 };

typedef struct tt__pair_kernel {
    /* dst (n) := a (n) op b (n). dst may be a or b. */
    void (*pair)(void *dst, const void *a, const void *b, size_t n, double scale);
    /* a (n), b (n) := a op b, in both. */
    void (*pair_both)(void *a, void *b, size_t n, double scale);
} tt__pair_kernel;

/* NULL where there is no such thing (averages of integers). */
typedef struct tt__pair_kernels {
    tt__pair_kernel of[TT__PAIR_DTYPES][TT__PAIR_OPS];
} tt__pair_kernels;

TT__LEVEL_DECLARE(tt__pair_kernels, tt__pair_kernels);

#endif
