/* Operators made of a formula of one input (tensor/ops/pointwise_formulas.h). */
#ifndef TT_AUTOGRAD_OP_UNARY_H
#define TT_AUTOGRAD_OP_UNARY_H

#include "autograd/record.h"

/* The backward of each of them. */
tt_status tt__unary_backward(tt_node *node);

/* Compute and record y = formula of x. NULL for NULL; NULL and an error if x is not of floats. */
tt_tensor *tt__unary_recorded(const tt__operator *op, tt_tensor *x, tt__unary call);

#endif
