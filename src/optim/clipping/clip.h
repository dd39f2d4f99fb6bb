/* Passes over gradients: measuring, scaling, clamping and unscaling them, on the host and on devices. */
#ifndef TT_OPTIM_CLIP_H
#define TT_OPTIM_CLIP_H

#include "base/machine/cpu.h"
#include "optim/optimizer.h"
#include "tensor/core/tensor.h"

#include <tutti/optim.h>
#include <tutti/tensor.h>

/* tt_clip_grad_norm_(), under the name `who` in errors. With `sharded` the parameters are that optimizer's slices, and
 * the norm is of all ranks' gradients. `own`: this rank's status so far, whose error is the thread's last one; a rank
 * that failed still takes part in the collective call. */
tt_status tt__clip_grad_norm(const char *who, const tt_clip_grad_norm_args *args, const tt_optimizer *sharded,
                             tt_status own);

/* A number made of all gradients, on all devices. Those on the host are joined at once; those on another device are
 * joined there by kernels, and the result is read once.
 *
 * Begins as {.who = ..., .p = ...}. */
typedef struct tt__grad_total {
    const char *who;
    double p;       /* infinite: the total is the largest value, and NaN is above all; else it is the sum */
    double value;   /* so far, without `far` */
    tt_tensor *far; /* the device's part, not read yet: f64, one element, the scope's; or NULL */
} tt__grad_total;

void tt__grad_total_join(tt__grad_total *total, double value);

/* Return the number on x's device, for a kernel that joins x. NULL: an error. */
tt_tensor *tt__grad_total_far(tt__grad_total *total, const tt_tensor *x);

/* Join the device's part, after which `value` is complete. Waits for the device. */
tt_status tt__grad_total_end(tt__grad_total *total);

/* Join x, f32 or f64: the sum of its elements' absolute values to the power of p, or the largest of these values. */
tt_status tt__grad_total_measure(tt__grad_total *total, tt_tensor *x);

typedef struct tt__clip_loops {
    double (*sum_of_squares)(const void *x, int64_t n);
    double (*sum_of_powers)(const void *x, int64_t n, double power);
    double (*largest)(const void *x, int64_t n); /* of the absolute values */
    void (*scale)(void *x, int64_t n, double factor);
    void (*clamp)(void *x, int64_t n, double most);
    void (*average)(void *y, const void *x, int64_t n, double decay);
} tt__clip_loops;

typedef struct tt__clip_kernels {
    tt__clip_loops f32, f64;
} tt__clip_kernels;
TT__LEVEL_DECLARE(tt__clip_kernels, tt__clip_kernels_of_types);

/* Return the loops for an element type; NULL: there are none. */
const tt__clip_loops *tt__clip_loops_of(tt_dtype dtype);

/* Elements that one thread takes at a time. */
enum { TT__CLIP_BLOCK = 1 << 15 };

/* x *= factor over contiguous memory; returns whether an element of x was infinite or NaN before. */
typedef bool (*tt__unscale_fn)(void *x, int64_t n, double factor);

typedef struct tt__unscale_kernels {
    tt__unscale_fn f32, f64;
} tt__unscale_kernels;
TT__LEVEL_DECLARE(tt__unscale_kernels, tt__unscale_kernels_of_types);

#endif
