/* The list of this process's workers. It tells whether a pointer from the program is one that was shut down, or that a
 * forked child has from its parent. */
#ifndef TT_RPC_LIVE_H
#define TT_RPC_LIVE_H

#include "rpc/rpc_state.h"

/* Add a worker, remove it, or look it up. From any thread, without locks. */
void tt__rpc_note_live(tt_rpc *rpc);
void tt__rpc_note_dead(tt_rpc *rpc);
bool tt__rpc_is_live(const tt_rpc *rpc);

/* Check a worker that the program gives to function `what`. Errors: TT_ERR_INVALID it is NULL; TT_ERR_STATE it was shut
 * down, or this process was forked since it was made. */
tt_status tt__rpc_usable(const tt_rpc *rpc, const char *what);

#endif
