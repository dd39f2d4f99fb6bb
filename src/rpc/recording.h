/* Calls and references in the flight recorder (comm/record/recorder.h), for `tutti top` and `tutti trace`. A call costs
 * one cache line and one look at the clock. The keeper publishes the counts. The lock is held. */
#ifndef TT_RPC_RECORDING_H
#define TT_RPC_RECORDING_H

#include "rpc/rpc_state.h"

/* Begin: write the names of this worker's functions. End: withdraw its counts. */
void tt__recording_begin(tt_rpc *rpc);
void tt__recording_end(tt_rpc *rpc);

/* Record the beginning of a call to worker `to`; `known`: this worker's function of that name, or NULL. Returns the
 * number of its record; 0: there is no recorder. */
uint32_t tt__recording_call(tt_rpc *rpc, tt__rpc_packet_kind kind, const tt__rpc_function *known, int to,
                            const tt__rpc_encoder *e);

/* Record its end: at the time of the packet that came last, or now if `later`. */
void tt__recording_done(tt_rpc *rpc, uint32_t record, tt_status status, bool later);

/* Publish the worker's counts. */
void tt__recording_show(tt_rpc *rpc);

#endif
