#include "rpc/references.h"

#include "base/error.h"
#include "comm/group.h"
#include "rpc/live.h"
#include "rpc/peers.h"
#include "rpc/rpc_value.h"
#include "rpc/sending.h"

#include <stdlib.h>

enum {
    FIRST_ROOM = 64,
    UNMADE_MAX = 1 << 16 /* references of which one worker may speak before the calls come that make them */
};

static uint32_t ref_hash(const tt__rpc_ref *ref) {
    uint64_t mixed = (ref->serial ^ (uint64_t)ref->creator << 40) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(mixed >> 32);
}

/* Creator and number would do, were it not for workers that lie about the owner. */
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

static bool is_own_value(const tt_rref *rref) { return rref->ref.owner == (uint32_t)rref->rpc->id; }

static void count_entry(tt_rpc *rpc, const tt_rref *rref, int by) {
    if (is_own_value(rref))
        rpc->counters.owned += by;
    else
        rpc->counters.held += by;
    if (rref->maker)
        rpc->made[rref->maker - 1] += by;
    tt__rpc_peer *peer = is_own_value(rref) ? NULL : tt__rpc_peer_of(rpc, (int)rref->ref.owner);
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

/* Free it, without the lock: what the value holds may be the program's. */
static void free_rref(tt_rpc *rpc, tt__rpc_due *due) {
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
    rref->end.run = free_rref;
    insert_rref(rpc, rref);
    rpc->rref_count++;
    count_entry(rpc, rref, 1);
    return rref;
}

/* It is made, or gone. */
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

/* A value here is counted for a worker once more, or less: who holds one is watched. */
static void watch_holder(const tt_rref *rref, int holder, int by) {
    tt__rpc_peer *peer = rref->rpc && is_own_value(rref) ? tt__rpc_peer_of(rref->rpc, holder) : NULL;
    if (peer)
        peer->holds += by;
}

/* Count `by` more for a holder and a giver. */
static tt_status count_hold(tt_rref *rref, int holder, int giver, int64_t by) {
    tt__rref_hold **at = &rref->holds;
    while (*at && ((*at)->holder != holder || (*at)->giver != giver))
        at = &(*at)->next;
    if (!*at) {
        tt__rref_hold *hold = malloc(sizeof *hold);
        if (!hold)
            return tt__fail(TT_ERR_MEMORY, "no memory for the count of a reference");
        *hold = (tt__rref_hold){.holder = holder, .giver = giver};
        *at = hold;
        watch_holder(rref, holder, 1);
    }
    tt__rref_hold *hold = *at;
    hold->count += by;
    if (!hold->count) {
        watch_holder(rref, holder, -1);
        *at = hold->next;
        free(hold);
    }
    return TT_OK;
}

/* Tell the owner that this worker holds it no more. */
static void release_all(tt_rpc *rpc, const tt_rref *rref) {
    for (const tt__rref_hold *hold = rref->holds; hold; hold = hold->next)
        tt_ignore(tt__rpc_send_ref(
            rpc, (int)rref->ref.owner,
            (tt__rpc_header){.kind = TT__RPC_RELEASE, .id = (uint32_t)hold->giver, .serial = (uint64_t)hold->count},
            rref->ref));
}

/* Is anybody left who uses it? */
static void end_if_unused(tt_rpc *rpc, tt_rref *rref) {
    if (rref->shares || (is_own_value(rref) && rref->holds))
        return;
    if (!is_own_value(rref))
        release_all(rpc, rref);
    remove_rref(rpc, rref);
}

void tt__rref_drop(tt_rpc *rpc, tt_rref *rref) {
    rref->shares--;
    end_if_unused(rpc, rref);
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
    if (!rref->made_here && count_hold(rref, rpc->id, rpc->id, 1)) { /* what the owner counts when the call comes */
        tt__rref_drop(rpc, rref);
        return NULL;
    }
    return rref;
}

/* Find an own value's entry; make one where the call that makes it is yet to come, of which worker `from` speaks. NULL,
 * recorded. */
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
    if (ref->owner >= (uint32_t)rpc->peer_room || ref->creator >= (uint32_t)rpc->peer_room || !ref->serial)
        return tt__fail_null(TT_ERR_PROTOCOL, "a reference to a value of a worker that can't be");
    if (ref->owner == (uint32_t)rpc->id)
        return own_rref(rpc, from, ref);
    tt_rref *rref = find_rref(rpc, ref);
    bool found = rref != NULL;
    if (!found && !(rref = add_rref(rpc, ref)))
        return NULL;
    if (from != rpc->id && count_hold(rref, rpc->id, from, 1)) {
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
    if (count_hold(rref, from, from, 1)) {
        tt__rref_drop(rpc, rref);
        return NULL;
    }
    return made_by(rpc, rref, maker);
}

/* ---- giving */

static tt_status give_one(tt_rpc *rpc, int to, tt_rref *rref) {
    if (to == rpc->id || to == (int)rref->ref.owner)
        return TT_OK;
    if (is_own_value(rref))
        return count_hold(rref, to, rpc->id, 1);
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
        if (is_own_value(rref))
            tt_ignore(count_hold(rref, to, rpc->id, -1));
        else
            tt_ignore(tt__rpc_send_ref(
                rpc, (int)rref->ref.owner,
                (tt__rpc_header){.kind = TT__RPC_RELEASE, .flags = 1, .id = (uint32_t)to, .serial = 1}, rref->ref));
    }
}

