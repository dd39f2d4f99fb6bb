/* All workers of a group leave together, when no call is under way among those that are not lost.
 *
 * The lowest worker that is not lost leads. It asks all for the numbers of calls that they have sent and received, in
 * waves; each answers when it is idle. When two waves in a row give the same sums, and as many received as sent, no
 * call can be under way (Mattern, Algorithms for distributed termination detection, 1987), and the leader says so. */
#ifndef TT_RPC_LEAVING_H
#define TT_RPC_LEAVING_H

#include "rpc/rpc_state.h"

/* A packet of this kind has come. The lock is held. */
tt_status tt__leaving_told(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_header *header);

/* Wait for the end of all calls; to `deadline_ms` (0: none). The lock is held. TT_ERR_TIMEOUT: whom it waited for. */
tt_status tt__leave_together(tt_rpc *rpc, int64_t deadline_ms);

/* Wait for the end of this worker's own calls, and of those that it serves. */
tt_status tt__leave_alone(tt_rpc *rpc, int64_t deadline_ms);

#endif
