/* Leaves: tensors that collect a gradient. Passes of several threads may add to one at once.
 *
 * Instead of a gradient of the whole, a leaf (V, C) may have a sparse one, of some rows: the rows' numbers (n) i64,
 * ascending, each once, and their values (n, C) of the leaf's type. */
#ifndef TT_AUTOGRAD_LEAF_H
#define TT_AUTOGRAD_LEAF_H

#include "autograd/node.h"
#include "tensor/core/tensor.h"

#include <tutti/autograd.h>

#include <pthread.h>

typedef struct tt__leaf_hook {
    struct tt__leaf_hook *next;
    tt_grad_hook fn;
    void *user;
    void (*destroy)(void *user); /* NULL: `user` is borrowed */
} tt__leaf_hook;

typedef struct tt__leaf {
    tt__history history; /* first */
    tt_tensor *tensor;
    pthread_mutex_t lock; /* of what follows */
    tt_tensor *grad;      /* NULL until first needed; held */
    bool defined;         /* grad has values */
    const void *captured; /* the graph whose capture defined or zeroed it last; NULL: none that lives */
    const void *lender;   /* the pass that writes to grad now, or NULL */
    tt_tensor *part;      /* a leaf whose gradient is dropped with this one's: tt__leaf_set_part(); or NULL */
    tt_tensor *meanwhile; /* the sum of what other passes gave while one writes */
    tt__leaf_hook *hooks; /* in the order they were registered */
    bool in_hooks;        /* a hook runs */
    bool placed;          /* grad lies where tt__leaf_set_grad_storage() has put it */
    tt_tensor *rows;      /* of a sparse gradient: the rows' numbers; held, or NULL */
    tt_tensor *values;    /* of a sparse gradient: their values; held, or NULL */
} tt__leaf;

/* Return the leaf of x; NULL: x is no leaf. */
static inline tt__leaf *tt__leaf_of(const tt_tensor *x) {
    return x && x->history && x->history->is_leaf ? (tt__leaf *)x->history : NULL;
}

/* Lend the leaf's gradient to `pass` for writing; tt__leaf_add() of it, or tt__leaf_unlend(), must follow. *out NULL:
 * the gradient has values already, or another pass writes to it, so write elsewhere. */
tt_status tt__leaf_lend(tt__leaf *leaf, const void *pass, tt_tensor **out);
void tt__leaf_unlend(tt__leaf *leaf, const void *pass);

/* Add x to the gradient; x has the leaf's shape and dtype. `exclusive`: there is no other reference to x, so it may
 * become the gradient. */
tt_status tt__leaf_add(tt__leaf *leaf, const void *pass, tt_tensor *x, bool exclusive);

/* Run the hooks on the final gradient, with the leaf locked. Returns the first failure. */
tt_status tt__leaf_run_hooks(tt__leaf *leaf);

/* In an operator's backward: give input `i`, a leaf, a gradient of some rows, new tensors that the leaf takes over. */
tt_status tt__grad_give_rows(tt_node *node, int i, tt_tensor *rows, tt_tensor *values);

/* Add a gradient of some rows to the leaf's. The tensors are the leaf's after success, and the scope's after
 * failure. */
tt_status tt__leaf_add_rows(tt__leaf *leaf, tt_tensor *rows, tt_tensor *values);

/* Replace leaf x's sparse gradient by this one. After a failure x has none. */
tt_status tt__leaf_set_rows(tt_tensor *x, tt_tensor *rows, tt_tensor *values);

/* Return the elements of x's gradient, of either kind: tt_grad(), or the values of its rows; NULL: it has none. */
tt_tensor *tt__grad_values(const tt_tensor *x);

/* Fail with TT_ERR_UNSUPPORTED if x, called `name`, gets sparse gradients, which call `who` doesn't take. */
tt_status tt__refuse_sparse_grad(const char *who, const char *name, const tt_tensor *x);

/* Keep leaf x's gradient at `data` from now on (contiguous, x's dtype and shape, on its device, borrowed until
 * replaced); tt_grad(x), where set, is moved there. NULL: move the gradient back to memory of its own, or drop it if
 * there is no memory. */
tt_status tt__leaf_set_grad_storage(tt_tensor *x, void *data);

/* Has x such a hook, for any user? */
bool tt__leaf_has_hook(const tt_tensor *x, tt_grad_hook hook);

/* Remove a hook (same function and user). */
void tt__leaf_remove_hook(tt_tensor *x, tt_grad_hook hook, void *user);

/* Declare that the storage of leaf x (tt__leaf_set_grad_storage()) now has its gradient's values, though no pass gave
 * any. */
void tt__leaf_define_grad(tt_tensor *x);

/* Drop the gradient of `part` (borrowed; NULL: none) whenever leaf x's is zeroed. */
void tt__leaf_set_part(tt_tensor *x, tt_tensor *part);

/* Add to leaf x's gradient, outside of any pass. */
tt_status tt__leaf_give_grad(tt_tensor *x, tt_tensor *grad);

/* Drop leaf x's gradient, but not its part's. */
void tt__leaf_drop_grad(tt_tensor *x);

#endif
