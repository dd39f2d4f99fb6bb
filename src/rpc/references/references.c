#include "rpc/references/references.h"

#include "base/error.h"
#include "comm/group.h"
#include "rpc/calls/sending.h"

#include <stdlib.h>

/* Can a reference be what it says? It comes from another worker, which may be hostile. */
static bool is_possible_ref(const tt_rpc *rpc, const tt__rpc_ref *ref) {
    return ref->owner < (uint32_t)rpc->peer_room && ref->creator < (uint32_t)rpc->peer_room && ref->serial;
}

enum {
    FIRST_ROOM = 64,
    UNMADE_MAX = 1 << 16 /* references that one worker may name before the calls come that make them */
};

static uint32_t ref_hash(const tt__rpc_ref *ref) {
    uint64_t mixed = (ref->serial ^ (uint64_t)ref->creator << 40) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mixed >> 32);
}

/* Compare owners, too: a hostile worker may lie about the owner of a reference that exists. */
static bool same_ref(const tt__rpc_ref *a, const tt__rpc_ref *b) {
    return a->serial == b->serial && a->creator == b->creator && a->owner == b->owner;
}

/* ---- the table */

static tt_rref *find_rref(const tt_rpc *rpc, const tt__rpc_ref *ref) {
    tt_rref *rref = rpc->rref_room ? rpc->rrefs[ref_hash(ref) & (rpc->rref_room - 1)] : NULL;
    while (rref && !same_ref(&rref->ref, ref))
        rref = rref->next;
    return rref;
}

static void insert_rref(tt_rpc *rpc, tt_rref *rref) {
    tt_rref **place = &rpc->rrefs[ref_hash(&rref->ref) & (rpc->rref_room - 1)];
    rref->next = *place;
    *place = rref;
}

static tt_status rref_table_room(tt_rpc *rpc) {
    if (rpc->rref_count < rpc->rref_room)
        return TT_OK;
    uint32_t old_room = rpc->rref_room, room = old_room ? 2 * old_room : FIRST_ROOM;
    tt_rref **old = rpc->rrefs, **grown = calloc(room, sizeof(tt_rref *));
    if (!grown)
        return tt__fail(TT_ERR_MEMORY, "no memory for %u references", room);
    rpc->rrefs = grown;
    rpc->rref_room = room;
    for (uint32_t i = 0; i < old_room; i++)
        while (old[i]) {
            tt_rref *rref = old[i];
            old[i] = rref->next;
            insert_rref(rpc, rref);
        }
    free(old);
    return TT_OK;
}

static void count_entry(tt_rpc *rpc, const tt_rref *rref, int by) {
    if (tt__rref_is_own(rref))
        rpc->counters.owned += by;
    else
        rpc->counters.held += by;
    if (rref->maker)
        rpc->made[rref->maker - 1] += by;
    tt__rpc_peer *peer = tt__rref_is_own(rref) ? NULL : tt__rpc_peer_of(rpc, (int)rref->ref.owner);
    if (peer)
        peer->refs += by;
}

static void forget_holds(tt_rref *rref) {
    while (rref->holds) {
        tt__rref_hold *hold = rref->holds;
        rref->holds = hold->next;
        free(hold);
    }
}

/* Free a reference, without the lock: what the value holds may be the program's. */
void tt__rref_free(tt_rpc *rpc, tt__rpc_due *due) {
    tt_rref *rref = (tt_rref *)(void *)((char *)due - offsetof(tt_rref, end));
    (void)rpc;
    tt_future_free(rref->value);
    forget_holds(rref);
    free(rref);
}

static tt_rref *add_rref(tt_rpc *rpc, const tt__rpc_ref *ref) {
    if (rref_table_room(rpc))
        return NULL;
    tt_rref *rref = calloc(1, sizeof *rref);
    bool own = ref->owner == (uint32_t)rpc->id;
    if (!rref || (own && !(rref->value = tt__future_new_driven(&rpc->driver)))) {
        free(rref);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a reference");
    }
    rref->rpc = rpc;
    rref->ref = *ref;
    rref->end.run = tt__rref_free;
    insert_rref(rpc, rref);
    rpc->rref_count++;
    count_entry(rpc, rref, 1);
    return rref;
}

/* Take a reference that is made, or gone, out of the count of those that are not made yet. */
static void uncount_unmade(tt_rpc *rpc, tt_rref *rref) {
    if (rref->told_by)
        rpc->peers[rref->told_by - 1]->unmade--;
    rref->told_by = 0;
}

