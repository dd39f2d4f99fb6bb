#include "comm/callback.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/quarantine.h"
#include "comm/group.h"
#include "comm/in_callback.h"
#include "comm/work.h"

#include <sched.h>
#include <stdlib.h>
#include <string.h>

/* ---- landings */

struct tt__landing {
    _Atomic int refs;     /* of the work's owner, of the callback, and of those that wait */
    pthread_mutex_t lock; /* of the fields below */
    bool happened;
    tt_status status;
    char *text; /* of its error; or NULL */
    tt_status (*end)(void *user, tt_status work);
    void *user;
    tt__callback *callback; /* until the work has it */
};

static void landing_drop(tt__landing *l) {
    if (!l || atomic_fetch_sub(&l->refs, 1) > 1)
        return;
    pthread_mutex_destroy(&l->lock);
    free(l->callback);
    free(l->text);
    free(l);
}

/* Return the work's landing, kept until landing_drop(), or NULL. */
static tt__landing *landing_hold(const tt_work *work) {
    tt__landing *l = work->landing;
    if (l)
        atomic_fetch_add(&l->refs, 1);
    return l;
}

/* The work is done with `status`: end the landing. Returns that status, or the landing's own error. */
static tt_status landing_happen(tt__landing *l, tt_status status) {
    pthread_mutex_lock(&l->lock);
    if (!l->happened) {
        l->happened = true;
        tt_status ended = l->end(l->user, status);
        if (!status && ended) {
            l->status = ended;
            l->text = strdup(tt_last_error());
        }
    }
    tt_status own = l->status;
    pthread_mutex_unlock(&l->lock);
    if (status || !own)
        return status;
    return tt__fail(own, "%s", l->text ? l->text : tt_status_text(own));
}

static void landing_on_done(tt_status status, int source, void *user) {
    (void)source;
    tt_ignore(landing_happen(user, status));
    landing_drop(user);
}

tt__landing *tt__landing_new(tt_status (*end)(void *user, tt_status work), void *user) {
    tt__landing *l = calloc(1, sizeof *l);
    tt__callback *callback = calloc(1, sizeof *callback);
    if (!l || !callback) {
        free(l);
        free(callback);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for an asynchronous call");
    }
    *callback = (tt__callback){.fn = landing_on_done, .user = l};
    *l = (tt__landing){.refs = 2, .end = end, .user = user, .callback = callback};
    pthread_mutex_init(&l->lock, NULL);
    return l;
}

void tt__landing_set(tt__landing *l, tt_work *work, tt_status status) {
    if (!work) {
        tt_ignore(landing_happen(l, status));
        atomic_store(&l->refs, 1); /* nobody else has it */
        landing_drop(l);
        return;
    }
    tt__callback *callback = l->callback;
    l->callback = NULL;
    work->landing = l;
    work->group->engine->add_callback(work, callback);
}

/* ---- what is due */

static void callback_free(tt__callback *callback) {
    landing_drop(callback->landing);
    free(callback->text);
    free(callback);
}

/* Copy the text of the work's error for the thread that will run the callback. NULL: no memory. */
static char *error_text(const tt_work *work) {
    tt__saved_error saved;
    tt__error_save(&saved);
    tt__work_error(work);
    char *text = strdup(tt_last_error());
    tt__error_restore(&saved);
    return text;
}

static void note_outcome(tt__callback *callback, const tt_work *work) {
    callback->work = work;
    callback->group = work->group;
    callback->status = work->status;
    callback->source = work->source;
    callback->text = work->status ? error_text(work) : NULL;
}

static void append(tt__callbacks *due, tt__callback *callback) {
    callback->next = NULL;
    if (due->last)
        due->last->next = callback;
    else
        due->first = callback;
    due->last = callback;
}

void tt__callbacks_due(tt__callbacks *due, tt_work *work) {
    while (work->callbacks) {
        tt__callback *callback = work->callbacks;
        work->callbacks = callback->next;
        if (tt__is_inherited(work->group)) {
            callback_free(callback);
            continue;
        }
        note_outcome(callback, work);
        append(due, callback);
        work->group->callbacks++;
        atomic_fetch_add_explicit(&work->group->owned, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&work->group->works, 1, memory_order_relaxed);
    }
}

