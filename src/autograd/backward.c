/* The backward pass.
 *
 * 1. Find the nodes and leaves that y depends on (reach.c), and mark what is wanted.
 * 2. Walk the nodes, newest first. A node's gradient is complete when the walk reaches it, because all users of its
 *    results are newer. Its operator gives gradients of its inputs to the slot of the node that made the input, or to
 *    the leaf.
 * 3. A leaf that has its last contribution is final: its hooks run at once, before older nodes are walked.
 * 4. A node that was walked is spent, unless its record is retained or some of its leaves wait for a later pass. At
 *    the end, failed or not, end-of-pass callbacks run.
 *
 * The state of a pass lies in the pass, not in nodes: a pass may begin inside another (recomputation), and several
 * threads may walk records that share leaves. */
#include "autograd/backward.h"
#include "autograd/leaf.h"
#include "autograd/node.h"
#include "autograd/reach.h"
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "tensor/core/pool.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>

typedef struct end_call {
    struct end_call *next;
    tt_status (*fn)(void *user, tt_status pass);
    void *user;
} end_call;

struct tt_deferred_backward {
    tt__reach reach;
    bool retain;
};

typedef struct pass {
    struct pass *outer; /* the pass of this thread inside which this one began, or NULL */
    tt__reach *reach;
    tt__when part;        /* TT__NOW, or TT__LATER: the leaves that were left out */
    tt__reached_node *at; /* the node whose backward runs */
    end_call *end_calls;  /* kept by the outermost pass */
    bool retain, defers;
    bool walked; /* all nodes have run */
    bool found;  /* `reach` is complete */
} pass;

static _Thread_local pass *current;
static _Thread_local bool in_hook;
static _Thread_local tt__capture *capturing; /* takes the gradients of leaves, or NULL */

/* Return where a captured gradient of the leaf goes; NULL: it is not captured, and goes to the leaf. */
static tt_tensor **captured_slot(const tt_tensor *leaf) {
    int64_t i = capturing && leaf ? tt__pointer_map_get(&capturing->at, leaf) : -1;
    if (i < 0 && capturing && leaf && capturing->number)
        i = capturing->number(capturing, (tt_tensor *)leaf);
    return i < 0 ? NULL : &capturing->grads[i];
}

/* ---- what an operator sees */

static bool edge_wanted(const pass *p, const tt__edge *edge) {
    const tt__reached_leaf *leaf = tt__reach_leaf(p->reach, edge->leaf);
    if (edge->leaf)
        return leaf && leaf->when == p->part && tt__leaf_of(edge->leaf);
    const tt__reached_node *node = tt__reach_node(p->reach, edge->node);
    return node && node->useful && p->part == TT__NOW;
}

bool tt__grad_wanted(const tt_node *node, int i) {
    return current && i >= 0 && i < node->inputs && edge_wanted(current, &node->edge[i]);
}

tt_tensor *tt__grad_of(const tt_node *node, int output) {
    return current && output >= 0 && output < node->outputs ? *tt__reached_grad(current->at, output) : NULL;
}

tt_tensor *tt__saved(const tt_node *node, int i) {
    if (i < 0 || i >= node->saved || !node->save[i].tensor)
        return NULL;
    const tt__saved_tensor *s = &node->save[i];
    uint32_t now = atomic_load_explicit(&s->tensor->storage->version, memory_order_relaxed);
    if (tt__storage_is_away(s->tensor->storage))
        return tt__fail_null(TT_ERR_STATE, "tt_backward: %s needs \"%s\": %s", node->op->name, s->name,
                             tt__away_text(s->tensor, (char[400]){0}, 400));
    if (now == s->version)
        return s->tensor;
    return tt__fail_null(TT_ERR_STATE,
                         "tt_backward: %s needs \"%s\", %s, as it was when the call was recorded, but it was "
                         "overwritten since (version %" PRIu32 ", then %" PRIu32 "); overwrite a tt_clone() instead",
                         node->op->name, s->name, TT__DESCRIBE(s->tensor), now, s->version);
}

