/* DistributedDataParallel: a module that forwards to another one, and averages its gradients while the backward pass
 * runs (ddp_pass.c). */
#include "parallel/ddp/ddp.h"

#include "autograd/node.h"
#include "base/args.h"
#include "base/error.h"
#include "base/machine/clock.h"
#include "nn/module.h"
#include "parallel/ddp/ddp_state.h"
#include "reducer/text_agreement.h"
#include "tensor/core/tensor.h"
#include "tensor/device/capture.h"

#include <stdlib.h>
#include <string.h>

/* ---- forward ---- */

/* If several passes are averaged together, buffers are taken once, before the first, as in PyTorch. */
tt_status tt__ddp_before_forward(const tt_module *self, tt__ddp *d) {
    if (!tt__is_recording())
        return TT_OK;
    TT__TRY(tt__capture_refuse(DDP_SITE, NULL));
    if (!d->group)
        return tt__fail(TT_ERR_STATE, "%s: this wrapper has no group yet: tt_elastic_restore() gives it one", DDP_SITE);
    if (d->shards)
        return tt__ddp_begin_shard(d);
    bool due = d->synced;
    d->synced = d->sync;
    if (!due || !d->broadcast_buffers || !tt_module_training(self))
        return TT_OK;
    const tt_named_tensors *buffers = tt_module_buffers(d->module);
    int root = d->presence ? d->presence->root : 0;
    return buffers ? tt__ddp_take_shared(d, buffers, root) : tt_last_status();
}

static tt_tensor *ddp_forward(tt_module *self, tt_tensor *x) {
    tt__ddp *d = tt_module_user(self);
    tt_status status = tt__ddp_before_forward(self, d);
    if (status)
        return tt__tensor_fail(status, "%s", tt_last_error());
    int64_t begin = tt__now_ns();
    tt_tensor *y = tt_module_forward(d->module, x);
    d->times.forward_ns += tt__is_recording() ? tt__now_ns() - begin : 0;
    return y;
}

static tt_status ddp_forward_many(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                                  int64_t out_count) {
    tt__ddp *d = tt_module_user(self);
    tt_status status = tt__ddp_before_forward(self, d);
    if (status)
        return status;
    int64_t begin = tt__now_ns();
    status = tt_module_forward_many(d->module, in, in_count, out, out_count);
    d->times.forward_ns += tt__is_recording() ? tt__now_ns() - begin : 0;
    return status;
}

/* ---- the communication hook ---- */

static void end_ddp_hook(tt__ddp *d) {
    if (d->hook.destroy)
        d->hook.destroy(d->hook.state);
    free(d->hook.settings);
    d->hook = (tt__ddp_hook){0};
}

/* Average by this hook from now on; its state stays the caller's on failure. */
static tt_status set_ddp_hook(tt__ddp *d, const tt_ddp_register_comm_hook_args *a) {
    if (d->virtual_ranks)
        return tt__fail(TT_ERR_UNSUPPORTED, "tt_ddp_register_comm_hook: expected a wrapper without .virtual_ranks, "
                                            "which sum in an order of their own");
    if (a->hook && a->hook->told_over)
        TT__TRY(tt__ddp_refuse_sparse(a->hook->name ? a->hook->name : "tt_ddp_register_comm_hook", d));
    char *settings = a->settings ? strdup(a->settings) : NULL;
    if (a->settings && !settings)
        return tt__fail(TT_ERR_MEMORY, "tt_ddp_register_comm_hook: no memory for the hook's settings");
    tt_status status =
        d->reducer ? tt_reducer_set_comm_hook(d->reducer, a->hook, a->state, .settings = a->settings) : TT_OK;
    if (status) {
        free(settings);
        if (d->reducer->hook != d->hook.table)
            end_ddp_hook(d); /* the reducer let go of the old one before it failed to take the new one */
        return status;
    }
    end_ddp_hook(d);
    d->hook = (tt__ddp_hook){.table = a->hook, .state = a->state, .destroy = a->destroy, .settings = settings};
    return TT_OK;
}

void tt__ddp_drop_hook(tt__ddp *d) {
    tt__reducer_end_hook(d->reducer);
    end_ddp_hook(d);
}

/* ---- life ---- */

static void ddp_release(tt__ddp *d) {
    tt__ddp_detach(d);
    end_ddp_hook(d);
    tt__ddp_free_names(d);
    free(d);
}

static void ddp_destroy(tt_module *self) {
    tt__ddp *d = tt_module_user(self);
    if (d->known_as)
        *d->known_as = NULL;
    if (d->presence)
        d->presence->ddp = NULL;
    ddp_release(d);
}

static tt_module *ddp_wrapped(tt_module *self) { return ((const tt__ddp *)tt_module_user(self))->module; }

static const tt_module_class ddp_class =
    TT_MODULE_CLASS(.name = "DistributedDataParallel", .forward = ddp_forward, .forward_many = ddp_forward_many,
                    .destroy = ddp_destroy, .wrapped = ddp_wrapped);

