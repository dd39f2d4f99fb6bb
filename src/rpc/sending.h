/* Packets and parts go out. The lock is held.
 *
 * What goes to one worker stays in order, except that replies and credit overtake requests that wait: for a link, or
 * because the other worker has not begun TT__RPC_WINDOW bytes of this one's requests. */
#ifndef TT_RPC_SENDING_H
#define TT_RPC_SENDING_H

#include "rpc/rpc_state.h"

/* Send a packet, or keep a copy until it can be sent; with it begins `transfer` (may be NULL). What becomes of a packet
 * that is kept when its worker is lost: nothing. Errors: the worker is lost, is not there, or no memory. */
tt_status tt__rpc_send(tt_rpc *rpc, int to, const void *packet, size_t size, tt__rpc_transfer *transfer);

/* Send a packet of a header alone, and of one reference. */
tt_status tt__rpc_send_header(tt_rpc *rpc, int to, tt__rpc_header header);
tt_status tt__rpc_send_ref(tt_rpc *rpc, int to, tt__rpc_header header, tt__rpc_ref ref);

/* Send what waits and can be sent. */
void tt__rpc_send_waiting(tt_rpc *rpc);

/* A request of a worker has been begun: its bytes are given back, when they are worth a packet. */
void tt__rpc_give_credit(tt_rpc *rpc, tt__rpc_peer *peer, size_t size);

/* ---- parts */

/* Make the messages of a transfer of `count` parts, each to be filled in by tt__transfer_out() or _in().
 * TT_ERR_MEMORY. */
tt_status tt__transfer_make(tt__rpc_transfer *transfer, uint32_t count);

/* Part i of call `id` goes to or comes from `peer`. `reply`: it is of the reply. */
void tt__transfer_part(tt__rpc_transfer *transfer, uint32_t i, int peer, uint32_t id, bool reply, const void *data,
                       size_t bytes);

/* Post them, as sends or receives. */
void tt__transfer_begin(tt_rpc *rpc, tt__rpc_transfer *transfer, bool receive);

/* End what is under way, and free the messages. */
void tt__transfer_end(tt_rpc *rpc, tt__rpc_transfer *transfer);

/* TT_OK, or what went wrong with one of its parts (not recorded). */
tt_status tt__transfer_status(const tt__rpc_transfer *transfer);

/* Note as due what belongs to transfers that are done. */
void tt__transfers_look(tt_rpc *rpc);

#endif
