/* Open passes: which node is next, and whose gradients are awaited. backward.c walks them. */
#include "autograd/backward.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static tt_status open_pass_no_memory(void) { return tt__fail(TT_ERR_MEMORY, "tt_backward: no memory for a pass"); }

/* ---- leaves, numbered as they are met */

static bool grow_leaves(tt__open_pass *open) {
    int64_t room = open->leaf_room ? 2 * open->leaf_room : 16;
    tt_tensor **leaves = realloc(open->leaves, (size_t)room * sizeof *leaves);
    if (leaves)
        open->leaves = leaves;
    tt_tensor **grads = leaves ? realloc(open->capture.grads, (size_t)room * sizeof *grads) : NULL;
    if (!grads)
        return false;
    open->capture.grads = grads;
    open->leaf_room = room;
    return true;
}

/* Without memory a leaf gets its gradient itself. tt__open_pass_new() has numbered all leaves, except those that only a
 * node's own pass reaches. */
static int64_t number_leaf(tt__capture *capture, tt_tensor *leaf) {
    tt__open_pass *open = (tt__open_pass *)capture;
    if (open->leaf_count == open->leaf_room && !grow_leaves(open))
        return -1;
    if (!tt__pointer_map_put(&capture->at, leaf, open->leaf_count))
        return -1;
    open->leaves[open->leaf_count] = tt__tensor_ref(leaf);
    capture->grads[open->leaf_count] = NULL;
    return open->leaf_count++;
}

static tt_status leaf_of_pass_is_final(tt__capture *capture, tt_tensor *leaf) {
    tt__open_pass *open = (tt__open_pass *)capture;
    int64_t number = tt__pointer_map_get(&capture->at, leaf);
    return open->is_final && number >= 0 ? open->is_final(open->user, leaf, capture->grads[number]) : TT_OK;
}

static tt_status number_leaves(tt__open_pass *open) {
    for (int64_t i = 0; i < open->reach.leaf_count; i++)
        if (number_leaf(&open->capture, open->reach.leaves[i].tensor) < 0)
            return open_pass_no_memory();
    return TT_OK;
}

/* ---- */

static tt_status open_pass_fill(tt__open_pass *open, tt_node *const *sources, int64_t count) {
    TT__TRY(tt__reach_from_nodes(&open->reach, sources, count));
    int64_t nodes = open->left = open->reach.node_count;
    open->waits = calloc((size_t)nodes + 1, sizeof *open->waits);
    open->walked = calloc((size_t)nodes + 1, sizeof *open->walked);
    open->held = calloc((size_t)nodes + 1, sizeof *open->held);
    if (!open->waits || !open->walked || !open->held)
        return open_pass_no_memory();
    for (int64_t i = 0; i < count; i++)
        open->waits[tt__reach_node(&open->reach, sources[i]) - open->reach.nodes] = true;
    tt__reach_count(&open->reach); /* all leaves are wanted: TT__NOW is 0 */
    return number_leaves(open);
}

tt_status tt__open_pass_new(tt__open_pass **out, tt_node *const *sources, int64_t count, bool retain,
                            tt_status (*is_final)(void *user, tt_tensor *leaf, tt_tensor *gradient), void *user) {
    tt__open_pass *open = calloc(1, sizeof *open);
    *out = NULL;
    if (!open)
        return open_pass_no_memory();
    open->capture = (tt__capture){.number = number_leaf, .is_final = leaf_of_pass_is_final};
    open->retain = true; /* so that a failure spends no record */
    open->is_final = is_final;
    open->user = user;
    tt_status status = open_pass_fill(open, sources, count);
    if (status) {
        tt__open_pass_free(open);
        return status;
    }
    open->retain = retain;
    *out = open;
    return TT_OK;
}

static tt_status check_came(const tt_node *source, int output, const tt_tensor *gradient) {
    const tt__edge *edge = &source->edge[output];
    if (edge->wants && tt__shape_equal(&gradient->shape, &edge->shape) && gradient->dtype == edge->dtype &&
        tt__device_of(gradient) == edge->device)
        return TT_OK;
    tt_tensor like = {.dtype = edge->dtype, .shape = edge->shape};
    return tt__fail(TT_ERR_MISMATCH, "%s: expected a gradient %s on %s for number %d, got %s on %s", source->op->name,
                    edge->wants ? TT__DESCRIBE(&like) : "of none", edge->device ? edge->device->name : "no device",
                    output, TT__DESCRIBE(gradient), tt__device_of(gradient)->name);
}

tt_status tt__open_pass_give(tt__open_pass *open, const tt_node *source, tt_tensor *const *gradients, int64_t count) {
    tt__reached_node *n = tt__reach_node(&open->reach, source);
    if (!n || !open->waits[n - open->reach.nodes])
        return tt__fail(TT_ERR_STATE, "%s: its gradients came %s", source->op->name,
                        n ? "twice" : "and the pass does not need them");
    if (count != source->outputs)
        return tt__fail(TT_ERR_MISMATCH, "%s: expected gradients of %d tensors, got %" PRId64, source->op->name,
                        source->outputs, count);
    for (int k = 0; k < source->outputs; k++)
        if (gradients[k])
            TT__TRY(check_came(source, k, gradients[k]));
    for (int k = 0; k < source->outputs; k++)
        *tt__reached_grad(n, k) = tt__tensor_ref(gradients[k]);
    open->waits[n - open->reach.nodes] = false;
    return TT_OK;
}

/* Hold the older nodes that this one uses: they wait for it. */
static void hold_older(const tt__open_pass *open, const tt_node *node) {
    for (int i = 0; i < node->inputs; i++) {
        const tt__reached_node *older = tt__reach_node(&open->reach, node->edge[i].node);
        if (older)
            open->held[older - open->reach.nodes] = true;
    }
}

int64_t tt__open_pass_next(tt__open_pass *open, int64_t after) {
    if (after < 0)
        memset(open->held, 0, (size_t)open->reach.node_count * sizeof *open->held);
    else
        open->walked[after] = true, open->left--;
    for (int64_t i = after + 1; i < open->reach.node_count; i++) {
        if (open->walked[i])
            continue;
        if (!open->held[i] && !open->waits[i])
            return i;
        hold_older(open, open->reach.nodes[i].node);
    }
    return -1;
}

void tt__open_pass_free(tt__open_pass *open) {
    if (!open)
        return;
    for (int64_t i = 0; i < open->reach.node_count && !open->retain; i++)
        tt__node_spend(open->reach.nodes[i].node);
    for (int64_t i = 0; i < open->leaf_count; i++) {
        tt__tensor_unref(open->leaves[i]);
        tt__tensor_unref(open->capture.grads[i]);
    }
    tt__pointer_map_free(&open->capture.at);
    tt__reach_free(&open->reach);
    free(open->leaves);
    free(open->capture.grads);
    free(open->waits);
    free(open->walked);
    free(open->held);
    free(open);
}
