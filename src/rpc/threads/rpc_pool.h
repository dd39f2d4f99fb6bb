/* The loop of the pool's threads, which run functions. */
#ifndef TT_RPC_POOL_H
#define TT_RPC_POOL_H

#include "rpc/rpc_state.h"

/* Prepare the pool; pool_crew.h starts its threads. */
void tt__pool_init(tt_rpc *rpc);

#endif
