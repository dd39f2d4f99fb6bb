/* Which workers this process has: a program may use one that it has shut down, or that its parent has. */
#ifndef TT_RPC_LIVE_H
#define TT_RPC_LIVE_H

#include "rpc/rpc_state.h"

/* A worker begins, or ends. Any thread, without locks. */
void tt__rpc_note_live(tt_rpc *rpc);
void tt__rpc_note_dead(tt_rpc *rpc);
bool tt__rpc_is_live(const tt_rpc *rpc);

/* TT_OK; TT_ERR_INVALID NULL, TT_ERR_STATE it was shut down, or is a copy of the parent's; recorded, for function
 * `what`. */
tt_status tt__rpc_usable(const tt_rpc *rpc, const char *what);

#endif