static tt_tensor *fresh_dest(const tt_node *node, const tt__edge *edge) {
    int64_t stride[TT_MAX_DIMS];
    tt__shape_dense_strides(&edge->shape, edge->stride, stride);
    return tt__tensor_new_on(node->op->name, edge->device, edge->shape, edge->dtype, stride);
}

tt_tensor *tt__grad_dest(tt_node *node, int i) {
    const tt__edge *edge = &node->edge[i];
    tt_tensor *dest = NULL;
    if (edge->leaf && !captured_slot(edge->leaf) && tt__leaf_lend(tt__leaf_of(edge->leaf), current, &dest))
        return NULL;
    return dest ? dest : fresh_dest(node, edge);
}

/* May the gradient of the node's result be overwritten? Leaves that wait for later need it again, and so does anomaly
 * mode, which looks where a NaN came from. */
static bool grad_is_spent(const tt_node *node, const tt_tensor *g) {
    return node->outputs == 1 && g && tt__tensor_is_exclusive(g) && !current->defers && !tt_is_anomaly_enabled();
}

tt_tensor *tt__grad_over(tt_node *node, int i) {
    const tt__edge *edge = &node->edge[i];
    tt_tensor *g = tt__grad_of(node, 0);
    int64_t stride[TT_MAX_DIMS];
    if (edge->leaf || !grad_is_spent(node, g) || g->dtype != edge->dtype || tt__device_of(g) != edge->device ||
        !tt__shape_equal(&g->shape, &edge->shape))
        return tt__grad_dest(node, i);
    tt__shape_dense_strides(&edge->shape, edge->stride, stride);
    for (int d = 0; d < g->shape.ndim; d++)
        if (g->stride[d] != stride[d])
            return tt__grad_dest(node, i);
    return g;
}

/* ---- giving gradients on */

static tt_status check_given(const tt_node *node, int i, const tt_tensor *x) {
    const tt__edge *edge = &node->edge[i];
    if (tt__shape_equal(&x->shape, &edge->shape) && x->dtype == edge->dtype && tt__device_of(x) == edge->device)
        return TT_OK;
    tt_tensor like = {.dtype = edge->dtype, .shape = edge->shape};
    return tt__fail(x->dtype != edge->dtype ? TT_ERR_DTYPE : TT_ERR_SHAPE,
                    "tt_backward: %s gave input %d a gradient %s on %s; expected %s on %s, as the input",
                    node->op->name, i, TT__DESCRIBE(x), tt__device_of(x)->name, TT__DESCRIBE(&like),
                    edge->device->name);
}

/* In anomaly mode: is the gradient that the node gives to its input `i` free of NaN? */
static tt_status check_numbers(const tt_node *node, int i, const tt_tensor *x) {
    int64_t at = tt_is_anomaly_enabled() ? tt__find_nan("tt_backward", x) : -1;
    bool came_with_one = false;
    if (at < 0)
        return TT_OK;
    for (int k = 0; k < node->outputs; k++)
        came_with_one |= tt__grad_of(node, k) && tt__find_nan("tt_backward", tt__grad_of(node, k)) >= 0;
    return tt__anomaly_fail(node->op->name, node->number, node->site, i, x, at, came_with_one);
}

/* Take a gradient for a slot: one that this backward made leaves its scope; any other gets one more reference. */
static tt_tensor *take_gradient(tt_tensor *x) {
    if (!tt__scope_is_innermost(&x->entry))
        return tt__tensor_ref(x);
    tt__scope_remove(&x->entry, TT__ENTRY_TENSOR);
    x->owner = TT__OWNER_HOLDER;
    x->holder = "a backward pass";
    return x;
}

static tt_status add_to_slot(tt_tensor **slot, tt_tensor *x) {
    if (!*slot) {
        *slot = take_gradient(x);
        return TT_OK;
    }
    if (tt__tensor_is_exclusive(*slot))
        return tt__add_out("tt_backward", *slot, *slot, x);
    tt_tensor *sum = tt__empty_like("tt_backward", *slot);
    if (!sum || tt__add_out("tt_backward", sum, *slot, x))
        return tt_last_status();
    tt__tensor_unref(*slot);
    *slot = take_gradient(sum);
    return TT_OK;
}

