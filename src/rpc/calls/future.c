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
