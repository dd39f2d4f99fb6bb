/* Leaves: their gradients, whole or of some rows, and the hooks on them. */
#include "autograd/leaf.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/device/capture.h"
#include "tensor/ops/ops.h"

#include <string.h>

/* ---- gradients of some rows */

/* Drop the leaf's sparse gradient. The caller holds its lock, or nobody else uses the leaf. */
static void leaf_drop_rows(tt__leaf *leaf) {
    tt__tensor_disown(leaf->rows);
    tt__tensor_disown(leaf->values);
    leaf->rows = leaf->values = NULL;
}

/* Fail with TT_ERR_UNSUPPORTED: the leaf would get a gradient of the whole and one of some rows. */
static tt_status leaf_refuse_both(const tt__leaf *leaf) {
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "tt_backward: %s gets a gradient of the whole and a sparse one, which are not added up: leave "
                    ".sparse out where a weight is used otherwise, too, or tt_zero_grad() it in between",
                    TT__DESCRIBE(leaf->tensor));
}

/* ---- making and ending */

static void hook_free(tt__leaf_hook *hook) {
    if (hook->destroy)
        hook->destroy(hook->user);
    tt__pool_free(hook);
}

static void leaf_release(tt__history *history) {
    tt__leaf *leaf = (tt__leaf *)history;
    tt__tensor_disown(leaf->grad);
    leaf_drop_rows(leaf);
    tt__tensor_unref(leaf->meanwhile);
    while (leaf->hooks) {
        tt__leaf_hook *hook = leaf->hooks;
        leaf->hooks = hook->next;
        hook_free(hook);
    }
    pthread_mutex_destroy(&leaf->lock);
    tt__pool_free(leaf);
}

/* Recursive: a hook runs with the lock held, so that no other pass changes the gradient meanwhile, and may itself take
 * it. */
static void init_lock(pthread_mutex_t *lock) {
    pthread_mutexattr_t attr;
    pthread_mutexattr_init(&attr);
    pthread_mutexattr_settype(&attr, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(lock, &attr);
    pthread_mutexattr_destroy(&attr);
}

static tt_tensor *make_leaf(tt_tensor *x) {
    tt__leaf *leaf = tt__pool_alloc(sizeof *leaf);
    if (!leaf)
        return tt__tensor_fail(TT_ERR_MEMORY, "tt_requires_grad_: no memory for %s", TT__DESCRIBE(x));
    memset(leaf, 0, sizeof *leaf);
    leaf->history.release = leaf_release;
    leaf->history.is_leaf = true;
    leaf->tensor = x;
    init_lock(&leaf->lock);
    x->history = &leaf->history;
    x->requires_grad = true;
    tt__tensor_means_to_stay(x);
    return x;
}

static tt_tensor *end_leaf(tt_tensor *x) {
    if (tt__leaf_of(x)->in_hooks)
        return tt__tensor_fail(TT_ERR_STATE, "tt_requires_grad_: %s can't be made no leaf by its own hook",
                               TT__DESCRIBE(x));
    leaf_release(x->history);
    x->history = NULL;
    x->requires_grad = false;
    return x;
}

tt_tensor *tt_requires_grad_(tt_tensor *x, bool requires_grad) {
    if (!x || !tt__tensor_check("tt_requires_grad_", x))
        return NULL;
    if (x->history && !x->history->is_leaf)
        return tt__tensor_fail(TT_ERR_STATE,
                               "tt_requires_grad_: %s is the result of a recorded operator; tt_detach() it first",
                               TT__DESCRIBE(x));
    if (!tt__is_float(x->dtype))
        return tt__tensor_fail(TT_ERR_DTYPE, "tt_requires_grad_: expected floats, got %s", TT__DESCRIBE(x));
    if (requires_grad && !x->history)
        return make_leaf(x);
    return !requires_grad && x->history ? end_leaf(x) : x;
}

bool tt_requires_grad(const tt_tensor *x) { return x && x->requires_grad; }

/* ---- the gradient */

tt_tensor *tt_grad(const tt_tensor *x) {
    const tt__leaf *leaf = tt__leaf_of(x);
    return leaf && leaf->defined ? leaf->grad : NULL;
}

/* ---- in graphs: only the host knows whether there is a gradient, so each replay changes that as the captured call
 * did */

static void replay_defined(const tt__graph_source *source) {
    tt__leaf *leaf = tt__leaf_of(source->object);
    if (leaf)
        leaf->defined = source->index[0] && leaf->grad;
}

static void forget_captured(void *tensor) {
    tt__leaf *leaf = tt__leaf_of(tensor);
    if (leaf)
        leaf->captured = NULL;
    tt__tensor_unwatch(tensor);
}

/* If this thread captures a graph, note there that the call defined or dropped the gradient. */
static tt_status note_defined(tt__leaf *leaf, bool defined) {
    tt__graph *graph = tt__capturing(tt__device_of(leaf->tensor));
    const void *none = NULL;
    if (!graph)
        return TT_OK;
    const tt__graph_source source = {
        .object = leaf->tensor, .index = {defined}, .enqueued = replay_defined, .release = forget_captured};
    tt_status status = tt__graph_add(graph, &source, &none);
    if (status) {
        tt__graph_spoil(graph);
        return status;
    }
    tt__tensor_watch(leaf->tensor);
    leaf->captured = graph;
    return TT_OK;
}

/* Refuse to add to a gradient from before the capture: replays would add to it even after the program zeroed it. */
static tt_status check_captured_sum(const tt__leaf *leaf) {
    const tt__graph *graph = tt__capturing(tt__device_of(leaf->tensor));
    if (!graph || leaf->captured == graph)
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "tt_backward: %s has a gradient from before the capture, to which each replay would add; call "
                    "tt_optimizer_zero_grad() first in the captured function",
                    TT__DESCRIBE(leaf->tensor));
}

