/* Where ranks' blocks lie, in bytes: even and uneven forms of all_gather, gather, scatter and all_to_all look the same
 * to their algorithms. */
#ifndef TT_COMM_COLLECTIVE_MESSAGE_BLOCKS_H
#define TT_COMM_COLLECTIVE_MESSAGE_BLOCKS_H

#include "comm/work.h"

#include <string.h>

typedef struct tt__block {
    unsigned char *data;
    size_t bytes;
} tt__block;

/* Rank r's block in recv. */
static inline tt__block tt__recv_block(const tt_call *call, int r) {
    size_t size = tt_dtype_size(call->dtype);
    int64_t at = call->recv_offsets ? call->recv_offsets[r] : r * call->count;
    int64_t n = call->recv_counts ? call->recv_counts[r] : call->count;
    return (tt__block){(unsigned char *)call->recv + (size_t)at * size, (size_t)n * size};
}

/* Rank r's block in send: only to be read. */
static inline tt__block tt__send_block(const tt_call *call, int r) {
    size_t size = tt_dtype_size(call->dtype);
    int64_t at = call->send_offsets ? call->send_offsets[r] : r * call->count;
    int64_t n = call->send_counts ? call->send_counts[r] : call->count;
    return (tt__block){(unsigned char *)(uintptr_t)call->send + (size_t)at * size, (size_t)n * size};
}

/* What a rank contributes, to where it belongs; it may lie there already. */
static inline void tt__copy_block(tt__block to, const void *from) {
    if (to.bytes && to.data != from)
        memcpy(to.data, from, to.bytes);
}

#endif
