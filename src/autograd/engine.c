/* The backward pass.
 *
 * 1. Mark the nodes the loss depends on, from newest to oldest along the tape, and count for each leaf how often those nodes use it.
 * 2. Walk the marked nodes again in that order. Each is complete when its turn comes, as all that used its result is newer. Its backward
 *    writes its inputs' gradients straight to where they belong: a buffer of the node that made the input, or the leaf's gradient.
 * 3. A leaf whose last contribution came is final: its hooks run at once, while older nodes are still to come.
 * 4. A node that was walked is spent: what it held goes. At the end, failed or not, end-of-pass callbacks run. */
#include "autograd/node.h"

#include "base/error.h"
#include "tensor/pool.h"

typedef struct end_call {
    struct end_call *next;
    tt_status (*fn)(void *user, tt_status pass);
    void *user;
} end_call;

static _Thread_local struct {
    bool running;
    uint64_t pass; /* number of the pass under way in this thread's view; unique in the process */
    end_call *end_calls;
    bool failed; /* an operator could not get a destination */
} mine;

static uint64_t next_pass(void) {
    static _Atomic uint64_t passes;
    return atomic_fetch_add_explicit(&passes, 1, memory_order_relaxed) + 1;
}

static tt__node *node_of(const tt_tensor *x) {
    return x && x->history && !x->history->is_leaf ? (tt__node *)x->history : NULL;
}

/* ---- where gradients go ---- */

bool tt__grad_wanted(const tt__node *node, int input) {
    return node->wants[input] && node->input[input]->requires_grad;
}

static tt__grad_to node_grad_begin(tt__node *node) {
    if (node->grad)
        return (tt__grad_to){.data = node->grad->data, .accumulate = true};
    tt_tensor *grad = tt__tensor_new("tt_backward", node->output->shape, node->output->dtype);
    if (!grad)
        return (tt__grad_to){.data = NULL};
    tt_keep(grad);
    grad->storage->recycle = true;
    node->grad = grad;
    return (tt__grad_to){.data = grad->data};
}

tt__grad_to tt__grad_begin(tt__node *node, int input) {
    if (!tt__grad_wanted(node, input))
        return (tt__grad_to){.data = NULL};
    tt__leaf *leaf = tt__leaf_of(node->input[input]);
    tt__node *made_by = node_of(node->input[input]);
    if (!leaf && !made_by)
        return (tt__grad_to){.data = NULL};
    tt__grad_to to = leaf ? tt__leaf_grad_begin(leaf) : node_grad_begin(made_by);
    mine.failed = mine.failed || !to.data;
    return to;
}

/* ---- the pass ---- */

static void expect(tt__leaf *leaf) {
    if (leaf->pass != mine.pass)
        leaf->pending = 0;
    leaf->pass = mine.pass;
    leaf->pending++;
}

/* A reached node's result is held until the node had its turn: the record that held it may be spent before. */
static void reach(tt__node *node) {
    if (!node->reached)
        tt__tensor_ref(node->output);
    node->reached = true;
}

/* Mark what is reached from `node`'s inputs. An input whose record is spent can't be followed. */
static tt_status reach_inputs(tt__node *node) {
    for (int i = 0; i < TT__NODE_INPUTS; i++) {
        tt_tensor *x = node->input[i];
        if (!tt__grad_wanted(node, i))
            continue;
        if (tt__leaf_of(x))
            expect(tt__leaf_of(x));
        else if (node_of(x))
            reach(node_of(x));
        else
            return tt__fail(TT_ERR_STATE,
                            "tt_backward: the record of %s, an input of %s, is spent: it went through backward before, "
                            "or its scope ended",
                            TT__DESCRIBE(x), node->name);
    }
    return TT_OK;
}

static void unmark(tt__node *from) {
    for (tt__node *node = from; node; node = node->older) {
        if (node->reached)
            tt__tensor_unref(node->output);
        node->reached = false;
    }
}

static tt_status mark(tt__node *loss) {
    reach(loss);
    for (tt__node *node = loss; node; node = node->older) {
        tt_status status = node->reached ? reach_inputs(node) : TT_OK;
        if (status) {
            unmark(loss);
            return status;
        }
    }
    return TT_OK;
}

