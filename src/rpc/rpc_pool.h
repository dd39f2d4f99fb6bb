/* What the threads do that run functions. */
#ifndef TT_RPC_POOL_H
#define TT_RPC_POOL_H

#include "rpc/rpc_state.h"

void tt__pool_init(tt_rpc *rpc);

#endif