/* Add a gradient to a leaf. If it is the leaf's own tensor, which was lent for writing, only end the loan. */
static tt_status add_to_leaf(tt__leaf *leaf, tt_tensor *x) {
    if (x == leaf->grad)
        return tt__leaf_add(leaf, current, x, false);
    tt_tensor *mine = take_gradient(x);
    tt_status status = tt__leaf_add(leaf, current, mine, tt__tensor_is_exclusive(mine));
    tt__tensor_unref(mine);
    return status;
}

tt_status tt__grad_give(tt_node *node, int i, tt_tensor *x) {
    if (!x)
        return tt_last_status()
                   ? tt_last_status()
                   : tt__fail(TT_ERR_MEMORY, "tt_backward: no memory for a gradient of %s", node->op->name);
    if (!current)
        return tt__fail(TT_ERR_STATE, "%s: gradients are given in its backward, not in its forward", node->op->name);
    if (!tt__grad_wanted(node, i))
        return TT_OK;
    TT__TRY(check_given(node, i, x));
    TT__TRY(check_numbers(node, i, x));
    const tt__edge *edge = &node->edge[i];
    if (captured_slot(edge->leaf))
        return add_to_slot(captured_slot(edge->leaf), x);
    if (edge->leaf)
        return add_to_leaf(tt__leaf_of(edge->leaf), x);
    return add_to_slot(tt__reached_grad(tt__reach_node(current->reach, edge->node), edge->output), x);
}

tt_status tt__grad_give_rows(tt_node *node, int i, tt_tensor *rows, tt_tensor *values) {
    const tt__edge *edge = &node->edge[i];
    if (!tt__grad_wanted(node, i))
        return TT_OK;
    TT__TRY(check_numbers(node, i, values));
    if (captured_slot(edge->leaf))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "tt_backward: %s gave %s a sparse gradient, and threads that share it (tt_data_parallel()) add "
                        "up gradients of the whole: leave .sparse out",
                        node->op->name, TT__DESCRIBE(edge->leaf));
    return tt__leaf_add_rows(tt__leaf_of(edge->leaf), rows, values);
}

/* ---- walking */

static bool others_wait_for(const pass *p, const tt_tensor *leaf) {
    for (const pass *outer = p->outer; outer; outer = outer->outer) {
        const tt__reached_leaf *l = tt__reach_leaf(outer->reach, leaf);
        if (l && l->pending > 0 && l->when != TT__NEVER)
            return true;
    }
    return false;
}

static tt_status leaf_is_final(const pass *p, const tt__reached_leaf *leaf) {
    if (!tt__leaf_of(leaf->tensor) || others_wait_for(p, leaf->tensor))
        return TT_OK;
    if (captured_slot(leaf->tensor))
        return capturing->is_final && !p->outer ? capturing->is_final(capturing, leaf->tensor) : TT_OK;
    in_hook = true;
    tt_status status = tt__leaf_run_hooks(tt__leaf_of(leaf->tensor));
    in_hook = false;
    return status;
}

/* Settle leaves, last input first: a layer's bias is ready before its weight, as in PyTorch. */
static tt_status settle_leaves(const pass *p, const tt_node *node) {
    for (int i = node->inputs - 1; i >= 0; i--) {
        tt__reached_leaf *leaf = tt__reach_leaf(p->reach, node->edge[i].leaf);
        if (leaf && leaf->when == p->part && --leaf->pending == 0)
            TT__TRY(leaf_is_final(p, leaf));
    }
    return TT_OK;
}

static void unlend_leaves(const pass *p, const tt_node *node) {
    for (int i = 0; i < node->inputs; i++)
        if (tt__leaf_of(node->edge[i].leaf))
            tt__leaf_unlend(tt__leaf_of(node->edge[i].leaf), p);
}

static bool has_gradient(tt__reached_node *n) {
    for (int k = 0; k < n->node->outputs; k++)
        if (*tt__reached_grad(n, k))
            return true;
    return false;
}

static bool wants_anything(const pass *p, const tt_node *node) {
    for (int i = 0; i < node->inputs; i++)
        if (edge_wanted(p, &node->edge[i]))
            return true;
    return false;
}

