/* Shapes, strides and element types, without tensors. */
#ifndef TT_TENSOR_SHAPE_H
#define TT_TENSOR_SHAPE_H

#include <tutti/tensor.h>

/* Count the elements; -1 for a size below 0, an ndim out of range, or sizes above 0 whose product is over INT64_MAX /
 * 16 (also where another size is 0, since strides could not hold it). */
int64_t tt__shape_numel(const tt_shape *shape);

/* Compute the strides of row-major order without gaps. */
void tt__shape_strides(const tt_shape *shape, int64_t *stride);

/* Order the dimensions (ndim of them) by falling stride, as they lie in memory; equal ones stay in order. */
void tt__shape_memory_order(int ndim, const int64_t *stride, int *order);

/* Compute strides without gaps, with the dimensions in the order of memory that `like` has (channels last stays
 * channels last), also where `like` repeats elements or has gaps. */
void tt__shape_dense_strides(const tt_shape *shape, const int64_t *like, int64_t *stride);

/* Do these strides visit the elements in row-major order without gaps? Those of dimensions of size 1 don't matter. */
bool tt__shape_is_contiguous(const tt_shape *shape, const int64_t *stride);

/* Do the elements fill a range of memory, each once, in whatever order of dimensions? */
bool tt__shape_is_dense(const tt_shape *shape, const int64_t *stride);

bool tt__shape_equal(const tt_shape *a, const tt_shape *b);

/* Broadcast two shapes by PyTorch's rule: sizes, aligned at the last dimension, are equal or 1. False: they don't
 * fit. */
bool tt__shape_broadcast(const tt_shape *a, const tt_shape *b, tt_shape *out);

/* Compute the strides of an array of `shape`, seen as `as`, to which it broadcasts: 0 where it is repeated. */
void tt__shape_broadcast_strides(const tt_shape *shape, const int64_t *stride, const tt_shape *as, int64_t *out);

/* "(4, -1)" in `out`, which is returned. */
const char *tt__shape_text(const tt_shape *shape, char *out, size_t size);
#define TT__SHAPE_TEXT(shape) tt__shape_text(shape, (char[160]){0}, 160)

/* Return dimension `dim`, where negative ones count from the end: 0 .. ndim-1, or -1 if outside. */
int tt__dim_index(int ndim, int dim);

bool tt__is_float(tt_dtype dtype); /* f32, f64, f16, bf16 */

#endif
