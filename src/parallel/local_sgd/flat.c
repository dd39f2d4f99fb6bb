/* Parameters laid out in buckets, and averages of these buckets over a group. */
#include "parallel/local_sgd/averager.h"

#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "comm/group.h"
#include "optim/dict.h"
#include "reducer/reducer.h"
#include "tensor/core/named_tensors.h"
#include "tensor/core/tensor.h"
#include "tensor/ops/ops.h"

/* Each parameter begins at a cache line of its own. */
#define FLAT_ALIGNMENT ((size_t)64)

/* Large enough to hide the fixed cost of a call, and small enough that copies overlap with reductions. */
#define FLAT_BUCKET_BYTES ((size_t)25 << 20)

static bool is_averaged_type(tt_dtype dtype) {
    return dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16 || dtype == TT_BF16;
}

tt_status tt__flat_check_list(const char *who, const tt_named_tensors *params) {
    TT__TRY(tt__named_tensors_check(who, params, true));
    for (int64_t i = 0; i < params->count; i++) {
        const tt_tensor *x = params->tensors[i];
        if (!is_averaged_type(tt_tensor_dtype(x)))
            return tt__fail(TT_ERR_DTYPE, "%s: \"%s\" is %s; only floats are averaged", who, params->names[i],
                            TT__DESCRIBE(x));
    }
    return TT_OK;
}

/* ---- layout ---- */

static tt_status flat_no_memory(const char *who, size_t count) {
    return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu parameters", who, count);
}

static tt_dtype carried_as(tt_dtype dtype, const tt_dtype *as) { return as && dtype != TT_F64 ? *as : dtype; }

static tt_status watch_params(tt__flat *f, const char *who, const tt_named_tensors *params) {
    f->entries = calloc((size_t)params->count + 1, sizeof *f->entries);
    if (!f->entries)
        return flat_no_memory(who, (size_t)params->count);
    for (int64_t i = 0; i < params->count; i++) {
        tt__flat_entry *e = &f->entries[f->count++];
        *e = (tt__flat_entry){.name = strdup(params->names[i]),
                              .param = tt__tensor_watch(params->tensors[i]),
                              .dtype = tt_tensor_dtype(params->tensors[i])};
        if (!e->name)
            return flat_no_memory(who, (size_t)params->count);
    }
    return TT_OK;
}

static tt_status assign_params(tt__flat *f, const char *who, const tt_dtype *as) {
    const size_t limit = FLAT_BUCKET_BYTES;
    tt__bucket_item *items = calloc(f->count + 1, sizeof *items);
    size_t *bucket_of = calloc(f->count + 1, sizeof *bucket_of);
    if (items && bucket_of) {
        for (size_t i = 0; i < f->count; i++) {
            items[i].dtype = carried_as(f->entries[i].dtype, as);
            items[i].bytes = (size_t)tt_tensor_numel(f->entries[i].param) * tt_dtype_size(items[i].dtype);
        }
        f->bucket_count = tt__bucket_assign(items, f->count, &limit, 1, bucket_of);
        f->buckets = calloc(f->bucket_count + 1, sizeof *f->buckets);
        for (size_t i = 0; f->buckets && i < f->count; i++) {
            tt__flat_entry *e = &f->entries[i];
            tt__flat_bucket *b = &f->buckets[e->bucket = bucket_of[i]];
            int64_t step = (int64_t)(FLAT_ALIGNMENT / tt_dtype_size(items[i].dtype));
            b->dtype = items[i].dtype;
            e->offset = b->count;
            b->count += (tt_tensor_numel(e->param) + step - 1) / step * step;
        }
    }
    free(items);
    free(bucket_of);
    return f->buckets ? TT_OK : flat_no_memory(who, f->count);
}

static tt_status place_views(tt__flat *f) {
    for (size_t i = 0; i < f->count; i++) {
        tt__flat_entry *e = &f->entries[i];
        const tt__flat_bucket *b = &f->buckets[e->bucket];
        void *at = tt__carried_at(&b->memory, (size_t)e->offset * tt_dtype_size(b->dtype));
        e->view =
            tt__optim_hold(tt__tensor_borrow("an averager", b->memory.device, at, tt_tensor_shape(e->param), b->dtype));
        if (!e->view)
            return tt_last_status();
    }
    return TT_OK;
}

tt_status tt__flat_make(tt__flat *f, const char *who, tt_group *group, const tt_named_tensors *params,
                        const tt_dtype *as) {
    *f = (tt__flat){.group = group};
    tt__group_hold(group);
    TT__TRY(watch_params(f, who, params));
    TT__TRY(assign_params(f, who, as));
    const tt_device *device =
        tt__group_takes(group, TT_DEVICE_CPU) ? &tt__cpu_device : tt_tensor_device(params->tensors[0]);
    for (size_t b = 0; b < f->bucket_count; b++)
        TT__TRY(tt__carried_make(&f->buckets[b].memory, group, device,
                                 (size_t)f->buckets[b].count * tt_dtype_size(f->buckets[b].dtype), who));
    return place_views(f);
}

