/* DistributedDataParallel: a module that forwards to another one, and averages its gradients while the backward pass
 * runs.
 *
 * Every leaf's gradient lies in a bucket of the reducer. Its hook, called when the gradient is final, marks it ready,
 * which starts and advances reductions; the end of the pass waits for the rest. Which parameters the pass won't reach
 * is known when it gives its first gradient, so that they keep no bucket waiting; at its end where operators in it run
 * passes of their own (tt_recompute(), tt_apply()). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "autograd/engine.h"
#include "autograd/node.h"
#include "base/args.h"
#include "base/saved_error.h"
#include "nn/module.h"
#include "parallel/ddp.h"
#include "reducer/reducer.h"
#include "reducer/text_agreement.h"
#include "tensor/tensor.h"

#include <tutti/parallel.h>

typedef struct ddp ddp;

/* One parameter that requires a gradient. */
typedef struct slot {
    ddp *owner;
    size_t index;         /* in the reducer */
    tt_tensor *parameter; /* a reference, so that module and wrapper may be freed in any order */
    bool ready;           /* the reducer knows that it takes part in the step under way, or that it does not */
    bool touched;         /* a pass since the last step gave it a gradient, also one that averaged nothing */
    bool absent;          /* it has no gradient here in the step under way */
} slot;

struct ddp {
    tt_module *module; /* kept by the wrapper, as `wrapped` of its class */
    tt_group *group;   /* NULL: bound to none */
    size_t bucket_cap_bytes;
    bool broadcast_buffers; /* at each forward that is trained on and follows one with `sync` */
    bool sync;              /* average in backward passes */
    bool synced;            /* when the last forward that is trained on began */
    bool stepping;          /* a pass that averages has begun */
    tt_reducer *reducer;
    slot *slots;
    size_t attached;      /* slots whose gradient lies in a bucket */
    tt_module **known_as; /* where the wrapper is known by others, until it is freed; or NULL */
};

/* Errors of calls that are part of wrapping or of a forward name this instead of a file. */
static const char call_site[] = "tt_ddp";

/* ---- forward ---- */

static tt_status take_rank_zeros(tt_group *group, const tt_named_tensors *list) {
    for (int64_t i = 0; i < list->count; i++)
        if (tt_tensor_broadcast_with(
                TT_ARGS(tt_tensor_broadcast_args, .group = group, .x = list->tensors[i], .file = call_site)))
            return tt__fail_prefix("\"%s\"", list->names[i]);
    return TT_OK;
}

/* Buffers are taken once for passes that are averaged together, before the first of them, as PyTorch does. */
static tt_status before_forward(const tt_module *self, ddp *d) {
    if (!tt__is_recording())
        return TT_OK;
    if (!d->group)
        return tt__fail(TT_ERR_STATE, "%s: this wrapper has no group yet: tt_elastic_restore() gives it one",
                        call_site);
    bool due = d->synced;
    d->synced = d->sync;
    if (!due || !d->broadcast_buffers || !tt_module_training(self))
        return TT_OK;
    const tt_named_tensors *buffers = tt_module_buffers(d->module);
    return buffers ? take_rank_zeros(d->group, buffers) : tt_last_status();
}

static tt_tensor *ddp_forward(tt_module *self, tt_tensor *x) {
    ddp *d = tt_module_user(self);
    tt_status status = before_forward(self, d);
    if (status)
        return tt__tensor_fail(status, "%s", tt_last_error());
    return tt_module_forward(d->module, x);
}

static tt_status ddp_forward_many(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                  int64_t out_count) {
    ddp *d = tt_module_user(self);
    TT__TRY(before_forward(self, d));
    return tt_module_forward_many(d->module, in, in_count, out, out_count);
}

/* ---- the backward pass ---- */

static const char *name_of_slot(const slot *s) { return s->owner->reducer->params[s->index].name; }

/* Its share of the average is the gradient that it has, also from earlier, if any. */
static tt_status mark_slot(slot *s) {
    tt_reducer *r = s->owner->reducer;
    tt_tensor *x = s->parameter;
    s->ready = true;
    s->absent = !tt_grad(x);
    if (s->absent)
        memset(tt_reducer_gradient(r, (int64_t)s->index), 0,
               (size_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x)));
    return s->touched ? tt_reducer_mark_ready(r, (int64_t)s->index) : tt_reducer_mark_unused(r, (int64_t)s->index);
}

static tt_status on_gradient(tt_tensor *x, void *user);

/* One that was frozen, and is trained again, would never be seen to be used. */
static tt_status check_hooked(const slot *s) {
    if (!tt_requires_grad(s->parameter) || tt__leaf_has_hook(s->parameter, on_gradient))
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "parameter \"%s\" was frozen (tt_requires_grad_()) and is trained again, which its wrapper does "
                    "not see: wrap the module again",
                    name_of_slot(s));
}

/* Mark all that the passes under way won't reach. *waits: some are left for later. */
static tt_status mark_unreached(ddp *d, bool *waits) {
    *waits = false;
    for (size_t i = 0; i < d->attached; i++) {
        slot *s = &d->slots[i];
        if (s->ready)
            continue;
        if (tt__gradient_may_come(s->parameter)) {
            *waits = true;
            continue;
        }
        TT__TRY(check_hooked(s));
        TT__TRY(mark_slot(s));
    }
    return TT_OK;
}

