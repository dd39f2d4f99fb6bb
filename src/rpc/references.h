/* References.
 *
 * A value lies with its owner, who counts who holds a reference to it: for each worker and each that gave it one. The
 * owner counts whom it gives a reference itself; who passes one on to a third worker tells the owner (TT__RPC_HOLD)
 * before, and lets its own go after, on the same link: so the count is never 0 too early, and nobody waits for an
 * answer. A worker that lets its last share go tells the owner how many it had of whom (TT__RPC_RELEASE); that may come
 * before the word of the giver, so a count may be below 0 for a while. The value ends when all counts are 0 and nothing
 * here uses it.
 *
 * When a worker is lost the owner forgets what it held, and waits no more for what it was to tell. What it had told may
 * never have reached the third worker: the owner asks it (TT__RPC_SETTLE), and it answers, once it has seen that loss
 * itself, with what it holds of the lost one as its own (TT__RPC_HOLD), then that this is all (TT__RPC_SETTLED).
 *
 * What comes of a reference before the call that makes it (from a third worker, on another link) makes an entry without
 * a value. The numbers of one worker's references rise on its link: a lower one than the last is gone, not to come. */
#ifndef TT_RPC_REFERENCES_H
#define TT_RPC_REFERENCES_H

#include "rpc/rpc_state.h"

/* Who holds a reference, and of whom it has it; on a user, of whom this worker has it. */
typedef struct tt__rref_hold {
    struct tt__rref_hold *next;
    int holder, giver;
    int64_t count;
} tt__rref_hold;

struct tt_rref {
    struct tt_rref *next; /* in the table */
    tt_rpc *rpc;          /* NULL: it was shut down */
    tt__rpc_ref ref;
    int64_t shares;   /* of this process; under the lock, without one after the shutdown */
    bool made_here;   /* of the owner: a call makes its value, or has */
    int maker;        /* of the owner: the number of that call's function, plus 1; 0: unknown */
    int told_by;      /* of the owner, until then: 1 + who has spoken of it first; 0: nobody */
    tt_future *value; /* of the owner */
    tt__rref_hold *holds;
    tt__rpc_due end; /* frees it */
};

/* ---- the lock is held */

/* References can be in values from now on; without the lock. */
void tt__rrefs_begin(void);

/* Make a reference of this worker's making, to a value with `owner`, with one share. NULL, recorded: no memory. */
tt_rref *tt__rref_make(tt_rpc *rpc, int owner);

/* Find or make the references of a packet from `peer`, a share of each for the caller. TT_ERR_NOT_FOUND: one is gone;
 * TT_ERR_PROTOCOL it can't be; TT_ERR_MEMORY. After an error none is held. */
tt_status tt__rrefs_received(tt_rpc *rpc, int from, const tt__rpc_packet_view *view, tt_rref **out);

/* The call has come that makes the reference's value: its entry, with a share; the sender holds one. `maker`: its
 * function; NULL: this worker does not have it. NULL, recorded. */
tt_rref *tt__rref_kept(tt_rpc *rpc, int from, uint64_t serial, const tt__rpc_function *maker);

/* References go to worker `to` with the next packet: see that their owners count it. TT_ERR_MEMORY. And what it cost is
 * taken back, as the packet could not be sent. */
tt_status tt__rrefs_given(tt_rpc *rpc, int to, tt_rref *const *refs, uint32_t count);
void tt__rrefs_not_given(tt_rpc *rpc, int to, tt_rref *const *refs, uint32_t count);

/* Another worker tells of one. TT_ERR_PROTOCOL. */
tt_status tt__rref_told(tt_rpc *rpc, int from, const tt__rpc_packet_view *view);

/* Give a share back; the last one of a reference that its owner never heard of. */
void tt__rref_drop(tt_rpc *rpc, tt_rref *rref);
void tt__rref_unmake(tt_rpc *rpc, tt_rref *rref);

/* The owner `from` asks what this worker has of its values that it got of a lost one; or a holder has answered that.
 * TT_ERR_PROTOCOL. */
tt_status tt__rrefs_asked(tt_rpc *rpc, const tt__rpc_peer *from, uint32_t giver);
tt_status tt__rrefs_settled(tt_rpc *rpc, tt__rpc_peer *from, uint32_t giver);

/* A worker is lost. */
void tt__rrefs_lost(tt_rpc *rpc, int id);

/* The worker ends: values that are left are freed by running rpc->due, and references point to no worker any more. */
void tt__rrefs_end(tt_rpc *rpc);

#endif
