/* What callers do with a work, whatever its engine. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/quarantine.h"
#include "comm/callback.h"
#include "comm/group.h"
#include "comm/in_callback.h"
#include "comm/work.h"

static tt_status work_wait_until(tt_work *work, const char *call, int64_t until_ms, bool *done) {
    if (tt__is_inherited(work->group))
        return tt__fail_inherited(work->group);
    TT__TRY(tt__may_wait(call));
    return work->group->engine->wait(work, until_ms, done);
}

static tt_status work_end(tt_work *work, const char *call, int64_t until_ms, bool *done) {
    *done = true;
    if (!atomic_load_explicit(&work->done, memory_order_acquire))
        return work_wait_until(work, call, until_ms, done);
    return work->status ? tt__work_error(work) : TT_OK;
}

/* Afterwards the work may have been freed, as by its callback. */
static tt_status wait_and_land(tt_work *work, const char *call, int64_t until_ms, bool *done) {
    tt__landing *landing = tt__landing_hold(work);
    tt_status status = work_end(work, call, until_ms, done);
    if (landing && *done && !status)
        status = tt__landing_happen(landing, TT_OK);
    tt__landing_drop(landing);
    return status;
}

tt_status tt_work_wait(tt_work *work) {
    if (!work)
        return tt__fail(TT_ERR_INVALID, "tt_work_wait: the work is NULL");
    bool done;
    return wait_and_land(work, "tt_work_wait", INT64_MAX, &done);
}

tt_status tt_work_wait_for(tt_work *work, int64_t timeout_ms, bool *done) {
    if (!work || !done)
        return tt__fail(TT_ERR_INVALID, "tt_work_wait_for: %s is NULL", work ? "`done`" : "the work");
    tt_status status = wait_and_land(work, "tt_work_wait_for", tt__deadline_ms(timeout_ms < 0 ? 0 : timeout_ms), done);
    *done |= status != TT_OK;
    return status;
}

tt_status tt_work_wait_all(tt_work *const *works, int64_t count) {
    tt_status first = TT_OK;
    if (count < 0)
        return tt__fail(TT_ERR_INVALID, "tt_work_wait_all: expected 0 or more works, got %lld", (long long)count);
    if (!works && count)
        return tt__fail(TT_ERR_INVALID, "tt_work_wait_all: the list of %lld works is NULL", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        tt_status status = works[i] && !first ? tt_work_wait(works[i]) : TT_OK;
        first = first ? first : status;
    }
    return first;
}

bool tt_work_is_completed(tt_work *work) {
    if (!work)
        return false;
    if (!atomic_load_explicit(&work->done, memory_order_acquire) && !tt__is_inherited(work->group))
        work->group->engine->progress(work->group);
    if (!atomic_load_explicit(&work->done, memory_order_acquire))
        return false;
    if (work->landing)
        tt_ignore(tt__landing_happen(work->landing, work->status)); /* waiting tells its error */
    return true;
}

int tt_work_source_rank(const tt_work *work) {
    return work && atomic_load_explicit(&work->done, memory_order_acquire) ? work->source : -1;
}

/* Was the work freed before, and is still on its way or waits for its next use? */
static bool is_disowned(const tt_work *work) {
    if (!work->owned)
        tt__fail(TT_ERR_STATE, "tt_work_free: it was freed before");
    return !work->owned;
}

void tt_work_free(tt_work *work) {
    if (!work || tt__freed_before("tt_work_free", work))
        return;
    if (is_disowned(work))
        return;
    tt_group *group = work->group;
    tt__landing *landing = work->landing;
    work->landing = NULL;
    if (!group->freed) {
        group->engine->forget(work);
    } else {
        work->next = NULL;
        tt__works_free(work);
        tt__group_drop(group);
    }
    tt__landing_drop(landing);
}
