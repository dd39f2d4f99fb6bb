/* The keeper: a thread that checks every TT__RPC_LOOK_MS whether other workers were lost, timeouts have passed, or
 * calls wait for each other. It moves messages while no other thread does. It never runs a function. */
#ifndef TT_RPC_KEEPER_H
#define TT_RPC_KEEPER_H

#include "rpc/rpc_state.h"

/* Start the keeper, or stop it and wait until it has ended (which takes the lock). */
tt_status tt__rpc_keeper_start(tt_rpc *rpc);
void tt__rpc_keeper_end(tt_rpc *rpc);

#endif
