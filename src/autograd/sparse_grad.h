/* Gradients of leaves of which only some rows were given one: their numbers (n), ascending, each once, and their values
 * (n, C). */
#ifndef TT_AUTOGRAD_SPARSE_GRAD_H
#define TT_AUTOGRAD_SPARSE_GRAD_H

#include "autograd/leaf.h"
#include "autograd/node.h"

/* Give input `i`, a leaf, a gradient of some rows, which this backward has made: in an operator's backward. */
tt_status tt__grad_give_rows(tt_node *node, int i, tt_tensor *rows, tt_tensor *values);

/* Add such a gradient to the leaf's, and take it over. */
tt_status tt__leaf_add_rows(tt__leaf *leaf, tt_tensor *rows, tt_tensor *values);

void tt__leaf_drop_rows(tt__leaf *leaf);

/* Give leaf x this gradient of some rows in place of the one that it has. */
tt_status tt__leaf_set_rows(tt_tensor *x, tt_tensor *rows, tt_tensor *values);

/* Fail: the leaf would have a gradient of the whole and one of some rows. */
tt_status tt__leaf_refuse_both(const tt__leaf *leaf);

/* Return what there is of x's gradient to measure or to scale: tt_grad(), or the values of its rows; NULL: none. */
tt_tensor *tt__grad_values(const tt_tensor *x);

/* Fail if `x`, by this name, is a leaf that is given such gradients, as the call `who` is for others only. */
tt_status tt__refuse_sparse_grad(const char *who, const char *name, const tt_tensor *x);

#endif
