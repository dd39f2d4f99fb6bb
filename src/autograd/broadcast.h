/* PyTorch's broadcasting: shapes are aligned at the last dimension; a size of 1, or a missing one, is repeated. */
#ifndef TT_AUTOGRAD_BROADCAST_H
#define TT_AUTOGRAD_BROADCAST_H

#include "autograd/ops.h"
#include "tensor/iter.h"

/* The shape of a and b together; false if they don't fit. */
bool tt__broadcast_shape(const tt_shape *a, const tt_shape *b, tt_shape *out);

/* Strides with which an array of `shape` and `stride` is read as one of shape `as`. */
void tt__broadcast_strides(const tt_shape *shape, const int64_t *stride, const tt_shape *as, int64_t *out);

/* An operator on two tensors, element by element. */
typedef struct tt__binary {
    const char *who;
    void (*f32)(int64_t n, const float *a, int64_t a_step, const float *b, int64_t b_step, float *y);
    double (*f64)(double a, double b);
    tt__backward_fn backward;
} tt__binary;

tt_tensor *tt__binary_forward(const tt__binary *op, tt_tensor *a, tt_tensor *b);

/* Give input number `input` the node's gradient times `factor` times `other` (NULL: 1), summed over what was repeated. */
tt_status tt__broadcast_backward(tt__node *node, int input, double factor, const tt_tensor *other);

#endif
