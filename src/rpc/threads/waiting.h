/* Which thread moves messages, how threads wait, and how threads of the pool are started and woken.
 *
 * One thread at a time moves messages: the poller (tt_rpc.poller). It is the first of these that there is:
 *
 *   1. a thread that waits for a future: it takes its reply itself, so no other thread has to wake it;
 *   2. an idle thread of the pool: it runs the call that it receives, so no other thread has to be woken either;
 *   3. the keeper (rpc_threads.c).
 *
 * A thread that waits takes over from an idle thread of the pool. When the poller stops, it wakes one that goes on. A
 * poller that finds no messages first looks again at once if there is a CPU for each worker, then yields between looks,
 * and after a millisecond sleeps in the network until something comes. */
#ifndef TT_RPC_WAITING_H
#define TT_RPC_WAITING_H

#include "rpc/rpc_state.h"

/* How long the poller has found no messages. Zeroed at first. */
typedef struct tt__rpc_patience {
    int64_t since_ns; /* the first look that found none; 0: the last look found some */
    int looks;
} tt__rpc_patience;

/* Become the poller for one round: move messages and run what is due. If there was nothing, pause, for `sleep_ms` at
 * most. `serves`: the caller is a thread of the pool, and runs what comes into the queue itself. The lock is held, and
 * released meanwhile; another thread may have become the poller when this returns. */
void tt__rpc_poll(tt_rpc *rpc, tt__rpc_patience *patience, int64_t sleep_ms, bool serves);

/* Make sure that a thread takes care of what was put into the queue or became due: wake the poller if it sleeps, or
 * call a thread of the pool or the keeper if there is no poller. The lock is held. */
void tt__rpc_notice(tt_rpc *rpc);

/* Wait until `ended(arg)` or until `deadline_ms` (0: none), and move messages meanwhile. Returns whether it has ended.
 * The lock is held, and released meanwhile. */
bool tt__rpc_wait_for(tt_rpc *rpc, bool (*ended)(void *arg), void *arg, int64_t deadline_ms);

/* Wake one of the threads that wait, so that it becomes the poller. Returns whether there is one. The lock is held. */
bool tt__rpc_wake_waiter(tt_rpc *rpc);

/* Wait as tt__rpc_wait_for() does, but leave messages to others: for waits that take long. `ended` is called whenever
 * tt_rpc.changed is signalled, and every TT__RPC_LOOK_MS. */
bool tt__rpc_wait_aside(tt_rpc *rpc, bool (*ended)(void *arg), void *arg, int64_t deadline_ms);

/* Set rpc->driver, by which threads wait for futures of this worker's calls. */
void tt__rpc_driver_init(tt_rpc *rpc);

/* Make the calling thread one of this worker's pool; NULL: it is none any more. */
void tt__rpc_set_thread(tt_rpc *rpc);

/* Is the calling thread one of this worker's pool? */
bool tt__rpc_is_thread(const tt_rpc *rpc);

/* Set the call that the calling thread runs (NULL: none). Returns the one before. */
tt_rpc_call *tt__rpc_set_call(tt_rpc_call *call);

/* ---- the pool's threads, which run functions ----
 * There are up to tt_rpc.threads, and one more for each that waits in a wait of Tutti's, up to tt_rpc.max_threads. The
 * lock is held, unless a function says otherwise. */

/* Wake or start a thread of the pool for what is in the queue, unless enough are on their way. */
void tt__rpc_pool_call(tt_rpc *rpc);

/* Wake or start another thread only if functions have taken long of late (tt_rpc.run_ns). For a thread of the pool that
 * is about to run a function, and takes what is in the queue itself once that has returned. If this function takes long
 * after brief ones, the keeper calls another thread. */
void tt__rpc_pool_relieve(tt_rpc *rpc);

/* Note how long a function ran. */
void tt__rpc_pool_note_run(tt_rpc *rpc, int64_t ns);

/* Are calls queued that can't begin, since all threads wait for others, and no more can be started? */
bool tt__rpc_pool_is_stuck(const tt_rpc *rpc);

/* Is there a thread for one more call of this worker? The last ones are for workers that have few, so that one whose
 * calls all wait does not keep others from making theirs. */
bool tt__rpc_pool_spares(const tt_rpc *rpc, const tt__rpc_peer *peer);

/* Stop all threads, and wait until they have ended. Takes the lock. */
void tt__rpc_pool_end(tt_rpc *rpc);

/* ---- rpc_threads.c: the loops of the pool's threads and of the keeper ----
 * The keeper is a thread that checks every TT__RPC_LOOK_MS whether other workers were lost, timeouts have passed, or
 * calls wait for each other. It moves messages while no other thread does. It never runs a function. */

/* Start the keeper, or stop it and wait until it has ended (which takes the lock). */
tt_status tt__rpc_keeper_start(tt_rpc *rpc);
void tt__rpc_keeper_end(tt_rpc *rpc);

/* Prepare the pool; waiting.c starts its threads when they are needed. */
void tt__pool_init(tt_rpc *rpc);

#endif
