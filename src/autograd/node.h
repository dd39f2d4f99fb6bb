/* Records: what an operator keeps for its backward.
 *
 * A node is one recorded call. Its edges point to the nodes and leaves that its inputs came from, never to users:
 * results hold their node, nodes hold older nodes. What backward needs is saved as tensors without history, with the
 * version that their storage had. A node that was walked, or whose scope ended, is spent: edges and saved tensors are
 * gone, and the rest goes with the last result. Node numbers grow along every path from leaves to results, across
 * threads. */
#ifndef TT_AUTOGRAD_NODE_H
#define TT_AUTOGRAD_NODE_H

#include "tensor/core/tensor.h"

#include <tutti/autograd.h>

typedef struct tt__operator {
    const char *name; /* "tt_relu" */
    /* Compute gradients from tt__grad_of(), tt__saved() and tt__state(), and call tt__grad_give() for each input that
     * is tt__grad_wanted(). Runs in a scope of its own, under no_grad. */
    tt_status (*backward)(tt_node *node);
    void (*destroy)(void *state); /* optional */
    bool may_run_passes;          /* backward may run passes of its own, which reach leaves that no edge leads to */
} tt__operator;

/* Where an input came from, and what its gradient looks like. */
typedef struct tt__edge {
    bool wants;      /* the input wanted a gradient when the call was made */
    tt_node *node;   /* a reference, or NULL */
    int output;      /* of that node */
    tt_tensor *leaf; /* a reference, or NULL */
    const tt_device *device;
    tt_dtype dtype;
    tt_shape shape;
    int64_t stride[TT_MAX_DIMS];
} tt__edge;

typedef struct tt__saved_tensor {
    tt_tensor *tensor; /* without history; NULL: none */
    uint32_t version;
    const char *name; /* "x", for errors */
} tt__saved_tensor;

/* Where a call was made. */
typedef struct tt__call_site tt__call_site;

struct tt_node {
    tt__history history; /* first: a result's history points here */
    tt__entry entry;     /* in the scope it was recorded in */
    _Atomic int refs;
    const tt__operator *op;
    uint64_t number;
    int inputs, outputs, saved, saved_room;
    tt__edge *edge;         /* (inputs) */
    tt__saved_tensor *save; /* (saved_room) */
    void *state;
    tt__call_site *site; /* in anomaly mode; else NULL */
    const void *arg;     /* of a user's function, in forward */
    tt_node *next;       /* among those about to go */
};

/* ---- recording */

/* Is anything recorded in this thread? */
bool tt__is_recording(void);

/* Does a call on these inputs have to be recorded? NULLs are skipped. */
bool tt__wants_grad(int n, tt_tensor *const *inputs);

/* Make a node for a call of `op` on `inputs`, not yet attached to a result; the caller has the one reference. `saves`:
 * how many tt__node_save() may follow. `state` (state_bytes) is copied; NULL: zeros. NULL and an error that starts with
 * `op->name`: no memory. */
tt_node *tt__node_new(const tt__operator *op, int n, tt_tensor *const *inputs, int outputs, int saves,
                      const void *state, size_t state_bytes);

/* The number of the newest node: those that are made from now on have higher ones. */
uint64_t tt__node_last_number(void);

/* Keep `x` (may be NULL) for backward; it is called `name` in errors. */
tt_status tt__node_save(tt_node *node, const tt_tensor *x, const char *name);

/* Attach y to the node as its result number `output`. */
void tt__node_made(tt_node *node, int output, tt_tensor *y);

void tt__node_ref(tt_node *node);
void tt__node_unref(tt_node *node);

/* Drop what the node holds; it can't be walked any more. */
void tt__node_spend(tt_node *node);

static inline bool tt__node_is_spent(const tt_node *node) {
    return atomic_load_explicit(&node->history.spent, memory_order_relaxed);
}

/* Return the node that made x; NULL for leaves and tensors without history. */
static inline tt_node *tt__node_of(const tt_tensor *x) {
    return x && x->history && !x->history->is_leaf ? (tt_node *)x->history : NULL;
}

/* Fail with TT_ERR_NAN, because element `at` of what the backward of a call gives its input `i` is NaN: the text names
 * the call (`op`, the `number`th that was recorded, at `site`). came_with_one: a gradient of its results had NaN
 * already. */
tt_status tt__anomaly_fail(const char *op, uint64_t number, const tt__call_site *site, int i, const tt_tensor *x,
                           int64_t at, bool came_with_one);

#endif