static tt_status run_hooks(tt__leaf *leaf) {
    tt__hook *next = NULL;
    for (tt__hook *hook = leaf->hooks; hook; hook = next) {
        next = hook->next; /* a hook may remove itself */
        leaf->in_hooks = true;
        tt_status status = hook->fn(leaf->tensor, hook->user);
        leaf->in_hooks = false;
        TT__TRY(status);
    }
    return TT_OK;
}

/* Last input first: a layer's bias is ready before its weight, as in PyTorch. */
static tt_status settle_leaves(tt__node *node) {
    for (int i = TT__NODE_INPUTS - 1; i >= 0; i--) {
        tt__leaf *leaf = tt__grad_wanted(node, i) ? tt__leaf_of(node->input[i]) : NULL;
        if (leaf && --leaf->pending == 0)
            TT__TRY(run_hooks(leaf));
    }
    return TT_OK;
}

static tt_status run_node(tt__node *node) {
    if (node->grad) {
        mine.failed = false;
        TT__TRY(node->backward(node));
        if (mine.failed)
            return tt__fail(TT_ERR_MEMORY, "tt_backward: no memory for a gradient of %s", node->name);
    }
    return settle_leaves(node);
}

/* Runs all, and spends every marked node even after a failure. */
static tt_status walk(tt__node *loss) {
    tt_status status = TT_OK;
    tt__node *older = NULL;
    for (tt__node *node = loss; node; node = older) {
        if (node->reached && !status)
            status = run_node(node);
        older = node->older;
        if (node->reached) {
            tt_tensor *output = node->output;
            tt__node_sever(node);
            tt__tensor_unref(output);
        }
    }
    return status;
}

static tt_status run_end_calls(tt_status status) {
    while (mine.end_calls) {
        end_call *call = mine.end_calls;
        mine.end_calls = call->next;
        tt_status result = call->fn(call->user, status);
        tt__pool_free(call);
        if (!status)
            status = result;
    }
    return status;
}

tt_status tt__backward_on_end(tt_status (*fn)(void *user, tt_status pass), void *user) {
    if (!mine.running)
        return tt__fail(TT_ERR_STATE, "an end-of-backward callback was given outside of backward");
    end_call **end = &mine.end_calls;
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

/* The gradient of the loss with respect to itself. */
static void seed(tt__grad_to to, tt_dtype dtype) {
    if (dtype == TT_F32)
        *(float *)to.data = (to.accumulate ? *(float *)to.data : 0) + 1;
    else
        *(double *)to.data = (to.accumulate ? *(double *)to.data : 0) + 1;
}

static tt_status pass_from_leaf(tt__leaf *leaf) {
    tt__grad_to to = tt__leaf_grad_begin(leaf);
    if (!to.data)
        return tt_last_status();
    seed(to, leaf->tensor->dtype);
    return run_hooks(leaf);
}

static tt_status pass_from_node(tt__node *node) {
    TT__TRY(mark(node));
    tt__grad_to to = node_grad_begin(node);
    if (!to.data) {
        unmark(node);
        return tt_last_status();
    }
    seed(to, node->output->dtype);
    return walk(node);
}

static tt_status check(const tt_tensor *loss) {
    if (mine.running)
        return tt__fail(TT_ERR_STATE, "tt_backward: called from inside tt_backward");
    if (loss->numel != 1)
        return tt__fail(TT_ERR_SHAPE, "tt_backward: expected a loss of one element, got %s", TT__DESCRIBE(loss));
    if (loss->spent)
        return tt__fail(TT_ERR_STATE,
                        "tt_backward: the record of %s is spent: it went through backward before, or its scope ended",
                        TT__DESCRIBE(loss));
    if (!loss->history)
        return tt__fail(TT_ERR_STATE, "tt_backward: nothing that %s was computed from requires a gradient",
                        TT__DESCRIBE(loss));
    return TT_OK;
}

tt_status tt_backward(tt_tensor *loss) {
    if (!loss)
        return tt__tensor_first_error("tt_backward");
    TT__TRY(check(loss));
    bool no_grad = tt_no_grad_begin(); /* operators that hooks use are not recorded */
    mine.running = true;
    mine.pass = next_pass();
    tt__tensor_ref(loss);
    tt__leaf *leaf = tt__leaf_of(loss);
    tt_status status = leaf ? pass_from_leaf(leaf) : pass_from_node(node_of(loss));
    status = run_end_calls(status);
    tt__tensor_unref(loss);
    mine.running = false;
    tt_no_grad_end(no_grad);
    return status;
}
