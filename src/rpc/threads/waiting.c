#include "rpc/threads/waiting.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "comm/group.h"
#include "comm/shared/doorbell.h"
#include "rpc/calls/sending.h"

#include <sched.h>
#include <stdio.h>

/* ---- the pool's threads ---- */

/* Functions that take no longer than waking a thread does are run one after the other. Longer times count as LONG_NS in
 * the average. */
enum { BRIEF_NS = 5000, LONG_NS = 8 * BRIEF_NS };

/* Start one more thread. If that fails, pool_why has the error. */
static void add_thread(tt_rpc *rpc) {
    pthread_t thread;
    tt__saved_error before;
    tt__error_save(&before);
    rpc->pool_threads++;
    rpc->pool_called++;
    if (tt__thread_create(&thread, rpc->pool_main, rpc, "a thread that runs functions for other workers")) {
        rpc->pool_threads--;
        rpc->pool_called--;
        snprintf(rpc->pool_why, sizeof rpc->pool_why, "%s", tt_last_error());
    } else {
        pthread_detach(thread);
        rpc->pool_why[0] = '\0';
    }
    tt__error_restore(&before);
}

void tt__rpc_pool_call(tt_rpc *rpc) {
    if (rpc->pool_called && rpc->pool_called >= rpc->queued)
        return; /* enough threads are on their way */
    if (rpc->pool_idle > rpc->pool_called) {
        rpc->pool_called++;
        pthread_cond_signal(&rpc->idle);
    } else if (rpc->pool_threads - rpc->pool_waiting < rpc->threads && rpc->pool_threads < rpc->max_threads &&
               !rpc->pool_stops) {
        add_thread(rpc);
    }
}

void tt__rpc_pool_relieve(tt_rpc *rpc) {
    if (rpc->run_ns > BRIEF_NS)
        tt__rpc_pool_call(rpc);
}

void tt__rpc_pool_note_run(tt_rpc *rpc, int64_t ns) {
    rpc->run_ns += ((ns < LONG_NS ? ns : LONG_NS) - rpc->run_ns) / 8;
}

bool tt__rpc_pool_is_stuck(const tt_rpc *rpc) {
    bool full = rpc->pool_threads >= rpc->max_threads || *rpc->pool_why;
    return rpc->queue.first && full && rpc->pool_waiting == rpc->pool_threads;
}

bool tt__rpc_pool_spares(const tt_rpc *rpc, const tt__rpc_peer *peer) {
    int eighth = rpc->max_threads / 8, last = eighth < rpc->threads ? eighth : rpc->threads;
    return rpc->on_threads < rpc->max_threads - last || peer->on_threads < last / 4;
}

void tt__rpc_pool_end(tt_rpc *rpc) {
    tt__rpc_lock(rpc);
    rpc->pool_stops = true;
    while (rpc->pool_threads) {
        struct timespec until = tt__timespec_ms(tt__now_ms() + TT__RPC_LOOK_MS);
        pthread_cond_broadcast(&rpc->idle);
        rpc->network->ops->wake(rpc->network);
        pthread_cond_timedwait(&rpc->pool_ended, rpc->network->lock, &until);
    }
    tt__rpc_unlock(rpc);
}

/* ---- the calling thread ---- */

static const int64_t SPIN_NS = 20000, YIELD_NS = 1000000, SERVED_NS = 10000000;
enum { LOOKS_PER_CLOCK = 16, EAGER_LOOKS = 8, POLLS_PER_YIELD = 64, NAP_MS = 1000 };

static _Thread_local tt_rpc *thread_of;        /* the worker whose functions this thread runs; or NULL */
static _Thread_local tt_rpc_call *thread_call; /* the call that it runs now; or NULL */

tt_rpc_call *tt__rpc_set_call(tt_rpc_call *call) {
    tt_rpc_call *before = thread_call;
    thread_call = call;
    return before;
}

void tt__rpc_set_thread(tt_rpc *rpc) {
    thread_of = rpc;
    tt__future_set_thread_driver(rpc ? &rpc->driver : NULL);
}

bool tt__rpc_is_thread(const tt_rpc *rpc) { return thread_of == rpc; }

/* ---- moving messages */

static void run_due(tt_rpc *rpc) {
    for (tt__rpc_due *due; (due = tt__rpc_list_take(&rpc->due));) {
        tt__rpc_unlock(rpc);
        due->run(rpc, due);
        tt__rpc_lock(rpc);
    }
}

/* Pause after a look that found nothing: not at all, for a moment, or by yielding. Returns true when it is time to
 * sleep. */
