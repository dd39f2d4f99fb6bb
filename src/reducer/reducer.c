/* The calls of a step: gradients become ready, and the step ends. */
#include "reducer/reducer.h"

#include "base/error.h"
#include "comm/group.h"
#include "reducer/text_agreement.h"

/* Abandon the step: the group failed, or this rank left the step, in which its peers wait for it. Every later call
 * fails. */
static tt_status abandon_step(tt_reducer *r, tt_status status) {
    if (r->hook && r->hook->told_over)
        tt__abort_with_error(r->hook->told_over(r->hook_state));
    tt__abort_with_error(r->group);
    return r->broken = status;
}

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

static bool is_param(const tt_reducer *r, int64_t i) { return r && i >= 0 && (size_t)i < r->param_count; }

static tt_status mark(tt_reducer *r, int64_t i, bool unused, const char *function) {
    TT__TRY(check_usable(r, function));
    if (!is_param(r, i))
        return tt__fail(TT_ERR_INVALID, "%s: expected a parameter from 0 to %zu, got %lld", function,
                        r->param_count - 1, (long long)i);
    tt__reducer_param *p = &r->params[i];
    if (p->ready)
        return tt__fail(TT_ERR_STATE, "%s: parameter \"%s\" is already ready in this step", function, p->name);
    TT__TRY(tt__reducer_put_mark(r, p, unused));
    p->ready = true;
    if (r->seen_count == r->param_count)
        r->seen_count = 0;
    r->seen[r->seen_count++] = (uint32_t)i;
    tt__reducer_trace(r, TT_REDUCER_READY, (size_t)i);
    bool complete = --r->buckets[p->bucket].pending == 0;
    tt_status status = complete && r->mirror ? r->mirror->send(r->mirror_user, p->bucket) : TT_OK;
    if (!status)
        status = tt__reducer_advance(r);
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

static void next_step(tt_reducer *r) {
    r->begun = r->ended = 0;
    for (size_t i = 0; i < r->param_count; i++)
        r->params[i].ready = false;
    for (size_t b = 0; b < r->bucket_count; b++) {
        r->buckets[b].pending = r->buckets[b].params;
        r->buckets[b].filled = false;
    }
}

tt_status tt_reducer_finish(tt_reducer *r) {
    TT__TRY(check_usable(r, "tt_reducer_finish"));
    tt_status status = check_all_ready(r);
    if (!status)
        status = tt__reducer_end_buckets(r);
    if (status)
        return abandon_step(r, status);
    next_step(r);
    tt__group_note_step(r->group);
    return TT_OK;
}

void *tt_reducer_gradient(tt_reducer *r, int64_t i) { return is_param(r, i) ? r->params[i].gradient : NULL; }

bool tt_reducer_was_used(const tt_reducer *r, int64_t i) { return is_param(r, i) && r->params[i].used; }

int64_t tt_reducer_bucket_count(const tt_reducer *r) { return r ? (int64_t)r->bucket_count : 0; }

int64_t tt_reducer_bucket_of(const tt_reducer *r, int64_t i) {
    return is_param(r, i) ? (int64_t)r->params[i].bucket : -1;
}

int64_t tt_reducer_bucket_bytes(const tt_reducer *r, int64_t b) {
    return r && b >= 0 && (size_t)b < r->bucket_count
               ? (int64_t)(r->buckets[b].gradients * tt_dtype_size(r->buckets[b].dtype))
               : 0;
}
