/* Taking packets from the network, and handing each to the file that knows its kind. */
#ifndef TT_RPC_DISPATCH_H
#define TT_RPC_DISPATCH_H

#include "rpc/rpc_state.h"

/* Receive this worker's packets from now on. The lock is held. */
void tt__dispatch_begin(tt_rpc *rpc);

#endif
