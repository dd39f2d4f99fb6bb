/* A hook's life: registered on a wrapper, attached to the buckets of its group, detached, freed with the wrapper. */

#include "parallel/hooks/comm_hook.h"

#include "base/error.h"
#include "parallel/ddp/ddp_state.h"
#include "reducer/text_agreement.h"
#include "tensor/core/tensor.h"

#include <stdlib.h>
#include <string.h>

bool tt__hook_takes_f32(tt_dtype dtype) { return dtype == TT_F32; }

/* ---- parameters */

static void free_params(tt__hook_param *params, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        free(params[i].name);
    free(params);
}

static tt_status no_hook_memory(const tt__comm_hook *h) {
    return tt__fail(TT_ERR_MEMORY, "no memory for %s of %lld buckets", h->cls->hook.name, (long long)h->bucket_count);
}

/* Copy into `params` those that require a gradient. */
static tt_status note_trained_params(const tt__comm_hook *h, const tt_named_tensors *all, tt__hook_param *params,
                                     int64_t *count) {
    for (int64_t i = 0; i < all->count; i++) {
        const tt_tensor *x = all->tensors[i];
        if (!tt_requires_grad(x) || tt__ddp_is_named(tt__ddp_of(h->ddp)->ignored, all->names[i]))
            continue;
        tt__hook_param *p = &params[*count];
        *p = (tt__hook_param){.name = strdup(all->names[i]), .count = x->sparse_grad ? 0 : tt_tensor_numel(x)};
        p->rows = x->shape.ndim ? x->shape.dim[0] : 1;
        if (!p->name)
            return no_hook_memory(h);
        ++*count;
        if (!h->cls->takes(tt_tensor_dtype(x)))
            return tt__fail(TT_ERR_UNSUPPORTED, "it takes gradients of %s; \"%s\" is %s", h->cls->types, p->name,
                            tt_dtype_name(tt_tensor_dtype(x)));
    }
    return TT_OK;
}

/* Note the parameters that require a gradient: buckets know their numbers among those. On failure the list of before
 * stays. */
static tt_status list_params(tt__comm_hook *h) {
    const tt__ddp *d = tt__ddp_of(h->ddp);
    const tt_named_tensors *all = tt_module_parameters(d->module);
    if (!all)
        return tt_last_status();
    int64_t count = 0;
    tt__hook_param *params = calloc((size_t)all->count + 1, sizeof *params);
    tt_status status = params ? note_trained_params(h, all, params, &count) : no_hook_memory(h);
    if (status) {
        free_params(params, count);
        return status;
    }
    free_params(h->params, h->param_count);
    h->params = params;
    h->param_count = count;
    return TT_OK;
}

/* ---- buckets */

static void free_hook_buckets(tt__hook_bucket *buckets, int64_t count) {
    for (int64_t b = 0; b < count; b++) {
        free((void *)buckets[b].view.gradients);
        free(buckets[b].error);
        free(buckets[b].more);
        free(buckets[b].error_before);
        free(buckets[b].more_before);
    }
    free(buckets);
}

static bool buckets_are_alike(const tt_bucket *a, const tt_bucket *b) {
    if (a->count != b->count || a->gradient_count != b->gradient_count)
        return false;
    for (int64_t g = 0; g < a->gradient_count; g++) {
        const tt_bucket_gradient *x = &a->gradients[g], *y = &b->gradients[g];
        if (x->param != y->param || x->offset != y->offset || x->count != y->count)
            return false;
    }
    return true;
}

/* Errors of another world don't count in this one. */
static bool errors_stay(const tt__comm_hook *h, const tt_bucket *buckets, int64_t count) {
    if (h->world != tt_get_world_size(buckets[0].group) || h->bucket_count != count)
        return false;
    for (int64_t b = 0; b < count; b++)
        if (!buckets_are_alike(&h->buckets[b].view, &buckets[b]))
            return false;
    return true;
}

static tt_status copy_bucket(tt__hook_bucket *to, const tt_bucket *from) {
    size_t bytes = (size_t)from->gradient_count * sizeof *from->gradients;
    to->view = *from;
    tt_bucket_gradient *list = malloc(bytes + 1);
    to->view.gradients = list;
    if (!list)
        return TT_ERR_MEMORY;
    memcpy(list, from->gradients, bytes);
    return TT_OK;
}

static void drop_hook_buckets(tt__comm_hook *h) {
    free_hook_buckets(h->buckets, h->bucket_count);
    h->buckets = NULL;
    h->bucket_count = 0;
}

static tt_status fill_hook_buckets(tt__comm_hook *h, const tt_bucket *buckets, int64_t count) {
    for (int64_t b = 0; b < count; b++) {
        tt__hook_bucket *bucket = &h->buckets[b];
        tt__hook_needs needs = {.error = false};
        if (copy_bucket(bucket, &buckets[b]))
            return no_hook_memory(h);
        if (h->cls->needs)
            h->cls->needs(h, &bucket->view, &needs);
        bucket->more_count = needs.more_count;
        if ((needs.error && !(bucket->error = calloc((size_t)bucket->view.count + 1, sizeof(float)))) ||
            (needs.more_count && !(bucket->more = calloc((size_t)needs.more_count, sizeof(float)))))
            return no_hook_memory(h);
    }
    return TT_OK;
}

