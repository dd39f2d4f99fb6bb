/* Binds a wrapper to a group: compares the ranks' modules and options, takes rank 0's values, and makes the reducer
 * that holds the gradients. */
#include "autograd/leaf.h"
#include "base/error.h"
#include "parallel/ddp/ddp_state.h"
#include "reducer/text_agreement.h"
#include "tensor/core/tensor.h"
#include "tensor/device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static tt_status ddp_no_memory(void) { return tt__fail(TT_ERR_MEMORY, "tt_ddp: no memory for the wrapper"); }

/* What must be alike on all ranks. */
typedef struct contents {
    const tt_named_tensors *parameters, *buffers;
} contents;

/* Ignored tensors may have different shapes on each rank, so their text leaves the shape out. */
static tt_status describe_list(const tt__ddp *d, const char *what, const tt_named_tensors *list, char **texts) {
    for (int64_t i = 0; i < list->count; i++) {
        bool parameter = *what == 'p', ignored = tt__ddp_is_named(d->ignored, list->names[i]);
        const char *frozen = parameter && !tt_requires_grad(list->tensors[i]) ? " without gradient" : "";
        const char *delayed = parameter && tt__ddp_is_named(d->delayed, list->names[i]) ? " (.delay_all_reduce)" : "";
        const char *sparse = parameter && !ignored && list->tensors[i]->sparse_grad ? " (.sparse)" : "";
        if (asprintf(&texts[i], "%s %lld \"%s\" %s%s%s%s", what, (long long)i, list->names[i],
                     ignored ? "in .ignored" : TT__DESCRIBE(list->tensors[i]), ignored ? "" : frozen, delayed,
                     sparse) < 0)
            return texts[i] = NULL, ddp_no_memory();
    }
    return TT_OK;
}

static tt_status describe_options(const tt__ddp *d, const contents *c, char **text) {
    const char *ignored = tt__ddp_unknown_ignored(d, c->parameters, c->buffers);
    const char *delayed = tt__ddp_unknown_delayed(d, c->parameters);
    int threads = d->virtual_ranks ? tt_get_num_threads() : 0; /* their number decides how sums are divided */
    if (asprintf(text, ".virtual_ranks %d, .shard_seed %llu, %sbroadcast of buffers, %d threads%s%s%s%s",
                 d->virtual_ranks, (unsigned long long)d->shard_seed, d->broadcast_buffers ? "" : "no ", threads,
                 ignored ? ", in .ignored the unknown " : "", ignored ? ignored : "",
                 delayed ? ", in .delay_all_reduce the unknown " : "", delayed ? delayed : "") < 0)
        return *text = NULL, ddp_no_memory();
    return TT_OK;
}

