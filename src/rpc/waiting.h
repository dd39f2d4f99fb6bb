/* Who moves messages, and how threads wait.
 *
 * One thread at a time moves messages (tt_rpc.poller): a caller that waits, so that no other thread has to wake it;
 * else one of those that run functions, which then runs what comes itself; else the keeper. Who would move messages
 * longs for them in the same way: a busy wait, if there are CPUs enough, then yielding, then sleep in the network. */
#ifndef TT_RPC_WAITING_H
#define TT_RPC_WAITING_H

#include "rpc/rpc_state.h"

/* How long the calling thread has found nothing. Zeroed at first. */
typedef struct tt__rpc_patience {
    int64_t since_ns; /* 0: it found something */
    int looks;
} tt__rpc_patience;

/* Move messages once, and run what is due; if there was nothing, pause, `sleep_ms` at most. The caller is the poller,
 * and still may be or not afterwards. The lock is held, and given back meanwhile. `serves`: it takes what comes into
 * the queue. */
void tt__rpc_poll(tt_rpc *rpc, tt__rpc_patience *patience, int64_t sleep_ms, bool serves);

/* Something was put into the queue, or became due, by a thread that may not be the poller: see that it is looked after.
 * The lock is held. */
void tt__rpc_notice(tt_rpc *rpc);

/* Wait until `ended(arg)`, or to `deadline_ms` (0: none); the lock is held, and given back meanwhile. False: the time
 * is over. */
bool tt__rpc_wait_for(tt_rpc *rpc, bool (*ended)(void *arg), void *arg, int64_t deadline_ms);

/* Nobody moves messages: wake one of the threads that wait, which then does. False: none sleeps. */
bool tt__rpc_wake_waiter(tt_rpc *rpc);

/* The same, for what takes long: the caller moves no messages, and looks when `changed` is signalled. */
bool tt__rpc_wait_aside(tt_rpc *rpc, bool (*ended)(void *arg), void *arg, int64_t deadline_ms);

/* The driver of futures that this worker's calls end. */
void tt__rpc_driver_init(tt_rpc *rpc);

/* Mark the calling thread as one that runs functions of this worker; NULL: no more. */
void tt__rpc_set_thread(tt_rpc *rpc);

/* Is the calling thread one that runs functions of this worker? */
bool tt__rpc_is_thread(const tt_rpc *rpc);

/* Note which call the calling thread runs from now on; NULL: none. Returns that before. */
tt_rpc_call *tt__rpc_set_call(tt_rpc_call *call);

#endif