void tt_zero_grad(tt_tensor *x) {
    tt__leaf *leaf = tt__leaf_of(x);
    if (!leaf)
        return;
    leaf->defined = false;
    tt_ignore(note_defined(leaf, false)); /* a failure makes the capture fail */
    leaf_drop_rows(leaf);
    if (leaf->part)
        tt_zero_grad(leaf->part);
}

/* Return the tensor for the leaf's gradient, made at first need. It outlives scopes; its memory is the leaf's. */
static tt_tensor *grad_tensor(tt__leaf *leaf) {
    if (leaf->grad)
        return leaf->grad;
    tt_tensor *grad = tt__empty_like("gradient", leaf->tensor);
    if (!grad || tt__tensor_adopt(grad, "a leaf"))
        return NULL;
    leaf->grad = grad;
    return grad;
}

tt_status tt__leaf_lend(tt__leaf *leaf, const void *pass, tt_tensor **out) {
    *out = NULL;
    pthread_mutex_lock(&leaf->lock);
    tt_status status = TT_OK;
    if (!leaf->defined && !leaf->lender) {
        *out = grad_tensor(leaf);
        leaf->lender = *out ? pass : NULL;
        status = *out ? TT_OK : tt_last_status();
    }
    pthread_mutex_unlock(&leaf->lock);
    return status;
}

/* End the loan of the leaf's own tensor, which has values now, and add gradients that came meanwhile. */
static tt_status end_lending(tt__leaf *leaf) {
    tt_tensor *meanwhile = leaf->meanwhile;
    leaf->lender = NULL;
    leaf->meanwhile = NULL;
    leaf->defined = true;
    tt_status status = note_defined(leaf, true);
    if (!status)
        status = !meanwhile ? TT_OK : tt__add_out("tt_backward", leaf->grad, leaf->grad, meanwhile);
    tt__tensor_unref(meanwhile);
    return status;
}

void tt__leaf_unlend(tt__leaf *leaf, const void *pass) {
    pthread_mutex_lock(&leaf->lock);
    if (leaf->lender == pass) {
        leaf->lender = NULL;
        tt__tensor_unref(leaf->meanwhile);
        leaf->meanwhile = NULL;
    }
    pthread_mutex_unlock(&leaf->lock);
}

/* Add x to leaf->meanwhile, because another pass writes to the gradient. */
static tt_status add_meanwhile(tt__leaf *leaf, const tt_tensor *x) {
    if (leaf->meanwhile)
        return tt__add_out("tt_backward", leaf->meanwhile, leaf->meanwhile, x);
    tt_tensor *copy = tt__clone("tt_backward", x);
    if (!copy)
        return tt_last_status();
    TT__TRY(tt__tensor_adopt(copy, "a leaf"));
    leaf->meanwhile = copy;
    return TT_OK;
}

static tt_status define_grad(tt__leaf *leaf, tt_tensor *x, bool exclusive) {
    if (!leaf->grad && exclusive && tt__shape_is_dense(&x->shape, x->stride)) {
        x->owner = TT__OWNER_HOLDER;
        x->holder = "a leaf";
        leaf->grad = tt__tensor_ref(x);
    } else {
        tt_tensor *grad = grad_tensor(leaf);
        if (!grad)
            return tt_last_status();
        TT__TRY(tt__copy_out("tt_backward", grad, x));
    }
    leaf->defined = true;
    return note_defined(leaf, true);
}