static tt_status run_node(pass *p, tt__reached_node *n) {
    tt_status status = TT_OK;
    if (has_gradient(n) && wants_anything(p, n->node)) {
        int scope = tt_scope_begin();
        p->at = n;
        status = n->node->op->backward(n->node);
        p->at = NULL;
        tt_scope_end(scope);
    }
    if (status)
        unlend_leaves(p, n->node);
    return status ? status : settle_leaves(p, n->node);
}

static void drop_gradients(tt__reached_node *n) {
    for (int k = 0; k < n->node->outputs; k++) {
        tt__tensor_unref(*tt__reached_grad(n, k));
        *tt__reached_grad(n, k) = NULL;
    }
}

static bool has_leaves_for_later(const pass *p, const tt_node *node) {
    for (int i = 0; i < node->inputs && p->defers; i++) {
        const tt__reached_leaf *leaf = tt__reach_leaf(p->reach, node->edge[i].leaf);
        if (leaf && leaf->when == TT__LATER)
            return true;
    }
    return false;
}

/* Run all nodes; after a failure no more run, but records are spent. */
static tt_status pass_run(pass *p) {
    tt_status status = TT_OK;
    for (int64_t i = 0; i < p->reach->node_count; i++) {
        tt__reached_node *n = &p->reach->nodes[i];
        if (!status && n->useful)
            status = run_node(p, n);
        if (!status && has_leaves_for_later(p, n->node))
            continue;
        drop_gradients(n);
        if (!p->retain)
            tt__node_spend(n->node);
    }
    return status;
}

/* ---- the end of a pass */

static pass *outermost_pass(void) {
    pass *p = current;
    while (p && p->outer)
        p = p->outer;
    return p;
}

static tt_status run_end_calls(pass *p, tt_status status) {
    while (p->end_calls) {
        end_call *call = p->end_calls;
        p->end_calls = call->next;
        tt_status result = call->fn(call->user, status);
        tt__pool_free(call);
        if (!status)
            status = result;
    }
    return status;
}

tt_status tt__backward_on_end(tt_status (*fn)(void *user, tt_status pass), void *user) {
    pass *p = outermost_pass();
    if (!p)
        return tt__fail(TT_ERR_STATE, "an end-of-backward callback was given outside of backward");
    end_call **end = &p->end_calls;
    for (; *end; end = &(*end)->next)
        if ((*end)->fn == fn && (*end)->user == user)
            return TT_OK;
    end_call *call = tt__pool_alloc(sizeof *call);
    if (!call)
        return tt__fail(TT_ERR_MEMORY, "tt_backward: no memory for an end-of-backward callback");
    *call = (end_call){.fn = fn, .user = user};
    *end = call;
    return TT_OK;
}

/* Run a pass. Operators inside are not recorded. */
static tt_status run_pass(pass *p, tt_status (*body)(pass *p, void *user), void *user) {
    bool no_grad = tt_no_grad_begin();
    p->outer = current;
    current = p;
    tt_status status = body(p, user);
    p->walked = true;
    if (!p->outer)
        status = run_end_calls(p, status);
    if (status && !p->outer && !capturing) /* of a captured pass, the pass around it reports the failure */
        tt__pass_failed(p->found ? p->reach : NULL);
    current = p->outer;
    tt_no_grad_end(no_grad);
    return status;
}

/* Does the leaf still wait for gradients, of this pass or of its second part? */
static bool leaf_is_awaited(const pass *p, const tt__reached_leaf *leaf) {
    if (leaf->when == TT__LATER && p->part == TT__NOW)
        return true;
    return leaf->when == p->part && leaf->pending > 0;
}

bool tt__gradient_may_come(const tt_tensor *x) {
    for (const pass *p = current; p; p = p->outer) {
        const tt__reached_leaf *leaf = tt__reach_leaf(p->reach, x);
        if ((leaf && leaf_is_awaited(p, leaf)) || (p->reach->may_reach_more && !p->walked))
            return true;
    }
    return false;
}

/* ---- beginning one */

/* Make the gradient of y with respect to itself, if none was given. Returns a reference. */
static tt_tensor *ones_like(const tt_tensor *y) {
    int scope = tt_scope_begin();
    tt_tensor *one = tt__empty_like("tt_backward", y);
    tt_tensor *kept = one && !tt__fill_out("tt_backward", one, 1) ? take_gradient(one) : NULL;
    tt_scope_end(scope);
    return kept;
}

