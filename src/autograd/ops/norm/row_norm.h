/* What layer_norm, group_norm and rms_norm share: rows of x are normalised.
 *   y = (x - mean) rstd weight + bias     dbias = sum of g     dweight = sum of g (x - mean) rstd
 *   dx = rstd (h - mean of h - (x - mean) rstd (mean of h (x - mean) rstd)), h = g weight */
#ifndef TT_AUTOGRAD_ROW_NORM_H
#define TT_AUTOGRAD_ROW_NORM_H

#include "autograd/record.h"

tt_status tt__row_norm_backward(tt_node *node);

/* Check the arguments, normalise x in `rows` rows, and record the call of `op`. `weights`: the shape of weight and
 * bias, which may be NULL. */
tt_tensor *tt__row_normed(const tt__operator *op, tt_tensor *x, tt_tensor *weight, tt_tensor *bias, int64_t rows,
                          const tt_shape *weights, const tt__row_norm *norm);

/* Check that x ends in `shape`, and count the rows; -1 and TT_ERR_SHAPE: it doesn't. */
int64_t tt__rows_before(const char *who, const tt_tensor *x, const tt_shape *shape);

#endif
