#include "rpc/calls/future.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "comm/in_callback.h"
#include "rpc/values/rpc_value.h"

#include <stdlib.h>
#include <string.h>

enum { NAP_MS = 1000 /* one sleep of a wait without a deadline */ };

static _Thread_local const tt__future_driver *thread_driver;

void tt__future_set_thread_driver(const tt__future_driver *driver) { thread_driver = driver; }

tt_future *tt__future_new_driven(const tt__future_driver *driver) {
    tt_future *future = calloc(1, sizeof *future);
    if (!future)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a future");
    future->shares = 1;
    future->driver = driver;
    future->callbacks_end = &future->callbacks;
    pthread_mutex_init(&future->lock, NULL);
    tt__cond_init(&future->changed);
    return future;
}

tt_future *tt_future_new(void) { return tt__future_new_driven(NULL); }

tt_future *tt_future_share(tt_future *future) {
    if (future)
        atomic_fetch_add_explicit(&future->shares, 1, memory_order_relaxed);
    return future;
}

/* ---- the end */

static void run_future_callback(tt_future *future, tt__future_callback *callback) {
    if (callback->inside) {
        callback->fn(future, callback->user);
    } else {
        uint32_t outer = tt__callback_enter();
        callback->fn(future, callback->user);
        tt__callback_leave(outer);
    }
    free(callback);
}

/* Claim the right to end the future. False: it has ended, or another thread ends it. */
static bool begin_end(tt_future *future) {
    pthread_mutex_lock(&future->lock);
    bool first = !future->ending;
    future->ending = true;
    pthread_mutex_unlock(&future->lock);
    return first;
}

/* Publish the value or error that was set, wake threads that wait, and run the callbacks. */
static void publish_end(tt_future *future) {
    pthread_mutex_lock(&future->lock);
    atomic_store_explicit(&future->done, true, memory_order_release);
    tt__future_callback *callbacks = future->callbacks;
    future->callbacks = NULL;
    future->callbacks_end = &future->callbacks;
    for (const tt__future_waiter *waiter = future->waiters; waiter; waiter = waiter->next)
        waiter->driver->wake(waiter->driver->user, future);
    pthread_cond_broadcast(&future->changed);
    pthread_mutex_unlock(&future->lock);
    while (callbacks) {
        tt__future_callback *callback = callbacks;
        callbacks = callback->next;
        run_future_callback(future, callback);
    }
}

/* End a future of which the caller has a share. */
static void end_future(tt_future *future, tt_status status, const char *text, tt_rpc_value value) {
    if (!begin_end(future)) {
        tt_rpc_value_free(&value);
        return;
    }
    future->status = status;
    future->text = status && text ? strdup(text) : NULL;
    future->value = value;
    tt__value_lend(&future->value);
    publish_end(future);
}

static bool drop_last_share(tt_future *future) {
    return atomic_fetch_sub_explicit(&future->shares, 1, memory_order_acq_rel) == 1;
}

void tt_future_free(tt_future *future) {
    if (!future || !drop_last_share(future))
        return;
    if (future->callbacks) { /* nobody can end it any more, and its callbacks wait */
        tt_future_share(future);
        end_future(future, TT_ERR_STATE, "the future was given up before it was done", tt_rpc_none());
        if (!drop_last_share(future))
            return; /* a callback has kept one */
    }
    tt__value_free_lent(&future->value);
    free(future->text);
    pthread_cond_destroy(&future->changed);
    pthread_mutex_destroy(&future->lock);
    free(future);
}

void tt__future_end(tt_future *future, tt_status status, const char *text, tt_rpc_value value) {
    tt_future_share(future);
    end_future(future, status, text, value);
    tt_future_free(future);
}

static tt_status fail_done_already(void) { return tt__fail(TT_ERR_STATE, "the future is done already"); }

tt_status tt_future_set_value(tt_future *future, tt_rpc_value value) {
    tt_rpc_value copy = value;
    tt_status status = future ? TT_OK : tt__fail_argument("tt_future_set_value: the future is NULL");
    if (!status && !value.owned)
        status = tt_rpc_value_copy(&copy, &value);
    if (!status && !begin_end(future))
        status = fail_done_already();
    if (status) {
        tt_rpc_value_free(&copy);
        return status;
    }
    future->value = copy;
    tt__value_lend(&future->value);
    publish_end(future);
    return TT_OK;
}

