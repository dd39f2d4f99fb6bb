/* How a step's buckets are averaged: begun in order, stage by stage where there are several, and ended in order.
 *
 * A hook says how many stages it has. Averages that ranks make in each other's memory (tt__reducer_mirror.reaches) have
 * three: the marks are averaged, so that each rank knows that all gradients are there; each rank sums its share; and
 * all say that they have. */
#include "reducer/reducer.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "reducer/text_agreement.h"

/* What errors of collectives name instead of a line of the program. */
static const char average_site[] = "the averaging of gradients";

/* ---- stages ---- */

enum { SUM_STAGE = 1, CLOSING_STAGE, MIRROR_STAGES };

static bool averages_afar(const tt_reducer *r, const tt__reducer_bucket *b) {
    return r->mirror && !r->hook && r->mirror->reaches(r->mirror_user, (size_t)b->view.index);
}

static int stages_of(const tt_reducer *r, const tt__reducer_bucket *b) {
    return averages_afar(r, b) ? MIRROR_STAGES : r->hook && r->hook->stages > 0 ? r->hook->stages : 1;
}

/* On a device the call runs after the work that the stream holds, and waiting for it makes the stream wait. */
static tt_status all_reduce_part(const tt__reducer_bucket *b, tt_group *group, size_t first, tt_work **work) {
    char *at = (char *)b->data + first * tt_dtype_size(b->dtype);
    return tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, group, at, (int64_t)(b->count - first), b->dtype, TT_AVG,
                                      .work = work, .file = average_site, .device = b->view.device,
                                      .device_index = b->view.device_index, .stream = b->view.stream));
}

static tt_status call_hook(const tt_reducer *r, tt__reducer_bucket *b) {
    tt_status status = r->hook->next(r->hook_state, &b->view, b->stage, &b->work);
    return status ? tt__fail_prefix("communication hook \"%s\", bucket %lld", r->hook->name, (long long)b->view.index)
                  : TT_OK;
}

/* Average the marks over the group that the hook names. Notes are for all ranks: if there are any, marks go to all
 * ranks, too. */
static tt_status begin_marks(const tt_reducer *r, tt__reducer_bucket *b) {
    bool asks = r->hook->told_over && r->examples < 0;
    tt_group *group = asks ? r->hook->told_over(r->hook_state) : r->group;
    return group ? all_reduce_part(b, group, b->marks_at, &b->marks) : TT_OK;
}

static tt_status begin_bucket(tt_reducer *r, tt__reducer_bucket *b) {
    if (r->begun == 0)
        r->first_begun_ns = tt__now_ns();
    tt__reducer_trace(r, TT_REDUCER_BEGIN, r->begun++);
    b->stage = 0;
    if (r->begun == r->bucket_count)
        tt__reducer_put_note(r);
    if (r->place)
        TT__TRY(tt__reducer_tell(r, b));
    if (!r->hook)
        return all_reduce_part(b, r->group, averages_afar(r, b) ? b->marks_at : 0, &b->work);
    tt__reducer_tell_own_marks(r, (size_t)b->view.index);
    TT__TRY(begin_marks(r, b));
    return call_hook(r, b);
}

static tt_status begin_mirror_stage(const tt_reducer *r, tt__reducer_bucket *b) {
    if (b->stage == CLOSING_STAGE)
        return tt_barrier_with(TT_ARGS(tt_barrier_args, r->group, .work = &b->work, .file = average_site));
    TT__TRY(r->mirror->sum(r->mirror_user, (size_t)b->view.index));
    b->sums = true;
    return TT_OK;
}

static tt_status begin_stage(const tt_reducer *r, tt__reducer_bucket *b) {
    b->stage++;
    return averages_afar(r, b) ? begin_mirror_stage(r, b) : call_hook(r, b);
}

/* *filled: do the gradients of the next bucket lie in it? `wait`: wait until they do. */
static tt_status fill_next(tt_reducer *r, bool wait, bool *filled) {
    tt__reducer_bucket *b = &r->buckets[r->begun];
    if (r->mirror && !b->filled)
        TT__TRY(r->mirror->sent(r->mirror_user, r->begun, wait, &b->filled));
    *filled = !r->mirror || b->filled;
    return TT_OK;
}

/* The bucket that was begun last, if it has stages left; else NULL. */
static tt__reducer_bucket *unfinished(const tt_reducer *r) {
    tt__reducer_bucket *b = r->begun > r->ended ? &r->buckets[r->begun - 1] : NULL;
    return b && b->stage + 1 < stages_of(r, b) ? b : NULL;
}

