/* The loops of the pool's threads and of the keeper: waiting.h. */

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "rpc/calls/calling.h"
#include "rpc/calls/sending.h"
#include "rpc/functions/serving.h"
#include "rpc/references/references.h"
#include "rpc/rpc_state.h"
#include "rpc/threads/cycles.h"
#include "rpc/threads/waiting.h"

#include <stdio.h>

/* ---- the pool: the loop of its threads ---- An idle thread moves messages if no other thread does, and runs the calls
 * that it receives itself, so no thread has to be woken for them. */

/* An idle thread ends after SPARE_MS, unless it is the last idle one. One that moves messages sleeps SLEEP_MS at a
 * time. */
enum { SPARE_MS = 10000, SLEEP_MS = 500 };

/* Sleep until there is work, or messages are to be moved. False: nothing came for SPARE_MS, and others are idle,
 * too. */
static bool wait_for_calls(tt_rpc *rpc) {
    struct timespec until = tt__timespec_ms(tt__now_ms() + SPARE_MS);
    rpc->pool_idle++;
    int outcome = pthread_cond_timedwait(&rpc->idle, rpc->network->lock, &until);
    rpc->pool_idle--;
    if (rpc->pool_called)
        rpc->pool_called--;
    return !outcome || rpc->queue.first || rpc->pool_idle == 0;
}

/* May this thread move messages? Threads that wait for futures come first. */
static bool is_to_poll(const tt_rpc *rpc) { return !tt__rpc_poller(rpc) && !rpc->waiters; }

/* Wake a thread that began to wait while this one moved messages: it moves them from now on. */
static void leave_to_waiters(tt_rpc *rpc) {
    if (!tt__rpc_poller(rpc))
        tt__rpc_wake_waiter(rpc);
}

static void run_next(tt_rpc *rpc) {
    tt__rpc_due *work = tt__rpc_queue_take(rpc);
    bool others_wait = rpc->queue.first;
    int64_t since = others_wait ? tt__now_ns() : 0;
    if (others_wait)
        tt__rpc_pool_relieve(rpc);
    leave_to_waiters(rpc);
    if (rpc->keeper_sleeps && !tt__rpc_poller(rpc))
        tt__rpc_keeper_call(rpc); /* perhaps no other thread moves messages while this function runs */
    tt__rpc_unlock(rpc);
    work->run(rpc, work);
    tt__rpc_lock(rpc);
    if (others_wait)
        tt__rpc_pool_note_run(rpc, tt__now_ns() - since);
}

/* Leave the pool, as the thread is about to end. The lock is held, and released. */
static void leave_pool(tt_rpc *rpc) {
    rpc->pool_threads--;
    pthread_cond_broadcast(&rpc->pool_ended);
    tt__rpc_set_thread(NULL);
    tt_clear_error();
    tt__rpc_unlock(rpc);
}

/* Leave the pool if a function calls pthread_exit(). */
static void leave_pool_amid_work(void *arg) {
    tt_rpc *rpc = arg;
    tt__rpc_lock(rpc);
    leave_pool(rpc);
}

static void *serve_calls(void *arg) {
    tt_rpc *rpc = arg;
    tt__rpc_patience patience = {0};
    bool stays = true;
    tt__rpc_set_thread(rpc);
    pthread_cleanup_push(leave_pool_amid_work, rpc);
    tt__rpc_lock(rpc);
    rpc->pool_called--;
    while (!rpc->pool_stops && stays) {
        if (rpc->queue.first) {
            run_next(rpc);
            patience = (tt__rpc_patience){0};
        } else if (is_to_poll(rpc)) {
            tt__rpc_poll(rpc, &patience, SLEEP_MS, true);
        } else {
            leave_to_waiters(rpc);
            stays = wait_for_calls(rpc);
            patience = (tt__rpc_patience){.since_ns = rpc->pool_is_to_sleep};
            rpc->pool_is_to_sleep = false;
        }
    }
    leave_pool(rpc);
    pthread_cleanup_pop(0);
    return NULL;
}

