/* The calls that are served here: all of them, and by number and by what they make. */
#ifndef TT_RPC_SERVED_TABLE_H
#define TT_RPC_SERVED_TABLE_H

#include "rpc/served_call.h"

/* Take a call into the table, and out of it. TT_ERR_MEMORY. The lock is held, as in the next. */
tt_status tt__served_list(tt_rpc *rpc, tt_rpc_call *call);
void tt__served_unlist(tt_rpc *rpc, tt_rpc_call *call);

void tt__served_table_free(tt_rpc *rpc);

#endif
