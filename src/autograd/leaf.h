/* Leaves: tensors that collect a gradient. Passes of several threads may add to one at once. */
#ifndef TT_AUTOGRAD_LEAF_H
#define TT_AUTOGRAD_LEAF_H

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
    tt_tensor *part;      /* a leaf whose gradient goes with this one's: tt__leaf_set_part(); or NULL */
    tt_tensor *meanwhile; /* what others gave while it does */
    tt__leaf_hook *hooks; /* in the order they were registered */
    bool in_hooks;        /* one of them runs */
    bool placed;          /* grad lies where tt__leaf_set_grad_storage() has put it */
    tt_tensor *rows;      /* a gradient of some rows: their numbers, and */
    tt_tensor *values;    /* their gradients; both held, or NULL */
} tt__leaf;

/* Return the leaf of x; NULL: x is no leaf. */
static inline tt__leaf *tt__leaf_of(const tt_tensor *x) {
    return x && x->history && x->history->is_leaf ? (tt__leaf *)x->history : NULL;
}

/* Lend the leaf's gradient to `pass` for writing: tt__leaf_add() with it, or tt__leaf_unlend() must follow. *out NULL:
 * it has values, or another pass writes: write elsewhere. */
tt_status tt__leaf_lend(tt__leaf *leaf, const void *pass, tt_tensor **out);
void tt__leaf_unlend(tt__leaf *leaf, const void *pass);

/* Add x to the gradient; x has the leaf's shape and dtype. `exclusive`: there is no other reference to x, so it may
 * become the gradient. */
tt_status tt__leaf_add(tt__leaf *leaf, const void *pass, tt_tensor *x, bool exclusive);

/* Let the leaf's gradient of some rows go. The caller holds its lock, or nobody else uses it. */
void tt__leaf_drop_rows(tt__leaf *leaf);

/* Fail with TT_ERR_UNSUPPORTED: the leaf would get a gradient of the whole and one of some rows. */
tt_status tt__leaf_refuse_both(const tt__leaf *leaf);

/* Run the hooks, as the gradient is final, with the leaf locked. Returns the first failure. */
tt_status tt__leaf_run_hooks(tt__leaf *leaf);

#endif
