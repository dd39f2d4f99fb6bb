/* Sending packets and parts. The lock is held in all of these functions.
 *
 * Packets to one worker stay in order. Requests wait for a link, and while TT__RPC_WINDOW bytes of earlier ones have
 * not been begun there. Replies without references, CREDIT and FORGET overtake packets that wait. */
#ifndef TT_RPC_SENDING_H
#define TT_RPC_SENDING_H

#include "rpc/rpc_state.h"

/* Send a packet, or keep a copy until it can be sent; `transfer` (may be NULL) begins when it is sent. A copy is
 * dropped if the worker is lost. Errors: those of tt__rpc_fail_lost(); TT_ERR_NOT_FOUND; TT_ERR_MEMORY. */
tt_status tt__rpc_send(tt_rpc *rpc, int to, const void *packet, size_t size, tt__rpc_transfer *transfer);

/* Send a packet of a header alone, or of a header and a reference. */
tt_status tt__rpc_send_header(tt_rpc *rpc, int to, tt__rpc_header header);
tt_status tt__rpc_send_ref(tt_rpc *rpc, int to, tt__rpc_header header, tt__rpc_ref ref);

/* Send the packets that wait, as far as links and windows allow. */
void tt__rpc_send_waiting(tt_rpc *rpc);

/* Give a worker credit for its request of `size` bytes, which has begun. It is told with the next packet, or by CREDIT
 * once a quarter of the window has come together. */
void tt__rpc_give_credit(tt_rpc *rpc, tt__rpc_peer *peer, size_t size);

/* ---- parts */

/* Make the messages of a transfer of `count` parts, each to be filled in by tt__transfer_out() or _in().
 * TT_ERR_MEMORY. */
tt_status tt__transfer_make(tt__rpc_transfer *transfer, uint32_t count);

/* Fill in part i: `bytes` at `data` for, or from, worker `peer`, of call `id`, or of its reply (`reply`). */
void tt__transfer_part(tt__rpc_transfer *transfer, uint32_t i, int peer, uint32_t id, bool reply, const void *data,
                       size_t bytes);

/* Begin to send or receive the parts. */
void tt__transfer_begin(tt_rpc *rpc, tt__rpc_transfer *transfer, bool receive);

/* Cancel what is under way; of a transfer that is being begun, once it has begun. */
void tt__transfer_cancel(tt_rpc *rpc, tt__rpc_transfer *transfer, tt_status status);

/* A transfer will not begin: take it from the packet for worker `to` that waits with it, if one does. */
void tt__transfer_forget(tt_rpc *rpc, int to, const tt__rpc_transfer *transfer);

/* Cancel what is under way, and free the messages. */
void tt__transfer_end(tt_rpc *rpc, tt__rpc_transfer *transfer);

/* Return TT_OK, or the status of the first part that failed (not recorded). */
tt_status tt__transfer_status(const tt__rpc_transfer *transfer);

/* Put `due` of transfers that are done into rpc->due. */
void tt__transfers_look(tt_rpc *rpc);

#endif
