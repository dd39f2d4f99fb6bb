/* all_reduce_coalesced on shared memory: the all_reduce of all buffers' elements as if they lay one after the other.
 *
 *   up to TT__INLINE_MAX bytes in all   packed, with the arrival words
 *   all symmetric on all ranks          where each buffer lies travels with the arrival word; each rank reduces its
 *                                       slice in place
 *   else                                reduce_staged.c */
#include "comm/collective/shared/shared_algorithms.h"

#include <string.h>

/* A stretch of elements in one buffer. */
typedef struct tt__stretch {
    unsigned char *at;
    size_t n;      /* elements; 0: none are left */
    size_t buffer; /* its number */
    size_t within; /* index in that buffer of the first */
} tt__stretch;

/* Return elements from..end-1, or as many of them as lie in one buffer with the first. */
static tt__stretch elements_from(const tt_call *call, size_t from, size_t end) {
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
    tt__stretch stretch = elements_from(call, from, from + n);
    return stretch.n == n ? stretch.at : NULL;
}

void tt__elements_gather(const tt_call *call, size_t from, size_t n, void *dst) {
    size_t size = tt_dtype_size(call->dtype), end = from + n;
    unsigned char *to = dst;
    while (from < end) {
        tt__stretch stretch = elements_from(call, from, end);
        memcpy(to, stretch.at, stretch.n * size);
        to += stretch.n * size;
        from += stretch.n;
    }
}

void tt__elements_scatter(const tt_call *call, size_t from, size_t n, const void *src) {
    size_t size = tt_dtype_size(call->dtype), end = from + n;
    const unsigned char *data = src;
    while (from < end) {
        tt__stretch stretch = elements_from(call, from, end);
        memcpy(stretch.at, data, stretch.n * size);
        data += stretch.n * size;
        from += stretch.n;
    }
}

enum { MOST_PLACES = TT__INLINE_MAX / sizeof(uint64_t) };

static size_t coalesced_bytes_of(const tt_work *work) { return work->call.count * tt_dtype_size(work->call.dtype); }

/* List where the buffers lie in this rank's memory; false if they are too many or one of them is plain. */
static bool list_places(const tt_work *work, uint64_t *places) {
    const tt_call *call = &work->call;
    const tt_group *group = work->group;
    if (call->buffers > MOST_PLACES)
        return false;
    for (int64_t b = 0; b < call->buffers; b++) {
        size_t bytes = call->recv_counts[b] * tt_dtype_size(call->dtype);
        if (bytes && !tt__in_heap(group->native->world, call->bufs[b], bytes))
            return false;
        places[b] = bytes ? (uint64_t)((unsigned char *)call->bufs[b] - group->native->bases[group->rank]) : 0;
    }
    return true;
}

/* Offer the first buffer that has elements, to mark the call as symmetric. */
static void offer_places(const tt_work *work, tt__offer *offer, const void *places) {
    const tt_call *call = &work->call;
    tt__stretch first = elements_from(call, 0, call->count);
    *offer = (tt__offer){.payload = places,
                         .bytes = call->buffers * sizeof(uint64_t),
                         .symmetric = first.at,
                         .extent = first.n * tt_dtype_size(call->dtype)};
}

void tt__coalesced_offer(const tt_work *work, tt__offer *offer, void *room) {
    if (coalesced_bytes_of(work) <= TT__INLINE_MAX) {
        tt__elements_gather(&work->call, 0, work->call.count, room);
        *offer = (tt__offer){.payload = room, .bytes = coalesced_bytes_of(work)};
    } else if (list_places(work, room)) {
        offer_places(work, offer, room);
    }
}

/* Return where rank r has a stretch of this rank's elements, the first of them number `from` of all: in place, or
 * packed in its payload. */
static void *stretch_of(const tt_work *work, int r, const tt__stretch *stretch, size_t from, bool in_place) {
    const tt_group *group = work->group;
    size_t size = tt_dtype_size(work->call.dtype);
    if (!in_place)
        return (unsigned char *)tt__payload(group, r, work->seq, coalesced_bytes_of(work)) + from * size;
    if (r == group->rank)
        return stretch->at;
    const uint64_t *places = tt__payload(group, r, work->seq, work->call.buffers * sizeof *places);
    return group->native->bases[r] + places[stretch->buffer] + stretch->within * size;
}

/* Reduce elements from..end-1, one stretch at a time. */
static void reduce_stretches(const tt_work *work, size_t from, size_t end, bool in_place) {
    const tt_group *group = work->group;
    const tt_call *call = &work->call;
    void *at[TT__MAX_HOST_RANKS];
    double factors[TT__MAX_HOST_RANKS];
    for (int r = 0; r < group->size; r++)
        factors[r] = tt__factor(group, r, work->seq);
    while (from < end) {
        tt__stretch stretch = elements_from(call, from, end);
        for (int r = 0; r < group->size; r++)
            at[r] = stretch_of(work, r, &stretch, from, in_place);
        tt__reduce_tree_scaled(in_place ? at : &(void *){stretch.at}, in_place ? group->size : 1,
                               (const void *const *)at, factors, group->size, stretch.n, call->dtype, call->reduce_op);
        from += stretch.n;
    }
}

static bool fits_inline(const tt_work *work) { return coalesced_bytes_of(work) <= TT__INLINE_MAX; }

static tt__next next_inline(tt_work *work) {
    reduce_stretches(work, 0, work->call.count, false);
    return TT__NEXT_DONE;
}

/* May the buffers be read in place? A group of one rank has no peers to read them. */
static bool is_symmetric(const tt_work *work) { return work->symmetric || work->group->size == 1; }

static tt__next next_symmetric(tt_work *work) {
    const tt_group *group = work->group;
    if (work->stage++)
        return TT__NEXT_DONE;
    uint32_t step = tt__plan_steps(work->group, 1) + 1;
    tt__slice slice = tt__slice_of(work->call.count, tt_dtype_size(work->call.dtype), group->size, group->rank);
    reduce_stretches(work, slice.at, slice.at + slice.n, true);
    tt__finish_step(work->group, step);
    return tt__work_wait_last(work, step);
}

const tt__algorithm tt__coalesced_inline = {.name = "inline",
                                            .op = TT_OP_ALL_REDUCE_COALESCED,
                                            .shared = true,
                                            .serves_words = fits_inline,
                                            .next = next_inline};
const tt__algorithm tt__coalesced_symmetric = {.name = "symmetric",
                                               .op = TT_OP_ALL_REDUCE_COALESCED,
                                               .shared = true,
                                               .serves_words = is_symmetric,
                                               .next = next_symmetric};