static void remove_rref(tt_rpc *rpc, tt_rref *rref) {
    uncount_unmade(rpc, rref);
    tt_rref **at = &rpc->rrefs[ref_hash(&rref->ref) & (rpc->rref_room - 1)];
    while (*at != rref)
        at = &(*at)->next;
    *at = rref->next;
    rpc->rref_count--;
    count_entry(rpc, rref, -1);
    tt__rpc_due_add(rpc, &rref->end);
    if (!tt__rpc_poller(rpc))
        tt__rpc_keeper_call(rpc);
}

/* ---- counts */

void tt__rref_watch_holder(const tt_rref *rref, int holder, int by) {
    tt__rpc_peer *peer = rref->rpc && tt__rref_is_own(rref) ? tt__rpc_peer_of(rref->rpc, holder) : NULL;
    if (peer)
        peer->holds += by;
}

tt_status tt__rref_count_hold(tt_rref *rref, int holder, int giver, int64_t by) {
    tt__rref_hold **at = &rref->holds;
    while (*at && ((*at)->holder != holder || (*at)->giver != giver))
        at = &(*at)->next;
    if (!*at) {
        tt__rref_hold *hold = malloc(sizeof *hold);
        if (!hold)
            return tt__fail(TT_ERR_MEMORY, "no memory for the count of a reference");
        *hold = (tt__rref_hold){.holder = holder, .giver = giver};
        *at = hold;
        tt__rref_watch_holder(rref, holder, 1);
    }
    tt__rref_hold *hold = *at;
    hold->count += by;
    if (!hold->count) {
        tt__rref_watch_holder(rref, holder, -1);
        *at = hold->next;
        free(hold);
    }
    return TT_OK;
}

/* Tell the owner that this worker holds the reference no more. */
static void release_all(tt_rpc *rpc, const tt_rref *rref) {
    for (const tt__rref_hold *hold = rref->holds; hold; hold = hold->next)
        tt_ignore(tt__rpc_send_ref(
            rpc, (int)rref->ref.owner,
            (tt__rpc_header){.kind = TT__RPC_RELEASE, .id = (uint32_t)hold->giver, .serial = (uint64_t)hold->count},
            rref->ref));
}

void tt__rref_end_if_unused(tt_rpc *rpc, tt_rref *rref) {
    if (rref->shares || (tt__rref_is_own(rref) && rref->holds))
        return;
    if (!tt__rref_is_own(rref))
        release_all(rpc, rref);
    remove_rref(rpc, rref);
}

void tt__rref_drop(tt_rpc *rpc, tt_rref *rref) {
    rref->shares--;
    if (rref->rpc)
        tt__rref_end_if_unused(rpc, rref);
    else if (!rref->shares) /* the worker is being shut down, and has no table of references any more */
        tt__rpc_due_add(rpc, &rref->end);
}

void tt__rref_unmake(tt_rpc *rpc, tt_rref *rref) {
    forget_holds(rref);
    tt__rref_drop(rpc, rref);
}

/* ---- making and receiving */

tt_rref *tt__rref_make(tt_rpc *rpc, int owner) {
    tt_rref *rref = add_rref(
        rpc, &(tt__rpc_ref){.owner = (uint32_t)owner, .creator = (uint32_t)rpc->id, .serial = rpc->last_serial + 1});
    if (!rref)
        return NULL;
    rpc->last_serial++;
    rref->shares = 1;
    rref->made_here = owner == rpc->id;
    if (!rref->made_here &&
        tt__rref_count_hold(rref, rpc->id, rpc->id, 1)) { /* what the owner counts when the call comes */
        tt__rref_drop(rpc, rref);
        return NULL;
    }
    return rref;
}

/* Find the entry of a value of this worker. If the call that makes the value is yet to come, make the entry: worker
 * `from` has named it first. NULL, recorded. */
static tt_rref *own_rref(tt_rpc *rpc, int from, const tt__rpc_ref *ref) {
    tt_rref *rref = find_rref(rpc, ref);
    if (rref)
        return rref;
    const tt__rpc_peer *creator = tt__rpc_peer_of(rpc, (int)ref->creator);
    if (!creator)
        return tt__fail_null(TT_ERR_PROTOCOL, "a reference that nobody can have made");
    if (ref->creator == (uint32_t)rpc->id || ref->serial <= creator->last_serial || creator->lost)
        return tt__fail_null(TT_ERR_NOT_FOUND,
                             "a reference to a value of worker %s that is gone: who gave it was lost before it could "
                             "tell, or let it go before",
                             rpc->name);
    tt__rpc_peer *teller = tt__rpc_peer_of(rpc, from);
    if (!teller || teller->unmade >= UNMADE_MAX)
        return tt__fail_null(TT_ERR_NOT_FOUND, "a reference to a value that is not made yet, as are too many");
    if (!(rref = add_rref(rpc, ref)))
        return NULL;
    teller->unmade++;
    rref->told_by = from + 1;
    return rref;
}