static bool pause_polling(tt_rpc *rpc, tt__rpc_patience *patience) {
    int64_t waited = 0;
    bool others_want_it = rpc->pool_called; /* threads of the pool wait for the lock */
    if (++patience->looks % LOOKS_PER_CLOCK == 1 || !patience->since_ns) {
        int64_t now = tt__now_ns();
        if (!patience->since_ns)
            patience->since_ns = now;
        waited = now - patience->since_ns;
        if (waited >= YIELD_NS)
            return true;
        if (waited >= SPIN_NS || !rpc->network->cpus_each)
            patience->looks = 0; /* from now on each look reads the clock */
    }
    tt__rpc_unlock(rpc);
    if (patience->looks > EAGER_LOOKS && !others_want_it)
        tt__pause_cpu();
    else if (!patience->looks || others_want_it)
        sched_yield();
    tt__rpc_lock(rpc);
    return false;
}

/* Release the lock for a moment: to a thread of the pool that was woken, and now and then to any thread, as messages
 * may keep coming for long. */
static void offer_lock(tt_rpc *rpc, bool serves) {
    bool wanted = rpc->pool_called && !serves;
    tt__rpc_unlock(rpc);
    if (wanted || atomic_load_explicit(&rpc->polls, memory_order_relaxed) % POLLS_PER_YIELD == 0)
        sched_yield();
    tt__rpc_lock(rpc);
}

