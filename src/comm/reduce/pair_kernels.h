/* Elementwise reduction of two buffers: one table for each instruction-set level, made from pair_kernels.c. */
#ifndef TT_COMM_REDUCE_PAIR_KERNELS_H
#define TT_COMM_REDUCE_PAIR_KERNELS_H

#include "base/machine/cpu.h"

#include <stddef.h>

/* Operations on two elements. A scaled sum (averages, TT_PREMUL_SUM) scales its leaves, the ranks' own elements, while
 * they are read. */
typedef enum tt__pair_op {
    TT__PAIR_SUM,
    TT__PAIR_PRODUCT,
    TT__PAIR_MIN,
    TT__PAIR_MAX,
    TT__PAIR_AND,
    TT__PAIR_OR,
    TT__PAIR_XOR,
    TT__PAIR_SCALE_BOTH,  /* a * scale_a + b * scale_b */
    TT__PAIR_SCALE_RIGHT, /* a + b * scale_b */
    TT__PAIR_OPS
} tt__pair_op;

enum { TT__PAIR_DTYPES = 10 };

typedef struct tt__pair_kernel {
    /* dst (n) := a (n) op b (n). dst may be a or b. */
    void (*pair)(void *dst, const void *a, const void *b, size_t n, double scale_a, double scale_b);
    /* dst (n), dst_2 (n) := a (n) op b (n). Either may be a or b. */
    void (*pair_two)(void *dst, void *dst_2, const void *a, const void *b, size_t n, double scale_a, double scale_b);
} tt__pair_kernel;

/* By tt_dtype. 16-bit floats are reduced as f32: `leaf` widens them, `narrow` rounds the result. */
typedef struct tt__pair_kernels {
    tt__pair_kernel of[TT__PAIR_DTYPES][TT__PAIR_OPS]; /* NULL where there is no such thing */

    /* dst (n) := a rank's own elements src (n), ready to be joined: scaled (floats), as f32 (16-bit floats), 0 or 1
     * (bools). NULL (integers): as they are. dst may be src, except for 16-bit floats. */
    void (*leaf[TT__PAIR_DTYPES])(void *dst, const void *src, size_t n, double scale);

    /* dst (n), 16-bit := src (n), f32. NULL for other types. */
    void (*narrow[TT__PAIR_DTYPES])(void *dst, const void *src, size_t n);
} tt__pair_kernels;

TT__LEVEL_DECLARE(tt__pair_kernels, tt__pair_kernels);

#endif