tt_status tt_future_set_error(tt_future *future) {
    tt_status status = tt_last_status();
    if (!future)
        return tt__fail_argument("tt_future_set_error: the future is NULL");
    if (!begin_end(future))
        return fail_done_already();
    future->status = status ? status : TT_ERR_STATE;
    future->text = strdup(status ? tt_last_error() : "tt_future_set_error() was called without an error");
    publish_end(future);
    return TT_OK;
}

/* ---- looking and waiting */

bool tt_future_is_done(tt_future *future) { return future && tt__future_done(future); }

static tt_status outcome_of(const tt_future *future) {
    return future->status ? tt__fail(future->status, "%s", future->text ? future->text : tt_status_text(future->status))
                          : TT_OK;
}

const tt_rpc_value *tt_future_value(tt_future *future) {
    if (!future)
        return tt__fail_null(TT_ERR_INVALID, "tt_future_value: the future is NULL");
    if (!tt__future_done(future))
        return tt__fail_null(TT_ERR_STATE, "the future is not done yet");
    return outcome_of(future) ? NULL : &future->value;
}

/* Wait by a driver, which moves messages meanwhile. */
static void wait_driven(tt_future *future, const tt__future_driver *driver, int64_t deadline_ms) {
    tt__future_waiter waiter = {.driver = driver};
    pthread_mutex_lock(&future->lock);
    waiter.next = future->waiters;
    future->waiters = &waiter;
    pthread_mutex_unlock(&future->lock);
    driver->wait(driver->user, future, deadline_ms);
    pthread_mutex_lock(&future->lock);
    tt__future_waiter **at = &future->waiters;
    while (*at != &waiter)
        at = &(*at)->next;
    *at = waiter.next;
    pthread_mutex_unlock(&future->lock);
}

static void wait_asleep_for(tt_future *future, int64_t deadline_ms) {
    pthread_mutex_lock(&future->lock);
    while (!tt__future_done(future) && (!deadline_ms || tt__left_ms(deadline_ms))) {
        struct timespec until = tt__timespec_ms(deadline_ms ? deadline_ms : tt__now_ms() + NAP_MS);
        pthread_cond_timedwait(&future->changed, &future->lock, &until);
    }
    pthread_mutex_unlock(&future->lock);
}

tt_status tt_future_wait(tt_future *future, int64_t timeout_ms) {
    if (!future)
        return tt__fail_argument("tt_future_wait: the future is NULL");
    if (!tt__future_done(future)) {
        const tt__future_driver *driver = future->driver ? future->driver : thread_driver;
        int64_t deadline_ms = timeout_ms > 0 ? tt__deadline_ms(timeout_ms) : 0;
        TT__TRY(tt__may_wait("tt_future_wait"));
        if (driver)
            wait_driven(future, driver, deadline_ms);
        else
            wait_asleep_for(future, deadline_ms);
    }
    if (!tt__future_done(future) && timeout_ms <= 0)
        return tt__fail(TT_ERR_STATE, "the future is of a call of the process that forked this one, and ends there");
    if (!tt__future_done(future))
        return tt__fail(TT_ERR_TIMEOUT, "the future was not done within %lld ms", (long long)timeout_ms);
    return outcome_of(future);
}

/* ---- callbacks */

static tt_status add_call_back(tt_future *future, tt_future_fn fn, void *user, bool inside) {
    tt__future_callback *callback = malloc(sizeof *callback);
    if (!callback)
        return tt__fail(TT_ERR_MEMORY, "no memory for a callback");
    *callback = (tt__future_callback){.fn = fn, .user = user, .inside = inside};
    pthread_mutex_lock(&future->lock);
    bool done = tt__future_done(future);
    if (!done) {
        *future->callbacks_end = callback;
        future->callbacks_end = &callback->next;
    }
    pthread_mutex_unlock(&future->lock);
    if (done)
        run_future_callback(future, callback);
    return TT_OK;
}

tt_status tt_future_add_callback(tt_future *future, tt_future_fn fn, void *user) {
    if (!future || !fn)
        return tt__fail_argument("tt_future_add_callback: expected a future and a function, got NULL");
    return add_call_back(future, fn, user, false);
}

tt_status tt__future_follow(tt_future *future, tt_future_fn fn, void *user) {
    return add_call_back(future, fn, user, true);
}

/* ---- futures that are made of other futures: then() and collect_all() */

