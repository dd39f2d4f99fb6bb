/* Shared by operators on two tensors of shapes that broadcast. */
#ifndef TT_AUTOGRAD_BROADCAST_H
#define TT_AUTOGRAD_BROADCAST_H

#include "autograd/record.h"

typedef tt_status (*tt__binary_out)(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b);

/* Make the result of a and b, floats of shapes that broadcast; NULL and an error if they are not. Its values are not
 * set. */
tt_tensor *tt__broadcast_forward(const char *who, const tt_tensor *a, const tt_tensor *b);

/* y = a op b, not recorded; NULL and an error if the arguments don't fit. */
tt_tensor *tt__binary_forward(const char *who, tt__binary_out run, tt_tensor *a, tt_tensor *b);

/* Give input `i` factor * g, summed over what was repeated. */
tt_status tt__broadcast_give(tt_node *node, int i, tt_tensor *g, double factor);

#endif
