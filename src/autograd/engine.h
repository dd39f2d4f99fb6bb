/* The part of leaves and the backward pass that DDP needs beyond the public header. */
#ifndef TT_AUTOGRAD_ENGINE_H
#define TT_AUTOGRAD_ENGINE_H

#include "autograd/node.h"
#include "autograd/pointer_map.h"

/* Keep leaf x's gradient at `data` from now on (contiguous, x's dtype and shape, on its device, borrowed until
 * replaced); tt_grad(x), where set, is moved there. NULL: back to memory of its own, with the values; without memory
 * for that the gradient is dropped. */
tt_status tt__leaf_set_grad_storage(tt_tensor *x, void *data);

/* Has x such a hook, for any user? */
bool tt__leaf_has_hook(const tt_tensor *x, tt_grad_hook hook);

/* Remove a hook (same function and user). */
void tt__leaf_remove_hook(tt_tensor *x, tt_grad_hook hook, void *user);

/* Call fn(user) once when the outermost backward pass of this thread ends, before its tt_backward() returns; to be
 * called from inside a hook; its status becomes the pass's. The same pair given again in one pass counts once. Also
 * called, with the pass's failure in `pass`, when the pass failed. */
tt_status tt__backward_on_end(tt_status (*fn)(void *user, tt_status pass), void *user);

/* May leaf x still be given a gradient by the passes that are under way in this thread, or by their second parts? To be
 * called from inside a hook, or a callback of tt__backward_on_end(), where it is the outermost pass's. */
bool tt__gradient_may_come(const tt_tensor *x);

/* Say that the storage of leaf x (tt__leaf_set_grad_storage()) has its gradient's values now, though no pass gave
 * any. */
void tt__leaf_define_grad(tt_tensor *x);

/* Gradients of leaves that a pass in this thread keeps from them: neither their tt_grad() nor their hooks see it. So
 * threads that share parameters can each have gradients of its own. */
typedef struct tt__capture {
    tt__pointer_map at; /* number by leaf (a tensor) */
    const bool *wanted; /* by number: false: not computed; NULL: all are */
    tt_tensor **grads;  /* by number: references, NULL at first, the caller's after the pass */
    /* Give a leaf that has none a number; -1: its gradient is its own. NULL: all others' are. */
    int64_t (*number)(struct tt__capture *capture, tt_tensor *leaf);
    /* The gradient of a leaf that the outermost pass reaches is final. NULL: nobody asks. */
    tt_status (*is_final)(struct tt__capture *capture, tt_tensor *leaf);
} tt__capture;

/* tt_backward(y, .retain_graph = ...), also in passes that begin inside it, with what is captured. */
tt_status tt__backward_captured(tt_tensor *y, bool retain_graph, tt__capture *capture);

/* In an operator's backward: will its record, or a part of it, be walked again? */
bool tt__node_is_kept(const tt_node *node);

/* Let the gradient of `part` (borrowed; NULL: of none) be gone whenever leaf x's is zeroed. */
void tt__leaf_set_part(tt_tensor *x, tt_tensor *part);

/* Add to leaf x's gradient, outside of any pass. */
tt_status tt__leaf_give_grad(tt_tensor *x, tt_tensor *grad);

/* Leave leaf x without a gradient, and its part with the one that it has. */
void tt__leaf_drop_grad(tt_tensor *x);

#endif
