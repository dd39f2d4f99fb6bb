/* Calls and references in the flight recorder (comm/record/recorder.h), for `tutti top` and `tutti trace`. A call costs
 * a record of a cache line and a look at the clock; its keeper publishes what a worker has under way. The lock is
 * held. */
#ifndef TT_RPC_RECORDING_H
#define TT_RPC_RECORDING_H

#include "rpc/calling.h"

/* The worker begins: its functions are named. It ends. */
void tt__recording_begin(tt_rpc *rpc);
void tt__recording_end(tt_rpc *rpc);

/* A call to a worker begins: the number of its record; 0: there is no recorder. */
uint32_t tt__recording_call(tt_rpc *rpc, const tt__rpc_request *request, const tt__rpc_encoder *e);

/* It is over, with the packet that came last, or `later`. */
void tt__recording_done(tt_rpc *rpc, uint32_t record, tt_status status, bool later);

/* Publish what is under way. */
void tt__recording_show(tt_rpc *rpc);

#endif