static tt_status finish_step(ddp *d) {
    TT__TRY(tt_reducer_finish(d->reducer));
    for (size_t i = 0; i < d->attached; i++) {
        slot *s = &d->slots[i];
        if (s->absent && tt_reducer_was_used(d->reducer, (int64_t)s->index))
            tt__leaf_define_grad(s->parameter);
        s->ready = s->touched = s->absent = false;
    }
    d->stepping = false;
    return TT_OK;
}

static tt_status on_pass_end(void *user, tt_status pass) {
    ddp *d = user;
    bool waits;
    tt_status status = pass ? pass : mark_unreached(d, &waits);
    if (status) {
        tt__reducer_abandon(d->reducer, status);
        return status;
    }
    return waits ? TT_OK : finish_step(d); /* or the second part of the pass does (tt_backward_deferred()) */
}

static tt_status on_gradient(tt_tensor *x, void *user) {
    slot *s = user;
    ddp *d = s->owner;
    bool first = !d->stepping, waits;
    s->touched |= tt_grad(x) != NULL; /* the operators that it went into may have given it none */
    if (!d->sync)
        return TT_OK;
    d->stepping = true;
    TT__TRY(tt__backward_on_end(on_pass_end, d));
    if (s->ready && !d->reducer->broken)
        return tt__fail(TT_ERR_STATE,
                        "parameter \"%s\" got its gradient twice in a step: the second part of an earlier pass "
                        "(tt_backward_deferred()) was never run",
                        name_of_slot(s));
    TT__TRY(mark_slot(s));
    return first ? mark_unreached(d, &waits) : TT_OK;
}

/* ---- wrapping ---- */

static tt_status ddp_no_memory(void) { return tt__fail(TT_ERR_MEMORY, "tt_ddp: no memory for the wrapper"); }

/* What must be alike on all ranks. */
typedef struct contents {
    const tt_named_tensors *parameters, *buffers;
} contents;

static tt_status describe_list(const char *what, const tt_named_tensors *list, char **texts) {
    for (int64_t i = 0; i < list->count; i++) {
        bool frozen = *what == 'p' && !tt_requires_grad(list->tensors[i]);
        if (asprintf(&texts[i], "%s %lld \"%s\" %s%s", what, (long long)i, list->names[i],
                     TT__DESCRIBE(list->tensors[i]), frozen ? " without gradient" : "") < 0)
            return texts[i] = NULL, ddp_no_memory();
    }
    return TT_OK;
}

