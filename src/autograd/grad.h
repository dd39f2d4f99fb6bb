/* Functions for an operator's backward: the gradients of its results, and those of its inputs. */
#ifndef TT_AUTOGRAD_GRAD_H
#define TT_AUTOGRAD_GRAD_H

#include "autograd/node.h"

/* Return the gradient of result number `output`, borrowed; any layout. NULL: there is none (it is zero). */
tt_tensor *tt__grad_of(const tt_node *node, int output);

/* Does this pass want the gradient of input `i` now? */
bool tt__grad_wanted(const tt_node *node, int i);

/* Return a tensor to write the gradient of input `i` to: a tensor of its shape and dtype, on its device, dense, in its
 * order of memory, with undefined values; a leaf's own gradient where that is free. Pass it to tt__grad_give(). NULL:
 * no memory. */
tt_tensor *tt__grad_dest(tt_node *node, int i);

/* The same for a backward that goes element by element, and reads each before it writes it: where the gradient of the
 * node's only result is nobody else's and lies as that of the input would, it is overwritten by it. */
tt_tensor *tt__grad_over(tt_node *node, int i);

/* Give the gradient of input `i`: x, of its shape and dtype. What this backward made is taken over; anything else is
 * shared, or copied when it would have to change. It is added to other contributions. At most once for each input. x
 * NULL: TT_ERR_MEMORY. */
tt_status tt__grad_give(tt_node *node, int i, tt_tensor *x);

/* Return the tensor that the operator saved as number `i`, borrowed. NULL: it saved none, or (TT_ERR_STATE) it was
 * overwritten since: the error names operator and tensor. */
tt_tensor *tt__saved(const tt_node *node, int i);

/* Return the state that the operator stored. */
static inline void *tt__state(const tt_node *node) { return node->state; }

/* Write a gradient and give it: TT__GIVE(node, 0, dx, tt__relu_backward_out(who, dx, y, g)). Leaves the function on
 * failure. */
#define TT__GIVE(node, i, dest, write) TT__GIVE_AT(tt__grad_dest, node, i, dest, write)
#define TT__GIVE_OVER(node, i, dest, write) TT__GIVE_AT(tt__grad_over, node, i, dest, write)
#define TT__GIVE_AT(place, node, i, dest, write)   \
    do {                                           \
        tt_tensor *dest = place((node), (i));      \
        if (!dest)                                 \
            return tt_last_status();               \
        TT__TRY(write);                            \
        TT__TRY(tt__grad_give((node), (i), dest)); \
    } while (0)

#endif