static tt_status add_locked(tt__leaf *leaf, const void *pass, tt_tensor *x, bool exclusive) {
    if (leaf->rows)
        return leaf_refuse_both(leaf);
    if (x == leaf->grad && leaf->lender == pass)
        return end_lending(leaf);
    if (leaf->lender)
        return add_meanwhile(leaf, x);
    if (leaf->defined)
        TT__TRY(check_captured_sum(leaf));
    if (leaf->defined)
        return tt__add_out("tt_backward", leaf->grad, leaf->grad, x);
    return define_grad(leaf, x, exclusive);
}

tt_status tt__leaf_add(tt__leaf *leaf, const void *pass, tt_tensor *x, bool exclusive) {
    pthread_mutex_lock(&leaf->lock);
    tt_status status = add_locked(leaf, pass, x, exclusive);
    pthread_mutex_unlock(&leaf->lock);
    return status;
}

/* ---- hooks */

static tt_status not_a_leaf(const char *who, const tt_tensor *x) {
    return tt__fail(TT_ERR_STATE, "%s: expected a leaf, got %s; tt_requires_grad_() makes one", who, TT__DESCRIBE(x));
}

static tt_status add_leaf_hook(const tt_register_post_accumulate_grad_hook_args *a) {
    tt__leaf *leaf = tt__leaf_of(a->x);
    if (!leaf)
        return not_a_leaf("tt_register_post_accumulate_grad_hook", a->x);
    if (!a->hook)
        return tt__fail(TT_ERR_INVALID, "tt_register_post_accumulate_grad_hook: the hook is NULL");
    tt__leaf_hook *added = tt__pool_alloc(sizeof *added);
    if (!added)
        return tt__fail(TT_ERR_MEMORY, "tt_register_post_accumulate_grad_hook: no memory for a hook");
    *added = (tt__leaf_hook){.fn = a->hook, .user = a->user, .destroy = a->destroy};
    tt__leaf_hook **end = &leaf->hooks;
    while (*end)
        end = &(*end)->next;
    *end = added;
    return TT_OK;
}

tt_status tt_register_post_accumulate_grad_hook_with(const tt_register_post_accumulate_grad_hook_args *args,
                                                     size_t size) {
    tt_register_post_accumulate_grad_hook_args a;
    TT__ARGS_COPY(a, args, size);
    tt_status status = add_leaf_hook(&a);
    if (status && a.destroy)
        a.destroy(a.user);
    return status;
}

/* Run a hook. If it fails without a recorded error, record the status's text. */
static tt_status run_grad_hook(const tt__leaf *leaf, const tt__leaf_hook *hook) {
    const uint64_t before = tt__error_count();
    tt_status status = hook->fn(leaf->tensor, hook->user);
    return status && tt__error_count() == before && tt_last_status() != status
               ? tt__fail(status, "tt_backward: a hook of a gradient: %s", tt_status_text(status))
               : status;
}

tt_status tt__leaf_run_hooks(tt__leaf *leaf) {
    if (!leaf->hooks)
        return TT_OK;
    pthread_mutex_lock(&leaf->lock);
    tt_status status = TT_OK;
    tt__leaf_hook *next = NULL;
    for (tt__leaf_hook *hook = leaf->hooks; hook && !status; hook = next) {
        next = hook->next; /* a hook may remove itself */
        leaf->in_hooks = true;
        status = run_grad_hook(leaf, hook);
        leaf->in_hooks = false;
    }
    pthread_mutex_unlock(&leaf->lock);
    return status;
}

bool tt__leaf_has_hook(const tt_tensor *x, tt_grad_hook hook) {
    const tt__leaf *leaf = tt__leaf_of(x);
    for (const tt__leaf_hook *h = leaf ? leaf->hooks : NULL; h; h = h->next)
        if (h->fn == hook)
            return true;
    return false;
}

void tt__leaf_remove_hook(tt_tensor *x, tt_grad_hook hook, void *user) {
    tt__leaf *leaf = tt__leaf_of(x);
    for (tt__leaf_hook **at = leaf ? &leaf->hooks : NULL; at && *at; at = &(*at)->next) {
        if ((*at)->fn == hook && (*at)->user == user) {
            tt__leaf_hook *removed = *at;
            *at = removed->next;
            hook_free(removed);
            return;
        }
    }
}

/* ---- gradients in storage of somebody else */

