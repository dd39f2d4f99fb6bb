/* The threads that a worker starts.
 *
 * The pool's threads run functions. The keeper checks every TT__RPC_LOOK_MS whether other workers were lost, timeouts
 * have passed, or calls wait for each other; it moves messages while no other thread does, and never runs a
 * function. */
#ifndef TT_RPC_THREADS_H
#define TT_RPC_THREADS_H

#include "rpc/rpc_state.h"

/* Start the keeper, or stop it and wait until it has ended (which takes the lock). */
tt_status tt__rpc_keeper_start(tt_rpc *rpc);
void tt__rpc_keeper_end(tt_rpc *rpc);

/* Prepare the pool; waiting.c starts its threads when they are needed. */
void tt__pool_init(tt_rpc *rpc);

#endif
