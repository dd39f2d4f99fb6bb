/* Gradients divided by a scale, and looked through, in one pass. */
#ifndef TT_OPTIM_UNSCALE_H
#define TT_OPTIM_UNSCALE_H

#include "base/machine/cpu.h"
#include "optim/optimizer.h"

/* x *= factor over contiguous memory; returns whether an element of x was infinite or NaN before. */
typedef bool (*tt__unscale_fn)(void *x, int64_t n, double factor);

typedef struct tt__unscale_kernels {
    tt__unscale_fn f32, f64;
} tt__unscale_kernels;
TT__LEVEL_DECLARE(tt__unscale_kernels, tt__unscale_kernels_of_types);

/* Multiply the gradients of all groups of an optimizer by `factor`. *found: one of them was infinite or NaN. *count:
 * how many there are. */
tt_status tt__unscale_grads(const char *who, tt_optimizer *optimizer, double factor, bool *found, int64_t *count);

#endif
