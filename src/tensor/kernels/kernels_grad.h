/* Kernels that look through gradients, f32 and f64, where they lie: of devices that are not the host, which has loops
 * of its own (optim/clipping/clip_loop.h, clip_kernels.c). See kernels.h. */
#ifndef TT_TENSOR_KERNELS_GRAD_H
#define TT_TENSOR_KERNELS_GRAD_H

/* Contiguous; the second number is f64, one element, and is joined with what is found in x.
 * grad_measure: total += the sum of |x|^p, p > 0; of an infinite p total = the largest of it and all |x|, NaN being the
 * largest. grad_unscale: found = 1 if an element of x is infinite or NaN; x *= factor. */
#define TT__GRAD_KERNELS(X)                                           \
    X(grad_measure, (const tt_tensor *x, double p, tt_tensor *total)) \
    X(grad_unscale, (tt_tensor * x, double factor, tt_tensor *found))

#endif
