/* A step: gradients become ready, buckets are begun in order, and end in order. */
#include "reducer/reducer.h"

#include "base/args.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

static void trace_event(const tt_reducer *r, tt_reducer_event_kind kind, size_t index) {
    if (!r->trace)
        return;
    tt_reducer_event event = {.kind = kind, .index = (int64_t)index, .time_ns = tt__now_ns()};
    r->trace(&event, r->trace_user);
}

/* Abandon the step: the group failed, or this rank left the step. Every later call fails. */
static tt_status abandon_step(tt_reducer *r, tt_status status) { return r->broken = status; }

void tt__reducer_abandon(tt_reducer *r, tt_status why) {
    if (!r->broken)
        abandon_step(r, why);
}

static tt_status check_usable(const tt_reducer *r, const char *function) {
    if (!r)
        return tt__fail(TT_ERR_INVALID, "%s: `reducer` is NULL", function);
    if (r->broken)
        return tt__fail(TT_ERR_STATE, "%s: an earlier step failed (%s); destroy the group", function,
                        tt_status_name(r->broken));
    return TT_OK;
}

/* Begin every bucket that is next: all its gradients are ready and all earlier buckets begun. Every rank begins them
 * in the same order. */
static tt_status begin_buckets(tt_reducer *r) {
    while (r->begun < r->bucket_count && r->buckets[r->begun].pending == 0) {
        tt__reducer_bucket *b = &r->buckets[r->begun++];
        trace_event(r, TT_REDUCER_BEGIN, r->begun - 1);
        TT__TRY(tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, r->group, b->data, (int64_t)b->count, b->dtype, TT_AVG,
                                           .work = &b->work, .file = "the averaging of gradients")));
    }
    return TT_OK;
}

/* ---- parameters that take no part */

/* Write one number as `dtype` has it. */
static void put_mark(void *at, tt_dtype dtype, bool one) {
    const float f32 = one;
    const double f64 = one;
    const uint16_t f16 = one ? 0x3c00 : 0, bf16 = one ? 0x3f80 : 0;
    const void *from = dtype == TT_F64   ? (const void *)&f64
                       : dtype == TT_F32 ? (const void *)&f32
                       : dtype == TT_F16 ? (const void *)&f16
                                         : (const void *)&bf16;
    memcpy(at, from, tt_dtype_size(dtype));
}

static void *mark_of_param(const tt_reducer *r, const tt__reducer_param *p) {
    const tt__reducer_bucket *b = &r->buckets[p->bucket];
    return (char *)b->data + p->mark * tt_dtype_size(b->dtype);
}

static bool was_marked_used(const tt_reducer *r, const tt__reducer_param *p) {
    static const uint64_t zero;
    return memcmp(mark_of_param(r, p), &zero, tt_dtype_size(r->buckets[p->bucket].dtype)) != 0;
}

static tt_status keep_gradient(tt__reducer_param *p) {
    if (!p->kept && !(p->kept = malloc(p->bytes + 1)))
        return tt__fail(TT_ERR_MEMORY, "no memory to keep the gradient of \"%s\", which took no part in this step",
                        p->name);
    memcpy(p->kept, p->gradient, p->bytes);
    return TT_OK;
}

/* The bucket is averaged: find out who was used, and give back what no rank has touched. */
static void settle_marks(tt_reducer *r, size_t bucket) {
    for (size_t i = 0; i < r->param_count; i++) {
        tt__reducer_param *p = &r->params[i];
        if (p->bucket != bucket)
            continue;
        p->used = !p->unused || was_marked_used(r, p);
        if (!p->used)
            memcpy(p->gradient, p->kept, p->bytes);
    }
}

/* ---- a step */

static void note_end(tt_reducer *r) {
    tt__reducer_bucket *b = &r->buckets[r->ended];
    settle_marks(r, r->ended);
    tt_work_free(b->work);
    b->work = NULL;
    trace_event(r, TT_REDUCER_END, r->ended++);
}

/* Advance the works and note which have ended. Returns the first failure. */
static tt_status note_ended(tt_reducer *r) {
    while (r->ended < r->begun && tt_work_is_completed(r->buckets[r->ended].work)) {
        TT__TRY(tt_work_wait(r->buckets[r->ended].work));
        note_end(r);
    }
    return TT_OK;
}