typedef struct then {
    tt_future *out;
    tt_future_then_fn fn;
    void *user;
} then;

static void run_then(tt_future *future, void *user) {
    then *what = user;
    tt_rpc_value value = tt_rpc_none(), given;
    uint64_t errors = tt__error_count();
    tt_status status = what->fn(future, &value, what->user);
    if (!status && !value.owned) {
        status = tt_rpc_value_copy(&given, &value);
        value = given;
    }
    if (status) {
        tt__fail_callback(errors, status, "then");
        tt_rpc_value_free(&value);
    }
    tt__future_end(what->out, status, status ? tt_last_error() : NULL, value);
    tt_future_free(what->out);
    free(what);
}

tt_status tt_future_then(tt_future **out, tt_future *future, tt_future_then_fn fn, void *user) {
    if (!out || !future || !fn)
        return tt__fail_argument("tt_future_then: expected a place, a future and a function, got NULL");
    then *what = malloc(sizeof *what);
    *out = what ? tt__future_new_driven(future->driver) : NULL;
    if (!*out) {
        free(what);
        return tt__fail(TT_ERR_MEMORY, "no memory for a future");
    }
    *what = (then){tt_future_share(*out), fn, user};
    tt_status status = tt_future_add_callback(future, run_then, what);
    if (status) {
        tt_future_free(what->out);
        tt_future_free(*out);
        *out = NULL;
        free(what);
    }
    return status;
}

typedef struct collection {
    tt_future *out;
    _Atomic int64_t left;
    _Atomic bool unseen; /* there was no memory for the callback of one */
    int64_t count;
    tt_future *futures[];
} collection;

/* All futures are done: end `out` with the list of values, or with the first error. */
static void end_collection(collection *all) {
    tt_rpc_value list = {.kind = TT_RPC_LIST, .owned = true, .list = {NULL, all->count}};
    tt_status status = TT_OK;
    list.list.items = calloc(all->count ? (size_t)all->count : 1, sizeof *list.list.items);
    if (!list.list.items || all->unseen)
        status = tt__fail(TT_ERR_MEMORY, "no memory for a list of %lld values", (long long)all->count);
    for (int64_t i = 0; i < all->count && !status; i++)
        status = all->futures[i]->status ? tt_future_wait(all->futures[i], 0)
                                         : tt_rpc_value_copy(&list.list.items[i], &all->futures[i]->value);
    if (status && list.list.items)
        tt_rpc_value_free(&list); /* items that were not reached are of kind none */
    tt__future_end(all->out, status, status ? tt_last_error() : NULL, status ? tt_rpc_none() : list);
    for (int64_t i = 0; i < all->count; i++)
        tt_future_free(all->futures[i]);
    tt_future_free(all->out);
    free(all);
}

/* Count futures that have ended; the last one ends the collection. */
static void ended_are(collection *all, int64_t count) {
    if (atomic_fetch_sub_explicit(&all->left, count, memory_order_acq_rel) == count)
        end_collection(all);
}

static void one_is_done(tt_future *future, void *user) {
    (void)future;
    ended_are(user, 1);
}

tt_status tt_future_collect_all(tt_future **out, tt_future *const *futures, int64_t count) {
    if (!out || count < 0 || (count && !futures))
        return tt__fail_argument("tt_future_collect_all: expected a place and %lld futures", (long long)count);
    *out = NULL;
    for (int64_t i = 0; i < count; i++)
        if (!futures[i])
            return tt__fail_argument("tt_future_collect_all: future %lld is NULL", (long long)i);
    int64_t ended = 1; /* this function counts as one, so that the collection lasts until it returns */
    collection *all = calloc(1, sizeof *all + (size_t)count * sizeof *all->futures);
    tt_future *future = all ? tt__future_new_driven(count ? futures[0]->driver : NULL) : NULL;
    if (!future) {
        free(all);
        return tt__fail(TT_ERR_MEMORY, "no memory for a future of %lld futures", (long long)count);
    }
    all->out = tt_future_share(future);
    all->count = count;
    all->left = count + 1;
    for (int64_t i = 0; i < count; i++)
        all->futures[i] = tt_future_share(futures[i]);
    for (int64_t i = 0; i < count; i++)
        if (tt__future_follow(futures[i], one_is_done, all)) {
            all->unseen = true;
            ended++;
        }
    *out = future;
    ended_are(all, ended);
    return TT_OK;
}