/* Return the gradient, contiguous: one in another order of memory is replaced by one with the same values. */
static tt_tensor *contiguous_grad(tt__leaf *leaf) {
    tt_tensor *grad = grad_tensor(leaf);
    if (!grad || grad->contiguous)
        return grad;
    tt_tensor *other = tt__clone_contiguous("gradient", grad);
    if (!other || tt__tensor_adopt(other, "a leaf"))
        return NULL;
    tt__tensor_disown(grad);
    return leaf->grad = other;
}

tt_status tt__leaf_set_grad_storage(tt_tensor *x, void *data) {
    tt__leaf *leaf = tt__leaf_of(x);
    if (!leaf)
        return not_a_leaf("gradient storage", x);
    tt_tensor *grad = contiguous_grad(leaf);
    if (!grad)
        return tt_last_status();
    if (grad->data == data) {
        leaf->placed = true;
        return TT_OK;
    }
    tt_status status = leaf->defined ? tt__tensor_move("gradient", grad, data) : tt__tensor_set_data(grad, data);
    if (!status || !data)
        leaf->placed = data != NULL;
    if (status && !data) { /* it can't stay in the old storage */
        tt__tensor_disown(grad);
        leaf->grad = NULL;
        leaf->defined = false;
    }
    return status;
}

void tt__leaf_define_grad(tt_tensor *x) {
    tt__leaf *leaf = tt__leaf_of(x);
    if (!leaf || !leaf->grad)
        return;
    pthread_mutex_lock(&leaf->lock);
    leaf->defined = true;
    pthread_mutex_unlock(&leaf->lock);
}

void tt__leaf_set_part(tt_tensor *x, tt_tensor *part) {
    tt__leaf *leaf = tt__leaf_of(x);
    if (leaf)
        leaf->part = part;
}

tt_status tt__leaf_give_grad(tt_tensor *x, tt_tensor *grad) { return tt__leaf_add(tt__leaf_of(x), grad, grad, false); }

void tt__leaf_drop_grad(tt_tensor *x) {
    tt__leaf *leaf = tt__leaf_of(x);
    if (leaf)
        leaf->defined = false;
}

tt_tensor *tt_sparse_grad_indices(const tt_tensor *x) {
    const tt__leaf *leaf = tt__leaf_of(x);
    return leaf ? leaf->rows : NULL;
}

tt_tensor *tt_sparse_grad_values(const tt_tensor *x) {
    const tt__leaf *leaf = tt__leaf_of(x);
    return leaf ? leaf->values : NULL;
}

tt_tensor *tt__grad_values(const tt_tensor *x) {
    const tt__leaf *leaf = tt__leaf_of(x);
    return leaf && leaf->defined ? leaf->grad : leaf ? leaf->values : NULL;
}

/* ---- adding to a leaf */

static tt_status add_rows_locked(tt__leaf *leaf, tt_tensor *rows, tt_tensor *values) {
    if (leaf->placed || leaf->part)
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "tt_backward: %s gets a sparse gradient, and its gradient lies in the memory of a wrapper "
                        "(tt_ddp()), or is sharded, which are for gradients of the whole: leave .sparse out",
                        TT__DESCRIBE(leaf->tensor));
    if (leaf->defined || leaf->lender)
        return leaf_refuse_both(leaf);
    if (leaf->rows)
        TT__TRY(tt__rows_add("tt_backward", leaf->rows, leaf->values, &rows, &values));
    TT__TRY(tt__tensor_adopt(rows, "a leaf"));
    tt_status status = tt__tensor_adopt(values, "a leaf");
    if (status) {
        tt__tensor_disown(rows);
        return status;
    }
    leaf_drop_rows(leaf);
    leaf->rows = rows;
    leaf->values = values;
    return TT_OK;
}

tt_status tt__leaf_add_rows(tt__leaf *leaf, tt_tensor *rows, tt_tensor *values) {
    pthread_mutex_lock(&leaf->lock);
    tt_status status = add_rows_locked(leaf, rows, values);
    pthread_mutex_unlock(&leaf->lock);
    return status;
}

tt_status tt__leaf_set_rows(tt_tensor *x, tt_tensor *rows, tt_tensor *values) {
    tt__leaf *leaf = tt__leaf_of(x);
    pthread_mutex_lock(&leaf->lock);
    leaf_drop_rows(leaf);
    tt_status status = add_rows_locked(leaf, rows, values);
    pthread_mutex_unlock(&leaf->lock);
    return status;
}

/* ---- refusing */

tt_status tt__refuse_sparse_grad(const char *who, const char *name, const tt_tensor *x) {
    if (!x->sparse_grad || !x->requires_grad)
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "%s: parameter \"%s\" is given sparse gradients, which tt_ddp() alone averages: make its "
                    "embedding without .sparse",
                    who, name);
}
