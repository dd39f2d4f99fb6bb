#include "rpc/threads/pool_crew.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/threads.h"

#include <stdio.h>

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

void tt__rpc_crew_call(tt_rpc *rpc) {
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

void tt__rpc_crew_relieve(tt_rpc *rpc) {
    if (rpc->run_ns > BRIEF_NS)
        tt__rpc_crew_call(rpc);
}

void tt__rpc_crew_note_run(tt_rpc *rpc, int64_t ns) {
    rpc->run_ns += ((ns < LONG_NS ? ns : LONG_NS) - rpc->run_ns) / 8;
}

bool tt__rpc_crew_is_stuck(const tt_rpc *rpc) {
    bool full = rpc->pool_threads >= rpc->max_threads || *rpc->pool_why;
    return rpc->queue.first && full && rpc->pool_waiting == rpc->pool_threads;
}

bool tt__rpc_crew_spares(const tt_rpc *rpc, const tt__rpc_peer *peer) {
    int eighth = rpc->max_threads / 8, last = eighth < rpc->threads ? eighth : rpc->threads;
    return rpc->on_threads < rpc->max_threads - last || peer->on_threads < last / 4;
}

void tt__rpc_crew_end(tt_rpc *rpc) {
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