static tt_rref *received_one(tt_rpc *rpc, int from, const tt__rpc_ref *ref) {
    if (!is_possible_ref(rpc, ref))
        return tt__fail_null(TT_ERR_PROTOCOL, "a reference to a value of a worker that can't be");
    if (ref->owner == (uint32_t)rpc->id)
        return own_rref(rpc, from, ref);
    tt_rref *rref = find_rref(rpc, ref);
    bool found = rref != NULL;
    if (!found && !(rref = add_rref(rpc, ref)))
        return NULL;
    if (from != rpc->id && tt__rref_count_hold(rref, rpc->id, from, 1)) {
        if (!found)
            remove_rref(rpc, rref);
        return NULL;
    }
    return rref;
}

tt_status tt__rrefs_received(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt_rref **out) {
    for (uint32_t i = 0; i < view->header.refs; i++) {
        tt__rpc_ref ref = tt__packet_ref(view, i);
        out[i] = received_one(rpc, from, &ref);
        if (!out[i]) {
            while (i--)
                tt__rref_drop(rpc, out[i]);
            return tt_last_status();
        }
        out[i]->shares++;
    }
    return TT_OK;
}

void tt__rrefs_refuse(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt_rref *const *held) {
    uint32_t i = 0;
    while (held && i < view->header.refs && held[i])
        i++;
    for (; i < view->header.refs && from != rpc->id; i++) {
        tt__rpc_ref ref = tt__packet_ref(view, i);
        if (ref.owner == (uint32_t)rpc->id || !is_possible_ref(rpc, &ref))
            continue; /* telling the owner of an impossible one would look as if this worker had made it up */
        tt_ignore(tt__rpc_send_ref(rpc, (int)ref.owner,
                                   (tt__rpc_header){.kind = TT__RPC_RELEASE, .id = (uint32_t)from, .serial = 1}, ref));
    }
}

/* Note which function makes its value. */
static tt_rref *made_by(tt_rpc *rpc, tt_rref *rref, const tt__rpc_function *maker) {
    if (maker && rpc->made && !rref->maker) {
        rref->maker = tt__function_number(maker) + 1;
        rpc->made[rref->maker - 1]++;
    }
    return rref;
}

tt_rref *tt__rref_kept(tt_rpc *rpc, int from, uint64_t serial, const tt__rpc_function *maker) {
    tt__rpc_ref ref = {.owner = (uint32_t)rpc->id, .creator = (uint32_t)from, .serial = serial};
    tt__rpc_peer *creator = tt__rpc_peer_of(rpc, from);
    tt_rref *rref = find_rref(rpc, &ref);
    if (from == rpc->id) { /* made by tt__rref_make() */
        if (rref)
            rref->shares++;
        return rref ? made_by(rpc, rref, maker)
                    : tt__fail_null(TT_ERR_PROTOCOL, "a reference of its own that this worker has not made");
    }
    if (!serial || !creator || serial <= creator->last_serial || (rref && rref->made_here))
        return tt__fail_null(TT_ERR_PROTOCOL, "a reference was made twice");
    if (!rref && !(rref = add_rref(rpc, &ref)))
        return NULL;
    creator->last_serial = serial;
    uncount_unmade(rpc, rref);
    rref->made_here = true;
    rref->shares++;
    if (tt__rref_count_hold(rref, from, from, 1)) {
        tt__rref_drop(rpc, rref);
        return NULL;
    }
    return made_by(rpc, rref, maker);
}

/* ---- giving */

static tt_status give_one(tt_rpc *rpc, int to, tt_rref *rref) {
    if (to == rpc->id || to == (int)rref->ref.owner)
        return TT_OK;
    if (tt__rref_is_own(rref))
        return tt__rref_count_hold(rref, to, rpc->id, 1);
    return tt__rpc_send_ref(rpc, (int)rref->ref.owner, (tt__rpc_header){.kind = TT__RPC_HOLD, .id = (uint32_t)to},
                            rref->ref);
}

tt_status tt__rrefs_given(tt_rpc *rpc, int to, tt_rref *const *refs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        tt_status status = refs[i]->rpc != rpc ? tt__fail(TT_ERR_STATE, "a reference of a worker that was shut down, "
                                                                        "or of another one of this process")
                                               : give_one(rpc, to, refs[i]);
        if (status) {
            tt__rrefs_not_given(rpc, to, refs, i);
            return status;
        }
    }
    return TT_OK;
}

