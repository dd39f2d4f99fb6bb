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

/* The pass that is under way over a context, and its leader; 0: none is. */
uint64_t tt__dist_pass_of(tt__dist_context *context, int *leader);

#endif
