/* A backward pass that begins at several records, its sources, whose gradients come from elsewhere, one after the
 * other: distributed autograd. It walks what it can whenever one has come. The gradients of leaves are the pass's own:
 * no tt_grad() changes, and no hook runs.
 *
 * A node is walked when all that use it are, and, if it is a source, its gradients have come. Each node is walked once,
 * and a leaf is final when all that use it are walked: what is sent on from there is sent once. */
#ifndef TT_AUTOGRAD_OPEN_PASS_H
#define TT_AUTOGRAD_OPEN_PASS_H

#include "autograd/engine.h"
#include "autograd/reach.h"

typedef struct tt__open_pass {
    tt__capture capture; /* first */
    tt__reach reach;
    bool *waits, *walked, *held; /* by node: for its gradients; done; something newer is not */
    int64_t left;                /* nodes that are not walked */
    tt_tensor **leaves;          /* by the capture's number: references */
    int64_t leaf_count, leaf_room;
    bool retain;
    tt_status (*is_final)(void *user, tt_tensor *leaf, tt_tensor *gradient);
    void *user;
} tt__open_pass;

/* Begin one from `count` sources, none of which has its gradients. is_final (may be NULL): called once for each leaf
 * that they reach, when all has come to its gradient, which is borrowed, and NULL if nothing did. Errors: a record that
 * is spent (TT_ERR_STATE), TT_ERR_MEMORY. */
tt_status tt__open_pass_new(tt__open_pass **out, tt_node *const *sources, int64_t count, bool retain,
                            tt_status (*is_final)(void *user, tt_tensor *leaf, tt_tensor *gradient), void *user);

/* The gradients of a source's results (references are taken; NULLs among them are zero) have come. Errors:
 * TT_ERR_STATE it is no source, or has them already; TT_ERR_MISMATCH one that does not fit. */
tt_status tt__open_pass_give(tt__open_pass *open, const tt_node *source, tt_tensor *const *gradients, int64_t count);

/* Of a walk: number `after` (-1: none) is walked, or was none; the next that can be, or -1. */
int64_t tt__open_pass_next(tt__open_pass *open, int64_t after);

/* Walk what can be walked, in this thread; one at a time. In backward.c. */
tt_status tt__open_pass_walk(tt__open_pass *open);

static inline bool tt__open_pass_is_done(const tt__open_pass *open) { return !open->left; }

/* Free it. Records that it has not walked are spent, unless they are retained. NULL is allowed. */
void tt__open_pass_free(tt__open_pass *open);

#endif
