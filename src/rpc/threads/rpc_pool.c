/* The loop of the pool's threads. An idle thread moves messages if no other thread does, and runs the calls that it
 * receives itself, so no thread has to be woken for them. */
#include "rpc/threads/rpc_pool.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"
#include "rpc/threads/pool_crew.h"
#include "rpc/threads/waiting.h"

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
        tt__rpc_crew_relieve(rpc);
    leave_to_waiters(rpc);
    if (rpc->keeper_sleeps && !tt__rpc_poller(rpc))
        tt__rpc_keeper_call(rpc); /* perhaps no other thread moves messages while this function runs */
    tt__rpc_unlock(rpc);
    work->run(rpc, work);
    tt__rpc_lock(rpc);
    if (others_wait)
        tt__rpc_crew_note_run(rpc, tt__now_ns() - since);
}

/* Leave the pool, as the thread is about to end. The lock is held, and released. */
static void leave_crew(tt_rpc *rpc) {
    rpc->pool_threads--;
    pthread_cond_broadcast(&rpc->pool_ended);
    tt__rpc_set_thread(NULL);
    tt_clear_error();
    tt__rpc_unlock(rpc);
}

/* Leave the pool if a function calls pthread_exit(). */
static void leave_crew_amid_work(void *arg) {
    tt_rpc *rpc = arg;
    tt__rpc_lock(rpc);
    leave_crew(rpc);
}

static void *serve_calls(void *arg) {
    tt_rpc *rpc = arg;
    tt__rpc_patience patience = {0};
    bool stays = true;
    tt__rpc_set_thread(rpc);
    pthread_cleanup_push(leave_crew_amid_work, rpc);
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
    leave_crew(rpc);
    pthread_cleanup_pop(0);
    return NULL;
}

void tt__pool_init(tt_rpc *rpc) {
    rpc->queue.end = &rpc->queue.first;
    rpc->pool_main = serve_calls;
    tt__cond_init(&rpc->idle);
    tt__cond_init(&rpc->pool_ended);
}