void tt__pool_init(tt_rpc *rpc) {
    rpc->queue.end = &rpc->queue.first;
    rpc->pool_main = serve_calls;
    tt__cond_init(&rpc->idle);
    tt__cond_init(&rpc->pool_ended);
}

/* While packets come, and for ACTIVE_NS after the last one, the keeper looks every TICK_NS whether a thread moves
 * messages; else every TT__RPC_LOOK_MS. */
static const int64_t TICK_NS = 250000, ACTIVE_NS = 5000000;

/* ---- the keeper: looking at other workers ---- */

static bool is_of_interest(const tt_rpc *rpc, const tt__rpc_peer *peer) {
    return peer->id != rpc->id && !peer->lost &&
           (peer->calls_out || peer->refs || peer->waiting || rpc->leaving || rpc->counters.owned ||
            rpc->counters.serving || rpc->on_lost || peer->askers);
}

static tt_status check_worker(tt_rpc *rpc, int id) { return rpc->network->ops->check(rpc->network, id); }

/* Connect to a worker with references to values here, or with values that references here lead to, or about which an
 * owner has sent SETTLE. Even without calls this is needed: only a link shows whether the worker lives. */
static tt_status check_holder(tt_rpc *rpc, const tt__rpc_peer *peer) {
    if (!rpc->network->comes_and_goes || (!peer->holds && !peer->refs && !peer->askers))
        return TT_OK;
    return rpc->network->ops->reach(rpc->network, peer->id) == TT__RPC_UNREACHABLE ? tt_last_status() : TT_OK;
}

/* Check all workers that calls or references lead to, and mark those that are gone as lost. The lock is held. */
static void look_at_workers(tt_rpc *rpc) {
    for (int id = 0; id < rpc->peer_end; id++) {
        tt__rpc_peer *peer = rpc->peers[id];
        if (!peer || !is_of_interest(rpc, peer) || (!check_holder(rpc, peer) && !check_worker(rpc, id)))
            continue;
        char why[TT__ERROR_TEXT_SIZE];
        tt_status status = tt_last_status();
        snprintf(why, sizeof why, "%s", tt_last_error());
        rpc->network->ops->progress(rpc->network); /* take the last packets that it sent, perhaps END */
        if (rpc->may_end || peer->lost || (rpc->end_said && peer->leaving && !peer->calls_out))
            continue;
        tt__fail(status, "%s", why);
        tt__rpc_lose(rpc, peer);
    }
    if (rpc->network->ops->checked)
        rpc->network->ops->checked(rpc->network);
}

/* Fail what waits for a lost worker, and call on_lost. */
static void tell_one(tt_rpc *rpc, tt__rpc_peer *peer) {
    peer->told = true;
    tt__calls_lost(rpc, peer);
    tt__serve_lost(rpc, peer->id);
    tt__rrefs_lost(rpc, peer->id);
    tt__cycles_drop(rpc);
    if (rpc->on_lost) {
        tt__rpc_unlock(rpc);
        rpc->on_lost(rpc, peer->id, peer->why ? peer->why : "it was lost", rpc->on_lost_user);
        tt__rpc_lock(rpc);
    }
    if (rpc->sleepers)
        pthread_cond_broadcast(&rpc->changed);
}

/* Deal with workers that were lost. The lock is held, and released meanwhile. */
static void tell_of_lost(tt_rpc *rpc) {
    for (int id = 0; id < rpc->peer_end && rpc->lost_untold; id++)
        if (rpc->peers[id] && rpc->peers[id]->lost && !rpc->peers[id]->told) {
            rpc->lost_untold--;
            tell_one(rpc, rpc->peers[id]);
        }
}

/* ---- the keeper: its loop ---- */

static void look_closely(tt_rpc *rpc, int64_t now_ms) {
    look_at_workers(rpc);
    tt__recording_show(rpc);
    if (rpc->next_deadline_ms && now_ms >= rpc->next_deadline_ms)
        tt__calls_expire(rpc, now_ms);
    if (rpc->held.first || rpc->slow.first || rpc->aside.first)
        tt__serve_look(rpc);
    if (rpc->queue.first && !rpc->pool_threads)
        tt__serve_refuse_queue(rpc);
    tt__cycles_look(rpc, now_ms);
}