void tt__flat_free(tt__flat *f, bool alone) {
    if (!f->group)
        return;
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    for (size_t i = 0; i < f->count; i++) {
        tt__tensor_disown(f->entries[i].view);
        tt__tensor_unwatch(f->entries[i].param);
        free(f->entries[i].name);
    }
    for (size_t b = 0; b < f->bucket_count && f->buckets; b++)
        if (!alone || tt__carried_is_far(&f->buckets[b].memory))
            tt__carried_free(&f->buckets[b].memory, f->group, "tt_model_averager_free");
    free(f->entries);
    free(f->buckets);
    tt__group_let_go(f->group);
    tt__error_restore_reason(&saved);
    *f = (tt__flat){0};
}

/* ---- to the buckets and back ---- */

tt_status tt__flat_check(const tt__flat *f, const char *who) {
    for (size_t i = 0; i < f->count; i++) {
        const tt__flat_entry *e = &f->entries[i];
        const tt_shape now = tt_tensor_shape(e->param), before = tt_tensor_shape(e->view);
        if (tt_tensor_dtype(e->param) != e->dtype || !tt__shape_equal(&now, &before))
            return tt__fail(TT_ERR_STATE, "%s: \"%s\" was %s of %s when the averager was made, and is %s now", who,
                            e->name, TT__DESCRIBE(e->view), tt_dtype_name(e->dtype), TT__DESCRIBE(e->param));
    }
    return TT_OK;
}

tt_status tt__flat_copy(tt_tensor *to, const tt_tensor *from) {
    tt__storage_touch(to->storage);
    return tt__copy_out("an averager", to, from);
}

tt_status tt__flat_pack(const tt__flat *f, size_t bucket) {
    for (size_t i = 0; i < f->count; i++)
        if (f->entries[i].bucket == bucket)
            TT__TRY(tt__flat_copy(f->entries[i].view, f->entries[i].param));
    return TT_OK;
}

tt_status tt__flat_unpack(const tt__flat *f, size_t bucket) {
    for (size_t i = 0; i < f->count; i++)
        if (f->entries[i].bucket == bucket)
            TT__TRY(tt__flat_copy(f->entries[i].param, f->entries[i].view));
    return TT_OK;
}

tt_status tt__flat_take_rank_0(tt__flat *f, const char *what) {
    for (size_t b = 0; b < f->bucket_count; b++) {
        const tt__flat_bucket *bucket = &f->buckets[b];
        TT__TRY(tt__flat_pack(f, b));
        TT__TRY(tt_broadcast_with(TT_ARGS(tt_broadcast_args, .group = f->group, .buf = bucket->memory.near,
                                          .count = bucket->count, .dtype = bucket->dtype, .root = 0, .file = what,
                                          TT__CARRIED_ON(&bucket->memory))));
        TT__TRY(tt__flat_unpack(f, b));
    }
    return TT_OK;
}

static tt_status begin_flat_bucket(tt__flat *f, size_t b, tt_group *group, const char *what) {
    tt__flat_bucket *bucket = &f->buckets[b];
    return tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, group, bucket->memory.near, bucket->count, bucket->dtype,
                                      TT_AVG, .work = &bucket->work, .file = what, TT__CARRIED_ON(&bucket->memory)));
}

static tt_status end_flat_bucket(tt__flat_bucket *bucket) {
    tt_status status = tt_work_wait(bucket->work);
    tt_work_free(bucket->work);
    bucket->work = NULL;
    return status;
}

/* Wait for all works, as they use the buffers. */
static void end_all(tt__flat *f) {
    tt__saved_error saved;
    tt__error_save(&saved);
    for (size_t b = 0; b < f->bucket_count; b++)
        if (f->buckets[b].work)
            tt_ignore(end_flat_bucket(&f->buckets[b]));
    tt__error_restore(&saved);
}

static tt_status average_buckets(tt__flat *f, tt_group *group, const char *what, tt__flat_fn before, tt__flat_fn after,
                                 void *user) {
    for (size_t b = 0; b < f->bucket_count; b++) {
        TT__TRY(before(f, b, user));
        TT__TRY(begin_flat_bucket(f, b, group, what));
    }
    for (size_t b = 0; b < f->bucket_count; b++) {
        TT__TRY(end_flat_bucket(&f->buckets[b]));
        TT__TRY(after(f, b, user));
    }
    return TT_OK;
}

tt_status tt__flat_average(tt__flat *f, tt_group *group, const char *what, tt__flat_fn before, tt__flat_fn after,
                           void *user) {
    tt_status status = average_buckets(f, group, what, before, after, user);
    if (status)
        end_all(f);
    return status;
}
