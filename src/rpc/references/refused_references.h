/* References that have come, and are not taken. */
#ifndef TT_RPC_REFUSED_REFERENCES_H
#define TT_RPC_REFUSED_REFERENCES_H

#include "rpc/rpc_state.h"

/* Tell the owners of a packet's references that this worker does not hold them: `from` has counted them for it. `held`:
 * what tt__rrefs_received() has made of them before it failed, and has let go since, up to the first NULL; may be NULL.
 * It needs no memory. The lock is held. */
void tt__rrefs_refuse(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt_rref *const *held);

#endif
