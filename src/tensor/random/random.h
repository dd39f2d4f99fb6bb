/* Distributions for initializers: truncated normal numbers, orthogonal matrices. */
#ifndef TT_TENSOR_RANDOM_RANDOM_H
#define TT_TENSOR_RANDOM_RANDOM_H

#include <tutti/tensor.h>

/* A normal distribution and the bounds of what is drawn from it. */
typedef struct tt__truncation {
    double mean, std, low, high;
} tt__truncation;

/* Draw all of x, f32 or f64, of any layout, on any device, from the truncated distribution, with the bits of PyTorch
 * 1.13's AVX2 build. Errors: as tt_normal_(); `who` begins them. */
tt_status tt__trunc_normal_(const char *who, tt_tensor *x, const tt__truncation *t, tt_generator *generator);

/* Fill x, f32 or f64, seen as (rows, numel / rows), with a matrix whose columns, or rows where these are fewer, are
 * orthogonal and have length `gain`. PyTorch draws the same. */
tt_status tt__orthogonal_(const char *who, tt_tensor *x, double gain, tt_generator *generator);

#endif