static tt_status check_ddp_module(tt_module *module) {
    if (!module)
        return tt__fail_argument("tt_ddp: the module is NULL");
    if (tt__module_class(module) == &ddp_class)
        return tt__fail(TT_ERR_INVALID, "tt_ddp: the module is already wrapped");
    return TT_OK;
}

tt_module *tt__ddp_make(const tt_ddp_args *args) {
    const tt__joint_call call = tt__joint_call_begin(args->group, DDP_SITE);
    tt_status refused = check_ddp_module(args->module);
    tt__ddp *d = refused ? NULL : calloc(1, sizeof *d);
    if (!refused && !d)
        refused = tt__fail(TT_ERR_MEMORY, "%s: no memory for the wrapper", DDP_SITE);
    if (tt__joint_call_end(&call, refused)) {
        free(d);
        return NULL;
    }
    d->module = args->module;
    d->bucket_cap_bytes = args->bucket_cap_bytes;
    d->broadcast_buffers = !args->no_broadcast_buffers;
    d->virtual_ranks = args->virtual_ranks;
    d->shard_seed = args->shard_seed;
    tt_status status = tt__ddp_keep_names(d, args);
    if (!status && args->group)
        status = tt__ddp_attach(d, args->group, true);
    tt_module *wrapper = status ? NULL : tt__module_new(&ddp_class, d);
    if (!wrapper) {
        tt_ignore(tt__joint_call_end(&call, tt_last_status())); /* first, as releasing is collective */
        ddp_release(d);
    }
    return wrapper;
}

tt_status tt__ddp_bind(tt_module *wrapper, tt_group *group) {
    tt__ddp *d = tt_module_user(wrapper);
    tt__ddp_detach(d);
    const tt__joint_call call = tt__joint_call_begin(group, DDP_SITE);
    tt_status status = tt__joint_call_end(&call, group ? tt__ddp_attach(d, group, false) : TT_OK);
    if (status)
        tt__ddp_detach(d);
    return status;
}

void tt__ddp_know(tt_module *wrapper, tt_module **known_as) {
    if (wrapper)
        ((tt__ddp *)tt_module_user(wrapper))->known_as = known_as;
}

tt_module *tt_ddp_with(const tt_ddp_args *given, size_t size) {
    tt_ddp_args args;
    TT__ARGS_COPY(args, given, size);
    if (args.module && !args.group)
        return tt__fail_null(TT_ERR_INVALID, "tt_ddp: `group` is NULL");
    return tt__ddp_make(&args);
}

tt__ddp *tt__ddp_of(tt_module *module) {
    return module && tt__module_class(module) == &ddp_class ? tt_module_user(module) : NULL;
}

tt_reducer *tt_ddp_reducer(tt_module *module) {
    const tt__ddp *d = tt__ddp_of(module);
    return d ? d->reducer : NULL;
}

tt_status tt_ddp_get_logging_data(tt_module *module, tt_ddp_logging_data *out) {
    const tt__ddp *d = tt__ddp_of(module);
    if (!d || !out)
        return tt__fail(TT_ERR_INVALID, "tt_ddp_get_logging_data: %s",
                        d ? "`out` is NULL" : "expected a wrapper that tt_ddp() made");
    *out = d->times.log;
    return TT_OK;
}

tt_status tt_ddp_set_sync(tt_module *module, bool sync) {
    tt__ddp *d = tt__ddp_of(module);
    if (!d)
        return tt__fail(TT_ERR_INVALID, "tt_ddp_set_sync: expected a wrapper that tt_ddp() made");
    d->sync = sync;
    return TT_OK;
}

int tt_ddp_shards(tt_module *module, int *first) {
    const tt__ddp *d = tt__ddp_of(module);
    int none, *at = first ? first : &none;
    *at = 0;
    return d ? tt__ddp_shard_count(d, at) : 0;
}

tt_status tt_ddp_set_step(tt_module *module, int64_t step) {
    tt__ddp *d = tt__ddp_of(module);
    if (!d || step < 0)
        return tt__fail(TT_ERR_INVALID,
                        "tt_ddp_set_step: expected a wrapper that tt_ddp() made and a step of at least "
                        "0, got %s and %lld",
                        d ? "one" : "none", (long long)step);
    return tt__ddp_set_step(d, step);
}

tt_status tt_ddp_register_comm_hook_with(const tt_ddp_register_comm_hook_args *given, size_t size) {
    tt_ddp_register_comm_hook_args a;
    TT__ARGS_COPY(a, given, size);
    tt__ddp *d = tt__ddp_of(a.ddp);
    const tt__joint_call call = tt__joint_call_begin(d ? d->group : NULL, "tt_reducer_set_comm_hook");
    tt_status status = d ? set_ddp_hook(d, &a)
                         : tt__fail(TT_ERR_INVALID, "tt_ddp_register_comm_hook: expected a wrapper that tt_ddp() made");
    status = tt__joint_call_end(&call, status);
    if (status && a.destroy) {
        tt__saved_error saved;
        tt__error_save(&saved);
        a.destroy(a.state);
        tt__error_restore(&saved);
    }
    return status;
}
