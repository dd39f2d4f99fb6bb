/* Making and freeing a reducer: compare, assign to buckets, lay out. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/args.h"
#include "base/quarantine.h"
#include "base/saved_error.h"
#include "reducer/bucket.h"
#include "reducer/reducer.h"
#include "reducer/text_agreement.h"

#include "comm/group.h"

#define FIRST_BUCKET_BYTES ((size_t)1 << 20)

/* Each gradient begins at a cache line of its own. */
#define ALIGNMENT ((size_t)64)

static tt_status fail_no_memory(int64_t count) {
    return tt__fail(TT_ERR_MEMORY, "tt_reducer_new: no memory for %lld parameters", (long long)count);
}

static tt_status check_reducer_args(const tt_reducer_new_args *args) {
    if (!args->group)
        return tt__fail(TT_ERR_INVALID, "tt_reducer_new: `group` is NULL");
    if (args->count < 1 || !args->params)
        return tt__fail(TT_ERR_INVALID, "tt_reducer_new: expected at least one parameter, got %s of %lld",
                        args->params ? "a list" : "NULL", (long long)args->count);
    for (int64_t i = 0; i < args->count; i++) {
        const tt_reducer_param *p = &args->params[i];
        if (!p->name)
            return tt__fail(TT_ERR_INVALID, "tt_reducer_new: parameter %lld has no name, but NULL", (long long)i);
        if (p->dtype != TT_F32 && p->dtype != TT_F64 && p->dtype != TT_F16 && p->dtype != TT_BF16)
            return tt__fail(TT_ERR_INVALID, "tt_reducer_new: parameter \"%s\" is %s; only floats are averaged", p->name,
                            tt_dtype_name(p->dtype));
        if (p->count < 0)
            return tt__fail(TT_ERR_INVALID,
                            "tt_reducer_new: parameter \"%s\": expected a count of 0 or more elements, got %lld",
                            p->name, (long long)p->count);
        if (p->count > (INT64_MAX >> 7) / args->count)
            return tt__fail(TT_ERR_INVALID, "tt_reducer_new: parameter \"%s\" has %lld elements, which is too many",
                            p->name, (long long)p->count);
    }
    return TT_OK;
}

/* ---- the same on all ranks? ---- */

static tt_status describe_parameter(const tt_reducer_new_args *args, char **texts) {
    if (asprintf(&texts[0], "bucket_cap_bytes %zu", args->bucket_cap_bytes) < 0)
        return texts[0] = NULL, fail_no_memory(args->count);
    for (int64_t i = 0; i < args->count; i++) {
        const tt_reducer_param *p = &args->params[i];
        if (asprintf(&texts[1 + i], "parameter %lld \"%s\" %s x %lld", (long long)i, p->name, tt_dtype_name(p->dtype),
                     (long long)p->count) < 0)
            return texts[1 + i] = NULL, fail_no_memory(args->count);
    }
    return TT_OK;
}

static tt_status compare_parameters(const tt_reducer_new_args *args) {
    char **texts = calloc(1 + (size_t)args->count, sizeof *texts);
    if (!texts)
        return fail_no_memory(args->count);
    tt_status status = describe_parameter(args, texts);
    if (!status)
        status = tt__agree_on(args->group, "tt_reducer_new", (const char *const *)texts, 1 + (size_t)args->count);
    for (int64_t i = 0; i < 1 + args->count; i++)
        free(texts[i]);
    free(texts);
    return status;
}

/* ---- layout ---- */

static tt_status copy_params(tt_reducer *r, const tt_reducer_param *params, int64_t count) {
    r->params = calloc((size_t)count, sizeof *r->params);
    if (!r->params)
        return fail_no_memory(count);
    r->param_count = (size_t)count;
    for (int64_t i = 0; i < count; i++)
        if (!(r->params[i].name = strdup(params[i].name)))
            return fail_no_memory(count);
    return TT_OK;
}

/* Set params[].bucket and make the buckets. Gradients become ready about in reverse order of the forward pass, so
 * buckets are filled in that order. */
static tt_status assign_buckets(tt_reducer *r, const tt_reducer_param *params, size_t cap) {
    size_t n = r->param_count, limits[] = {FIRST_BUCKET_BYTES, TT_DEFAULT_BUCKET_CAP_BYTES};
    tt__bucket_item *items = calloc(n + 1, sizeof *items);
    size_t *bucket_of = calloc(n + 1, sizeof *bucket_of);
    if (items && bucket_of) {
        for (size_t i = 0; i < n; i++)
            items[i] =
                (tt__bucket_item){.bytes = (size_t)params[n - 1 - i].count * tt_dtype_size(params[n - 1 - i].dtype),
                                  .dtype = params[n - 1 - i].dtype};
        r->bucket_count =
            cap ? tt__bucket_assign(items, n, &cap, 1, bucket_of) : tt__bucket_assign(items, n, limits, 2, bucket_of);
        for (size_t i = 0; i < n; i++)
            r->params[n - 1 - i].bucket = bucket_of[i];
        r->buckets = calloc(r->bucket_count, sizeof *r->buckets);
    }
    free(items);
    free(bucket_of);
    return r->buckets ? TT_OK : fail_no_memory((int64_t)n);
}

