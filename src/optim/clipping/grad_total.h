/* A number of all gradients, wherever they lie. Those of the host are joined at once; those of another device are
 * joined in its memory, by kernels, and read once. */
#ifndef TT_OPTIM_GRAD_TOTAL_H
#define TT_OPTIM_GRAD_TOTAL_H

#include "tensor/core/tensor.h"

/* Begins as {.who = ..., .p = ...}. */
typedef struct tt__grad_total {
    const char *who;
    double p;       /* how two are joined: infinite: the larger one, NaN being the largest; else their sum */
    double value;   /* without `far` */
    tt_tensor *far; /* f64, one element, of the scope: a device's, which is not read yet; or NULL */
} tt__grad_total;

void tt__grad_total_join(tt__grad_total *total, double value);

/* Return the number on x's device, for a kernel that joins x. NULL: an error. */
tt_tensor *tt__grad_total_far(tt__grad_total *total, const tt_tensor *x);

/* Join what is not read yet: `value` is of all then. This waits for the device. */
tt_status tt__grad_total_end(tt__grad_total *total);

/* Join the sum of the elements' absolute values to the power of p, or the largest one, of x, f32 or f64. */
tt_status tt__grad_total_measure(tt__grad_total *total, tt_tensor *x);

#endif