static bool is_param(const tt_reducer *r, int64_t i) { return r && i >= 0 && (size_t)i < r->param_count; }

static tt_status mark(tt_reducer *r, int64_t i, bool unused, const char *function) {
    TT__TRY(check_usable(r, function));
    if (!is_param(r, i))
        return tt__fail(TT_ERR_INVALID, "%s: expected a parameter from 0 to %zu, got %lld", function,
                        r->param_count - 1, (long long)i);
    tt__reducer_param *p = &r->params[i];
    if (p->ready)
        return tt__fail(TT_ERR_STATE, "%s: parameter \"%s\" is already ready in this step", function, p->name);
    if (unused)
        TT__TRY(keep_gradient(p));
    put_mark(mark_of_param(r, p), r->buckets[p->bucket].dtype, !unused);
    p->unused = unused;
    p->ready = true;
    r->buckets[p->bucket].pending--;
    trace_event(r, TT_REDUCER_READY, (size_t)i);
    tt_status status = begin_buckets(r);
    if (!status)
        status = note_ended(r);
    return status ? abandon_step(r, status) : TT_OK;
}

tt_status tt_reducer_mark_ready(tt_reducer *r, int64_t i) { return mark(r, i, false, "tt_reducer_mark_ready"); }

tt_status tt_reducer_mark_unused(tt_reducer *r, int64_t i) { return mark(r, i, true, "tt_reducer_mark_unused"); }

static tt_status check_all_ready(const tt_reducer *r) {
    size_t missing = 0, first = 0;
    for (size_t i = r->param_count; i-- > 0;)
        if (!r->params[i].ready) {
            first = i;
            missing++;
        }
    if (missing == 0)
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "parameter \"%s\" got no gradient in this step, and was not said to be unused (%zu of %zu "
                    "parameters): tt_reducer_mark_ready() or tt_reducer_mark_unused() each",
                    r->params[first].name, missing, r->param_count);
}

/* End all buckets. Works end in order, so the last bucket's end is every bucket's. */
static tt_status end_buckets(tt_reducer *r) {
    while (r->ended < r->bucket_count) {
        TT__TRY(tt_work_wait(r->buckets[r->ended].work));
        note_end(r);
    }
    return TT_OK;
}

static void next_step(tt_reducer *r) {
    r->begun = r->ended = 0;
    for (size_t i = 0; i < r->param_count; i++)
        r->params[i].ready = false;
    for (size_t b = 0; b < r->bucket_count; b++)
        r->buckets[b].pending = r->buckets[b].params;
}

tt_status tt_reducer_finish(tt_reducer *r) {
    TT__TRY(check_usable(r, "tt_reducer_finish"));
    tt_status status = check_all_ready(r);
    if (!status)
        status = end_buckets(r);
    if (status)
        return abandon_step(r, status);
    next_step(r);
    return TT_OK;
}

void *tt_reducer_gradient(tt_reducer *r, int64_t i) { return is_param(r, i) ? r->params[i].gradient : NULL; }

bool tt_reducer_was_used(const tt_reducer *r, int64_t i) { return is_param(r, i) && r->params[i].used; }

int64_t tt_reducer_bucket_count(const tt_reducer *r) { return r ? (int64_t)r->bucket_count : 0; }

int64_t tt_reducer_bucket_of(const tt_reducer *r, int64_t i) {
    return is_param(r, i) ? (int64_t)r->params[i].bucket : -1;
}

void tt__reducer_end_trace(tt_reducer *r) {
    if (r->trace_destroy)
        r->trace_destroy(r->trace_user);
    r->trace = NULL;
    r->trace_destroy = NULL;
}

void tt_reducer_set_trace_with(const tt_reducer_set_trace_args *args, size_t size) {
    tt_reducer_set_trace_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.reducer) {
        tt__reducer_end_trace(a.reducer);
        a.reducer->trace = a.trace;
        a.reducer->trace_user = a.user;
        a.reducer->trace_destroy = a.destroy;
    } else if (a.destroy)
        a.destroy(a.user);
}
