/* A worker's part of a backward pass over a context.
 *
 *   leader                                        workers
 *   reach(numbers of messages) -------------->  these sends matter: which receipts do they depend on?
 *                              <--------------  (sender, number) of each that was not named before
 *   ... until no new ones are named: each worker knows its sends that matter, and so which gradients will come
 *   finish() -------------------------------->  answered when the part is done, or has failed
 *   walks its part from the roots
 *          gradient(number, gradients) between workers, once for each message: as soon as a receipt's are final
 *   abort() -------------------------------->   after a failure, to all
 *
 * The leader is the worker that called backward. A part walks in whichever thread brought it a gradient. */
#ifndef TT_PARALLEL_RPC_DIST_PART_H
#define TT_PARALLEL_RPC_DIST_PART_H

#include "parallel/rpc/dist.h"

/* Where the pass begins on this worker: a message that it sent, or the roots. */
typedef struct tt__dist_source {
    tt_node *node;         /* a reference */
    int to;                /* -1: the roots */
    tt_tensor **gradients; /* references; NULL: they have not come */
    bool given;            /* to the walk */
} tt__dist_source;

/* Of a receipt of the context. */
typedef struct tt__dist_needed {
    bool needed;
    int64_t waits; /* its leaves that are not final */
} tt__dist_needed;

typedef enum tt__dist_state { TT__DIST_FINDING, TT__DIST_WALKS, TT__DIST_DONE, TT__DIST_FAILED } tt__dist_state;

/* Guarded by the context's lock; `open` is the walking thread's. */
struct tt__dist_part {
    int refs;
    tt__dist_context *context; /* a reference */
    uint64_t pass;
    int leader;
    bool retain;
    tt__dist_state state;
    tt__dist_source *sources;
    int64_t source_count, source_room;
    int64_t *source_at; /* of a message that was sent, by the context's index: 1 + its source; 0: it does not matter */
    int64_t send_count;
    tt__dist_needed *receipts; /* by the context's index */
    int64_t receipt_count;
    tt__open_pass *open;
    bool walking, again; /* again: gradients have come meanwhile */
    int64_t parcels;     /* gradients of it that have not arrived yet */
    tt_future *finished; /* the leader's question, or NULL */
    tt_status status;    /* of one that failed; and its text */
    char *text;
};

/* Is there nothing left that could fail? */
static inline bool tt__dist_part_is_done(const tt__dist_part *part) {
    return part->state == TT__DIST_DONE && !part->parcels;
}

/* A message by its sender and number. */
typedef struct tt__dist_message {
    int64_t from, number;
} tt__dist_message;

typedef struct tt__dist_messages {
    tt__dist_message *list;
    int64_t count, room;
} tt__dist_messages;

static inline tt_status tt__dist_messages_add(tt__dist_messages *m, int64_t from, int64_t number) {
    if (!tt__dist_room(&m->list, m->count, &m->room, sizeof *m->list))
        return TT_ERR_MEMORY;
    m->list[m->count++] = (tt__dist_message){from, number};
    return TT_OK;
}

/* Begin this worker's part of a pass, or find it; with a reference for the caller. NULL, recorded: TT_ERR_STATE another
 * pass over the context is under way; TT_ERR_MEMORY. */
tt__dist_part *tt__dist_part_begin(tt__dist_context *context, uint64_t pass, int leader, bool retain);

/* It begins at the roots, too, each of one element: with gradients of 1. What they depend on is added to `found`. */
tt_status tt__dist_part_roots(tt__dist_part *part, tt_tensor *const *roots, int64_t count, tt__dist_messages *found);

/* Walk what can be walked. */
void tt__dist_part_walk(tt__dist_part *part);

void tt__dist_part_unref(tt__dist_part *part);

/* End a part, of a context that has ended or a leader that was lost, with this thread's last error. */
void tt__dist_part_end(tt__dist_context *context, uint64_t pass);

/* Find the part of this pass; with a reference for the caller. NULL, recorded: TT_ERR_NOT_FOUND. */
tt__dist_part *tt__dist_part_find(tt__dist_context *context, uint64_t pass);

/* The leader knows how it ended: the context, which is locked, is free for another pass. True: a reference is the
 * caller's to drop. */
bool tt__dist_part_detach(tt__dist_part *part);

/* These messages, which this worker has sent, matter; what they depend on is added to `found`. */
tt_status tt__dist_part_reach(tt__dist_part *part, const int64_t *numbers, int64_t count, tt__dist_messages *found);

#endif
