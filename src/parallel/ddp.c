/* DistributedDataParallel: a module that forwards to another one, and averages its gradients while the backward pass runs.
 *
 * Every leaf's gradient lies in a bucket of the reducer. Its hook, called when the gradient is final, marks it ready, which starts and advances
 * reductions; the end of the pass waits for the rest. */
#include <stdio.h>
#include <stdlib.h>

#include "autograd/engine.h"
#include "base/args.h"
#include "base/saved_error.h"
#include "nn/module.h"
#include "reducer/agree.h"
#include "reducer/reducer.h"
#include "tensor/tensor.h"

#include <tutti/parallel.h>

typedef struct ddp ddp;

/* One parameter that requires a gradient. */
typedef struct slot {
    ddp *owner;
    size_t index;         /* in the reducer */
    tt_tensor *parameter; /* a reference, so that module and wrapper may be freed in any order */
} slot;

struct ddp {
    tt_module *module;
    tt_reducer *reducer;
    slot *slots;
    size_t attached; /* slots whose gradient lies in a bucket */
};

static tt_tensor *ddp_forward(tt_module *self, tt_tensor *x) {
    const ddp *d = tt_module_user(self);
    return tt_module_forward(d->module, x);
}

/* ---- the backward pass ---- */

static tt_status on_pass_end(void *user, tt_status pass) {
    const ddp *d = user;
    if (!pass)
        return tt_reducer_finish(d->reducer);
    tt__reducer_abandon(d->reducer, pass);
    return pass;
}

static tt_status on_gradient(tt_tensor *x, void *user) {
    (void)x;
    const slot *s = user;
    TT__TRY(tt__backward_on_end(on_pass_end, s->owner));
    return tt_reducer_mark_ready(s->owner->reducer, s->index);
}

/* ---- wrapping ---- */

static tt_status no_memory(void) { return tt__fail(TT_ERR_MEMORY, "tt_ddp: no memory for the wrapper"); }

static tt_status describe(const tt_named_tensors *state, char **texts) {
    for (size_t i = 0; i < state->count; i++) {
        char tensor[160];
        tt_tensor_describe(state->tensors[i], tensor, sizeof tensor);
        if (asprintf(&texts[i], "parameter %zu \"%s\" %s%s", i, state->names[i], tensor,
                     tt_requires_grad(state->tensors[i]) ? "" : " without gradient") < 0)
            return texts[i] = NULL, no_memory();
    }
    return TT_OK;
}

