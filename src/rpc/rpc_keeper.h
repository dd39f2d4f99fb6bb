/* The thread that looks after a worker: moves messages while all others are busy, sees calls' time running out and
 * other workers being lost, and runs what becomes due while nobody else does. It never runs a function. */
#ifndef TT_RPC_KEEPER_H
#define TT_RPC_KEEPER_H

#include "rpc/rpc_state.h"

/* Start it; end it and wait for it (takes the lock). */
tt_status tt__rpc_keeper_start(tt_rpc *rpc);
void tt__rpc_keeper_end(tt_rpc *rpc);

#endif
