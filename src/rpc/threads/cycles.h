/* Find calls that wait for each other across workers, so that none of them can ever go on, and fail one of them. Its
 * error names the calls of the cycle.
 *
 * A call waits for
 *   - the call that its function waits for, or the call that makes the value that its function waits for;
 *   - if it is queued and its worker can start no more threads, because all of them wait: the calls that these threads
 *     run. It can begin when any one of them ends.
 *
 * A search begins at a thread that has waited for long, and follows these waits from worker to worker:
 *
 *   worker 0                           worker 1                           worker 2
 *   f() waits for g()  -- PROBE g -->  g() waits for h()  -- PROBE h -->  h() waits for f()
 *                                                                         -- PROBE f --> worker 0: f() was seen before
 *                      <-- PROBED ---                     <-- PROBED ---  <-- PROBED --- worker 0: stuck
 *
 * Each worker marks the calls that a search has seen. A path is stuck if it ends in a marked call. It may go on if it
 * ends in anything else: a function that computes, a future that the program ends. If every path is stuck and the
 * search has come back to the call that it began in, the call that the thread waits for fails.
 *
 * A call can't stop waiting before what it waits for is done. So calls that were found stuck stay stuck, although the
 * workers were asked one after the other. */
#ifndef TT_RPC_CYCLES_H
#define TT_RPC_CYCLES_H

#include "rpc/rpc_state.h"

/* The lock is held in all of them. Begin searches for threads that have waited for long, and drop old ones. */
void tt__cycles_look(tt_rpc *rpc, int64_t now_ms);

/* Take a PROBE or PROBED packet. Errors: TT_ERR_PROTOCOL, TT_ERR_MEMORY. */
tt_status tt__cycles_told(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_packet_view *view);

/* Drop all searches, and what they have marked here: a worker was lost, or this worker ends. Waits that last begin new
 * searches. */
void tt__cycles_drop(tt_rpc *rpc);

#endif