static tt_status compare_with_peers(tt_group *group, const tt_named_tensors *state) {
    char **texts = calloc(state->count ? state->count : 1, sizeof *texts);
    if (!texts)
        return no_memory();
    tt_status status = describe(state, texts);
    if (!status)
        status = tt__agree_on(group, "tt_ddp", (const char *const *)texts, state->count);
    for (size_t i = 0; i < state->count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

static tt_status take_rank_zeros_values(tt_group *group, const tt_named_tensors *state) {
    for (size_t i = 0; i < state->count; i++) {
        tt_tensor *x = state->tensors[i];
        if (!tt_is_contiguous(x))
            return tt__fail(TT_ERR_UNSUPPORTED, "tt_ddp: parameter \"%s\" is not contiguous", state->names[i]);
        TT__TRY(tt_broadcast_with(TT_ARGS(tt_broadcast_args, group, tt_tensor_data(x), (size_t)tt_tensor_numel(x),
                                          tt_tensor_dtype(x), .file = "tt_ddp")));
    }
    return TT_OK;
}

/* `params` has room for all; *count := those that require a gradient. */
static void select_trainable(ddp *d, const tt_named_tensors *all, tt_reducer_param *params, size_t *count) {
    *count = 0;
    for (size_t i = 0; i < all->count; i++) {
        tt_tensor *x = all->tensors[i];
        if (!tt_requires_grad(x))
            continue;
        d->slots[*count] = (slot){.owner = d, .index = *count, .parameter = x};
        params[(*count)++] =
            (tt_reducer_param){.name = all->names[i], .count = (size_t)tt_tensor_numel(x), .dtype = tt_tensor_dtype(x)};
    }
}

/* Sets d->reducer and d->slots. */
static tt_status make_reducer(ddp *d, const tt_ddp_args *args, size_t *count) {
    tt_named_tensors all = tt_module_parameters(d->module);
    tt_reducer_param *params = calloc(all.count ? all.count : 1, sizeof *params);
    d->slots = calloc(all.count ? all.count : 1, sizeof *d->slots);
    tt_status status = params && d->slots ? TT_OK : no_memory();
    if (!status)
        select_trainable(d, &all, params, count);
    if (!status && *count == 0)
        status = tt__fail(TT_ERR_INVALID, "tt_ddp: the module has no parameter that requires a gradient");
    if (!status)
        status = tt_reducer_create(&d->reducer, args->group, params, *count, args->bucket_cap_bytes);
    free(params);
    return status;
}

/* Two reducers can't both hold a gradient. */
static tt_status check_unwrapped(const ddp *d) {
    tt_named_tensors all = tt_module_parameters(d->module);
    for (size_t i = 0; i < all.count; i++)
        if (tt__leaf_has_hook(all.tensors[i], on_gradient))
            return tt__fail(TT_ERR_STATE,
                            "tt_ddp: parameter \"%s\" belongs to another wrapper already; free that first",
                            all.names[i]);
    return TT_OK;
}

static tt_status attach(ddp *d, size_t count) {
    for (; d->attached < count; d->attached++) {
        slot *s = &d->slots[d->attached];
        TT__TRY(tt__leaf_set_grad_storage(s->parameter, tt_reducer_gradient(d->reducer, s->index)));
        tt_status status = tt_register_post_accumulate_grad_hook(s->parameter, on_gradient, s);
        if (status) {
            tt__leaf_set_grad_storage(s->parameter, NULL);
            return status;
        }
        tt__tensor_ref(s->parameter);
    }
    return TT_OK;
}

/* The module's gradients go back to memory of their own, with their values. A parameter that was frozen meanwhile has none. */
static void release(ddp *d) {
    tt__saved_error saved;
    tt__error_save(&saved);
    for (size_t i = 0; i < d->attached; i++) {
        tt_tensor *x = d->slots[i].parameter;
        tt__leaf_remove_hook(x, on_gradient, &d->slots[i]);
        tt__leaf_set_grad_storage(x, NULL);
        tt__tensor_unref(x);
    }
    tt__error_restore(&saved);
    tt_reducer_free(d->reducer);
    free(d->slots);
    free(d);
}

static void ddp_destroy(tt_module *self) { release(tt_module_user(self)); }

static const tt_module_class ddp_class = {
    .name = "DistributedDataParallel", .forward = ddp_forward, .destroy = ddp_destroy};

/* An empty list may mean that there was no memory for it. */
static tt_status list_state(tt_module *module, tt_named_tensors *state) {
    tt__saved_error saved;
    tt__error_save(&saved);
    *state = tt_module_state_dict(module);
    TT__TRY(tt_last_status());
    tt__error_restore(&saved);
    return TT_OK;
}

static tt_status set_up(ddp *d, const tt_ddp_args *args) {
    tt_named_tensors state;
    size_t count = 0;
    TT__TRY(list_state(d->module, &state));
    TT__TRY(check_unwrapped(d));
    TT__TRY(compare_with_peers(args->group, &state));
    TT__TRY(take_rank_zeros_values(args->group, &state));
    TT__TRY(make_reducer(d, args, &count));
    return attach(d, count);
}

tt_module *tt_ddp_with(const tt_ddp_args *given, size_t size) {
    tt_ddp_args args;
    TT__ARGS_COPY(args, given, size);
    if (!args.module)
        /* What made the module NULL has usually recorded why. */
        return tt_last_status() ? NULL : tt__fail_null(TT_ERR_INVALID, "tt_ddp: the module is NULL");
    if (!args.group)
        return tt__fail_null(TT_ERR_INVALID, "tt_ddp: `group` is NULL");
    if (tt__module_class(args.module) == &ddp_class)
        return tt__fail_null(TT_ERR_INVALID, "tt_ddp: the module is already wrapped");
    ddp *d = calloc(1, sizeof *d);
    if (!d)
        return no_memory(), NULL;
    d->module = args.module;
    tt_module *wrapper = set_up(d, &args) ? NULL : tt__module_wrapper(&ddp_class, d, args.module);
    if (!wrapper)
        release(d);
    return wrapper;
}

tt_reducer *tt_ddp_reducer(tt_module *module) {
    if (!module || tt__module_class(module) != &ddp_class)
        return NULL;
    return ((ddp *)tt_module_user(module))->reducer;
}
