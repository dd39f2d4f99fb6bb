/* 16-bit floats in f32: conversion, and stand-ins for tensors for the length of a kernel. */
#ifndef TT_TENSOR_CPU_WIDE_H
#define TT_TENSOR_CPU_WIDE_H

#include "base/machine/cpu.h"
#include "tensor/kernels/kernels.h"

#include <stdint.h>

/* Loops between f32 and the floats of 16 bits, one table per instruction-set level (levels.h). At every level the bits
 * are those of base/dtype.h. */
typedef struct tt__half_loops {
    void (*widen)(int64_t n, const uint16_t *x, float *y);
    void (*narrow)(int64_t n, const float *x, uint16_t *y); /* to nearest, ties to even; NaN stays NaN */
} tt__half_loops;

typedef struct tt__half_kernels {
    tt__half_loops f16, bf16;
} tt__half_kernels;

TT__LEVEL_DECLARE(tt__half_kernels, tt__half_kernels_of_types);
static inline const tt__half_kernels *tt__half_loops_of_level(void) {
    return TT__LEVEL_CHOOSE(tt__half_kernels_of_types);
}

/* The loops between f32 and dtype; NULL: it is no 16-bit float. */
static inline const tt__half_loops *tt__half_loops_of(tt_dtype dtype) {
    const tt__half_kernels *all = tt__half_loops_of_level();
    return dtype == TT_BF16 ? &all->bf16 : dtype == TT_F16 ? &all->f16 : NULL;
}

/* y = x, converted: the fast loops, where there are some. */
tt_status tt__cpu_convert(tt_tensor *y, const tt_tensor *x);

typedef enum tt__wide_use { TT__WIDE_IN, TT__WIDE_OUT, TT__WIDE_BOTH } tt__wide_use;

typedef struct tt__wide {
    tt_tensor seen;   /* f32: x's shape, dense in x's order of memory; strides of 0 stay */
    tt_tensor packed; /* the same without what is repeated */
    tt_tensor *x;
    tt__wide_use use;
} tt__wide;

/* Make the stand-in of x (NULL: nothing); IN and BOTH: with its values. tt__wide_end() must follow, also after a
 * failure; in between a kernel uses `seen`. */
tt_status tt__wide_begin(tt__wide *w, const tt_tensor *x, tt__wide_use use);

/* Begin three: an output and the inputs a and b (may be NULL). */
tt_status tt__wide_three(tt__wide *w, tt_tensor *y, const tt_tensor *a, const tt_tensor *b);

/* End n stand-ins: after a kernel that returned TT_OK, OUT and BOTH are written back. Returns `status`. */
tt_status tt__wide_end(tt_status status, int n, tt__wide *w);

/* The kernel of f32 on x's device: the fast one, if there is one. */
#define TT__F32_KERNEL(x, name) \
    (tt__f32_kernels(x)->name ? tt__f32_kernels(x)->name : tt__reference_kernels[TT_F32]->name)
static inline const tt__kernels *tt__f32_kernels(const tt_tensor *x) {
    const tt__kernels *fast = tt__device_of(x)->kernels[TT_F32];
    return fast ? fast : tt__reference_kernels[TT_F32];
}

/* The stand-in, as a kernel takes it. */
static inline tt_tensor *tt__wide_seen(tt__wide *w) { return w->x ? &w->seen : NULL; }

#endif
