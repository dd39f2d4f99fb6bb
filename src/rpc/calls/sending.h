/* What is known of the other workers, and sending them packets and parts. The lock is held in all of these functions.
 *
 * Packets to one worker stay in order. A request waits until there is a link, and until fewer than TT__RPC_WINDOW bytes
 * of earlier requests are left that the receiver has not begun. Replies without references, CREDIT and FORGET overtake
 * packets that wait. */
#ifndef TT_RPC_SENDING_H
#define TT_RPC_SENDING_H

#include "rpc/rpc_state.h"

/* ---- workers */

/* Return the entry of worker `id`, which is made if there is none. NULL, recorded: TT_ERR_NOT_FOUND no worker can have
 * this id; TT_ERR_MEMORY. */
tt__rpc_peer *tt__rpc_peer_of(tt_rpc *rpc, int id);

/* Write a worker's name for error texts into `text`, and return it: "ps (id 1)", or "with the id 1" if the name is not
 * known here. Never asks a store. */
enum { TT__RPC_WHO_SIZE = TT__RPC_NAME_SIZE + 32 };
const char *tt__rpc_who(tt_rpc *rpc, int id, char text[TT__RPC_WHO_SIZE]);

/* Record why the worker is lost, and return its status. */
tt_status tt__rpc_fail_lost(const tt__rpc_peer *peer);

/* Mark a worker as lost. The reason is this thread's last error, with "worker ps (id 1): " before it. Drops packets
 * that wait for it; the keeper does the rest soon (tt__rpc_peer.told). */
void tt__rpc_lose(tt_rpc *rpc, tt__rpc_peer *peer);

/* ---- packets */

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

/* Make the messages of a transfer of `count` parts, each to be filled in by tt__transfer_part().
 * TT_ERR_MEMORY. */
tt_status tt__transfer_make(tt__rpc_transfer *transfer, uint32_t count);

/* Fill in part i: `bytes` at `data` for, or from, worker `peer`, of call `id`, or of its reply (`reply`). */
void tt__transfer_part(tt__rpc_transfer *transfer, uint32_t i, int peer, uint32_t id, bool reply, const void *data,
                       size_t bytes);

/* Begin to send or receive the parts. */
void tt__transfer_begin(tt_rpc *rpc, tt__rpc_transfer *transfer, bool receive);

/* Cancel the messages that are under way. If the transfer is just being begun, they are cancelled once it has begun. */
void tt__transfer_cancel(tt_rpc *rpc, tt__rpc_transfer *transfer, tt_status status);

/* A transfer is not to begin: take it from the packet for worker `to` that waits with it, if there is one. */
void tt__transfer_forget(tt_rpc *rpc, int to, const tt__rpc_transfer *transfer);

/* Cancel what is under way, and free the messages. */
void tt__transfer_end(tt_rpc *rpc, tt__rpc_transfer *transfer);

/* Return TT_OK, or the status of the first part that failed (not recorded). */
tt_status tt__transfer_status(const tt__rpc_transfer *transfer);

/* Put the `due` of each transfer that is done into rpc->due. */
void tt__transfers_look(tt_rpc *rpc);

#endif
