/* barrier: an agreement on a call that moves nothing. And what else is little more than an agreement: an exchange of a
 * few bytes, which come with the words (new_group, split, alloc, free). */
#include "comm/collective/collective.h"

#include <string.h>

static tt__next all_are_here(tt_work *work) {
    (void)work;
    return TT__NEXT_DONE;
}

static tt__next read_words(tt_work *work) {
    size_t bytes = work->call.buffers;
    for (int r = 0; r < work->group->size && bytes; r++)
        memcpy((unsigned char *)work->call.recv + (size_t)r * bytes, tt__payload(work->group, r, work->seq, bytes),
               bytes);
    return TT__NEXT_DONE;
}

tt_status tt__exchange(tt_group *group, const tt_call *call, const void *mine, size_t bytes, void *all) {
    tt_call exchange = *call;
    exchange.send = mine;
    exchange.recv = all;
    exchange.buffers = bytes;
    return tt__submit(group, &exchange, NULL);
}

const tt__algorithm tt__barrier_words = {.name = "words", .op = TT_OP_BARRIER, .shared = true, .next = all_are_here};
const tt__algorithm tt__exchange_words = {.name = "words", .op = TT_OP_NEW_GROUP, .shared = true, .next = read_words};
