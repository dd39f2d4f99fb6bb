/* Which parameters share a bucket, and where each one's gradient lies in it. */
#include "base/error.h"
#include "base/log.h"
#include "comm/group.h"
#include "reducer/reducer.h"

#include <stdlib.h>
#include <string.h>

enum { DTYPES = TT_BOOL + 1 };

/* The open bucket of one dtype. */
typedef struct open_bucket {
    size_t first; /* its first item; SIZE_MAX = none is open */
    size_t bytes;
    size_t limit; /* index of its limit */
} open_bucket;

/* Number the items of the bucket, which all lie in first..last. Items in no bucket have SIZE_MAX. */
static void close_bucket(const tt__bucket_item *items, open_bucket *open, size_t last, size_t number,
                         size_t *bucket_of) {
    for (size_t i = open->first; i <= last; i++)
        if (items[i].dtype == items[last].dtype && bucket_of[i] == SIZE_MAX)
            bucket_of[i] = number;
    open->first = SIZE_MAX;
    open->bytes = 0;
}

static open_bucket *oldest_bucket(open_bucket *open) {
    open_bucket *found = &open[0];
    for (int d = 1; d < DTYPES; d++)
        if (open[d].first < found->first)
            found = &open[d];
    return found->first == SIZE_MAX ? NULL : found;
}

size_t tt__bucket_assign(const tt__bucket_item *items, size_t count, const size_t *limits, size_t limit_count,
                         size_t *bucket_of) {
    open_bucket open[DTYPES];
    size_t buckets = 0, last_of[DTYPES];
    for (int d = 0; d < DTYPES; d++)
        open[d] = (open_bucket){.first = SIZE_MAX};
    for (size_t i = 0; i < count; i++) {
        open_bucket *b = &open[items[i].dtype];
        bucket_of[i] = SIZE_MAX;
        last_of[items[i].dtype] = i;
        if (b->first == SIZE_MAX)
            b->first = i;
        b->bytes += items[i].bytes;
        if (b->bytes < limits[b->limit])
            continue;
        close_bucket(items, b, i, buckets++, bucket_of);
        if (b->limit + 1 < limit_count)
            b->limit++;
    }
    for (open_bucket *b; (b = oldest_bucket(open));)
        close_bucket(items, b, last_of[b - open], buckets++, bucket_of);
    return buckets;
}

#define FIRST_BUCKET_BYTES ((size_t)1 << 20)

/* Each gradient begins at a cache line of its own. */
#define ALIGNMENT ((size_t)64)

static const char order_site[] = "the order of gradients";

static tt_status fail_no_room(const tt_reducer *r) {
    return tt__fail(TT_ERR_MEMORY, "no memory for the buckets of %zu parameters", r->param_count);
}

void tt__reducer_delay(const tt_reducer *r, uint32_t *order) {
    size_t others = 0;
    for (size_t k = 0; k < r->param_count; k++) {
        uint32_t i = order[k];
        if (r->params[i].delayed)
            continue;
        memmove(&order[others + 1], &order[others], (k - others) * sizeof *order);
        order[others++] = i;
    }
}

/* bucket_of[k] := the bucket of parameter order[k]. Delayed parameters come last in `order`, and have buckets of their
 * own. */
static tt_status assign_buckets(const tt_reducer *r, const uint32_t *order, size_t *bucket_of, size_t *count) {
    size_t n = r->param_count, others = 0, limits[] = {FIRST_BUCKET_BYTES, TT_DEFAULT_BUCKET_CAP_BYTES};
    const size_t *limit = r->cap ? &r->cap : limits, limit_count = r->cap ? 1 : 2;
    tt__bucket_item *items = calloc(n, sizeof *items);
    if (!items)
        return fail_no_room(r);
    for (size_t k = 0; k < n; k++)
        items[k] = (tt__bucket_item){.bytes = r->params[order[k]].bytes, .dtype = r->params[order[k]].dtype};
    while (others < n && !r->params[order[others]].delayed)
        others++;
    *count = tt__bucket_assign(items, others, limit, limit_count, bucket_of);
    size_t delayed = tt__bucket_assign(items + others, n - others, &limit[limit_count - 1], 1, bucket_of + others);
    for (size_t k = others; k < n; k++)
        bucket_of[k] += *count;
    *count += delayed;
    free(items);
    return TT_OK;
}