/* ---- ends ---- */

static tt_status wait_work(tt_work **work) {
    if (!*work)
        return TT_OK;
    TT__TRY(tt_work_wait(*work));
    tt_work_free(*work);
    *work = NULL;
    return TT_OK;
}

/* Has the mirror's sum ended? */
static tt_status look_at_sum(const tt_reducer *r, tt__reducer_bucket *b, bool wait) {
    bool ended = true;
    if (b->sums)
        TT__TRY(r->mirror->sent(r->mirror_user, (size_t)b->view.index, wait, &ended));
    b->sums = !ended;
    return TT_OK;
}

/* Wait for the stage that is under way. */
static tt_status wait_bucket(const tt_reducer *r, tt__reducer_bucket *b) {
    TT__TRY(wait_work(&b->marks));
    TT__TRY(wait_work(&b->work));
    return look_at_sum(r, b, true);
}

static tt_status look_at_stage(const tt_reducer *r, tt__reducer_bucket *b, bool *completed) {
    TT__TRY(look_at_sum(r, b, false));
    *completed =
        !b->sums && (!b->marks || tt_work_is_completed(b->marks)) && (!b->work || tt_work_is_completed(b->work));
    return TT_OK;
}

static tt_status end_bucket(tt_reducer *r) {
    tt__reducer_bucket *b = &r->buckets[r->ended];
    TT__TRY(wait_bucket(r, b));
    TT__TRY(tt__reducer_ask(r, b));
    TT__TRY(tt__reducer_read_marks(r, r->ended));
    if (r->hook) {
        b->stage = stages_of(r, b);
        TT__TRY(call_hook(r, b));
    }
    TT__TRY(tt__reducer_settle_marks(r, r->ended));
    if (r->mirror)
        TT__TRY(r->mirror->receive(r->mirror_user, r->ended));
    tt__reducer_trace(r, TT_REDUCER_END, r->ended);
    size_t bucket = r->ended++;
    return r->bucket_ended ? r->bucket_ended(r->bucket_ended_user, bucket) : TT_OK;
}

static tt_status end_completed_buckets(tt_reducer *r) {
    while (r->ended < r->begun) {
        tt__reducer_bucket *b = &r->buckets[r->ended];
        bool completed = false;
        if (b != unfinished(r))
            TT__TRY(look_at_stage(r, b, &completed));
        if (!completed)
            return TT_OK;
        TT__TRY(end_bucket(r));
    }
    return TT_OK;
}

/* ---- both ---- */

static tt_status begin_what_can_be(tt_reducer *r) {
    for (;;) {
        tt__reducer_bucket *b = unfinished(r);
        bool completed = true;
        if (b)
            TT__TRY(look_at_stage(r, b, &completed));
        if (!completed)
            return TT_OK;
        if (b) {
            TT__TRY(wait_bucket(r, b));
            TT__TRY(begin_stage(r, b));
            continue;
        }
        bool filled;
        if (r->begun == r->bucket_count || r->buckets[r->begun].pending > 0)
            return TT_OK;
        TT__TRY(fill_next(r, false, &filled));
        if (!filled)
            return TT_OK;
        TT__TRY(begin_bucket(r, &r->buckets[r->begun]));
    }
}

tt_status tt__reducer_advance(tt_reducer *r) {
    TT__TRY(begin_what_can_be(r));
    return end_completed_buckets(r);
}

tt_status tt__reducer_end_buckets(tt_reducer *r) {
    for (;;) {
        TT__TRY(tt__reducer_advance(r));
        if (r->ended == r->bucket_count)
            return TT_OK;
        bool filled = true;
        TT__TRY(r->begun == r->ended ? fill_next(r, true, &filled) : wait_bucket(r, &r->buckets[r->ended]));
    }
}

void tt__reducer_end_works(tt_reducer *r) {
    for (size_t i = r->ended; i < r->begun; i++) {
        tt__reducer_bucket *b = &r->buckets[i];
        tt_work *works[] = {b->marks, b->work};
        for (int w = 0; w < 2; w++) {
            if (!works[w])
                continue;
            tt_ignore(tt_work_wait(works[w])); /* only that it has ended matters */
            tt_work_free(works[w]);
        }
        b->marks = b->work = NULL;
        b->sums = false; /* freeing that memory waits for it */
    }
}

void tt__reducer_abandon(tt_reducer *r, tt_status why) {
    if (r->broken)
        return;
    if (r->hook && r->hook->told_over)
        tt__abort_with_error(r->hook->told_over(r->hook_state));
    tt__abort_with_error(r->group);
    r->broken = why;
}