static void choose_leaves(tt__reach *reach, const tt_backward_args *a) {
    bool all_now = !a->deferred && !a->inputs;
    for (int64_t i = 0; i < reach->leaf_count; i++)
        reach->leaves[i].when = all_now ? TT__NOW : a->deferred ? TT__LATER : TT__NEVER;
    for (int64_t i = 0; a->inputs && i < a->input_count; i++) {
        tt__reached_leaf *leaf = tt__reach_leaf(reach, a->inputs[i]);
        if (leaf)
            leaf->when = TT__NOW;
    }
    for (int64_t i = 0; capturing && i < reach->leaf_count; i++) {
        int64_t number = tt__pointer_map_get(&capturing->at, reach->leaves[i].tensor);
        if (number >= 0 && capturing->wanted && !capturing->wanted[number])
            reach->leaves[i].when = TT__NEVER;
    }
    tt__reach_count(reach);
}

static tt_status start_at_leaf(pass *p, const tt_tensor *y, tt_tensor *gradient) {
    tt__reached_leaf *leaf = tt__reach_leaf(p->reach, y);
    if (leaf->when != TT__NOW)
        return TT_OK;
    if (captured_slot(y))
        return add_to_slot(captured_slot(y), gradient);
    TT__TRY(tt__leaf_add(tt__leaf_of(y), p, gradient, tt__tensor_is_exclusive(gradient)));
    return leaf_is_final(p, leaf);
}

static tt_status first_pass(pass *p, void *user) {
    const tt_backward_args *a = user;
    TT__TRY(tt__reach_from(p->reach, a->y));
    p->found = true;
    choose_leaves(p->reach, a);
    tt_tensor *gradient = a->gradient ? tt__tensor_ref((tt_tensor *)a->gradient) : ones_like(a->y);
    if (!gradient)
        return tt_last_status();
    if (tt__leaf_of(a->y)) {
        tt_status status = start_at_leaf(p, a->y, gradient);
        tt__tensor_unref(gradient);
        return status;
    }
    *tt__reached_grad(tt__reach_node(p->reach, tt__node_of(a->y)), a->y->output) = gradient;
    return pass_run(p);
}

/* ---- open passes, whose gradients come from elsewhere, one after the other */

static tt_status walk_open(pass *p, void *user) {
    tt__open_pass *open = user;
    for (int64_t i = -1; (i = tt__open_pass_next(open, i)) >= 0;) {
        tt__reached_node *n = &p->reach->nodes[i];
        if (n->useful)
            TT__TRY(run_node(p, n));
        drop_gradients(n);
        if (!p->retain)
            tt__node_spend(n->node);
    }
    return TT_OK;
}

tt_status tt__open_pass_walk(tt__open_pass *open) {
    if (current)
        return tt__fail(TT_ERR_STATE, "a backward pass over workers begins outside of other passes");
    tt__capture *before = capturing;
    pass p = {.reach = &open->reach, .retain = open->retain, .found = true};
    capturing = &open->capture;
    tt_status status = run_pass(&p, walk_open, open);
    capturing = before;
    return status;
}

static tt_status check_gradient(const tt_tensor *y, const tt_tensor *gradient) {
    if (!gradient && y->numel != 1)
        return tt__fail(TT_ERR_SHAPE, "tt_backward: expected a loss of one element, or a .gradient, got %s",
                        TT__DESCRIBE(y));
    if (!gradient)
        return TT_OK;
    if (!tt__tensor_check("tt_backward", gradient))
        return TT_ERR_STATE;
    if (gradient->dtype != y->dtype || tt__device_of(gradient) != tt__device_of(y))
        return tt__fail(TT_ERR_DTYPE, "tt_backward: expected a gradient %s on %s, as y, got %s on %s",
                        tt_dtype_name(y->dtype), tt__device_of(y)->name, TT__DESCRIBE(gradient),
                        tt__device_of(gradient)->name);
    if (!tt__shape_equal(&y->shape, &gradient->shape))
        return tt__fail(TT_ERR_SHAPE, "tt_backward: expected a gradient of y's shape, %s, got %s", TT__DESCRIBE(y),
                        TT__DESCRIBE(gradient));
    return TT_OK;
}

