/* Packets come. */
#ifndef TT_RPC_DISPATCH_H
#define TT_RPC_DISPATCH_H

#include "rpc/rpc_state.h"

/* Take the network's packets from now on. The lock is held. */
void tt__dispatch_begin(tt_rpc *rpc);

#endif
