/* Operators of a user's own, whose forward and backward functions are called with the node. */
#include "autograd/record.h"
#include "base/error.h"

#include <limits.h>
#include <string.h>

enum { MAX_OUTPUTS = 64, MAX_SAVES = 32 };

/* The beginning of the node's state; the user's state follows. */
typedef struct call {
    tt__operator op; /* the node borrows it from its own state, which is destroyed last */
    tt_function function;
    int autocast; /* autocast's state in forward, which backward gets too */
} call;

static call *call_of_node(const tt_node *node) { return (call *)((char *)node->op - offsetof(call, op)); }

/* Run the user's backward. If it fails without a recorded error, record the status's text. */
static tt_status function_backward(tt_node *node) {
    const tt_function *f = &call_of_node(node)->function;
    uint64_t before = tt__error_count();
    int autocast = tt__autocast_again(call_of_node(node)->autocast);
    tt_status status = f->backward(node);
    tt_autocast_end(autocast);
    return status && tt__error_count() == before
               ? tt__fail(status, "tt_backward: %s: %s", f->name, tt_status_text(status))
               : status;
}

static size_t call_bytes(void) { return (sizeof(call) + 15) / 16 * 16; }

static void function_destroy(void *state) {
    call *c = state;
    if (c->function.destroy)
        c->function.destroy((char *)state + call_bytes());
}

static tt_status check_function(const tt_function *f, int64_t n) {
    if (!f || f->size < offsetof(tt_function, state_bytes))
        return tt__fail(TT_ERR_INVALID, "tt_apply: expected a function made by TT_FUNCTION(), got %s",
                        f ? "one without its size" : "NULL");
    if (!f->name || !f->forward)
        return tt__fail(TT_ERR_INVALID, "tt_apply: expected a function with a name and a forward, got \"%s\"",
                        f->name ? f->name : "");
    if (f->outputs < 0 || f->outputs > MAX_OUTPUTS)
        return tt__fail(TT_ERR_INVALID, "%s: expected 1 to %d outputs, got %d", f->name, MAX_OUTPUTS, f->outputs);
    if (n < 0 || n > INT_MAX)
        return tt__fail(TT_ERR_INVALID, "%s: expected 0 to %d inputs, got %lld", f->name, INT_MAX, (long long)n);
    return TT_OK;
}

static tt_status check_inputs(const tt_function *f, int n, tt_tensor *const *in) {
    if (n && !in)
        return tt__fail(TT_ERR_INVALID, "%s: expected a list of %d inputs, got NULL", f->name, n);
    for (int i = 0; i < n; i++)
        if (in[i] && !tt__tensor_check(f->name, in[i]))
            return TT_ERR_STATE;
    return TT_OK;
}

/* Make a node for the call. What the node saves and stores is known only when forward has run. */
static tt_node *node_for(const tt_function *f, int n, tt_tensor *const *in, int outputs) {
    static const tt__operator unnamed = {.name = "tt_apply", .backward = function_backward};
    tt_node *node = tt__node_new(&unnamed, n, in, outputs, MAX_SAVES, NULL, call_bytes() + f->state_bytes);
    if (!node)
        return NULL;
    call *c = node->state;
    c->function = *f;
    c->autocast = tt__autocast_state();
    c->op = (tt__operator){
        .name = f->name, .backward = function_backward, .destroy = function_destroy, .may_run_passes = true};
    node->op = &c->op;
    return node;
}

static tt_status check_outputs(const tt_function *f, int outputs, tt_tensor *const *out) {
    for (int k = 0; k < outputs; k++)
        if (!out[k])
            return tt__tensor_first_error(f->name);
    return TT_OK;
}

/* Move outputs made in forward's scope to the scope outside; one that is an input, or has an owner already, becomes a
 * view. */
static tt_status hand_over(const tt_function *f, int outputs, tt_tensor **out, int scope) {
    tt_tensor *made[MAX_OUTPUTS];
    for (int k = 0; k < outputs; k++)
        made[k] = tt__tensor_detached(f->name, out[k]);
    tt_scope_end(scope);
    tt_status status = TT_OK;
    for (int k = 0; k < outputs; k++) {
        out[k] = made[k] && !status ? tt__tensor_alias(f->name, made[k], made[k]->shape, made[k]->stride, 0) : NULL;
        status = status ? status : out[k] ? TT_OK : tt_last_status();
        tt__tensor_unref(made[k]);
    }
    for (int k = 0; k < outputs && status; k++)
        tt__abandon(out[k]);
    return status;
}