/* Make the buckets anew, with errors of zero; on failure there are none. */
static tt_status make_hook_buckets(tt__comm_hook *h, const tt_bucket *buckets, int64_t count) {
    drop_hook_buckets(h);
    if (!(h->buckets = calloc((size_t)count, sizeof *h->buckets)))
        return no_hook_memory(h);
    h->bucket_count = count;
    tt_status status = fill_hook_buckets(h, buckets, count);
    if (status)
        drop_hook_buckets(h);
    return status;
}

/* Give back in the order in which all ranks do. */
static void free_buffers(tt__comm_hook *h) {
    for (int64_t b = 0; b < h->bucket_count; b++)
        for (int i = 0; i < TT__HOOK_BUFFERS; i++) {
            h->buckets[b].buffers[i] = NULL;
            tt__carried_free(&h->buckets[b].memory[i], h->group, "tt_module_free");
        }
}

static tt_status allocate_buffer(const tt__comm_hook *h, tt__hook_bucket *bucket, int i, size_t bytes) {
    const tt_device *device = tt_device_of(bucket->view.device, bucket->view.device_index);
    if (!bytes)
        return TT_OK;
    TT__TRY(tt__carried_make(&bucket->memory[i], h->group, device, bytes, tt__hook_site));
    bucket->buffers[i] = bucket->memory[i].data;
    return TT_OK;
}

static tt_status allocate_buffers(tt__comm_hook *h) {
    for (int64_t b = 0; b < h->bucket_count; b++) {
        tt__hook_bucket *bucket = &h->buckets[b];
        tt__hook_needs needs = {.error = false};
        if (h->cls->needs)
            h->cls->needs(h, &bucket->view, &needs);
        for (int i = 0; i < TT__HOOK_BUFFERS; i++)
            TT__TRY(allocate_buffer(h, bucket, i, needs.bytes[i]));
    }
    return TT_OK;
}

/* What this rank does alone, so that it may fail on it alone. */
static tt_status attach_alone(tt__comm_hook *h, const tt_bucket *buckets, int64_t count) {
    bool stay = errors_stay(h, buckets, count);
    TT__TRY(list_params(h));
    h->group = buckets[0].group;
    h->world = tt_get_world_size(h->group);
    if (!stay)
        TT__TRY(make_hook_buckets(h, buckets, count));
    for (int64_t b = 0; b < count; b++) {
        const tt_bucket_gradient *list = h->buckets[b].view.gradients;
        h->buckets[b].view = buckets[b];
        h->buckets[b].view.gradients = list;
    }
    return h->cls->attached ? h->cls->attached(h) : TT_OK;
}

tt_status tt__hook_attach(void *state, const tt_bucket *buckets, int64_t count) {
    tt__comm_hook *h = state;
    tt_status status = tt__hook_align(h, buckets[0].group, attach_alone(h, buckets, count));
    if (!status && (status = allocate_buffers(h)))
        free_buffers(h);
    if (status)
        h->group = NULL; /* it may go while the wrapper keeps the hook */
    return status;
}

void tt__hook_detach(void *state) {
    tt__comm_hook *h = state;
    free_buffers(h);
    h->group = NULL;
}

/* ---- the wrapper's */

static void free_hook(void *state) {
    tt__comm_hook *h = state;
    drop_hook_buckets(h);
    free_params(h->params, h->param_count);
    tt__dict_free(&h->dict);
    h->cls->free(h);
}

tt__comm_hook *tt__hook_of(tt_module *ddp) {
    const tt__ddp *d = tt__ddp_of(ddp);
    return d && d->hook.table && d->hook.destroy == free_hook ? d->hook.state : NULL;
}

tt_status tt__hook_check(const char *who, tt_module *ddp) {
    return tt__ddp_of(ddp) ? TT_OK : tt__fail(TT_ERR_INVALID, "%s: expected a wrapper that tt_ddp() made", who);
}

tt_status tt__hook_refused(tt_module *ddp, tt_status status) {
    const tt__joint_call call = tt__joint_call_begin(tt__ddp_of(ddp)->group, "tt_ddp_register_comm_hook");
    return tt__joint_call_end(&call, status);
}

tt_status tt__hook_register(tt_module *ddp, tt__comm_hook *h, const tt__hook_class *cls, const char *settings) {
    if (!h)
        return tt__hook_refused(ddp, tt__fail(TT_ERR_MEMORY, "communication hook \"%s\": no memory", cls->hook.name));
    h->cls = cls;
    h->ddp = ddp;
    return tt_ddp_register_comm_hook(ddp, &cls->hook, h, .settings = settings, .destroy = free_hook);
}
