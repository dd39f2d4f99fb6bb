#include "rpc/references/refused_references.h"

#include "rpc/calls/sending.h"
#include "rpc/references/references.h"

void tt__rrefs_refuse(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt_rref *const *held) {
    uint32_t i = 0;
    while (held && i < view->header.refs && held[i])
        i++;
    for (; i < view->header.refs && from != rpc->id; i++) {
        tt__rpc_ref ref = tt__packet_ref(view, i);
        if (ref.owner == (uint32_t)rpc->id || !tt__rref_is_possible(rpc, &ref))
            continue; /* who told the owner of an impossible one would seem to have made it up */
        tt_ignore(tt__rpc_send_ref(rpc, (int)ref.owner,
                                   (tt__rpc_header){.kind = TT__RPC_RELEASE, .id = (uint32_t)from, .serial = 1}, ref));
    }
}