/* ---- what others tell */

static bool is_lost(const tt_rpc *rpc, int id) { return rpc->peers[id] && rpc->peers[id]->lost; }

/* Is there nothing to count, as the holder's counts were dropped with it, or the giver was lost before it could tell of
 * what the holder lets go? Who tells is not lost. */
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
    if (ref.owner != (uint32_t)rpc->id || ref.creator >= (uint32_t)rpc->peer_room || !ref.serial)
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
    TT__TRY(count_hold(rref, holder, giver, holds ? 1 : -(int64_t)header->serial));
    end_if_unused(rpc, rref);
    return TT_OK;
}

/* ---- losing workers, the end */

static void forget_holder(tt_rref *rref, int id) {
    for (tt__rref_hold **at = &rref->holds; *at;) {
        tt__rref_hold *hold = *at;
        if (hold->holder != id && (hold->giver != id || hold->count > 0)) {
            at = &hold->next;
            continue;
        }
        watch_holder(rref, hold->holder, -1);
        *at = hold->next;
        free(hold);
    }
}

/* A value that is still to be made by a call of a lost worker never will. */
typedef struct unmade {
    tt__rpc_due due;
    tt_rref *rref;
} unmade;

static void run_unmade(tt_rpc *rpc, tt__rpc_due *due) {
    unmade *what = (unmade *)(void *)due;
    tt__future_end(what->rref->value, TT_ERR_PEER, "the worker that was to make the value was lost before it called",
                   tt_rpc_none());
    tt__rpc_lock(rpc);
    tt__rref_drop(rpc, what->rref);
    tt__rpc_unlock(rpc);
    free(what);
}

static void lost_creator(tt_rpc *rpc, tt_rref *rref) {
    unmade *what = calloc(1, sizeof *what);
    if (!what)
        return;
    *what = (unmade){.due.run = run_unmade, .rref = rref};
    rref->shares++;
    tt__rpc_due_add(rpc, &what->due);
}

/* Does somebody live who, as its giver said that is lost now, has this reference? It is asked. */
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
            if (!is_own_value(rref))
                continue;
            forget_holder(rref, id);
            ask_holders(rpc, rref, id);
            if (!rref->made_here && rref->ref.creator == (uint32_t)id)
                lost_creator(rpc, rref);
            end_if_unused(rpc, rref);
        }
    for (int owner = 0; rpc->peers[id]->askers && owner < rpc->peer_room; owner++)
        if (rpc->peers[id]->askers[owner / 8] >> owner % 8 & 1)
            settle_with(rpc, owner, id);
}

/* ---- settling: who gave a reference may be lost after it told the owner, and before it reached the holder */

