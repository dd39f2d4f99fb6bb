/* The backward pass beyond the public header: callbacks at its end, gradients that it keeps from leaves, and passes
 * whose gradients come from elsewhere. */
#ifndef TT_AUTOGRAD_BACKWARD_H
#define TT_AUTOGRAD_BACKWARD_H

#include "autograd/node.h"
#include "autograd/pointer_map.h"
#include "autograd/reach.h"

/* Have fn(user) called once when the outermost backward pass of this thread ends, before its tt_backward() returns;
 * also if the pass failed, with that status in `pass`. fn's status becomes the pass's. To be called from inside a hook.
 * The same pair given again in one pass counts once. */
tt_status tt__backward_on_end(tt_status (*fn)(void *user, tt_status pass), void *user);

/* May leaf x still be given a gradient by the passes that are under way in this thread, or by their second parts? To be
 * called from inside a hook, or a callback of tt__backward_on_end(), where it is the outermost pass's. */
bool tt__gradient_may_come(const tt_tensor *x);

/* Captured gradients: a pass of this thread gives them to the caller instead of to the leaves, whose tt_grad() and
 * hooks don't see them. So threads that share parameters can have gradients of their own. */
typedef struct tt__capture {
    tt__pointer_map at; /* number by leaf (a tensor) */
    const bool *wanted; /* by number; false: not computed. NULL: all are computed */
    tt_tensor **grads;  /* by number: references, NULL at first, the caller's after the pass */
    /* Give a number to a leaf that has none; -1: its gradient is not captured. NULL: only leaves in `at` are
     * captured. */
    int64_t (*number)(struct tt__capture *capture, tt_tensor *leaf);
    /* Called when the gradient of a leaf that the outermost pass reaches is final. May be NULL. */
    tt_status (*is_final)(struct tt__capture *capture, tt_tensor *leaf);
} tt__capture;

/* tt_backward(y, .retain_graph = ...), also in passes that begin inside it, with what is captured. */
tt_status tt__backward_captured(tt_tensor *y, bool retain_graph, tt__capture *capture);

/* In an operator's backward: will its record, or a part of it, be walked again? */
bool tt__node_is_kept(const tt_node *node);

/* ---- open passes, of distributed autograd: a pass begins at several records, its sources, whose gradients come from
 * elsewhere, one after the other, and walks what it can whenever one has come. The gradients of leaves are the pass's
 * own: no tt_grad() changes, and no hook runs.
 *
 * A node is walked when all nodes that use it are walked and, if it is a source, its gradients have come. Each node is
 * walked once. A leaf is final when all nodes that use it are walked, so its gradient is sent on once. */

typedef struct tt__open_pass {
    tt__capture capture; /* first */
    tt__reach reach;
    bool *waits, *walked, *held; /* by node: it waits for gradients; it is walked; a user of its results is not */
    int64_t left;                /* nodes that are not walked */
    tt_tensor **leaves;          /* by the capture's number: references */
    int64_t leaf_count, leaf_room;
    bool retain;
    tt_status (*is_final)(void *user, tt_tensor *leaf, tt_tensor *gradient);
    void *user;
} tt__open_pass;

/* Begin one from `count` sources, none of which has its gradients. is_final (may be NULL): called once for each leaf
 * that they reach, when its gradient is final. The gradient is borrowed; NULL: there is none. Errors: a record that is
 * spent (TT_ERR_STATE), TT_ERR_MEMORY. */
tt_status tt__open_pass_new(tt__open_pass **out, tt_node *const *sources, int64_t count, bool retain,
                            tt_status (*is_final)(void *user, tt_tensor *leaf, tt_tensor *gradient), void *user);

/* Give the gradients of a source's results, which have come (references are taken; NULLs among them are zero). Errors:
 * TT_ERR_STATE it is no source, or has them already; TT_ERR_MISMATCH one that does not fit. */
tt_status tt__open_pass_give(tt__open_pass *open, const tt_node *source, tt_tensor *const *gradients, int64_t count);

/* In a walk: mark node number `after` (-1: none) as walked, and return the next one that can be walked, or -1. */
int64_t tt__open_pass_next(tt__open_pass *open, int64_t after);

/* Walk all nodes that can be walked, in this thread; only one call at a time. In backward.c. */
tt_status tt__open_pass_walk(tt__open_pass *open);

static inline bool tt__open_pass_is_done(const tt__open_pass *open) { return !open->left; }

/* Free it. Records that it has not walked are spent, unless they are retained. NULL is allowed. */
void tt__open_pass_free(tt__open_pass *open);

#endif
