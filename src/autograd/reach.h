/* The nodes, newest first, and the leaves that a backward pass from a result reaches; and callbacks for passes that
 * fail, because other ranks may wait for what such a pass would have sent. */
#ifndef TT_AUTOGRAD_REACH_H
#define TT_AUTOGRAD_REACH_H

#include "autograd/node.h"
#include "autograd/pointer_map.h"

/* When a leaf's gradient is wanted. */
typedef enum tt__when { TT__NOW, TT__LATER, TT__NEVER } tt__when;

typedef struct tt__reached_node {
    tt_node *node;  /* a reference */
    bool useful;    /* it leads to something that is wanted, now or later */
    tt_tensor *one; /* the gradient of its only result, or NULL; with more results they are in `many`. References */
    tt_tensor **many;
} tt__reached_node;

typedef struct tt__reached_leaf {
    tt_tensor *tensor; /* a reference */
    tt__when when;
    int pending; /* contributions still to come */
} tt__reached_leaf;

typedef struct tt__reach {
    tt__reached_node *nodes; /* by falling number: each stands after all that use its results */
    tt__reached_leaf *leaves;
    int64_t node_count, node_room, leaf_count, leaf_room;
    tt__pointer_map node_at, leaf_at;
    bool may_reach_more; /* a node may run passes of its own, which reach more */
} tt__reach;

/* Find all nodes and leaves that `y` depends on. TT_ERR_STATE: a record on the way is spent; TT_ERR_MEMORY. Free
 * `reach` also after a failure. */
tt_status tt__reach_from(tt__reach *reach, const tt_tensor *y);

/* The same from several nodes on. */
tt_status tt__reach_from_nodes(tt__reach *reach, tt_node *const *nodes, int64_t count);

/* After every leaf's `when` is set: mark the useful nodes, and count how many contributions each leaf that is not
 * TT__NEVER waits for. */
void tt__reach_count(tt__reach *reach);

void tt__reach_free(tt__reach *reach);

tt__reached_node *tt__reach_node(const tt__reach *reach, const tt_node *node);     /* or NULL */
tt__reached_leaf *tt__reach_leaf(const tt__reach *reach, const tt_tensor *tensor); /* or NULL */

/* Return the place of the gradient of result `output`. */
static inline tt_tensor **tt__reached_grad(tt__reached_node *n, int output) {
    return n->node->outputs == 1 ? &n->one : &n->many[output];
}

/* To be embedded in the object that is told of failures. Zeroed, it is not registered. */
typedef struct tt__pass_watcher {
    struct tt__pass_watcher *next, **at;
    /* A pass has failed on this thread, with its last error, and its end-of-pass callbacks have run. reach: what the
     * pass would have reached; NULL: unknown, because memory ran out first. The callback must keep the last error. A
     * lock is held, so it must not register or remove watchers, nor run a pass. */
    void (*failed)(void *user, const tt__reach *reach);
    void *user;
} tt__pass_watcher;

/* Register a watcher, and remove it (nothing happens if it is not registered). From any thread. Watchers hear of the
 * passes of all threads, each on the thread that ran it. After removal no call is under way. */
void tt__watch_passes(tt__pass_watcher *watcher, void (*failed)(void *user, const tt__reach *reach), void *user);
void tt__unwatch_passes(tt__pass_watcher *watcher);

/* Call all watchers. */
void tt__pass_failed(const tt__reach *reach);

#endif
