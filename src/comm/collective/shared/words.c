/* Barriers and exchanges of a few bytes, on shared memory: they consist of the arrival words and their payloads. */
#include "comm/collective/shared/shared_algorithms.h"

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

const tt__algorithm tt__barrier_words = {.name = "words", .op = TT_OP_BARRIER, .shared = true, .next = all_are_here};
const tt__algorithm tt__exchange_words = {.name = "words", .op = TT_OP_NEW_GROUP, .shared = true, .next = read_words};
