/* Operations on shapes, places and order: views, joins, indexing, sorting. See ops.h for what all have in common. */
#ifndef TT_TENSOR_OPS_INDEX_H
#define TT_TENSOR_OPS_INDEX_H

#include "tensor/kernels.h"

/* ---- view_dims.c: views; arguments are checked, as in view.c */

/* Dimension k of the result is dimension dims->dim[k] of x (negative: from the end), each once. */
tt_tensor *tt__permute(const char *who, const tt_tensor *x, const tt_shape *dims);

/* x repeated to `shape` by strides of 0; a size of -1 stays as it is in x. */
tt_tensor *tt__expand(const char *who, const tt_tensor *x, tt_shape shape);

/* Without dimension `dim`, of any size: entry `index` (negative: from the end) of it. */
tt_tensor *tt__select(const char *who, const tt_tensor *x, int dim, int64_t index);

/* Every `step`th entry of dimension `dim` from `start` to before `end`: negative ones count from the end, both are
 * brought into the dimension. */
tt_tensor *tt__slice(const char *who, const tt_tensor *x, int dim, int64_t start, int64_t end, int64_t step);

/* Without dimensions of size 1: all (`dim` NULL), or *dim if it is one / with a new one at `dim` of the result. */
tt_tensor *tt__squeeze(const char *who, const tt_tensor *x, const int *dim);
tt_tensor *tt__unsqueeze(const char *who, const tt_tensor *x, int dim);

#endif
