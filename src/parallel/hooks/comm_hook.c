/* A hook's life: registered on a wrapper, attached to the buckets of its group, detached, freed with the wrapper. */
#include "parallel/hooks/comm_hook.h"

#include "base/error.h"
#include "comm/group.h"
#include "parallel/ddp/ddp_state.h"
#include "reducer/text_agreement.h"
#include "tensor/core/tensor.h"

#include <stdlib.h>
#include <string.h>

bool tt__hook_takes_f32(tt_dtype dtype) { return dtype == TT_F32; }

/* ---- parameters ---- */

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

/* List the parameters that require a gradient; buckets number them in this list. After a failure the old list stays. */
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

/* ---- buckets ---- */

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

/* Do the errors stay valid? Not if the number of ranks or the buckets differ. */
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

/* Make new buckets, with errors of zero. After a failure there are none. */
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

/* Free buffers, in an order that is the same on all ranks. */
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

/* The part of attaching that may fail on this rank alone. */
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

/* ---- the wrapper's hook ---- */

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

const char tt__hook_site[] = "a communication hook";

/* ---- what all ranks must have alike: a rank that is new, or was behind when another failed, takes it from the one
 * that has come furthest ---- */

enum { STATUS, PROGRESS, TOLD };

/* Tell the others how far this rank is; *from: the rank that has come furthest, -1: none has begun. */
static tt_status tell_progress(const tt__comm_hook *h, tt_group *group, tt_status mine, int *from) {
    int world = tt_get_world_size(group);
    const int64_t own[TOLD] = {mine, !mine && h->cls->progress ? h->cls->progress(h) : 0};
    int64_t *all = calloc((size_t)world * TOLD, sizeof *all);
    if (!all)
        return tt__fail(TT_ERR_MEMORY, "no memory for what %d ranks tell", world);
    tt_status status = tt__group_gather(group, own, all, TOLD, TT_I64, tt__hook_site);
    *from = -1;
    for (int rank = 0; rank < world && !status; rank++) {
        const int64_t *told = all + (size_t)rank * TOLD;
        if (told[STATUS] && !mine)
            status = tt__fail((tt_status)told[STATUS], "rank %d has failed in this: %s", rank,
                              tt_status_name((tt_status)told[STATUS]));
        else if (told[PROGRESS] > 0 && (*from < 0 || told[PROGRESS] > all[(size_t)*from * TOLD + PROGRESS]))
            *from = rank;
    }
    free(all);
    return status;
}

static tt_status share_from(tt__comm_hook *h, tt_group *group, int from) {
    size_t size = h->cls->shared_size(h);
    char *text = calloc(1, size + 1);
    tt_status status = text ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory for %zu bytes of state", size);
    if (status)
        return status;
    if (tt_get_rank(group) == from)
        h->cls->write_shared(h, text);
    status = tt_broadcast_with(
        TT_ARGS(tt_broadcast_args, group, text, (int64_t)size, TT_U8, .root = from, .file = tt__hook_site));
    if (!status)
        h->cls->read_shared(h, text);
    free(text);
    return status;
}

tt_status tt__hook_align(tt__comm_hook *h, tt_group *group, tt_status mine) {
    tt__saved_error saved;
    int from = -1;
    if (mine)
        tt__error_save(&saved);
    tt_status status = tell_progress(h, group, mine, &from);
    if (mine) {
        tt__error_restore(&saved);
        return mine;
    }
    if (!status && from >= 0 && h->cls->shared_size && tt_get_world_size(group) > 1)
        status = share_from(h, group, from);
    return status;
}

/* ---- error feedback of parameters that no rank uses in a step ----
 *
 * What a hook sends of them is not applied, so their errors must stay what they were. Only the end of the step shows
 * whether other ranks use a parameter; errors of those that this rank doesn't use are kept until then. */

/* Copy, for each gradient that is not used, the part of it that lies in `count` elements from `first` on. */
static void copy_unused(float *to, const float *from, const tt_bucket *b, int64_t first, int64_t count) {
    for (int64_t g = 0; g < b->gradient_count; g++) {
        const tt_bucket_gradient *at = &b->gradients[g];
        int64_t begin = at->offset - first, end = begin + at->count;
        begin = begin < 0 ? 0 : begin;
        end = end > count ? count : end;
        if (!at->used && begin < end)
            memcpy(to + begin, from + begin, (size_t)(end - begin) * sizeof *to);
    }
}

static bool all_are_used(const tt_bucket *b) {
    for (int64_t g = 0; g < b->gradient_count; g++)
        if (!b->gradients[g].used)
            return false;
    return true;
}

static tt_status keep_unused(float **kept, const float *from, const tt_bucket *b, int64_t first, int64_t count) {
    if (!from || all_are_used(b))
        return TT_OK;
    if (!*kept && !(*kept = calloc((size_t)count + 1, sizeof **kept)))
        return tt__fail(TT_ERR_MEMORY, "no memory to keep the errors of parameters that are not used");
    copy_unused(*kept, from, b, first, count);
    return TT_OK;
}

tt_status tt__hook_keep_error(const tt__comm_hook *h, const tt_bucket *b) {
    tt__hook_bucket *own = tt__hook_bucket_of(h, b);
    return keep_unused(&own->error_before, own->error, b, 0, b->count);
}

tt_status tt__hook_keep_more(const tt__comm_hook *h, const tt_bucket *b, int64_t first) {
    tt__hook_bucket *own = tt__hook_bucket_of(h, b);
    return keep_unused(&own->more_before, own->more, b, first, own->more_count);
}

void tt__hook_put_error_back(const tt__comm_hook *h, const tt_bucket *b) {
    tt__hook_bucket *own = tt__hook_bucket_of(h, b);
    if (own->error && own->error_before)
        copy_unused(own->error, own->error_before, b, 0, b->count);
}

void tt__hook_put_more_back(const tt__comm_hook *h, const tt_bucket *b, int64_t first) {
    tt__hook_bucket *own = tt__hook_bucket_of(h, b);
    if (own->more && own->more_before)
        copy_unused(own->more, own->more_before, b, first, own->more_count);
}