/* All that `giver` gave has come: what of it this worker holds it holds by itself from now on. */
static void settle_with(tt_rpc *rpc, int owner, int giver) {
    for (uint32_t i = 0; i < rpc->rref_room; i++)
        for (tt_rref *rref = rpc->rrefs[i]; rref; rref = rref->next) {
            tt__rref_hold **at = &rref->holds;
            while (*at && (*at)->giver != giver)
                at = &(*at)->next;
            if (rref->ref.owner != (uint32_t)owner || !*at || count_hold(rref, rpc->id, rpc->id, 1))
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
        return tt__fail(TT_ERR_PROTOCOL, "it asks of a worker that can't be lost");
    bool unknown = !rpc->peers[giver];
    tt__rpc_peer *peer = tt__rpc_peer_of(rpc, (int)giver);
    size_t bytes = (size_t)rpc->peer_room / 8 + 1;
    if (!peer || (!peer->askers && !(peer->askers = calloc(bytes, 1))))
        return tt__fail(TT_ERR_MEMORY, "no memory for who asks of a lost worker");
    uint8_t bit = (uint8_t)(1 << from->id % 8), *at = &peer->askers[from->id / 8];
    if (!(*at & bit) && (peer->told || unknown)) /* else when it is lost here, too */
        settle_with(rpc, from->id, (int)giver);
    *at |= bit;
    return TT_OK;
}

tt_status tt__rrefs_settled(tt_rpc *rpc, tt__rpc_peer *from, uint32_t giver) {
    if (giver >= (uint32_t)rpc->peer_room || !rpc->peers[giver] || !rpc->peers[giver]->lost || !from->settles)
        return tt__fail(TT_ERR_PROTOCOL, "it answers what it was not asked");
    from->settles--;
    for (uint32_t i = 0; i < rpc->rref_room; i++)
        for (tt_rref *rref = rpc->rrefs[i], *next; rref; rref = next) {
            next = rref->next;
            for (tt__rref_hold **at = &rref->holds; is_own_value(rref) && *at;) {
                tt__rref_hold *hold = *at;
                if (hold->holder != from->id || hold->giver != (int)giver) {
                    at = &hold->next;
                    continue;
                }
                *at = hold->next;
                free(hold);
            }
            if (is_own_value(rref))
                end_if_unused(rpc, rref);
        }
    return TT_OK;
}

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

/* ---- for the program */

/* The worker whose lock guards a reference; NULL: none, after the shutdown, or in a forked child, where the lock may
 * be held by a thread that is not there. */
static tt_rpc *guard_of(const tt_rref *rref) {
    tt_rpc *rpc = rref ? rref->rpc : NULL;
    return rpc && rpc->forks == tt__forks ? rpc : NULL;
}

tt_rref *tt_rref_share(tt_rref *rref) {
    tt_rpc *rpc = guard_of(rref);
    if (rpc)
        tt__rpc_lock(rpc);
    if (rref)
        rref->shares++;
    if (rpc)
        tt__rpc_unlock(rpc);
    return rref;
}

/* Free what a reference's end has made due, unless another thread is about to. */
static void rref_settle(tt_rpc *rpc) {
    tt__rpc_due *due = rpc->due.first;
    if (!due || due->run != free_rref || due->next) {
        tt__rpc_unlock(rpc);
        return;
    }
    tt__rpc_list_take(&rpc->due);
    tt__rpc_unlock(rpc);
    free_rref(rpc, due);
}

void tt_rref_free(tt_rref *rref) {
    if (!rref)
        return;
    tt_rpc *rpc = guard_of(rref);
    if (!rpc) {
        if (!--rref->shares && !rref->rpc)
            free_rref(NULL, &rref->end);
        return;
    }
    tt__rpc_lock(rpc);
    tt__rref_drop(rpc, rref);
    rref_settle(rpc);
}

static void give_hooks(void) {
    static const tt__rpc_rref_hooks hooks = {tt_rref_share, tt_rref_free};
    tt__rpc_set_rref_hooks(&hooks);
}

void tt__rrefs_begin(void) {
    static pthread_once_t once = PTHREAD_ONCE_INIT; /* several workers of a process may begin at once */
    pthread_once(&once, give_hooks);
}

tt_rref *tt_rref_new(tt_rpc *rpc, tt_rpc_value value) {
    tt_rpc_value kept = value;
    if (tt__rpc_usable(rpc, "tt_rref_new") || (!value.owned && tt_rpc_value_copy(&kept, &value))) {
        tt_rpc_value_free(&kept);
        return NULL;
    }
    tt__rpc_lock(rpc);
    tt_rref *rref = rpc->ended ? tt__fail_null(TT_ERR_STATE, "tt_rref_new: worker %s was shut down", rpc->name)
                               : tt__rref_make(rpc, rpc->id);
    tt__rpc_unlock(rpc);
    if (rref)
        tt__future_end(rref->value, TT_OK, NULL, kept);
    else
        tt_rpc_value_free(&kept);
    return rref;
}

int tt_rref_owner(const tt_rref *rref) { return rref ? (int)rref->ref.owner : -1; }

bool tt_rref_is_owner(const tt_rref *rref) { return rref && rref->value; }

const tt_rpc_value *tt_rref_local(tt_rref *rref) {
    if (!rref)
        return tt__fail_null(TT_ERR_INVALID, "tt_rref_local: the reference is NULL");
    if (!rref->value)
        return tt__fail_null(TT_ERR_STATE,
                             "tt_rref_local: the value lies with the worker with the id %d: tt_rref_get() fetches a "
                             "copy, and tt_rref_sync() calls a function there",
                             (int)rref->ref.owner);
    return tt_future_wait(rref->value, 0) ? NULL : tt_future_value(rref->value);
}
