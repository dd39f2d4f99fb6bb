/* Sparse gradients: a leaf (V, C) has, in place of a gradient of the whole, one of some rows: their numbers (n) i64,
 * ascending, each once, and their values (n, C) of the leaf's type. */
#ifndef TT_AUTOGRAD_SPARSE_GRAD_H
#define TT_AUTOGRAD_SPARSE_GRAD_H

#include "autograd/leaf.h"
#include "autograd/node.h"

/* In an operator's backward: give input `i`, a leaf, a gradient of some rows, new tensors that the leaf takes over. */
tt_status tt__grad_give_rows(tt_node *node, int i, tt_tensor *rows, tt_tensor *values);

/* Add a gradient of some rows to the leaf's. The tensors are the leaf's after success, and the scope's after
 * failure. */
tt_status tt__leaf_add_rows(tt__leaf *leaf, tt_tensor *rows, tt_tensor *values);

/* Replace the rows of leaf x by these. After a failure it has none. */
tt_status tt__leaf_set_rows(tt_tensor *x, tt_tensor *rows, tt_tensor *values);

/* Return the elements of x's gradient, of either kind: tt_grad(), or the values of its rows; NULL: it has none. */
tt_tensor *tt__grad_values(const tt_tensor *x);

/* Fail with TT_ERR_UNSUPPORTED if x, of this name, is given sparse gradients, which call `who` doesn't take. */
tt_status tt__refuse_sparse_grad(const char *who, const char *name, const tt_tensor *x);

#endif
