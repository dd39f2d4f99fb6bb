/* The table of the calls that this worker serves. It finds a call by the caller's number, or by the value that the call
 * makes. */
#ifndef TT_RPC_SERVED_TABLE_H
#define TT_RPC_SERVED_TABLE_H

#include "rpc/functions/served_call.h"

/* Add a call to rpc->serving and to the table. Errors: TT_ERR_MEMORY. The lock is held, as in the next. */
tt_status tt__served_list(tt_rpc *rpc, tt_rpc_call *call);

/* Remove it. */
void tt__served_unlist(tt_rpc *rpc, tt_rpc_call *call);

/* Find call `id` of worker `from`, or the call whose result is to be `value`, that of a reference; NULL: there is
 * none. */
tt_rpc_call *tt__serve_find(const tt_rpc *rpc, int from, uint32_t id);
tt_rpc_call *tt__serve_maker(const tt_rpc *rpc, const tt_future *value);

/* Return a number that no other call of this worker has. */
uint64_t tt__serve_key(const tt_rpc_call *call);

/* Free the table, which has no calls any more. */
void tt__served_table_free(tt_rpc *rpc);

#endif
