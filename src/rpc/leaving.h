/* Workers of a group leave together, when no call is under way among those that are not lost.
 *
 *   leader: the lowest worker that is not lost      each other worker
 *                      <------------------ LEAVING  has called tt_rpc_shutdown()
 *   WAVE 1             ------------------>          waits until it has called tt_rpc_shutdown() and has no call
 *                      <--------------------- IDLE  how many calls it has sent and received so far
 *   WAVE 2, and so on, until two waves in a row give the same sums, and as many calls received as sent
 *   END                ------------------>          leaves
 *
 * Then no call can be under way: the four counter method (Mattern, Algorithms for distributed termination detection,
 * 1987). If a worker is lost, the waves begin anew without it. */
#ifndef TT_RPC_LEAVING_H
#define TT_RPC_LEAVING_H

#include "rpc/rpc_state.h"

/* Take a LEAVING, WAVE, IDLE or END packet. Errors: TT_ERR_PROTOCOL. The lock is held in all of these functions. */
tt_status tt__leaving_told(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_header *header);

/* Wait until no worker has a call under way, or until `deadline_ms` (0: none). Errors: TT_ERR_TIMEOUT, which names the
 * workers or calls that it waited for; TT_ERR_PEER a worker was lost, by name. */
tt_status tt__leave_together(tt_rpc *rpc, int64_t deadline_ms);

/* Wait until this worker has no call under way, neither one that it made nor one that it serves. Errors:
 * TT_ERR_TIMEOUT. */
tt_status tt__leave_alone(tt_rpc *rpc, int64_t deadline_ms);

#endif
