/* Random matrices whose columns or rows stand at right angles. */
#ifndef TT_TENSOR_ORTHOGONAL_H
#define TT_TENSOR_ORTHOGONAL_H

#include <tutti/tensor.h>

/* Fill x, f32 or f64, seen as (rows, numel / rows), with a matrix whose columns, or rows where these are fewer, are
 * orthogonal and have length `gain`. PyTorch draws the same. */
tt_status tt__orthogonal_(const char *who, tt_tensor *x, double gain, tt_generator *generator);

#endif
