#include "autograd/in_place.h"

#include "base/error.h"

/* May a call that changes x be recorded? Else why not. */
static const char *why_not_recorded(const tt_tensor *x) {
    if (x->history && x->history->is_leaf)
        return "is a leaf that requires a gradient; change it inside tt_no_grad_begin()";
    if (x->owner == TT__OWNER_HOLDER || x->owner == TT__OWNER_LENDER)
        return "belongs to something else, which would keep this record; tt_clone() it first";
    if (atomic_load_explicit(&x->storage->viewed, memory_order_relaxed))
        return "shares its storage with views, whose records would not know; tt_clone() it first";
    return NULL;
}

static bool may_change(const char *who, const tt_tensor *x, bool recorded) {
    tt_status writable = tt__tensor_check_writable(who, x);
    if (writable) {
        tt__made(who, NULL, writable);
        return false;
    }
    const char *why = recorded ? why_not_recorded(x) : NULL;
    if (why)
        tt__tensor_fail(TT_ERR_STATE, "%s: x %s %s", who, TT__DESCRIBE(x), why);
    return !why;
}

bool tt__in_place_begin(tt__in_place *call, const tt__operator *op, int n, tt_tensor *const *inputs, int saves,
                        const tt__to_save *save, const void *state, size_t state_bytes) {
    bool recorded = tt__wants_grad(n, inputs);
    *call = (tt__in_place){.op = op, .x = inputs[0]};
    if (!may_change(op->name, inputs[0], recorded))
        return false;
    if (!recorded)
        return true;
    call->node = tt__node_new(op, n, inputs, 1, saves + 1, state, state_bytes);
    tt_status status = call->node ? TT_OK : tt_last_status();
    for (int i = 0; i < saves && !status; i++)
        status = tt__node_save(call->node, save[i].x, save[i].name);
    if (status)
        tt__made(op->name, NULL, status);
    if (status && call->node)
        tt__node_spend(call->node);
    if (status)
        tt__node_unref(call->node);
    return !status;
}

/* Put the node on top of x's history. */
static void attach_node(tt_tensor *x, tt_node *node) {
    tt__history *before = x->history;
    tt__node_made(node, 0, x);
    if (before)
        before->release(before);
}

tt_tensor *tt__in_place_end(tt__in_place *call, tt_status status, bool save_result) {
    tt__storage_touch(call->x->storage);
    if (!status && call->node && save_result)
        status = tt__node_save(call->node, call->x, "its result");
    if (!status && call->node)
        attach_node(call->x, call->node);
    else if (call->node)
        tt__node_spend(call->node);
    tt__node_unref(call->node);
    return status ? tt__made(call->op->name, NULL, status) : call->x;
}
