/* An exchange of a few bytes between all ranks by messages: new_group, split, alloc, free.
 *
 * Round k of ceil(log2 N): with d = 2^k, send the first min(d, N - d) blocks that are here to rank - d, and receive as
 * many from rank + d behind those; block i is that of rank + i (mod N). At the end blocks are put in order. Bytes per
 * rank: (N - 1) * bytes sent and received. J. Bruck et al., Efficient algorithms for all-to-all communications in
 * multiport message-passing systems, 1997. */
#include "comm/collective/message/rounds.h"

#include <string.h>

static void put_in_order(const tt_work *work, const unsigned char *blocks) {
    size_t bytes = work->call.buffers;
    int n = work->group->size, rank = work->group->rank;
    for (int i = 0; i < n && bytes; i++)
        memcpy((unsigned char *)work->call.recv + (size_t)((rank + i) % n) * bytes, blocks + (size_t)i * bytes, bytes);
}

static tt__next exchange_bruck_next(tt_work *work) {
    int n = work->group->size, rank = work->group->rank, d = 1 << work->stage;
    size_t bytes = work->call.buffers;
    if (!work->stage && (tt__work_scratch(work, bytes * (size_t)n + 1) || tt__work_messages(work, 2)))
        return TT__NEXT_FAILED;
    unsigned char *blocks = work->scratch;
    if (!work->stage && bytes)
        memcpy(blocks, work->call.send, bytes);
    if (d >= n) {
        put_in_order(work, blocks);
        return TT__NEXT_DONE;
    }
    size_t room = bytes * (size_t)(d < n - d ? d : n - d);
    tt__work_send(work, 0, (rank - d + n) % n, (uint32_t)work->stage, blocks, room);
    tt__work_recv(work, 1, (rank + d) % n, (uint32_t)work->stage, blocks + (size_t)d * bytes, room);
    work->stage++;
    return tt__work_wait_messages(work);
}

const tt__algorithm tt__exchange_bruck = {.name = "bruck", .op = TT_OP_NEW_GROUP, .next = exchange_bruck_next};