/* Place each gradient, for now as an offset into its bucket. */
static void lay_out(tt_reducer *r) {
    for (size_t k = 0; k < r->param_count; k++) {
        tt__reducer_param *p = &r->params[r->order[k]];
        tt__reducer_bucket *b = &r->buckets[p->bucket];
        size_t size = tt_dtype_size(p->dtype), step = ALIGNMENT / size;
        p->gradient = (void *)(uintptr_t)(b->count * size);
        b->dtype = p->dtype;
        b->count += (p->count + step - 1) / step * step;
        b->pending = ++b->params;
    }
    for (size_t b = 0; b < r->bucket_count; b++) {
        size_t parts = (size_t)tt_get_world_size(r->group) * (ALIGNMENT / tt_dtype_size(r->buckets[b].dtype));
        r->buckets[b].gradients = r->buckets[b].count;
        r->buckets[b].count = r->buckets[b].marks_at = (r->buckets[b].gradients + parts - 1) / parts * parts;
    }
    for (size_t k = 0; k < r->param_count; k++)
        r->params[r->order[k]].mark = r->buckets[r->params[r->order[k]].bucket].count++;
    tt__reducer_bucket *last = &r->buckets[r->bucket_count - 1];
    r->notes = last->count;
    last->count += (size_t)tt_get_world_size(r->group) * tt__reducer_note_size(last->dtype);
}

static tt_status allocate_bucket(const tt_reducer *r, tt__reducer_bucket *b) {
    size_t size = tt_dtype_size(b->dtype), bytes = b->count * size, told = (b->count - b->marks_at) * size;
    if (!r->place) {
        TT__TRY(tt_group_alloc_with(
            TT_ARGS(tt_group_alloc_args, &b->data, r->group, bytes, .file = "the buckets of gradients")));
        b->told = b->heard = (char *)b->data + b->marks_at * size;
        return TT_OK;
    }
    TT__TRY(r->place->alloc(r->place->user, bytes, &b->data));
    TT__TRY(r->place->alloc_host(r->place->user, 2 * told, &b->told));
    b->heard = (char *)b->told + told;
    return TT_OK;
}

static tt_status allocate_buckets(tt_reducer *r) {
    for (size_t b = 0; b < r->bucket_count; b++)
        TT__TRY(allocate_bucket(r, &r->buckets[b]));
    for (size_t i = 0; i < r->param_count; i++) {
        char *data = r->buckets[r->params[i].bucket].data;
        r->params[i].gradient = data + (uintptr_t)r->params[i].gradient;
    }
    return TT_OK;
}

/* Describe each bucket as hooks see it. */
static tt_status describe_buckets(tt_reducer *r) {
    for (size_t b = 0; b < r->bucket_count; b++) {
        tt__reducer_bucket *bucket = &r->buckets[b];
        tt_bucket_gradient *list = calloc(bucket->params, sizeof *list);
        if (!list)
            return fail_no_room(r);
        size_t n = 0;
        for (size_t k = 0; k < r->param_count; k++) {
            const tt__reducer_param *p = &r->params[r->order[k]];
            if (p->bucket == b)
                list[n++] = (tt_bucket_gradient){.param = (int64_t)r->order[k],
                                                 .offset = ((char *)p->gradient - (char *)bucket->data) /
                                                           (int64_t)tt_dtype_size(bucket->dtype),
                                                 .count = (int64_t)p->count};
        }
        bucket->view = (tt_bucket){.group = r->group,
                                   .index = (int64_t)b,
                                   .buckets = (int64_t)r->bucket_count,
                                   .data = bucket->data,
                                   .count = (int64_t)bucket->gradients,
                                   .dtype = bucket->dtype,
                                   .gradient_count = (int64_t)n,
                                   .gradients = list,
                                   .device = r->place ? r->place->device : TT_DEVICE_CPU,
                                   .device_index = r->place ? r->place->index : 0,
                                   .stream = r->place ? r->place->stream : NULL};
    }
    return TT_OK;
}

/* Make `count` buckets, of which parameter r->order[k] belongs to bucket_of[k]. */
static tt_status build_buckets(tt_reducer *r, const size_t *bucket_of, size_t count) {
    r->bucket_count = 0;
    r->buckets = calloc(count, sizeof *r->buckets);
    if (!r->buckets)
        return fail_no_room(r);
    r->bucket_count = count;
    for (size_t k = 0; k < r->param_count; k++)
        r->params[r->order[k]].bucket = bucket_of[k];
    lay_out(r);
    TT__TRY(allocate_buckets(r));
    TT__TRY(describe_buckets(r));
    for (size_t b = 0; b < count; b++)
        tt__log(TT_LOG_DEBUG, "gradient bucket %zu of %zu: %s x %zu", b + 1, count, tt_dtype_name(r->buckets[b].dtype),
                r->buckets[b].count);
    return TT_OK;
}

