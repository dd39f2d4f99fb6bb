/* References to values, and how their owners count them.
 *
 * The owner of a value counts its references by holder and giver: how many references worker `holder` has received from
 * worker `giver`. Nobody waits for an answer, as links keep the order of packets:
 *
 *   the owner gives one to A           the owner counts (A, owner) + 1
 *   A passes it on to B                A sends the owner HOLD before it sends B the reference: (B, A) + 1
 *   B drops its last share             B sends the owner RELEASE for each giver: (B, A) - n
 *
 * A may drop its own share after that: its RELEASE follows its HOLD on the same link, so the owner's count is never 0
 * too early. B's RELEASE may come before A's HOLD, so a count may be negative for a while. The value is freed when all
 * counts are 0 and the owner's process has no share of it.
 *
 * If a worker is lost, the owner drops the counts of which that worker is the holder, and the negative ones of which it
 * is the giver. A positive count (B, lost) may be of a reference that never reached B, so the owner asks B (SETTLE).
 * Once B knows of the loss, too, nothing more can come from the lost worker. B sends HOLD for the references that it
 * has from it, as if it had given them to itself, then SETTLED, and the owner drops what is left of (B, lost).
 *
 * HOLD and RELEASE may come to the owner before the call that makes the value (KEEP), which has another link. Then the
 * owner makes an entry without a value. The serial numbers of one creator rise on its link, so a lower one than the
 * last is of a value that is gone. */
#ifndef TT_RPC_REFERENCES_H
#define TT_RPC_REFERENCES_H

#include "rpc/rpc_state.h"

/* On the owner: worker `holder` has received `count` references from worker `giver`. On a holder: this worker has. */
typedef struct tt__rref_hold {
    struct tt__rref_hold *next;
    int holder, giver;
    int64_t count;
} tt__rref_hold;

struct tt_rref {
    struct tt_rref *next; /* in the table */
    tt_rpc *rpc;          /* NULL: it was shut down */
    tt__rpc_ref ref;
    int64_t shares; /* of this process; guarded by the worker's lock, by nothing after the shutdown */
    tt__rref_hold *holds;

    /* On the owner. */
    tt_future *value;   /* NULL: this worker is not the owner */
    bool made_here;     /* the call that makes the value has come, or the program made it */
    int maker;          /* 1 + the number of that call's function; 0: unknown */
    int told_by;        /* before that call: 1 + the worker that has named the reference first; 0: none */
    tt__rpc_due unmade; /* ends the value if its creator is lost before that call */

    tt__rpc_due end; /* frees the reference */
};

static inline bool tt__rref_is_own(const tt_rref *rref) { return rref->ref.owner == (uint32_t)rref->rpc->id; }

/* ---- the lock is held, unless a function says otherwise */

/* Let values have references from now on. Without the lock. */
void tt__rrefs_begin(void);

/* Make a reference, with one share, to a value of worker `owner`. NULL, recorded: no memory. */
tt_rref *tt__rref_make(tt_rpc *rpc, int owner);

/* Find or make the references of a packet from worker `from`, with a share of each for the caller. Errors:
 * TT_ERR_NOT_FOUND the value of one is gone; TT_ERR_PROTOCOL one is impossible; TT_ERR_MEMORY. After an error the
 * caller has no share. */
tt_status tt__rrefs_received(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt_rref **out);

/* The call has come from worker `from` that makes the value of its reference `serial`: return the entry, with a share
 * for the caller, and count the sender as a holder. `maker`: the call's function; NULL: this worker does not have it.
 * NULL, recorded: TT_ERR_PROTOCOL, TT_ERR_MEMORY. */
tt_rref *tt__rref_kept(tt_rpc *rpc, int from, uint64_t serial, const tt__rpc_function *maker);

/* Count references that the next packet gives to worker `to`, here or with their owners. Errors: TT_ERR_STATE one is of
 * another tt_rpc; TT_ERR_MEMORY; that `to` or an owner is lost. After an error none is counted. */
tt_status tt__rrefs_given(tt_rpc *rpc, int to, tt_rref *const *refs, uint32_t count);

/* That packet could not be sent: take the counts back. */
void tt__rrefs_not_given(tt_rpc *rpc, int to, tt_rref *const *refs, uint32_t count);

/* Tell the owners of a packet's references that this worker does not hold them: `from` has counted them for it. `held`:
 * the array that tt__rrefs_received() filled before it failed, up to the first NULL, and whose references it has let go
 * since; may be NULL. Needs no memory. */
void tt__rrefs_refuse(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt_rref *const *held);

/* Write the rest of a packet, with its references: tt__encoder_finish(). */
tt_status tt__rrefs_finish(tt__rpc_encoder *e);

/* Take a HOLD or RELEASE packet. Errors: TT_ERR_PROTOCOL, TT_ERR_MEMORY. */
tt_status tt__rref_told(tt_rpc *rpc, int from, const tt__rpc_packet_view *view);

/* Drop a share. */
void tt__rref_drop(tt_rpc *rpc, tt_rref *rref);

/* Drop the only share of a reference that was made here, and of which its owner was not told. */
void tt__rref_unmake(tt_rpc *rpc, tt_rref *rref);

/* The worker ends: values that are left are freed by running rpc->due, and references belong to no worker any more. */
void tt__rrefs_end(tt_rpc *rpc);

/* Free a reference that is not in the table any more: its ->end.run. Without the lock, as what the value holds may be
 * the program's. */
void tt__rref_free(tt_rpc *rpc, tt__rpc_due *due);

/* ---- lost_references.c */

/* Drop or question the counts in which a lost worker takes part, and answer those that have asked about it. */
void tt__rrefs_lost(tt_rpc *rpc, int id);

/* Take a SETTLE packet: the owner `from` asks about the lost worker `giver`. Errors: TT_ERR_PROTOCOL, TT_ERR_MEMORY. */
tt_status tt__rrefs_asked(tt_rpc *rpc, const tt__rpc_peer *from, uint32_t giver);

/* Take a SETTLED packet, the answer. Errors: TT_ERR_PROTOCOL. */
tt_status tt__rrefs_settled(tt_rpc *rpc, tt__rpc_peer *from, uint32_t giver);

/* ---- for lost_references.c */

/* Add `by` to a count. Errors: TT_ERR_MEMORY. */
tt_status tt__rref_count_hold(tt_rref *rref, int holder, int giver, int64_t by);

/* An entry of `holds` was made for this holder, or freed: the keeper looks after holders of values here. */
void tt__rref_watch_holder(const tt_rref *rref, int holder, int by);

/* Remove the reference from the table if it has no share and, on the owner, no count. */
void tt__rref_end_if_unused(tt_rpc *rpc, tt_rref *rref);

#endif
