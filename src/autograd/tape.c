/* Recording: nodes, the thread's tape, no_grad, detach. */
#include "autograd/node.h"

#include "base/error.h"
#include "tensor/pool.h"

#include <string.h>

static _Thread_local struct {
    tt__node *newest;
    bool no_grad;
} mine;

bool tt_no_grad_begin(void) {
    bool before = mine.no_grad;
    mine.no_grad = true;
    return before;
}

void tt_no_grad_end(bool before) { mine.no_grad = before; }

void tt_no_grad_cleanup(const bool *before) { tt_no_grad_end(*before); }

bool tt__wants_grad(int n, tt_tensor *const *inputs) {
    for (int i = 0; i < n && !mine.no_grad; i++)
        if (inputs[i] && inputs[i]->requires_grad)
            return true;
    return false;
}

static void unlink_node(tt__node *node) {
    if (node->newer)
        node->newer->older = node->older;
    else
        mine.newest = node->older;
    if (node->older)
        node->older->newer = node->newer;
}

void tt__node_sever(tt__node *node) {
    node->output->history = NULL;
    node->output->spent = true;
    node->history.release(&node->history);
}

static void node_release(tt__history *history) {
    tt__node *node = (tt__node *)history;
    unlink_node(node);
    tt__tensor_unref(node->grad);
    tt__tensor_disown(node->saved);
    for (int i = 0; i < TT__NODE_INPUTS; i++)
        tt__tensor_unref(node->input[i]);
    tt__pool_free(node);
}

/* What a scope recorded ends with it, so that a tensor kept from it does not keep all the others. */
static void scope_ending(uint64_t began) {
    while (mine.newest && mine.newest->order > began)
        tt__node_sever(mine.newest);
}

tt__node *tt__record(const char *name, tt__backward_fn backward, tt_tensor *output, int n, tt_tensor *const *inputs) {
    tt__node *node = tt__pool_alloc(sizeof *node);
    if (!node) {
        tt__abandon(output);
        return tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory to record the call", name);
    }
    memset(node, 0, sizeof *node);
    tt__scope_set_ending(scope_ending);
    node->history.release = node_release;
    node->name = name;
    node->backward = backward;
    node->output = output;
    for (int i = 0; i < n; i++) {
        node->input[i] = tt__tensor_ref(inputs[i]);
        node->wants[i] = inputs[i] && inputs[i]->requires_grad;
    }
    node->order = tt__scope_clock();
    node->older = mine.newest;
    if (mine.newest)
        mine.newest->newer = node;
    mine.newest = node;
    output->history = &node->history;
    output->requires_grad = true;
    return node;
}

void tt__node_save(tt__node *node, tt_tensor *x) {
    tt_keep(x);
    x->storage->recycle = true;
    x->owner = TT__OWNER_HOLDER;
    x->holder = "the tape";
    node->saved = x;
}

tt_tensor *tt__abandon(tt_tensor *x) {
    if (x && x->owner == TT__OWNER_CALLER)
        tt__tensor_unref(x);
    return NULL;
}

tt_tensor *tt_detach(tt_tensor *x) { return x ? tt__tensor_alias("tt_detach", x, x->shape, x->stride, 0) : NULL; }
