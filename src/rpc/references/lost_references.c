/* The counts of references when a worker is lost: references.h says how. */
#include "base/error.h"
#include "rpc/calls/sending.h"
#include "rpc/references/references.h"

#include <stdlib.h>

/* ---- a worker is lost */

/* Drop the counts that end with a lost worker. */
static void drop_holds_of(tt_rref *rref, int id) {
    for (tt__rref_hold **at = &rref->holds; *at;) {
        tt__rref_hold *hold = *at;
        if (hold->holder != id && (hold->giver != id || hold->count > 0)) {
            at = &hold->next;
            continue;
        }
        tt__rref_watch_holder(rref, hold->holder, -1);
        *at = hold->next;
        free(hold);
    }
}

static void end_unmade(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rref *rref = (tt_rref *)(void *)((char *)due - offsetof(tt_rref, unmade));
    tt__future_end(rref->value, TT_ERR_PEER, "the worker that was to make the value was lost before it called",
                   tt_rpc_none());
    tt__rpc_lock(rpc);
    tt__rref_drop(rpc, rref);
    tt__rpc_unlock(rpc);
}

/* Fail a value whose creator was lost before it made the call for it. */
static void fail_unmade(tt_rpc *rpc, tt_rref *rref) {
    rref->unmade.run = end_unmade;
    rref->shares++;
    tt__rpc_due_add(rpc, &rref->unmade);
}

/* Ask each holder that may have received the reference from the lost giver; once for all references. */
static void ask_holders(tt_rpc *rpc, const tt_rref *rref, int giver) {
    for (const tt__rref_hold *hold = rref->holds; hold; hold = hold->next) {
        tt__rpc_peer *holder = hold->giver == giver ? tt__rpc_peer_of(rpc, hold->holder) : NULL;
        if (holder && !holder->lost && holder->id != rpc->id && holder->asked_of != giver + 1) {
            holder->asked_of = giver + 1;
            holder->settles++;
            tt_ignore(
                tt__rpc_send_header(rpc, holder->id, (tt__rpc_header){.kind = TT__RPC_SETTLE, .id = (uint32_t)giver}));
        }
    }
}

static void settle_with(tt_rpc *rpc, int owner, int giver);

void tt__rrefs_lost(tt_rpc *rpc, int id) {
    for (uint32_t i = 0; i < rpc->rref_room; i++)
        for (tt_rref *rref = rpc->rrefs[i], *next; rref; rref = next) {
            next = rref->next;
            if (!tt__rref_is_own(rref))
                continue;
            drop_holds_of(rref, id);
            ask_holders(rpc, rref, id);
            if (!rref->made_here && rref->ref.creator == (uint32_t)id)
                fail_unmade(rpc, rref);
            tt__rref_end_if_unused(rpc, rref);
        }
    const tt__rpc_peer *lost = rpc->peers[id];
    for (int i = 0; i < lost->asker_count; i++)
        settle_with(rpc, lost->askers[i], id);
}

/* ---- settling */

/* Tell the owner which references to its values this worker has received from a lost giver, from which no more can
 * come. From now on this worker holds them as if it had given them to itself. */
static void settle_with(tt_rpc *rpc, int owner, int giver) {
    for (uint32_t i = 0; i < rpc->rref_room; i++)
        for (tt_rref *rref = rpc->rrefs[i]; rref; rref = rref->next) {
            tt__rref_hold **at = &rref->holds;
            while (*at && (*at)->giver != giver)
                at = &(*at)->next;
            if (rref->ref.owner != (uint32_t)owner || !*at || tt__rref_count_hold(rref, rpc->id, rpc->id, 1))
                continue;
            tt__rref_hold *hold = *at;
            *at = hold->next;
            free(hold);
            tt_ignore(tt__rpc_send_ref(rpc, owner, (tt__rpc_header){.kind = TT__RPC_HOLD, .id = (uint32_t)rpc->id},
                                       rref->ref));
        }
    tt_ignore(tt__rpc_send_header(rpc, owner, (tt__rpc_header){.kind = TT__RPC_SETTLED, .id = (uint32_t)giver}));
}

tt_status tt__rrefs_asked(tt_rpc *rpc, const tt__rpc_peer *from, uint32_t giver) {
    if (giver >= (uint32_t)rpc->peer_room || (int)giver == rpc->id || (int)giver == from->id)
        return tt__fail(TT_ERR_PROTOCOL, "it asks about the references of a worker that can't be lost");
    tt__rpc_peer *peer = rpc->peers[giver];
    if (!peer || peer->told) {
        settle_with(rpc, from->id, (int)giver);
        return TT_OK;
    }
    for (int i = 0; i < peer->asker_count; i++) /* it is answered when the giver is lost here, too */
        if (peer->askers[i] == from->id)
            return TT_OK;
    int *grown = realloc(peer->askers, ((size_t)peer->asker_count + 1) * sizeof *grown);
    if (!grown)
        return tt__fail(TT_ERR_MEMORY, "no memory for a question about a lost worker");
    peer->askers = grown;
    peer->askers[peer->asker_count++] = from->id;
    return TT_OK;
}

tt_status tt__rrefs_settled(tt_rpc *rpc, tt__rpc_peer *from, uint32_t giver) {
    if (giver >= (uint32_t)rpc->peer_room || !rpc->peers[giver] || !rpc->peers[giver]->lost || !from->settles)
        return tt__fail(TT_ERR_PROTOCOL, "it answers a question about a lost worker that it was not asked");
    from->settles--;
    for (uint32_t i = 0; i < rpc->rref_room; i++)
        for (tt_rref *rref = rpc->rrefs[i], *next; rref; rref = next) {
            next = rref->next;
            for (tt__rref_hold **at = &rref->holds; tt__rref_is_own(rref) && *at;) {
                tt__rref_hold *hold = *at;
                if (hold->holder != from->id || hold->giver != (int)giver) {
                    at = &hold->next;
                    continue;
                }
                tt__rref_watch_holder(rref, hold->holder, -1);
                *at = hold->next;
                free(hold);
            }
            if (tt__rref_is_own(rref))
                tt__rref_end_if_unused(rpc, rref);
        }
    return TT_OK;
}