void tt__callback_attach(tt__callbacks *due, tt_work *work, tt__callback *callback) {
    tt__callback **at = &work->callbacks;
    while (*at)
        at = &(*at)->next;
    *at = callback;
    if (work->phase == TT__DONE)
        tt__callbacks_due(due, work);
}

/* ---- running them */

static void callback_run(tt__callback *callback) {
    tt__saved_error saved;
    tt_status status = callback->status;
    tt__error_save(&saved);
    if (status)
        tt__fail(status, "%s", callback->text ? callback->text : tt_status_text(status));
    else if (callback->landing)
        status = landing_happen(callback->landing, TT_OK);
    uint32_t outer = tt__callback_enter();
    callback->fn(status, callback->source, callback->user);
    tt__callback_leave(outer);
    tt__error_restore(&saved);
    callback_free(callback);
}

static tt__callback *take_due(tt__callbacks *due) {
    tt__callback *callback = due->first;
    due->first = callback->next;
    if (!due->first)
        due->last = NULL;
    return callback;
}

/* Take all callbacks of the first work: one thread runs them, so that none overtakes another. */
static tt__callbacks take_of_one_work(tt__callbacks *due) {
    tt__callbacks taken = {0};
    const tt_work *work = due->first->work;
    while (due->first && due->first->work == work)
        append(&taken, take_due(due));
    return taken;
}

static void run_unlocked(tt__callback *callback, pthread_mutex_t *lock) {
    tt_group *group = callback->group;
    pthread_mutex_unlock(lock);
    if (tt__is_inherited(group)) /* the callback before this one forked */
        callback_free(callback);
    else
        callback_run(callback);
    pthread_mutex_lock(lock);
    group->callbacks--;
    atomic_fetch_sub_explicit(&group->works, 1, memory_order_release);
    tt__group_drop(group);
}

void tt__callbacks_unlock(tt__callbacks *due, pthread_mutex_t *lock) {
    while (due->first && !tt__in_callback()) {
        tt__callbacks taken = take_of_one_work(due);
        while (taken.first)
            run_unlocked(take_due(&taken), lock);
    }
    pthread_mutex_unlock(lock);
}

void tt__callbacks_settle(tt__callbacks *due, pthread_mutex_t *lock, tt_group *group) {
    if (tt__is_inherited(group)) {
        group->callbacks = 0;
        tt__callbacks_drop(due);
    }
    while (group->callbacks) {
        tt__callbacks_unlock(due, lock);
        sched_yield();
        pthread_mutex_lock(lock);
    }
    tt__callbacks_unlock(due, lock);
}

void tt__callbacks_drop(tt__callbacks *due) {
    while (due->first)
        callback_free(take_due(due));
}

/* ---- the public functions of works, the same for all engines */

tt_status tt_work_add_done_callback(tt_work *work, tt_work_fn fn, void *user) {
    if (!work || !fn)
        return tt__fail(TT_ERR_INVALID, "tt_work_add_done_callback: the %s is NULL", work ? "function" : "work");
    tt_group *group = work->group;
    if (tt__is_inherited(group))
        return tt__fail_inherited(group);
    tt__callback *callback = calloc(1, sizeof *callback);
    if (!callback)
        return tt__fail(TT_ERR_MEMORY, "no memory for a callback of %s", tt_op_name(work->call.op));
    callback->fn = fn;
    callback->user = user;
    callback->landing = landing_hold(work);
    if (group->freed) {
        note_outcome(callback, work);
        callback_run(callback);
    } else {
        group->engine->add_callback(work, callback);
    }
    return TT_OK;
}

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

/* Afterwards the work may have been freed, for example by its callback. */
static tt_status wait_and_land(tt_work *work, const char *call, int64_t until_ms, bool *done) {
    tt__landing *landing = landing_hold(work);
    tt_status status = work_end(work, call, until_ms, done);
    if (landing && *done && !status)
        status = landing_happen(landing, TT_OK);
    landing_drop(landing);
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
        tt_ignore(landing_happen(work->landing, work->status)); /* tt_work_wait() returns its error */
    return true;
}

int tt_work_source_rank(const tt_work *work) {
    return work && atomic_load_explicit(&work->done, memory_order_acquire) ? work->source : -1;
}

/* Has the caller freed the work already? It may be under way still, or wait for its next use. */
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
    landing_drop(landing);
}