void tt__rpc_poll(tt_rpc *rpc, tt__rpc_patience *patience, int64_t sleep_ms, bool serves) {
    uintptr_t self = tt__this_thread();
    atomic_store_explicit(&rpc->poller, self, memory_order_relaxed);
    atomic_store_explicit(&rpc->polls, atomic_load_explicit(&rpc->polls, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    rpc->poller_serves = serves;
    bool any = rpc->network->ops->progress(rpc->network);
    if (rpc->transfers)
        tt__transfers_look(rpc);
    if (rpc->waiting_peers)
        tt__rpc_send_waiting(rpc);
    if (rpc->queue.first && !serves)
        tt__rpc_pool_call(rpc);
    if (rpc->due.first) {
        run_due(rpc);
        any = true;
    }
    if (any || (serves && rpc->queue.first)) {
        *patience = (tt__rpc_patience){0};
        offer_lock(rpc, serves);
    } else if (pause_polling(rpc, patience) && tt__rpc_poller(rpc) == self && !rpc->due.first &&
               !(serves && rpc->queue.first)) {
        rpc->poller_sleeps = true;
        rpc->network->ops->sleep(rpc->network, sleep_ms);
        if (tt__rpc_poller(rpc) == self)
            rpc->poller_sleeps = false;
    }
    if (tt__rpc_poller(rpc) == self)
        atomic_store_explicit(&rpc->poller, 0, memory_order_relaxed);
}

void tt__rpc_notice(tt_rpc *rpc) {
    if (tt__rpc_poller(rpc) == tt__this_thread())
        return; /* this thread looks at the end of its round */
    if (tt__rpc_poller(rpc)) {
        if (rpc->poller_sleeps)
            rpc->network->ops->wake(rpc->network);
        return;
    }
    if (rpc->queue.first && thread_of == rpc)
        tt__rpc_pool_relieve(rpc);
    else if (rpc->queue.first)
        tt__rpc_pool_call(rpc);
    if (rpc->due.first)
        tt__rpc_keeper_call(rpc);
}

/* ---- waiting */

bool tt__rpc_wake_waiter(tt_rpc *rpc) {
    tt__rpc_wait *wait = rpc->waits;
    while (wait && !wait->sleeps)
        wait = wait->next;
    if (wait)
        pthread_cond_signal(&wait->wanted);
    else if (rpc->movers_asleep)
        pthread_cond_broadcast(&rpc->changed);
    return wait || rpc->movers_asleep;
}

/* Have another thread move messages after this one has stopped: one that waits, or an idle one of the pool. */
static void hand_messages_over(tt_rpc *rpc) {
    if (tt__rpc_poller(rpc) || tt__rpc_wake_waiter(rpc))
        return;
    if (rpc->served_ns && tt__now_ns() - rpc->served_ns < SERVED_NS && rpc->pool_idle > rpc->pool_called) {
        rpc->pool_called++;
        pthread_cond_signal(&rpc->idle);
    } else if (rpc->keeper_sleeps && rpc->pool_idle > rpc->pool_called) { /* else the keeper finds one soon */
        rpc->pool_called++;
        rpc->pool_is_to_sleep = true;
        pthread_cond_signal(&rpc->idle);
    }
}

/* May this thread move messages? If a thread of the pool does, it takes over; that one sees it when it has the lock
 * again. */
static bool may_poll(tt_rpc *rpc) {
    if (!tt__rpc_poller(rpc))
        return true;
    if (!rpc->poller_serves)
        return false;
    if (rpc->poller_sleeps)
        rpc->network->ops->wake(rpc->network);
    rpc->poller_sleeps = false;
    return true;
}

static int64_t nap_until(int64_t deadline_ms) {
    int64_t left = deadline_ms ? tt__left_ms(deadline_ms) : TT__RPC_LOOK_MS;
    return left < 1 ? 1 : left < TT__RPC_LOOK_MS ? left : TT__RPC_LOOK_MS;
}

static void sleep_for_change(tt_rpc *rpc, int64_t deadline_ms) {
    struct timespec until = tt__timespec_ms(tt__now_ms() + nap_until(deadline_ms));
    rpc->sleepers++;
    pthread_cond_timedwait(&rpc->changed, rpc->network->lock, &until);
    rpc->sleepers--;
}

/* Sleep on a condition of the thread's own, so that one thread can be woken out of a thousand. */
static void sleep_until_wanted(tt_rpc *rpc, tt__rpc_wait *wait, int64_t deadline_ms) {
    int64_t left = deadline_ms ? tt__left_ms(deadline_ms) : NAP_MS;
    struct timespec until = tt__timespec_ms(tt__now_ms() + (left < 1 ? 1 : left < NAP_MS ? left : NAP_MS));
    if (!wait->has_condition)
        tt__cond_init(&wait->wanted);
    wait->has_condition = wait->sleeps = true;
    pthread_cond_timedwait(&wait->wanted, rpc->network->lock, &until);
    wait->sleeps = false;
}

static bool wait_moving(tt_rpc *rpc, bool (*ended)(void *arg), void *arg, tt__rpc_wait *wait, int64_t deadline_ms) {
    tt__rpc_patience patience = {0};
    bool serves = thread_of == rpc;
    rpc->waiters++;
    rpc->pool_waiting += serves;
    if (serves && rpc->queue.first)
        tt__rpc_pool_call(rpc);
    while (!ended(arg) && (!deadline_ms || tt__left_ms(deadline_ms))) {
        if (may_poll(rpc))
            tt__rpc_poll(rpc, &patience, nap_until(deadline_ms), false);
        else if (wait)
            sleep_until_wanted(rpc, wait, deadline_ms);
        else {
            rpc->movers_asleep++;
            sleep_for_change(rpc, deadline_ms);
            rpc->movers_asleep--;
        }
    }
    rpc->waiters--;
    rpc->pool_waiting -= serves;
    hand_messages_over(rpc);
    return ended(arg);
}

bool tt__rpc_wait_for(tt_rpc *rpc, bool (*ended)(void *arg), void *arg, int64_t deadline_ms) {
    return wait_moving(rpc, ended, arg, NULL, deadline_ms);
}

bool tt__rpc_wait_aside(tt_rpc *rpc, bool (*ended)(void *arg), void *arg, int64_t deadline_ms) {
    while (!ended(arg) && (!deadline_ms || tt__left_ms(deadline_ms)))
        sleep_for_change(rpc, deadline_ms);
    return ended(arg);
}

static bool future_is_done(void *future) { return tt__future_done(future); }

static void driver_wait(void *user, tt_future *future, int64_t deadline_ms) {
    tt_rpc *rpc = user;
    if (rpc->forks != tt__forks)
        return; /* nobody will end it in a forked child */
    tt__rpc_lock(rpc);
    tt__rpc_wait wait = {.next = rpc->waits, .future = future, .call = thread_of == rpc ? thread_call : NULL};
    rpc->waits = &wait;
    wait_moving(rpc, future_is_done, future, &wait, deadline_ms);
    tt__rpc_wait **at = &rpc->waits;
    while (*at != &wait)
        at = &(*at)->next;
    *at = wait.next;
    tt__rpc_unlock(rpc);
    if (wait.has_condition)
        pthread_cond_destroy(&wait.wanted);
}

static void driver_wake(void *user, tt_future *future) {
    tt_rpc *rpc = user;
    tt__rpc_lock(rpc);
    for (tt__rpc_wait *wait = rpc->waits; wait; wait = wait->next)
        if (wait->future == future && wait->sleeps)
            pthread_cond_signal(&wait->wanted);
    if (rpc->poller_sleeps && tt__rpc_poller(rpc) && tt__rpc_poller(rpc) != tt__this_thread())
        rpc->network->ops->wake(rpc->network);
    tt__rpc_unlock(rpc);
}

void tt__rpc_driver_init(tt_rpc *rpc) {
    rpc->driver = (tt__future_driver){.wait = driver_wait, .wake = driver_wake, .user = rpc};
}
