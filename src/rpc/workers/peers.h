/* What a worker knows of the others. The lock is held in all of these functions. */
#ifndef TT_RPC_PEERS_H
#define TT_RPC_PEERS_H

#include "rpc/rpc_state.h"

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

#endif
