/* Calls of other workers, and of this one to itself: from their packet to their reply. */
#ifndef TT_RPC_SERVING_H
#define TT_RPC_SERVING_H

#include "rpc/rpc_state.h"

/* Take a CALL, KEEP or FETCH packet, and queue the call. The packet belongs to the call, unless this fails. Errors:
 * TT_ERR_PROTOCOL, TT_ERR_MEMORY. The lock is held, as in all functions below, unless one says otherwise. */
tt_status tt__serve_begin(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_packet_view *view, tt__rpc_packet *packet);

/* The caller has sent FORGET: drop the call if it has not begun, and stop sending the parts of its reply. */
void tt__serve_forget(tt_rpc *rpc, int from, uint32_t id);

/* Worker `id` is lost: stop receiving and sending the parts of its calls, and drop calls that wait for a future. */
void tt__serve_lost(tt_rpc *rpc, int id);

/* ---- for cycles.c */

/* Return what a call does: it is queued, its function runs, it waits for the future *later, or parts are moved. */
typedef enum tt__served { TT__SERVED_QUEUED, TT__SERVED_RUNS, TT__SERVED_LATER, TT__SERVED_MOVES } tt__served;
tt__served tt__serve_state(const tt_rpc_call *call, tt_future **later);

/* Return the call after `call` in the list of all (NULL: the first). */
tt_rpc_call *tt__serve_next(const tt_rpc *rpc, const tt_rpc_call *call);

/* Return the name of a call's function, which has *bytes bytes and no 0 at the end. *bytes = 0: it is a FETCH. */
const char *tt__serve_function(const tt_rpc_call *call, int *bytes);

/* Does the call, which has not begun, wait until threads are free? */
bool tt__serve_is_aside(const tt_rpc_call *call);

/* ---- for the keeper, and the end */

/* Fail the first call of the queue: the pool has no thread, and none can be made. */
void tt__serve_refuse_queue(tt_rpc *rpc);

/* Queue calls of rpc->held, rpc->slow and rpc->aside that may go on: there is memory for their parts, their caller has
 * taken earlier replies, or a thread is free. */
void tt__serve_look(tt_rpc *rpc);

/* The worker ends: stop moving parts, and drop calls that wait for a future. */
void tt__serve_end(tt_rpc *rpc);

/* Write a list of the functions that run or wait for a future: "add() for worker ps (id 1)". Returns how many. */
int tt__serve_list_running(tt_rpc *rpc, char *text, size_t size);

#endif