static tt_status run_forward(tt_node *node, const tt_function *f, const void *arg, tt_tensor *const *in,
                             tt_tensor **out) {
    int outputs = node->outputs;
    bool no_grad = tt_no_grad_begin();
    int scope = tt_scope_begin();
    node->arg = arg;
    uint64_t before = tt__error_count();
    tt_status status = f->forward(node, in, out);
    node->arg = NULL;
    if (status && tt__error_count() == before)
        status = tt__fail(status, "%s", tt_status_text(status));
    if (!status)
        status = check_outputs(f, outputs, out);
    if (!status)
        status = hand_over(f, outputs, out, scope);
    else
        tt_scope_end(scope);
    tt_no_grad_end(no_grad);
    return status;
}

tt_status tt_apply_many(const tt_function *function, const void *arg, tt_tensor *const *in, int64_t count,
                        tt_tensor **out) {
    TT__TRY(check_function(function, count));
    int n = (int)count;
    if (!out)
        return tt__fail(TT_ERR_INVALID, "%s: where to write the outputs is NULL", function->name);
    tt_function f = {0};
    memcpy(&f, function, function->size < sizeof f ? function->size : sizeof f);
    int outputs = f.outputs ? f.outputs : 1;
    memset(out, 0, (size_t)outputs * sizeof(tt_tensor *));
    TT__TRY(check_inputs(&f, n, in));
    bool recorded = f.backward && tt__wants_grad(n, in);
    tt_node *node = node_for(&f, n, in, outputs);
    tt_status status = node ? run_forward(node, &f, arg, in, out) : tt_last_status();
    for (int k = 0; k < outputs && !status && recorded; k++)
        if (tt__is_float(out[k]->dtype))
            tt__node_made(node, k, out[k]);
    if (status) /* what forward made has ended with its scope */
        memset(out, 0, (size_t)outputs * sizeof(tt_tensor *));
    if (node && (status || !recorded))
        tt__node_spend(node);
    tt__node_unref(node);
    return status;
}

tt_tensor *tt_apply_with(const tt_function *function, const void *arg, tt_tensor *const *in, int64_t n) {
    for (int64_t i = 0; in && i < n; i++)
        if (!in[i])
            return NULL;
    tt_tensor *out[MAX_OUTPUTS];
    tt_status status = check_function(function, n);
    if (!status && function->outputs > 1)
        return tt__tensor_fail(TT_ERR_INVALID, "%s: it has %d outputs; tt_apply_many() gives them all", function->name,
                               function->outputs);
    status = status ? status : tt_apply_many(function, arg, in, n, out);
    return status ? tt__made(function && function->name ? function->name : "tt_apply", NULL, status) : out[0];
}

/* ---- what the user's functions see of a call */

const void *tt_node_arg(const tt_node *node) { return node ? node->arg : NULL; }

tt_status tt_node_save(tt_node *node, tt_tensor *x, const char *name) {
    if (!node || !x)
        return tt__fail(TT_ERR_INVALID, "tt_node_save: `%s` is NULL", node ? "x" : "node");
    return tt__node_save(node, x, name ? name : "a tensor");
}

void *tt_node_state(tt_node *node) { return node ? (char *)node->state + call_bytes() : NULL; }

tt_tensor *tt_node_saved(tt_node *node, int i) {
    if (node && (i < 0 || i >= node->saved))
        return tt__fail_null(TT_ERR_INVALID, "tt_node_saved: %s saved %d tensors, got number %d", node->op->name,
                             node->saved, i);
    return node ? tt__saved(node, i) : NULL;
}

tt_tensor *tt_node_grad(tt_node *node, int output) { return node ? tt__grad_of(node, output) : NULL; }

bool tt_node_wants(const tt_node *node, int input) { return node && tt__grad_wanted(node, input); }

tt_status tt_node_give(tt_node *node, int input, tt_tensor *gradient) {
    if (!node)
        return tt__fail(TT_ERR_INVALID, "tt_node_give: `node` is NULL");
    if (!gradient)
        return tt__tensor_first_error("tt_node_give");
    if (input < 0 || input >= node->inputs)
        return tt__fail(TT_ERR_INVALID, "tt_node_give: %s has inputs 0..%d, got %d", node->op->name, node->inputs - 1,
                        input);
    return tt__grad_give(node, input, gradient);
}
