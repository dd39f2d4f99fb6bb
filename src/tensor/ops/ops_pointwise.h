/* Operations that go element by element; see ops.h. */
#ifndef TT_TENSOR_OPS_POINTWISE_H
#define TT_TENSOR_OPS_POINTWISE_H

#include "tensor/kernels/kernels.h"

tt_status tt__unary_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__unary *call);
tt_status tt__unary_backward_out(const char *who, tt_tensor *dx, const tt_tensor *v, const tt_tensor *g,
                                 const tt__unary *call);

/* x and z are spread to the shape of y, or of g, which d has, too. */
tt_status tt__binary_op_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt_tensor *z,
                            const tt__binary *call);
tt_status tt__binary_backward_out(const char *who, tt_tensor *d, const tt_tensor *x, const tt_tensor *z,
                                  const tt_tensor *g, const tt__binary *call, int input);

/* See kernels_dropout.h; y is dense. */
tt_status tt__dropout_out(const char *who, tt_tensor *y, const tt_tensor *x, const tt__dropout *call);

#endif