tt_status tt__reducer_make_buckets(tt_reducer *r) {
    size_t count = 0, *bucket_of = calloc(r->param_count, sizeof *bucket_of);
    tt_status status = bucket_of ? assign_buckets(r, r->order, bucket_of, &count) : fail_no_room(r);
    if (!status)
        status = build_buckets(r, bucket_of, count);
    free(bucket_of);
    return status;
}

static void free_far_bucket(const tt_reducer *r, tt__reducer_bucket *b) {
    tt_ignore(tt__reducer_hear(r, b));
    r->place->free(r->place->user, b->data);
    r->place->free_host(r->place->user, b->told);
}

void tt__reducer_free_buckets(const tt_reducer *r, tt__reducer_bucket *buckets, size_t count, const char *site) {
    if (!buckets)
        return;
    for (size_t b = 0; b < count; b++)
        free((void *)buckets[b].view.gradients);
    for (size_t b = 0; b < count; b++)
        if (r->place)
            free_far_bucket(r, &buckets[b]);
        else if (buckets[b].data &&
                 tt_group_free_with(TT_ARGS(tt_group_free_args, r->group, buckets[b].data, .file = site)))
            break; /* the group failed: its end releases the rest */
    free(buckets);
}

/* ---- another order ---- */

void tt__reducer_drop_old(tt_reducer *r) {
    tt__reducer_free_buckets(r, r->old_buckets, r->old_count, order_site);
    r->old_buckets = NULL;
    r->old_count = 0;
}

/* What a rebuild changes. */
typedef struct built {
    tt__reducer_bucket *buckets;
    size_t bucket_count, notes;
    uint32_t *order;
    tt__reducer_param *params;
} built;

static void put_back(tt_reducer *r, const built *before) {
    tt__reducer_free_buckets(r, r->buckets, r->bucket_count, order_site);
    r->buckets = before->buckets;
    r->bucket_count = before->bucket_count;
    r->notes = before->notes;
    memcpy(r->order, before->order, r->param_count * sizeof *r->order);
    memcpy(r->params, before->params, r->param_count * sizeof *r->params);
}

/* On failure everything is as before: the old buckets are still in use. */
static tt_status replace_buckets(tt_reducer *r, const size_t *bucket_of, size_t count) {
    built before = {.buckets = r->buckets, .bucket_count = r->bucket_count, .notes = r->notes};
    before.order = malloc(r->param_count * sizeof *before.order);
    before.params = malloc(r->param_count * sizeof *before.params);
    tt_status status = before.order && before.params ? TT_OK : fail_no_room(r);
    if (!status) {
        memcpy(before.order, r->order, r->param_count * sizeof *r->order);
        memcpy(before.params, r->params, r->param_count * sizeof *r->params);
        memcpy(r->order, r->seen, r->param_count * sizeof *r->order);
        status = build_buckets(r, bucket_of, count);
        if (status)
            put_back(r, &before);
    }
    if (!status) {
        r->old_buckets = before.buckets;
        r->old_count = before.bucket_count;
    }
    free(before.order);
    free(before.params);
    return status;
}

static tt_status rebuild(tt_reducer *r, size_t *bucket_of, bool *rebuilt) {
    size_t count = 0;
    TT__TRY(tt__group_take_first(r->group, r->seen, r->param_count * sizeof *r->seen, order_site));
    tt__reducer_delay(r, r->seen);
    TT__TRY(assign_buckets(r, r->seen, bucket_of, &count));
    bool same = count == r->bucket_count;
    for (size_t k = 0; same && k < r->param_count; k++)
        same = r->params[r->seen[k]].bucket == bucket_of[k];
    if (same)
        return TT_OK;
    TT__TRY(replace_buckets(r, bucket_of, count));
    *rebuilt = true;
    return TT_OK;
}

tt_status tt__reducer_rebuild(tt_reducer *r, bool *rebuilt) {
    *rebuilt = false;
    if (r->hook || r->broken || r->seen_count != r->param_count)
        return TT_OK;
    size_t *bucket_of = calloc(r->param_count, sizeof *bucket_of);
    tt_status status = bucket_of ? rebuild(r, bucket_of, rebuilt) : fail_no_room(r);
    free(bucket_of);
    if (status)
        tt__reducer_abandon(r, status);
    return status;
}
