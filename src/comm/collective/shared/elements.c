#include "comm/collective/shared/elements.h"

#include <string.h>

tt__stretch tt__elements_from(const tt_call *call, size_t from, size_t end) {
    size_t size = tt_dtype_size(call->dtype), begin = 0;
    if (call->op != TT_OP_ALL_REDUCE_COALESCED)
        return (tt__stretch){(unsigned char *)call->recv + from * size, end - from, 0, from};
    for (int64_t b = 0; b < call->buffers; begin += call->recv_counts[b++]) {
        size_t within = from - begin, n = (size_t)call->recv_counts[b], left = n - within;
        if (within < n)
            return (tt__stretch){(unsigned char *)call->bufs[b] + within * size, left < end - from ? left : end - from,
                                 b, within};
    }
    return (tt__stretch){0};
}

void *tt__elements_at(const tt_call *call, size_t from, size_t n) {
    tt__stretch stretch = tt__elements_from(call, from, from + n);
    return stretch.n == n ? stretch.at : NULL;
}

void tt__elements_gather(const tt_call *call, size_t from, size_t n, void *dst) {
    size_t size = tt_dtype_size(call->dtype), end = from + n;
    unsigned char *to = dst;
    while (from < end) {
        tt__stretch stretch = tt__elements_from(call, from, end);
        memcpy(to, stretch.at, stretch.n * size);
        to += stretch.n * size;
        from += stretch.n;
    }
}

void tt__elements_scatter(const tt_call *call, size_t from, size_t n, const void *src) {
    size_t size = tt_dtype_size(call->dtype), end = from + n;
    const unsigned char *data = src;
    while (from < end) {
        tt__stretch stretch = tt__elements_from(call, from, end);
        memcpy(stretch.at, data, stretch.n * size);
        data += stretch.n * size;
        from += stretch.n;
    }
}
