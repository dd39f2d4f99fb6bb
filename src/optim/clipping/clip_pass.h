/* Passes over gradients and averages of parameters: contiguous memory of the host. */
#ifndef TT_OPTIM_CLIP_PASS_H
#define TT_OPTIM_CLIP_PASS_H

#include "base/machine/cpu.h"

#include <tutti/tensor.h>

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

/* Return the sum of |x|^p, or, of an infinite p, the largest, of contiguous memory on the host. The same bits for any
 * number of threads. */
double tt__clip_term(const tt_tensor *x, double p);

#endif