/* Place each gradient, for now as an offset into its bucket, in the order in which they become ready. */
static void lay_out(tt_reducer *r, const tt_reducer_param *params) {
    for (size_t i = r->param_count; i-- > 0;) {
        tt__reducer_bucket *b = &r->buckets[r->params[i].bucket];
        size_t size = tt_dtype_size(params[i].dtype), step = ALIGNMENT / size;
        r->params[i].gradient = (void *)(uintptr_t)(b->count * size);
        r->params[i].bytes = (size_t)params[i].count * size;
        b->dtype = params[i].dtype;
        b->count += ((size_t)params[i].count + step - 1) / step * step;
        b->pending = ++b->params;
    }
    for (size_t b = 0; b < r->bucket_count; b++) {
        size_t parts = (size_t)tt_get_world_size(r->group) * (ALIGNMENT / tt_dtype_size(r->buckets[b].dtype));
        r->buckets[b].gradients = r->buckets[b].count;
        r->buckets[b].count = r->buckets[b].marks_at = (r->buckets[b].gradients + parts - 1) / parts * parts;
    }
    for (size_t i = r->param_count; i-- > 0;)
        r->params[i].mark = r->buckets[r->params[i].bucket].count++;
}

static tt_status allocate_buckets(tt_reducer *r) {
    for (size_t b = 0; b < r->bucket_count; b++)
        TT__TRY(tt_group_alloc_with(TT_ARGS(tt_group_alloc_args, &r->buckets[b].data, r->group,
                                            r->buckets[b].count * tt_dtype_size(r->buckets[b].dtype),
                                            .file = "tt_reducer_new")));
    for (size_t i = 0; i < r->param_count; i++) {
        char *data = r->buckets[r->params[i].bucket].data;
        r->params[i].gradient = data + (uintptr_t)r->params[i].gradient;
    }
    return TT_OK;
}

/* Describe each bucket as hooks see it. */
static tt_status describe_buckets(tt_reducer *r, const tt_reducer_param *params) {
    for (size_t b = 0; b < r->bucket_count; b++) {
        tt__reducer_bucket *bucket = &r->buckets[b];
        tt_bucket_gradient *list = calloc(bucket->params, sizeof *list);
        if (!list)
            return fail_no_memory((int64_t)r->param_count);
        size_t n = 0;
        for (size_t i = r->param_count; i-- > 0;)
            if (r->params[i].bucket == b)
                list[n++] = (tt_bucket_gradient){.param = (int64_t)i,
                                                 .offset = ((char *)r->params[i].gradient - (char *)bucket->data) /
                                                           (int64_t)tt_dtype_size(bucket->dtype),
                                                 .count = params[i].count};
        bucket->view = (tt_bucket){.group = r->group,
                                   .index = (int64_t)b,
                                   .buckets = (int64_t)r->bucket_count,
                                   .data = bucket->data,
                                   .count = (int64_t)bucket->gradients,
                                   .dtype = bucket->dtype,
                                   .gradient_count = (int64_t)n,
                                   .gradients = list};
    }
    return TT_OK;
}

static void free_buckets(tt_reducer *r) {
    tt__reducer_end_works(r);
    tt__reducer_end_hook(r);
    for (size_t b = 0; b < r->bucket_count; b++)
        free((void *)r->buckets[b].view.gradients);
    for (size_t b = 0; b < r->bucket_count; b++)
        if (r->buckets[b].data &&
            tt_group_free_with(TT_ARGS(tt_group_free_args, r->group, r->buckets[b].data, .file = "tt_reducer_free")))
            break; /* the group failed: its end releases the rest */
    free(r->buckets);
}

/* Keep the caller's error, whatever freeing adds to it. */
static void end_reducer(tt_reducer *r) {
    tt__saved_error saved;
    tt__error_save(&saved);
    if (r->buckets)
        free_buckets(r);
    for (size_t i = 0; r->params && i < r->param_count; i++) {
        free(r->params[i].name);
        free(r->params[i].kept);
    }
    free(r->params);
    tt__reducer_end_trace(r);
    tt__group_let_go(r->group);
    tt__quarantine(r, sizeof *r, free);
    tt__error_restore(&saved);
}

static tt_status build_reducer(const tt_reducer_new_args *args) {
    tt_reducer *r = calloc(1, sizeof *r);
    if (!r)
        return fail_no_memory(args->count);
    r->group = args->group;
    tt__group_hold(r->group);
    tt_status status = copy_params(r, args->params, args->count);
    if (!status)
        status = assign_buckets(r, args->params, args->bucket_cap_bytes);
    if (!status) {
        lay_out(r, args->params);
        status = allocate_buckets(r);
    }
    if (!status)
        status = describe_buckets(r, args->params);
    if (status) {
        end_reducer(r);
        return status;
    }
    for (size_t b = 0; b < r->bucket_count; b++)
        tt__log(TT_LOG_DEBUG, "gradient bucket %zu of %zu: %s x %zu", b + 1, r->bucket_count,
                tt_dtype_name(r->buckets[b].dtype), r->buckets[b].count);
    *args->out = r;
    return status;
}

tt_status tt_reducer_new_with(const tt_reducer_new_args *given, size_t size) {
    tt_reducer_new_args args;
    TT__ARGS_COPY(args, given, size);
    if (!args.out)
        return tt__fail(TT_ERR_INVALID, "tt_reducer_new: `out` is NULL");
    *args.out = NULL;
    TT__TRY(check_reducer_args(&args));
    TT__TRY(compare_parameters(&args));
    return build_reducer(&args);
}

void tt_reducer_free(tt_reducer *r) {
    if (r && !tt__freed_before("tt_reducer_free", r))
        end_reducer(r);
}
