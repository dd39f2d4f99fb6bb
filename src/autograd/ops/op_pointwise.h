/* Operators made of a formula of one or two inputs (tensor/ops/pointwise_formulas.h): op_unary.c, op_binary.c. */
#ifndef TT_AUTOGRAD_OP_POINTWISE_H
#define TT_AUTOGRAD_OP_POINTWISE_H

#include "autograd/record.h"

/* The backward of each of them. */
tt_status tt__binary_backward(tt_node *node);

/* Compute and record y = formula of x and z, neither NULL; NULL and an error if they don't fit. */
tt_tensor *tt__binary_recorded(const tt__operator *op, tt_tensor *x, tt_tensor *z, tt__binary call);

typedef tt_status (*tt__binary_out)(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b);

/* Give input `i` factor * g, summed over what was repeated. */
tt_status tt__broadcast_give(tt_node *node, int i, tt_tensor *g, double factor);

/* The backward of each of them. */
tt_status tt__unary_backward(tt_node *node);

/* Compute and record y = formula of x. NULL for NULL; NULL and an error if x is not of floats. */
tt_tensor *tt__unary_recorded(const tt__operator *op, tt_tensor *x, tt__unary call);

#endif
