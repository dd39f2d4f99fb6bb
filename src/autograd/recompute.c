/* A segment whose record is dropped after forward, and made anew in backward by running the segment again. This trades
 * time for the memory of activations (Chen et al., "Training deep nets with sublinear memory cost", 2016).
 *
 * The record of the whole segment is one node. Inputs that other operators made are saved; in backward, new leaves
 * stand for them in an inner pass. Inputs that are leaves themselves, such as parameters, collect their gradients in
 * that inner pass; the node's edges to them tell the outer pass and tt_reachable_leaves() that they are used here. */
#include "autograd/record.h"
#include "base/error.h"
#include "base/process/threads.h"
#include "tensor/core/pool.h"
#include "tensor/device/capture.h"
#include "tensor/random/generator.h"

#include <limits.h>

static const char who[] = "tt_recompute";

typedef struct segment { /* in the pool, not on the stack, as segments may be nested deeply */
    tt_segment forward;
    void *arg;
    tt_generator draws; /* the thread's default generator, as it was when the forward ran */
    int autocast;       /* autocast's state then */
} segment;

static bool is_leaf(const tt_tensor *x) { return x && x->history && x->history->is_leaf; }

/* Run the segment with autocast and the generator as they were in forward, and then restore the generator. */
static tt_tensor *run_again(const segment *s, tt_tensor *const *in, int n) {
    tt_generator *generator = tt_default_generator(), *now = tt__pool_alloc(sizeof *now);
    if (!now)
        return tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory for a generator", who);
    *now = *generator;
    *generator = s->draws;
    int autocast = tt__autocast_again(s->autocast);
    tt_tensor *y = s->forward(s->arg, in, n);
    tt_autocast_end(autocast);
    *generator = *now;
    tt__pool_free(now);
    return y;
}

/* Gather the segment's inputs: leaves as they are, and for the others new leaves over their data. */
static tt_status inputs_again(tt_node *node, tt_tensor **in) {
    for (int i = 0; i < node->inputs; i++) {
        tt_tensor *saved = tt__saved(node, i);
        if (node->edge[i].leaf || !node->save[i].tensor) {
            in[i] = node->edge[i].leaf;
            continue;
        }
        if (!saved || !(in[i] = tt__tensor_alias(who, saved, saved->shape, saved->stride, 0)))
            return tt_last_status();
        if (node->edge[i].wants && !tt_requires_grad_(in[i], true))
            return tt_last_status();
    }
    return TT_OK;
}

/* Give the gradients that the inner pass left at the inputs. */
static tt_status give_inputs(tt_node *node, tt_tensor *const *in) {
    for (int i = 0; i < node->inputs; i++) {
        tt_tensor *g = node->edge[i].leaf || !in[i] ? NULL : tt_grad(in[i]);
        if (g && tt__grad_wanted(node, i))
            TT__TRY(tt__grad_give(node, i, g));
    }
    return TT_OK;
}

static tt_status walk_again(tt_node *node, tt_tensor **in) {
    const segment *s = tt__state(node);
    tt_tensor *g = tt__grad_of(node, 0);
    TT__TRY(inputs_again(node, in));
    bool before = tt_enable_grad_begin();
    tt_tensor *y = run_again(s, in, node->inputs);
    tt_no_grad_end(before);
    if (!y)
        return tt__tensor_first_error(who);
    if (!tt__shape_equal(&y->shape, &g->shape))
        return tt__fail(TT_ERR_STATE, "%s: the segment gave %s when it was run again, and before the shape of %s", who,
                        TT__DESCRIBE(y), TT__DESCRIBE(g));
    if (!tt_requires_grad(y))
        return TT_OK;
    TT__TRY(tt_backward(y, .gradient = g));
    return give_inputs(node, in);
}

/* Check the stack: nested segments nest calls, in forward and backward. */
static tt_status check_stack(void) {
    size_t size;
    if (tt__stack_has_room(&size))
        return TT_OK;
    return tt__fail(TT_ERR_MEMORY,
                    "%s: segments are nested too deeply for this thread's stack of %zu KiB, which is nearly full: nest "
                    "fewer, or give the thread a larger stack (ulimit -s, pthread_attr_setstacksize())",
                    who, size >> 10);
}

static tt_status recompute_backward(tt_node *node) {
    TT__TRY(check_stack());
    tt_tensor **in = tt__pool_alloc((size_t)(node->inputs + 1) * sizeof *in);
    if (!in)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %d inputs", who, node->inputs);
    for (int i = 0; i < node->inputs; i++)
        in[i] = NULL;
    tt_status status = walk_again(node, in);
    tt__pool_free(in);
    return status;
}

static const tt__operator recompute_op = {.name = who, .backward = recompute_backward, .may_run_passes = true};

/* Record y as made by the segment. The saved tensors have the inputs' numbers; of leaves nothing is saved. */
static tt_tensor *record_segment(tt_tensor *y, int n, tt_tensor *const *in, const segment *s) {
    tt_node *node = tt__node_new(&recompute_op, n, in, 1, n, s, sizeof *s);
    tt_status status = node ? TT_OK : tt_last_status();
    for (int i = 0; i < n && !status; i++)
        status = tt__node_save(node, is_leaf(in[i]) && in[i]->requires_grad ? NULL : in[i], "an input");
    if (!status)
        tt__node_made(node, 0, y);
    tt__node_unref(node);
    return status ? tt__abandon(y) : y;
}

/* Run the segment without a record, in a scope of its own: only the result stays. */
static tt_tensor *run_unrecorded(const segment *s, tt_tensor *const *in, int64_t n) {
    bool before = tt_no_grad_begin();
    int scope = tt_scope_begin();
    tt_tensor *made = s->forward(s->arg, in, n), *y = NULL;
    tt_tensor *kept = made ? tt__tensor_detached(who, made) : NULL;
    tt_scope_end(scope);
    if (kept)
        y = tt__tensor_alias(who, kept, kept->shape, kept->stride, 0);
    tt__tensor_unref(kept);
    tt_no_grad_end(before);
    return y;
}

tt_tensor *tt_recompute_with(tt_segment forward, void *arg, tt_tensor *const *in, int64_t n) {
    if (!forward || n < 0 || n > INT_MAX || (n && !in))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected a function and its inputs, got %s and %lld inputs%s", who,
                               forward ? "one" : "NULL", (long long)n, n && !in ? " at NULL" : "");
    for (int64_t i = 0; i < n; i++)
        if (!in[i] || !(is_leaf(in[i]) ? tt__tensor_check_alive : tt__tensor_check)(who, in[i]))
            return NULL;
    if (check_stack() || tt__capture_refuse(who, NULL)) /* a replay could not repeat the segment's draws in backward */
        return tt__made(who, NULL, tt_last_status());
    segment *s = tt__pool_alloc(sizeof *s);
    if (!s)
        return tt__tensor_fail(TT_ERR_MEMORY, "%s: no memory for a segment", who);
    s->forward = forward;
    s->arg = arg;
    s->draws = *tt_default_generator();
    s->autocast = tt__autocast_state();
    tt_tensor *y = run_unrecorded(s, in, n);
    if (y && tt__wants_grad((int)n, in) && tt__is_float(y->dtype))
        y = record_segment(y, (int)n, in, s);
    tt__pool_free(s);
    return y;
}