/* Sleep until `until_ms`, or until the keeper is called. While packets come, wake up every TICK_NS, and return if no
 * thread has moved messages since. The lock is not held. */
static void keeper_sleep(tt_rpc *rpc, int64_t until_ms) {
    uint32_t polls = rpc->polls - 1;
    pthread_mutex_lock(&rpc->keeper_lock);
    while (!rpc->keeper_called && !rpc->keeper_stops) {
        int64_t now = tt__now_ns(), at = until_ms * 1000000;
        uint64_t came = atomic_load_explicit(&rpc->came, memory_order_relaxed);
        if (rpc->seen != came)
            rpc->active_ns = now;
        rpc->seen = came;
        bool active = now - rpc->active_ns < ACTIVE_NS, missed = !tt__rpc_poller(rpc) && polls == rpc->polls;
        if (now >= at || (active && missed))
            break;
        polls = rpc->polls;
        rpc->keeper_sleeps = !active;
        if (active && now + TICK_NS < at)
            at = now + TICK_NS;
        struct timespec until = {.tv_sec = at / 1000000000, .tv_nsec = at % 1000000000};
        pthread_cond_timedwait(&rpc->keeper_wanted, &rpc->keeper_lock, &until);
    }
    rpc->keeper_called = rpc->keeper_sleeps = false;
    pthread_mutex_unlock(&rpc->keeper_lock);
}

/* No other thread moves messages. If no thread of the pool is idle, move them once. Then wake a thread that goes on:
 * one that waits for a future, or an idle one of the pool. They sleep if they found the keeper moving messages. */
static void stand_in(tt_rpc *rpc) {
    tt__rpc_patience patience = {0};
    if (rpc->pool_idle <= rpc->pool_called)
        tt__rpc_poll(rpc, &patience, 1, false);
    if (tt__rpc_poller(rpc))
        return;
    if (rpc->waiters) {
        tt__rpc_wake_waiter(rpc);
    } else if (rpc->pool_idle > rpc->pool_called) {
        rpc->pool_called++;
        pthread_cond_signal(&rpc->idle);
    }
}

/* Do what is due. Returns when to look again. The lock is held. */
static int64_t keeper_round(tt_rpc *rpc, int64_t *looked_ms) {
    int64_t now_ms = tt__now_ms();
    if (now_ms - *looked_ms >= TT__RPC_LOOK_MS || (rpc->next_deadline_ms && now_ms >= rpc->next_deadline_ms)) {
        look_closely(rpc, now_ms);
        *looked_ms = now_ms;
    }
    tell_of_lost(rpc);
    if (!tt__rpc_poller(rpc) && (!rpc->waiters || rpc->due.first))
        stand_in(rpc);
    if (rpc->queue.first)
        tt__rpc_pool_call(rpc);
    int64_t next_ms = *looked_ms + TT__RPC_LOOK_MS;
    if (rpc->next_deadline_ms && rpc->next_deadline_ms < next_ms)
        next_ms = rpc->next_deadline_ms;
    return rpc->lost_untold ? 0 : next_ms;
}

static void *keep(void *arg) {
    tt_rpc *rpc = arg;
    int64_t looked_ms = 0;
    while (!rpc->keeper_stops) {
        tt__rpc_lock(rpc);
        int64_t next_ms = keeper_round(rpc, &looked_ms);
        tt__rpc_unlock(rpc);
        keeper_sleep(rpc, next_ms);
    }
    tt_clear_error();
    return NULL;
}

tt_status tt__rpc_keeper_start(tt_rpc *rpc) {
    TT__TRY(tt__thread_create(&rpc->keeper, keep, rpc, "the thread that looks after calls to other workers"));
    rpc->has_keeper = true;
    return TT_OK;
}

void tt__rpc_keeper_end(tt_rpc *rpc) {
    if (!rpc->has_keeper)
        return;
    rpc->keeper_stops = true;
    tt__rpc_keeper_call(rpc);
    tt__rpc_lock(rpc);
    rpc->network->ops->wake(rpc->network);
    tt__rpc_unlock(rpc);
    pthread_join(rpc->keeper, NULL);
    rpc->has_keeper = false;
}
