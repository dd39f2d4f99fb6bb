#include "rpc/workers/peers.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tt__rpc_peer *tt__rpc_peer_of(tt_rpc *rpc, int id) {
    if (id < 0 || id >= rpc->peer_room)
        return tt__fail_null(TT_ERR_NOT_FOUND, "there is no worker with the id %d", id);
    if (rpc->peers[id])
        return rpc->peers[id];
    tt__rpc_peer *peer = calloc(1, sizeof *peer);
    if (!peer)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for worker %d", id);
    peer->id = id;
    peer->waiting_end = &peer->waiting;
    if (id >= rpc->peer_end)
        rpc->peer_end = id + 1;
    return rpc->peers[id] = peer;
}

const char *tt__rpc_who(tt_rpc *rpc, int id, char text[TT__RPC_WHO_SIZE]) {
    const tt__rpc_peer *peer = id >= 0 && id < rpc->peer_room ? rpc->peers[id] : NULL;
    const char *name = id == rpc->id ? rpc->name : peer ? peer->name : "";
    if (*name)
        snprintf(text, TT__RPC_WHO_SIZE, "%s (id %d)", name, id);
    else
        snprintf(text, TT__RPC_WHO_SIZE, "with the id %d", id);
    return text;
}

tt_status tt__rpc_fail_lost(const tt__rpc_peer *peer) {
    return tt__fail(peer->lost, "%s", peer->why ? peer->why : "a worker was lost, and there is no memory to say how");
}

static void drop_waiting(tt_rpc *rpc, tt__rpc_peer *peer) {
    while (peer->waiting) {
        tt__rpc_waiting *waiting = peer->waiting;
        peer->waiting = waiting->next;
        if (waiting->transfer && waiting->transfer->due) /* it will not begin, so what follows it is due now */
            tt__rpc_due_add(rpc, waiting->transfer->due);
        free(waiting);
    }
    peer->waiting_end = &peer->waiting;
    peer->waiting_bytes = 0;
}

void tt__rpc_lose(tt_rpc *rpc, tt__rpc_peer *peer) {
    char who[TT__RPC_WHO_SIZE];
    if (peer->lost)
        return;
    peer->lost = tt_last_status() ? tt_last_status() : TT_ERR_PEER;
    tt__rpc_who(rpc, peer->id, who);
    size_t room = strlen(who) + strlen(tt_last_error()) + 16;
    bool named = !strncmp(tt_last_error(), "worker ", 7);
    if ((peer->why = malloc(room)))
        snprintf(peer->why, room, "%s%s%s%s", named ? "" : "worker ", named ? "" : who, named ? "" : ": ",
                 tt_last_error());
    drop_waiting(rpc, peer);
    rpc->lost_untold++;
    tt__rpc_keeper_call(rpc);
}
