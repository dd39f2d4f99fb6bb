/* Leaves: tensors that collect a gradient. */
#include "autograd/node.h"

#include "base/error.h"
#include "tensor/pool.h"

#include <string.h>

tt__leaf *tt__leaf_of(const tt_tensor *x) {
    return x && x->history && x->history->is_leaf ? (tt__leaf *)x->history : NULL;
}

static void leaf_release(tt__history *history) {
    tt__leaf *leaf = (tt__leaf *)history;
    tt__tensor_disown(leaf->grad);
    while (leaf->hooks) {
        tt__hook *hook = leaf->hooks;
        leaf->hooks = hook->next;
        tt__pool_free(hook);
    }
    tt__pool_free(leaf);
}

static tt_tensor *make_leaf(tt_tensor *x) {
    tt__leaf *leaf = tt__pool_alloc(sizeof *leaf);
    if (!leaf)
        return tt__tensor_fail(TT_ERR_MEMORY, "tt_requires_grad_: no memory for %s", TT__DESCRIBE(x));
    *leaf = (tt__leaf){.history = {leaf_release, true}, .tensor = x};
    x->history = &leaf->history;
    x->requires_grad = true;
    return x;
}

tt_tensor *tt_requires_grad_(tt_tensor *x, bool requires_grad) {
    if (!x)
        return NULL;
    if (x->spent || (x->history && !x->history->is_leaf))
        return tt__tensor_fail(TT_ERR_STATE,
                               "tt_requires_grad_: %s is the result of a recorded operator; tt_detach() it first",
                               TT__DESCRIBE(x));
    if (!tt__is_float(x->dtype))
        return tt__tensor_fail(TT_ERR_DTYPE, "tt_requires_grad_: expected f32 or f64, got %s", TT__DESCRIBE(x));
    if (requires_grad && !x->history)
        return make_leaf(x);
    if (!requires_grad && x->history && tt__leaf_of(x)->in_hooks)
        return tt__tensor_fail(TT_ERR_STATE, "tt_requires_grad_: %s can't be made no leaf by its own hook",
                               TT__DESCRIBE(x));
    if (!requires_grad && x->history) {
        leaf_release(x->history);
        x->history = NULL;
        x->requires_grad = false;
    }
    return x;
}

bool tt_requires_grad(const tt_tensor *x) { return x && x->requires_grad; }

tt_tensor *tt_grad(const tt_tensor *x) {
    const tt__leaf *leaf = tt__leaf_of(x);
    return leaf && leaf->defined ? leaf->grad : NULL;
}

void tt_zero_grad(tt_tensor *x) {
    tt__leaf *leaf = tt__leaf_of(x);
    if (leaf)
        leaf->defined = false;
}

/* The tensor for leaf's gradient, made at first need. It outlives scopes; its memory is the leaf's. */
static tt_tensor *grad_tensor(tt__leaf *leaf) {
    if (leaf->grad)
        return leaf->grad;
    tt_tensor *grad = tt__tensor_new("gradient", leaf->tensor->shape, leaf->tensor->dtype);
    if (!grad || tt__tensor_adopt(grad, "a leaf"))
        return NULL;
    leaf->grad = grad;
    return grad;
}

tt__grad_to tt__leaf_grad_begin(tt__leaf *leaf) {
    tt_tensor *grad = grad_tensor(leaf);
    if (!grad)
        return (tt__grad_to){.data = NULL};
    tt__grad_to to = {.data = grad->data, .accumulate = leaf->defined};
    leaf->defined = true;
    return to;
}

static tt_status not_a_leaf(const char *who, const tt_tensor *x) {
    return tt__fail(TT_ERR_STATE, "%s: expected a leaf, got %s; tt_requires_grad_() makes one", who, TT__DESCRIBE(x));
}

tt_status tt_register_post_accumulate_grad_hook(tt_tensor *x, tt_grad_hook hook, void *user) {
    tt__leaf *leaf = tt__leaf_of(x);
    if (!leaf)
        return not_a_leaf("tt_register_post_accumulate_grad_hook", x);
    if (!hook)
        return tt__fail(TT_ERR_INVALID, "tt_register_post_accumulate_grad_hook: the hook is NULL");
    tt__hook *added = tt__pool_alloc(sizeof *added);
    if (!added)
        return tt__fail(TT_ERR_MEMORY, "tt_register_post_accumulate_grad_hook: no memory for a hook");
    *added = (tt__hook){.fn = hook, .user = user};
    tt__hook **end = &leaf->hooks;
    while (*end)
        end = &(*end)->next;
    *end = added;
    return TT_OK;
}

bool tt__leaf_has_hook(const tt_tensor *x, tt_grad_hook hook) {
    const tt__leaf *leaf = tt__leaf_of(x);
    for (const tt__hook *h = leaf ? leaf->hooks : NULL; h; h = h->next)
        if (h->fn == hook)
            return true;
    return false;
}

void tt__leaf_remove_hook(tt_tensor *x, tt_grad_hook hook, void *user) {
    tt__leaf *leaf = tt__leaf_of(x);
    for (tt__hook **at = leaf ? &leaf->hooks : NULL; at && *at; at = &(*at)->next) {
        if ((*at)->fn == hook && (*at)->user == user) {
            tt__hook *removed = *at;
            *at = removed->next;
            tt__pool_free(removed);
            return;
        }
    }
}

tt_status tt__leaf_set_grad_storage(tt_tensor *x, void *data) {
    tt__leaf *leaf = tt__leaf_of(x);
    if (!leaf)
        return not_a_leaf("gradient storage", x);
    tt_tensor *grad = grad_tensor(leaf);
    if (!grad)
        return tt_last_status();
    if (grad->data == data)
        return TT_OK;
    tt_tensor before = *grad; /* its storage is kept until the values are moved */
    atomic_fetch_add_explicit(&before.storage->refs, 1, memory_order_relaxed);
    tt_status status = tt__tensor_set_data(grad, data);
    if (!status && leaf->defined)
        memcpy(grad->data, before.data, (size_t)grad->numel * tt_dtype_size(grad->dtype));
    tt__storage_unref(before.storage);
    if (status && !data) { /* it can't stay where it is */
        tt__tensor_disown(grad);
        leaf->grad = NULL;
        leaf->defined = false;
    }
    return status;
}
