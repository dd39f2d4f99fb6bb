/* From uniform to truncated normal numbers. */
#ifndef TT_TENSOR_TRUNCATED_NORMAL_H
#define TT_TENSOR_TRUNCATED_NORMAL_H

#include <tutti/tensor.h>

/* A normal distribution and the bounds of what is drawn from it. */
typedef struct tt__truncation {
    double mean, std, low, high;
} tt__truncation;

/* What truncated numbers are made from: uniform ones in *from..*to, inside -1..1, the probabilities of the bounds. */
void tt__truncation_range(const tt__truncation *t, double *from, double *to);

/* Turn n of these into truncated normal ones, with the bits of PyTorch 1.13's AVX2 build. */
void tt__truncate_f32(float *data, int64_t n, const tt__truncation *t);
void tt__truncate_f64(double *data, int64_t n, const tt__truncation *t);

/* Draw all of x, f32 or f64, of any layout, on any device, from the truncated distribution. Errors: as tt_normal_();
 * `who` begins them. (random.c) */
tt_status tt__trunc_normal_(const char *who, tt_tensor *x, const tt__truncation *t, tt_generator *generator);

#endif