static tt_status compare_with_peers(const tt__ddp *d, tt_group *group, const contents *c) {
    size_t parameters = (size_t)c->parameters->count, count = 1 + parameters + (size_t)c->buffers->count;
    char **texts = calloc(count, sizeof *texts);
    if (!texts)
        return ddp_no_memory();
    tt_status status = describe_options(d, c, texts);
    if (!status)
        status = describe_list(d, "parameter", c->parameters, texts + 1);
    if (!status)
        status = describe_list(d, "buffer", c->buffers, texts + 1 + parameters);
    if (!status)
        status = tt__agree_on(group, "tt_ddp", (const char *const *)texts, count);
    for (size_t i = 0; i < count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

/* Select the parameters that are averaged: *count of them. `params` and `delayed` have room for all. */
static tt_status select_trainable(tt__ddp *d, const tt_named_tensors *all, tt_reducer_param *params, bool *delayed,
                                  size_t *count) {
    *count = 0;
    for (int64_t i = 0; i < all->count; i++) {
        tt_tensor *x = all->tensors[i];
        if (!tt_requires_grad(x) || tt__ddp_is_named(d->ignored, all->names[i]))
            continue;
        d->slots[*count] = (tt__ddp_slot){.owner = d, .index = *count, .parameter = x, .sparse = x->sparse_grad};
        delayed[*count] = d->slots[*count].delayed = tt__ddp_is_named(d->delayed, all->names[i]);
        params[(*count)++] = (tt_reducer_param){
            .name = all->names[i], .count = x->sparse_grad ? 0 : tt_tensor_numel(x), .dtype = tt_tensor_dtype(x)};
    }
    return TT_OK;
}

/* Make the reducer: sets d->reducer and d->slots. */
static tt_status make_reducer(tt__ddp *d, size_t *count) {
    const tt_named_tensors *all = tt_module_parameters(d->module);
    tt_reducer_param *params = calloc((size_t)all->count + 1, sizeof *params);
    d->slots = calloc((size_t)all->count + 1, sizeof *d->slots);
    bool *delayed = calloc((size_t)all->count + 1, sizeof *delayed);
    tt_status status = params && delayed && d->slots ? TT_OK : ddp_no_memory();
    if (!status)
        status = select_trainable(d, all, params, delayed, count);
    if (!status && *count == 0)
        status = tt__fail(TT_ERR_INVALID, "tt_ddp: the module has no parameter that requires a gradient%s",
                          d->ignored ? " and isn't in .ignored" : "");
    const tt__reducer_place *place = status ? NULL : tt__ddp_place(d);
    if (!status)
        status = tt__reducer_new_in(&(tt_reducer_new_args){.out = &d->reducer,
                                                           .group = d->group,
                                                           .params = params,
                                                           .count = (int64_t)*count,
                                                           .bucket_cap_bytes = d->bucket_cap_bytes,
                                                           .delayed = d->delayed ? delayed : NULL},
                                    place);
    if (status && place) /* a device may fail on this rank alone */
        tt__abort_with_error(d->group);
    free(params);
    free(delayed);
    return status;
}

/* Check that no other wrapper holds the gradients: they can lie in one reducer only. */
static tt_status check_unwrapped(const tt__ddp *d) {
    const tt_named_tensors *all = tt_module_parameters(d->module);
    for (int64_t i = 0; i < all->count; i++)
        if (!tt__ddp_is_named(d->ignored, all->names[i]) && tt__leaf_has_hook(all->tensors[i], tt__ddp_on_gradient))
            return tt__fail(TT_ERR_STATE,
                            "tt_ddp: parameter \"%s\" belongs to another wrapper already; free that first",
                            all->names[i]);
    return TT_OK;
}

static tt_status attach_slots(tt__ddp *d, size_t count) {
    for (; d->attached < count; d->attached++) {
        tt__ddp_slot *s = &d->slots[d->attached];
        if (!s->sparse)
            TT__TRY(tt__leaf_set_grad_storage(s->parameter, tt__ddp_gradient_place(d, s->index)));
        tt_status status = tt_register_post_accumulate_grad_hook(s->parameter, tt__ddp_on_gradient, s);
        if (status) {
            if (!s->sparse)
                tt__leaf_set_grad_storage(s->parameter, NULL);
            return status;
        }
        tt__tensor_ref(s->parameter);
    }
    return TT_OK;
}

/* Let gradients lie in the reducer's buckets or their twins. A device may fail on this rank alone. */
static tt_status place_gradients(tt__ddp *d, size_t count) {
    tt_status status = tt__ddp_attach_device(d);
    if (!status)
        status = attach_slots(d, count);
    if (status && !tt__device_is_host(tt_tensor_device(d->slots[0].parameter)))
        tt__abort_with_error(d->group);
    return status;
}

void tt__ddp_detach(tt__ddp *d) {
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    if (d->watcher)
        d->watcher->detached(d->watcher_user);
    d->watcher = NULL;
    if (d->stepper)
        d->stepper->end(d);
    tt__unwatch_passes(&d->passes);
    for (size_t i = 0; i < d->attached; i++) {
        tt_tensor *x = d->slots[i].parameter;
        tt__leaf_remove_hook(x, tt__ddp_on_gradient, &d->slots[i]);
        if (!d->slots[i].sparse)
            tt__leaf_set_grad_storage(x, NULL);
        tt__tensor_unref(x);
    }
    tt__ddp_detach_shards(d);
    tt__ddp_detach_device(d);
    tt__error_restore_reason(&saved);
    tt__reducer_release(d->reducer, "tt_module_free");
    free(d->slots);
    d->reducer = NULL;
    d->slots = NULL;
    d->attached = 0;
    d->stepping = d->rebuilt = false;
    d->group = NULL;
}

static tt_status list_contents(tt_module *module, contents *c) {
    *c = (contents){tt_module_parameters(module), tt_module_buffers(module)};
    return c->parameters && c->buffers ? TT_OK : tt_last_status();
}

tt_status tt__ddp_attach(tt__ddp *d, tt_group *group, bool take) {
    contents c;
    size_t count = 0;
    TT__TRY(list_contents(d->module, &c));
    TT__TRY(check_unwrapped(d));
    TT__TRY(tt__ddp_check_devices(d, group, c.parameters));
    d->group = group;
    d->sync = d->synced = true;
    TT__TRY(compare_with_peers(d, group, &c));
    TT__TRY(tt__ddp_check_names(d, c.parameters, c.buffers));
    TT__TRY(tt__ddp_check_sparse(d, c.parameters));
    TT__TRY(tt__ddp_check_shards(d, group));
    if (take) {
        TT__TRY(tt__ddp_take_shared(d, c.parameters, 0));
        TT__TRY(tt__ddp_take_shared(d, c.buffers, 0));
    }
    TT__TRY(make_reducer(d, &count));
    TT__TRY(place_gradients(d, count));
    TT__TRY(tt__ddp_attach_shards(d));
    if (d->hook.table)
        TT__TRY(tt_reducer_set_comm_hook(d->reducer, d->hook.table, d->hook.state, .settings = d->hook.settings));
    tt__watch_passes(&d->passes, tt__ddp_pass_failed, d);
    return TT_OK;
}
