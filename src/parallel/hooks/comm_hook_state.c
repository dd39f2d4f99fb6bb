/* State dicts of hooks. Entries are "HOOK.world_size", "HOOK.error.PARAMETER", and what each kind adds. */
#include "base/error.h"
#include "parallel/ddp/ddp_state.h"
#include "parallel/hooks/comm_hook.h"
#include "tensor/core/tensor.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- saving ---- */

static tt_status save_errors(tt__comm_hook *h, const tt__hook_bucket *b) {
    for (int64_t g = 0; g < b->view.gradient_count && b->error; g++) {
        const tt_bucket_gradient *at = &b->view.gradients[g];
        TT__TRY(tt__dict_add_own(&h->dict, tt_from_data(b->error + at->offset, TT_SHAPE(at->count), TT_F32),
                                 "%s.error.%s", h->cls->hook.name, h->params[at->param].name));
    }
    if (b->more)
        TT__TRY(tt__dict_add_own(&h->dict, tt_from_data(b->more, TT_SHAPE(b->more_count), TT_F32),
                                 "%s.average_error.%lld", h->cls->hook.name, (long long)b->view.index));
    return TT_OK;
}

static tt_status save_hook(tt__comm_hook *h) {
    int64_t world = h->world, room = h->param_count + h->bucket_count + 1;
    room += h->cls->save_room ? h->cls->save_room(h) : 0;
    TT__TRY(tt__dict_init(&h->dict, "tt_comm_hook_state_dict", (size_t)room));
    TT__TRY(tt__dict_add_own(&h->dict, tt_from_data(&world, TT_SCALAR, TT_I64), "%s.world_size", h->cls->hook.name));
    for (int64_t b = 0; b < h->bucket_count; b++)
        TT__TRY(save_errors(h, &h->buckets[b]));
    return h->cls->save ? h->cls->save(h, &h->dict) : TT_OK;
}

static tt_status fail_no_hook(const char *who) {
    return tt__fail(TT_ERR_INVALID, "%s: expected a wrapper with one of the hooks of tutti/comm_hooks.h", who);
}

const tt_named_tensors *tt_comm_hook_state_dict(tt_module *ddp) {
    tt__comm_hook *h = tt__hook_of(ddp);
    if (!h) {
        tt_ignore(fail_no_hook("tt_comm_hook_state_dict"));
        return NULL;
    }
    return tt__dict_finish(&h->dict, save_hook(h));
}

/* ---- loading ---- */

tt_status tt__hook_find(const tt__comm_hook *h, const tt_named_tensors *state, const char *kind, const char *of,
                        tt_dtype dtype, int64_t count, const tt_tensor **found) {
    char *name;
    if (asprintf(&name, "%s.%s%s", h->cls->hook.name, kind, of) < 0)
        return tt__fail(TT_ERR_MEMORY, "no memory for a name");
    const tt_tensor *x = tt_named_tensors_find(state, name);
    tt_status status = TT_OK;
    if (!x)
        status = tt__fail(TT_ERR_NOT_FOUND, "entry \"%s\" is missing", name);
    else if (tt_tensor_dtype(x) != dtype)
        status = tt__fail(TT_ERR_DTYPE, "\"%s\": expected %s, got %s", name, tt_dtype_name(dtype), TT__DESCRIBE(x));
    else if (tt_tensor_numel(x) != count || !x->contiguous || !tt__device_is_host(tt_tensor_device(x)))
        status = tt__fail(TT_ERR_SHAPE, "\"%s\": expected %lld contiguous elements on the host, got %s", name,
                          (long long)count, TT__DESCRIBE(x));
    free(name);
    *found = x;
    return status;
}

static tt_status load_errors(const tt__comm_hook *h, const tt__hook_bucket *b, const tt_named_tensors *state) {
    const tt_tensor *x;
    for (int64_t g = 0; g < b->view.gradient_count && b->error; g++) {
        const tt_bucket_gradient *at = &b->view.gradients[g];
        TT__TRY(tt__hook_find(h, state, "error.", h->params[at->param].name, TT_F32, at->count, &x));
        memcpy(b->error + at->offset, tt_tensor_data((tt_tensor *)x), (size_t)at->count * sizeof(float));
    }
    return TT_OK;
}

/* Errors of averages belong to a slice of a bucket: if buckets differ, they begin at zero. */
static void load_average_error(const tt__comm_hook *h, const tt__hook_bucket *b, const tt_named_tensors *state) {
    char name[64];
    snprintf(name, sizeof name, "%s.average_error.%lld", h->cls->hook.name, (long long)b->view.index);
    const tt_tensor *x = b->more ? tt_named_tensors_find(state, name) : NULL;
    if (x && tt_tensor_dtype(x) == TT_F32 && tt_tensor_numel(x) == b->more_count && x->contiguous &&
        tt__device_is_host(tt_tensor_device(x)))
        memcpy(b->more, tt_tensor_data((tt_tensor *)x), (size_t)b->more_count * sizeof(float));
}

/* Forget all errors, as in a new hook. */
static void hook_forget(tt__comm_hook *h) {
    for (int64_t b = 0; b < h->bucket_count; b++) {
        tt__hook_bucket *bucket = &h->buckets[b];
        if (bucket->error)
            memset(bucket->error, 0, (size_t)bucket->view.count * sizeof(float));
        if (bucket->more)
            memset(bucket->more, 0, (size_t)bucket->more_count * sizeof(float));
    }
    if (h->cls->forget)
        h->cls->forget(h);
}

static tt_status load_hook(tt__comm_hook *h, const tt_named_tensors *state) {
    const tt_tensor *world;
    hook_forget(h);
    if (state->count == 0)
        return TT_OK;
    TT__TRY(tt__hook_find(h, state, "world_size", "", TT_I64, 1, &world));
    bool same = *(const int64_t *)tt_tensor_data((tt_tensor *)world) == h->world;
    for (int64_t b = 0; b < h->bucket_count && same; b++) {
        TT__TRY(load_errors(h, &h->buckets[b], state));
        load_average_error(h, &h->buckets[b], state);
    }
    return h->cls->load ? h->cls->load(h, state) : TT_OK;
}

tt_status tt_comm_hook_load_state_dict(tt_module *ddp, const tt_named_tensors *state) {
    static const char who[] = "tt_comm_hook_load_state_dict";
    tt__comm_hook *h = tt__hook_of(ddp);
    if (!h)
        return fail_no_hook(who);
    if (!h->group)
        return tt__fail(TT_ERR_STATE, "%s: the wrapper has no group yet", who);
    if (tt__ddp_of(ddp)->stepping)
        return tt__fail(TT_ERR_STATE, "%s: a step is under way", who);
    tt_status mine = state ? load_hook(h, state) : tt__fail(TT_ERR_INVALID, "the state is NULL");
    tt_status status = tt__hook_align(h, h->group, mine);
    if (status)
        hook_forget(h);
    return status ? tt__fail_prefix("%s", who) : TT_OK;
}