static tt_status backward_check(const tt_backward_args *a) {
    const tt_tensor *y = a->y;
    if (in_hook)
        return tt__fail(TT_ERR_STATE, "tt_backward: called from inside a hook of tt_backward");
    if (!tt__tensor_check("tt_backward", y))
        return TT_ERR_STATE;
    TT__TRY(check_gradient(y, a->gradient));
    if (tt__node_of(y) && tt__node_is_spent(tt__node_of(y)))
        return tt__fail(TT_ERR_STATE,
                        "tt_backward: the record of %s is spent: it went through backward before, or its scope ended",
                        TT__DESCRIBE(y));
    if (!y->history)
        return tt__fail(TT_ERR_STATE, "tt_backward: nothing that %s was computed from requires a gradient",
                        TT__DESCRIBE(y));
    if (a->input_count < 0 || (a->input_count && !a->inputs))
        return tt__fail(TT_ERR_INVALID, "tt_backward: expected inputs, got a count of %" PRId64 " and %s",
                        a->input_count, a->inputs ? "a list" : "NULL");
    return TT_OK;
}

/* Run the first part; the records wait for the second one in *a->deferred. */
static tt_status begin_deferred(const tt_backward_args *a) {
    tt_deferred_backward *d = tt__pool_alloc(sizeof *d);
    if (!d)
        return tt__fail(TT_ERR_MEMORY, "tt_backward: no memory to leave gradients for later");
    d->retain = a->retain_graph;
    pass p = {.reach = &d->reach, .retain = a->retain_graph, .defers = true};
    d->reach = (tt__reach){0};
    tt_status status = run_pass(&p, first_pass, (void *)a);
    if (status)
        tt_deferred_backward_free(d);
    else
        *a->deferred = d;
    return status;
}

tt_status tt_backward_with(const tt_backward_args *args, size_t size) {
    tt_backward_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.deferred)
        *a.deferred = NULL;
    if (!a.y)
        return tt__tensor_first_error("tt_backward");
    TT__TRY(backward_check(&a));
    tt_status status;
    tt__tensor_ref(a.y);
    if (a.deferred) {
        status = begin_deferred(&a);
    } else {
        tt__reach reach = {0};
        pass p = {.reach = &reach, .retain = a.retain_graph};
        status = run_pass(&p, first_pass, &a);
        tt__reach_free(&reach);
    }
    tt__tensor_unref(a.y);
    if (!status)
        tt__tensor_forget_error();
    return status;
}

tt_status tt__backward_captured(tt_tensor *y, bool retain_graph, tt__capture *capture) {
    tt__capture *before = capturing;
    capturing = capture;
    tt_status status = tt_backward(y, .retain_graph = retain_graph);
    capturing = before;
    return status;
}

bool tt__node_is_kept(const tt_node *node) {
    return current && (current->retain || has_leaves_for_later(current, node));
}

/* ---- the second part */

static tt_status second_pass(pass *p, void *user) {
    (void)user;
    return pass_run(p);
}

tt_status tt_backward_deferred(tt_deferred_backward *deferred) {
    if (!deferred)
        return tt__fail(TT_ERR_INVALID, "tt_backward_deferred: nothing was deferred: it is NULL");
    if (in_hook)
        return tt__fail(TT_ERR_STATE, "tt_backward_deferred: called from inside a hook of tt_backward");
    pass p = {.reach = &deferred->reach, .part = TT__LATER, .retain = deferred->retain, .found = true};
    tt_status status = run_pass(&p, second_pass, NULL);
    tt__reach_free(&deferred->reach); /* a second call finds nothing to do */
    return status;
}

void tt_deferred_backward_free(tt_deferred_backward *deferred) {
    if (!deferred || tt__freed_before("tt_deferred_backward_free", deferred))
        return;
    for (int64_t i = 0; i < deferred->reach.node_count && !deferred->retain; i++)
        tt__node_spend(deferred->reach.nodes[i].node);
    tt__reach_free(&deferred->reach);
    tt__quarantine(deferred, sizeof *deferred, tt__pool_free);
}
