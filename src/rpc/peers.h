/* The other workers, as this one knows them. The lock is held. */
#ifndef TT_RPC_PEERS_H
#define TT_RPC_PEERS_H

#include "rpc/rpc_state.h"

/* Return what is known of worker `id`; NULL, recorded: an impossible id, or no memory. */
tt__rpc_peer *tt__rpc_peer_of(tt_rpc *rpc, int id);

/* "ps (id 1)": a worker's name for error texts, without asking anybody; `text` is returned. */
enum { TT__RPC_WHO_SIZE = TT__RPC_NAME_SIZE + 32 };
const char *tt__rpc_who(tt_rpc *rpc, int id, char text[TT__RPC_WHO_SIZE]);

/* Record that a worker is lost, with its status and why. Returns the status. */
tt_status tt__rpc_fail_lost(const tt__rpc_peer *peer);

/* The worker is lost, with this thread's last error as the reason, which is put as "worker ps (id 1): ...". Packets for
 * it are dropped. What else follows from it is the keeper's to do (tt__rpc_peer.told). */
void tt__rpc_lose(tt_rpc *rpc, tt__rpc_peer *peer);

#endif
