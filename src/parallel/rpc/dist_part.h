/* A worker's part of a backward pass over a context. The leader is the worker that called backward.
 *
 *   leader                                     every worker, the leader included
 *   1. find the messages that the roots depend on
 *   reach(numbers of sends) ---------------->  marks these sends as sources, follows the graph from them
 *                           <----------------  the receipts that it came to: (sender, number), each named once
 *   ... and so on, until no new receipts are named. Now each worker knows the sends whose gradients will come
 *   2. compute
 *   finish() ------------------------------->  is answered when the part is done, or has failed
 *                                              walks the graph from the roots, and from each source when its gradients
 *                                              have come: gradient(number, gradients), sent by the worker that has the
 *                                              receipt, as soon as the gradients of all its leaves are final
 *   3. only after a failure
 *   abort() -------------------------------->  ends its part
 *
 * A part is walked by the thread that brought it a gradient. */
#ifndef TT_PARALLEL_RPC_DIST_PART_H
#define TT_PARALLEL_RPC_DIST_PART_H

#include "parallel/rpc/dist.h"

/* A place where gradients enter the graph on this worker: a message that it sent, or the roots. */
typedef struct tt__dist_source {
    tt_node *node;         /* a reference */
    int to;                /* -1: the roots */
    tt_tensor **gradients; /* references; NULL: they have not come */
    bool given;            /* they were given to the walk */
} tt__dist_source;

/* A receipt of the context, as the pass needs it. */
typedef struct tt__dist_needed {
    bool needed;   /* the roots depend on it */
    int64_t waits; /* how many of its leaves have no final gradient yet */
} tt__dist_needed;

typedef enum tt__dist_state { TT__DIST_FINDING, TT__DIST_WALKS, TT__DIST_DONE, TT__DIST_FAILED } tt__dist_state;

/* Guarded by the context's lock, except `open`, which the thread uses that walks. */
struct tt__dist_part {
    int refs;
    tt__dist_context *context; /* a reference */
    uint64_t pass;
    int leader;
    bool retain;
    tt__dist_state state;
    tt__dist_source *sources;
    int64_t source_count, source_room;
    int64_t *source_at; /* (send_count) 1 + the source of each of context->sends; 0: the roots don't depend on it */
    int64_t send_count;
    tt__dist_needed *receipts; /* (receipt_count) of each of context->receipts */
    int64_t receipt_count;
    tt__open_pass *open;
    bool walking;        /* a thread walks */
    bool again;          /* gradients have come meanwhile, so it walks once more */
    int64_t parcels;     /* its gradients that are on their way */
    tt_future *finished; /* answers the leader's finish(); NULL: it has not asked, or was answered */
    tt_status status;    /* of a part that failed; with */
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

/* Begin this worker's part of a pass, or find it. Takes a reference for the caller. NULL, recorded: TT_ERR_STATE
 * another pass over the context is under way; TT_ERR_MEMORY. */
tt__dist_part *tt__dist_part_begin(tt__dist_context *context, uint64_t pass, int leader, bool retain);

/* Add the roots, of one element each, as a source whose gradients are 1. The messages that they depend on are added to
 * `found`. */
tt_status tt__dist_part_roots(tt__dist_part *part, tt_tensor *const *roots, int64_t count, tt__dist_messages *found);

/* Walk the graph as far as the gradients that have come allow. */
void tt__dist_part_walk(tt__dist_part *part);

void tt__dist_part_unref(tt__dist_part *part);

/* End the part of this pass (0: of any) with this thread's last error: the context has ended, or the leader was
 * lost. */
void tt__dist_part_end(tt__dist_context *context, uint64_t pass);

/* Find the part of this pass, and take a reference for the caller. NULL, recorded: TT_ERR_NOT_FOUND. */
tt__dist_part *tt__dist_part_find(tt__dist_context *context, uint64_t pass);

/* Take a part that has ended out of its context, which is locked, so that another pass can begin. True: it was in
 * there, and its reference is the caller's to drop. */
bool tt__dist_part_detach(tt__dist_part *part);

/* Add messages that this worker has sent as sources. The messages that they depend on are added to `found`. Errors:
 * TT_ERR_NOT_FOUND there is no such send; TT_ERR_STATE it was named before, or its record was freed; TT_ERR_MEMORY. */
tt_status tt__dist_part_reach(tt__dist_part *part, const int64_t *numbers, int64_t count, tt__dist_messages *found);

#endif