static tt_status compare_with_peers(tt_group *group, const contents *c) {
    size_t parameters = (size_t)c->parameters->count, count = parameters + (size_t)c->buffers->count;
    char **texts = calloc(count + 1, sizeof *texts);
    if (!texts)
        return ddp_no_memory();
    tt_status status = describe_list("parameter", c->parameters, texts);
    if (!status)
        status = describe_list("buffer", c->buffers, texts + parameters);
    if (!status)
        status = tt__agree_on(group, "tt_ddp", (const char *const *)texts, count);
    for (size_t i = 0; i < count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

/* Select the parameters that require a gradient: *count of them. `params` has room for all. */
static tt_status select_trainable(ddp *d, const tt_named_tensors *all, tt_reducer_param *params, size_t *count) {
    *count = 0;
    for (int64_t i = 0; i < all->count; i++) {
        tt_tensor *x = all->tensors[i];
        if (!tt_requires_grad(x))
            continue;
        if (!tt__device_is_host(tt_tensor_device(x)))
            return tt__fail(TT_ERR_UNSUPPORTED,
                            "tt_ddp: parameter \"%s\" lies on \"%s\"; buckets of gradients lie on the host",
                            all->names[i], tt_device_name(tt_tensor_device(x)));
        d->slots[*count] = (slot){.owner = d, .index = *count, .parameter = x};
        params[(*count)++] =
            (tt_reducer_param){.name = all->names[i], .count = tt_tensor_numel(x), .dtype = tt_tensor_dtype(x)};
    }
    return TT_OK;
}

/* Make the reducer: sets d->reducer and d->slots. */
static tt_status make_reducer(ddp *d, size_t *count) {
    const tt_named_tensors *all = tt_module_parameters(d->module);
    tt_reducer_param *params = calloc((size_t)all->count + 1, sizeof *params);
    d->slots = calloc((size_t)all->count + 1, sizeof *d->slots);
    tt_status status = params && d->slots ? TT_OK : ddp_no_memory();
    if (!status)
        status = select_trainable(d, all, params, count);
    if (!status && *count == 0)
        status = tt__fail(TT_ERR_INVALID, "tt_ddp: the module has no parameter that requires a gradient");
    if (!status)
        status =
            tt_reducer_new(&d->reducer, d->group, params, (int64_t)*count, .bucket_cap_bytes = d->bucket_cap_bytes);
    free(params);
    return status;
}

/* Check that no other wrapper holds the gradients, as two reducers can't. */
static tt_status check_unwrapped(const ddp *d) {
    const tt_named_tensors *all = tt_module_parameters(d->module);
    for (int64_t i = 0; i < all->count; i++)
        if (tt__leaf_has_hook(all->tensors[i], on_gradient))
            return tt__fail(TT_ERR_STATE,
                            "tt_ddp: parameter \"%s\" belongs to another wrapper already; free that first",
                            all->names[i]);
    return TT_OK;
}

static tt_status ddp_attach(ddp *d, size_t count) {
    for (; d->attached < count; d->attached++) {
        slot *s = &d->slots[d->attached];
        TT__TRY(tt__leaf_set_grad_storage(s->parameter, tt_reducer_gradient(d->reducer, (int64_t)s->index)));
        tt_status status = tt_register_post_accumulate_grad_hook(s->parameter, on_gradient, s);
        if (status) {
            tt__leaf_set_grad_storage(s->parameter, NULL);
            return status;
        }
        tt__tensor_ref(s->parameter);
    }
    return TT_OK;
}

/* Move the module's gradients back to memory of their own, with their values, and let go of the group. A parameter that
 * was frozen meanwhile has none. */
static void ddp_detach(ddp *d) {
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
    d->reducer = NULL;
    d->slots = NULL;
    d->attached = 0;
    d->stepping = false;
    d->group = NULL;
}

static void ddp_release(ddp *d) {
    ddp_detach(d);
    free(d);
}

static void ddp_destroy(tt_module *self) {
    ddp *d = tt_module_user(self);
    if (d->known_as)
        *d->known_as = NULL;
    ddp_release(d);
}

static tt_module *ddp_wrapped(tt_module *self) { return ((const ddp *)tt_module_user(self))->module; }

static const tt_module_class ddp_class =
    TT_MODULE_CLASS(.name = "DistributedDataParallel", .forward = ddp_forward, .forward_many = ddp_forward_many,
                    .destroy = ddp_destroy, .wrapped = ddp_wrapped);

static tt_status list_contents(tt_module *module, contents *c) {
    *c = (contents){tt_module_parameters(module), tt_module_buffers(module)};
    return c->parameters && c->buffers ? TT_OK : tt_last_status();
}

/* Bind to the group, of whose ranks all have the same parameters, or (`take`) take rank 0's. */
static tt_status ddp_bind(ddp *d, tt_group *group, bool take) {
    contents c;
    size_t count = 0;
    TT__TRY(list_contents(d->module, &c));
    TT__TRY(check_unwrapped(d));
    d->group = group;
    d->sync = d->synced = true;
    TT__TRY(compare_with_peers(group, &c));
    if (take) {
        TT__TRY(take_rank_zeros(group, c.parameters));
        TT__TRY(take_rank_zeros(group, c.buffers));
    }
    TT__TRY(make_reducer(d, &count));
    return ddp_attach(d, count);
}

tt_module *tt__ddp_make(const tt_ddp_args *args) {
    if (!args->module) {
        tt__fail_argument("tt_ddp: the module is NULL");
        return NULL;
    }
    if (tt__module_class(args->module) == &ddp_class)
        return tt__fail_null(TT_ERR_INVALID, "tt_ddp: the module is already wrapped");
    ddp *d = calloc(1, sizeof *d);
    if (!d)
        return ddp_no_memory(), NULL;
    d->module = args->module;
    d->bucket_cap_bytes = args->bucket_cap_bytes;
    d->broadcast_buffers = !args->no_broadcast_buffers;
    tt_module *wrapper = args->group && ddp_bind(d, args->group, true) ? NULL : tt__module_new(&ddp_class, d);
    if (!wrapper)
        ddp_release(d);
    return wrapper;
}

tt_status tt__ddp_bind(tt_module *wrapper, tt_group *group) {
    ddp *d = tt_module_user(wrapper);
    ddp_detach(d);
    tt_status status = group ? ddp_bind(d, group, false) : TT_OK;
    if (status)
        ddp_detach(d);
    return status;
}

void tt__ddp_know(tt_module *wrapper, tt_module **known_as) {
    if (wrapper)
        ((ddp *)tt_module_user(wrapper))->known_as = known_as;
}

tt_module *tt_ddp_with(const tt_ddp_args *given, size_t size) {
    tt_ddp_args args;
    TT__ARGS_COPY(args, given, size);
    if (args.module && !args.group)
        return tt__fail_null(TT_ERR_INVALID, "tt_ddp: `group` is NULL");
    return tt__ddp_make(&args);
}

tt_reducer *tt_ddp_reducer(tt_module *module) {
    if (!module || tt__module_class(module) != &ddp_class)
        return NULL;
    return ((ddp *)tt_module_user(module))->reducer;
}

tt_status tt_ddp_set_sync(tt_module *module, bool sync) {
    if (!module || tt__module_class(module) != &ddp_class)
        return tt__fail(TT_ERR_INVALID, "tt_ddp_set_sync: expected a wrapper that tt_ddp() made");
    ((ddp *)tt_module_user(module))->sync = sync;
    return TT_OK;
}
