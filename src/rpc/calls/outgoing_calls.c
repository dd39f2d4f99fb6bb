/* The table of calls under way. An id is the index of a place, and above it how often the place was used. */
#include "base/error.h"
#include "rpc/calls/outgoing_call.h"
#include "rpc/calls/sending.h"
#include "rpc/workers/peers.h"

#include <stdlib.h>
#include <string.h>

enum { INDEX_BITS = 20, INDEX_MASK = (1 << INDEX_BITS) - 1, FIRST_OUTS = 64 };

static tt_status outs_room(tt_rpc *rpc) {
    uint32_t room = rpc->out_room ? 2 * rpc->out_room : FIRST_OUTS;
    if (rpc->out_free < rpc->out_room)
        return TT_OK;
    if (room > INDEX_MASK + 1)
        return tt__fail(TT_ERR_MEMORY, "%u calls are under way: expected fewer at a time", rpc->out_room);
    tt__rpc_out **outs = realloc(rpc->outs, room * sizeof(tt__rpc_out *));
    if (!outs)
        return tt__fail(TT_ERR_MEMORY, "no memory for %u calls", room);
    rpc->outs = outs;
    for (uint32_t i = rpc->out_room; i < room; i++) {
        if (!(outs[i] = calloc(1, sizeof **outs)))
            return tt__fail(TT_ERR_MEMORY, "no memory for %u calls", room);
        outs[i]->id = i;
        outs[i]->next_free = i + 1;
        rpc->out_room = i + 1;
    }
    return TT_OK;
}

tt__rpc_out *tt__out_take(tt_rpc *rpc) {
    if (outs_room(rpc))
        return NULL;
    tt__rpc_out *out = rpc->outs[rpc->out_free];
    uint32_t id = out->id + INDEX_MASK + 1;
    rpc->out_free = out->next_free;
    if (!id)
        id = INDEX_MASK + 1; /* of the first place: no id is 0 */
    memset(out, 0, sizeof *out);
    out->id = id;
    out->used = true;
    return out;
}

tt__rpc_out *tt__out_find(const tt_rpc *rpc, uint32_t id, int to) {
    uint32_t index = id & INDEX_MASK;
    tt__rpc_out *out = index < rpc->out_room ? rpc->outs[index] : NULL;
    return out && out->used && out->id == id && out->to == to ? out : NULL;
}

void tt__out_give_back(tt_rpc *rpc, tt__rpc_out *out) {
    tt__rpc_peer *peer = tt__rpc_peer_of(rpc, out->to);
    tt__transfer_forget(rpc, out->to, &out->sends);
    tt__transfer_end(rpc, &out->sends);
    tt__transfer_end(rpc, &out->receives);
    if (peer)
        peer->calls_out--;
    rpc->counters.calls--;
    out->used = false;
    out->next_free = rpc->out_free;
    rpc->out_free = out->id & INDEX_MASK;
    if (rpc->sleepers && rpc->leaving && !rpc->counters.calls && (rpc->waves_asked || rpc->network->comes_and_goes))
        pthread_cond_broadcast(&rpc->changed);
}

void tt__out_becomes_due(tt_rpc *rpc, tt__rpc_out *out) {
    if (out->is_due)
        return;
    out->is_due = true;
    tt__rpc_due_add(rpc, &out->due);
}