void tt__rrefs_not_given(tt_rpc *rpc, int to, tt_rref *const *refs, uint32_t count) {
    for (uint32_t i = 0; i < count; i++) {
        tt_rref *rref = refs[i];
        if (to == rpc->id || to == (int)rref->ref.owner)
            continue;
        if (tt__rref_is_own(rref))
            tt_ignore(tt__rref_count_hold(rref, to, rpc->id, -1));
        else
            tt_ignore(tt__rpc_send_ref(
                rpc, (int)rref->ref.owner,
                (tt__rpc_header){.kind = TT__RPC_RELEASE, .flags = 1, .id = (uint32_t)to, .serial = 1}, rref->ref));
    }
}

tt_status tt__rrefs_finish(tt__rpc_encoder *e) {
    if (!e->ref_count)
        return tt__encoder_finish(e, NULL);
    tt__rpc_ref few[8], *refs = e->ref_count <= 8 ? few : calloc(e->ref_count, sizeof *refs);
    if (!refs)
        return tt__fail(TT_ERR_MEMORY, "no memory for %u references", e->ref_count);
    uint32_t i = 0;
    do
        refs[i] = e->refs[i]->ref;
    while (++i < e->ref_count);
    tt_status status = tt__encoder_finish(e, refs); /* which fails at once if the encoder has failed */
    if (refs != few)
        free(refs);
    return status;
}

/* ---- what others tell */

static bool is_lost(const tt_rpc *rpc, int id) { return rpc->peers[id] && rpc->peers[id]->lost; }

/* Is there nothing to count? Either the holder is lost, and its counts were dropped; or the giver was lost before it
 * could tell of what the holder lets go. The sender of the packet is not lost. */
static bool is_of_a_lost_worker(const tt_rpc *rpc, const tt__rpc_ref *ref, int holder, int giver) {
    if (is_lost(rpc, holder))
        return true;
    if (!is_lost(rpc, giver))
        return false;
    const tt_rref *rref = find_rref(rpc, ref);
    for (const tt__rref_hold *hold = rref ? rref->holds : NULL; hold; hold = hold->next)
        if (hold->holder == holder && hold->giver == giver)
            return false;
    return true;
}

tt_status tt__rref_told(tt_rpc *rpc, int from, const tt__rpc_packet_view *view) {
    const tt__rpc_header *header = &view->header;
    if (header->refs != 1 || header->id >= (uint32_t)rpc->peer_room)
        return tt__fail(TT_ERR_PROTOCOL, "word of a reference without one");
    tt__rpc_ref ref = tt__packet_ref(view, 0);
    if ((header->kind == TT__RPC_HOLD || header->flags & 1) && header->id == (uint32_t)rpc->id)
        return tt__fail(TT_ERR_PROTOCOL, "word that a value was given to its owner");
    if (ref.owner != (uint32_t)rpc->id || !is_possible_ref(rpc, &ref))
        return tt__fail(TT_ERR_PROTOCOL, "word of a reference that has another owner");
    bool holds = header->kind == TT__RPC_HOLD, taken_back = header->flags & 1;
    int holder = holds || taken_back ? (int)header->id : from, giver = holds || taken_back ? from : (int)header->id;
    if (!holds && header->serial > INT64_MAX / 2)
        return tt__fail(TT_ERR_PROTOCOL, "more references let go than there can be");
    if (is_of_a_lost_worker(rpc, &ref, holder, giver))
        return TT_OK;
    tt_rref *rref = own_rref(rpc, from, &ref);
    if (!rref)
        return tt_last_status() == TT_ERR_NOT_FOUND ? TT_OK : tt_last_status();
    TT__TRY(tt__rref_count_hold(rref, holder, giver, holds ? 1 : -(int64_t)header->serial));
    tt__rref_end_if_unused(rpc, rref);
    return TT_OK;
}

/* ---- the end */

void tt__rrefs_end(tt_rpc *rpc) {
    for (uint32_t i = 0; i < rpc->rref_room; i++)
        while (rpc->rrefs[i]) {
            tt_rref *rref = rpc->rrefs[i];
            rpc->rrefs[i] = rref->next;
            count_entry(rpc, rref, -1);
            rref->rpc = NULL;
            if (!rref->shares)
                tt__rpc_due_add(rpc, &rref->end);
        }
    free(rpc->rrefs);
    rpc->rrefs = NULL;
    rpc->rref_room = rpc->rref_count = 0;
}
