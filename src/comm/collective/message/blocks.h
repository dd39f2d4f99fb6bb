/* Where ranks' blocks lie, in bytes: so algorithms need not tell even from uneven forms of all_gather, gather, scatter
 * and all_to_all. */
#ifndef TT_COMM_COLLECTIVE_MESSAGE_BLOCKS_H
#define TT_COMM_COLLECTIVE_MESSAGE_BLOCKS_H

#include "comm/work.h"

#include <string.h>

typedef struct tt__rank_block {
    unsigned char *data;
    size_t bytes;
} tt__rank_block;

/* Return rank r's block in recv. */
static inline tt__rank_block tt__recv_block(const tt_call *call, int r) {
    size_t size = tt_dtype_size(call->dtype);
    int64_t at = call->recv_offsets ? call->recv_offsets[r] : r * call->count;
    int64_t n = call->recv_counts ? call->recv_counts[r] : call->count;
    return (tt__rank_block){(unsigned char *)call->recv + (size_t)at * size, (size_t)n * size};
}

/* Return rank r's block in send, for reading. */
static inline tt__rank_block tt__send_block(const tt_call *call, int r) {
    size_t size = tt_dtype_size(call->dtype);
    int64_t at = call->send_offsets ? call->send_offsets[r] : r * call->count;
    int64_t n = call->send_counts ? call->send_counts[r] : call->count;
    return (tt__rank_block){(unsigned char *)(uintptr_t)call->send + (size_t)at * size, (size_t)n * size};
}

/* Copy a rank's own block to its place in recv, unless it lies there already. */
static inline void tt__copy_block(tt__rank_block to, const void *from) {
    if (to.bytes && to.data != from)
        memcpy(to.data, from, to.bytes);
}

#endif
