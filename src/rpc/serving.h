/* Calls of other workers, and of this one to itself: from their packet to their reply. */
#ifndef TT_RPC_SERVING_H
#define TT_RPC_SERVING_H

#include "rpc/state.h"

/* A call, a call whose result is kept, or a fetch has come in a packet, which is taken. TT_ERR_PROTOCOL it can't be;
 * TT_ERR_MEMORY. The lock is held, as in the next. */
tt_status tt__serve_begin(tt_rpc *rpc, tt__rpc_peer *from, const tt__rpc_packet_view *view, tt__rpc_packet *packet);

/* The caller does not want the reply any more. */
void tt__serve_forget(tt_rpc *rpc, int from, uint32_t id);

/* Calls whose parts will not come, or whose replies will not be taken: their worker is lost. */
void tt__serve_lost(tt_rpc *rpc, int id);

/* What waits in the queue can't begin, as no thread is left: fail it. */
void tt__serve_refuse_queue(tt_rpc *rpc);

/* The worker ends: replies that are under way stop. Returns how many calls are left, which a future is to end. */
int64_t tt__serve_end(tt_rpc *rpc);

#endif
