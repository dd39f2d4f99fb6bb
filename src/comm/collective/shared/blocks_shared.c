/* Blocks on shared memory: gather, scatter, all_gather, all_gather_v, all_to_all, all_to_all_v and reduce_scatter by
 * one algorithm. Rank s, a source, has a block for rank d, which copies it to its place; in a reduce_scatter, it
 * reduces the blocks of all sources.
 *
 * How a source's blocks travel, known to all from the call and the arrival words:
 *   INLINE    all of them, up to TT__INLINE_MAX bytes, with the arrival word
 *   IN_PLACE  the source's buffer is symmetric: read where it lies; the source waits until all have
 *   STAGED    in pieces through the source's staging memory: a piece is one lane for all ranks where all get the same,
 *             else a lane for each
 *
 * Steps of piece c: 2c+1 "my piece lies ready", 2c+2 "I have read everybody's"; after the pieces, one for all that was
 * read in place. A source is up to TT__STAGE_DEPTH pieces ahead of its slowest reader. Per rank of N that gives and
 * takes n bytes: INLINE 1 synchronisation, n copied in, n out; IN_PLACE 2, n copied; STAGED 1 a piece, n copied in, n
 * out. */
#include "base/error.h"
#include "comm/collective/shared/shared_algorithms.h"
#include "comm/shared/placement.h"

#include <string.h>

typedef enum kind { NOTHING, INLINE, IN_PLACE, STAGED } kind;

enum stage { START, ROOM, FILL, TAKE, FINISH, DONE };

typedef struct state {
    uint32_t base;   /* step before the first */
    uint32_t pieces; /* of the largest staged block */
    uint32_t piece;  /* the current one */
    bool in_place;   /* some source is IN_PLACE */
} state;

/* ---- who has what for whom */

static bool has_one_source(tt_op op) { return op == TT_OP_BROADCAST || op == TT_OP_SCATTER; }

/* Does a source have the same block for all ranks? */
static bool is_same(tt_op op) {
    return op == TT_OP_BROADCAST || op == TT_OP_GATHER || op == TT_OP_ALL_GATHER || op == TT_OP_ALL_GATHER_V;
}

/* Bytes of the header that every rank of an all_to_all_v publishes, (3, world) numbers of elements: sent, where they
 * begin, expected. It never fits a slot's near part. */
static size_t header_bytes(const tt_work *work) {
    size_t bytes = 3 * sizeof(uint64_t) * (size_t)work->group->size;
    return work->call.op != TT_OP_ALL_TO_ALL_V ? 0 : bytes < 64 ? 64 : bytes;
}

static const uint64_t *header_of(const tt_work *work, int s) {
    return tt__payload(work->group, s, work->seq, TT__INLINE_MAX);
}

static size_t unit_bytes(const tt_work *work) { return work->call.count * tt_dtype_size(work->call.dtype); }

/* Return the bytes of the block from s to d. */
static size_t blocks_block_bytes(const tt_work *work, int s, int d) {
    const tt_call *call = &work->call;
    if ((has_one_source(call->op) && s != call->root) || (call->op == TT_OP_GATHER && d != call->root) ||
        (call->op == TT_OP_BROADCAST && s == d))
        return 0;
    if (call->op == TT_OP_ALL_GATHER_V)
        return call->recv_counts[s] * tt_dtype_size(call->dtype);
    if (call->op == TT_OP_ALL_TO_ALL_V)
        return header_of(work, s)[d] * tt_dtype_size(call->dtype);
    return unit_bytes(work);
}

/* Return where in the buffer of s the block for d begins. */
static size_t block_at(const tt_work *work, int s, int d) {
    if (work->call.op == TT_OP_ALL_TO_ALL_V)
        return header_of(work, s)[work->group->size + d] * tt_dtype_size(work->call.dtype);
    return is_same(work->call.op) ? 0 : (size_t)d * unit_bytes(work);
}

/* Return where in this rank's `recv` the block from s belongs. */
static unsigned char *blocks_place_of(const tt_work *work, int s) {
    const tt_call *call = &work->call;
    size_t at = has_one_source(call->op) ? 0 : (size_t)s * call->count;
    if (call->op == TT_OP_ALL_GATHER_V || call->op == TT_OP_ALL_TO_ALL_V)
        at = call->recv_offsets[s];
    return (unsigned char *)call->recv + at * tt_dtype_size(call->dtype);
}

/* Count the bytes that s sends to others or itself; one block for all counts once. `sent`: of an all_to_all_v, the
 * elements for each rank. */
static size_t source_bytes(const tt_work *work, int s, const uint64_t *sent) {
    const tt_call *call = &work->call;
    size_t size = tt_dtype_size(call->dtype), count = 0;
    if ((has_one_source(call->op) && s != call->root) || (call->op == TT_OP_GATHER && s == call->root))
        return 0;
    if (call->op == TT_OP_ALL_GATHER_V)
        return call->recv_counts[s] * size;
    if (call->op != TT_OP_ALL_TO_ALL_V)
        return unit_bytes(work) * (is_same(call->op) ? 1 : (size_t)work->group->size);
    for (int d = 0; d < work->group->size; d++)
        count += sent[d];
    return count * size;
}

static kind block_kind(const tt_work *work, int s) {
    size_t bytes = source_bytes(work, s, header_of(work, s)), header = header_bytes(work);
    if (!bytes)
        return NOTHING;
    if (bytes <= TT__INLINE_MAX - header)
        return INLINE;
    return tt__is_symmetric(work->group, s, work->seq) ? IN_PLACE : STAGED;
}

/* Return the block from s to this rank, which came with the arrival word, where blocks lie one after the other. */
static const unsigned char *inline_block(const tt_work *work, int s) {
    size_t header = header_bytes(work), at = header;
    for (int d = 0; d < work->group->rank && !is_same(work->call.op); d++)
        at += blocks_block_bytes(work, s, d);
    return (const unsigned char *)tt__payload(work->group, s, work->seq,
                                              header + source_bytes(work, s, header_of(work, s))) +
           at;
}

/* ---- what is published before other ranks have arrived */

/* Offer the header, and behind it the blocks if they fit. */
static void offer_uneven(const tt_work *work, tt__offer *offer, uint64_t *lists) {
    const tt_call *call = &work->call;
    size_t n = (size_t)work->group->size, size = tt_dtype_size(call->dtype), header = header_bytes(work);
    for (size_t d = 0; d < n; d++) {
        lists[d] = call->send_counts[d];
        lists[n + d] = call->send_offsets[d];
        lists[2 * n + d] = call->recv_counts[d];
    }
    size_t bytes = source_bytes(work, work->group->rank, lists);
    offer->payload = lists;
    offer->bytes = header;
    for (size_t d = 0; d < n && bytes <= TT__INLINE_MAX - header; d++) {
        if (lists[d])
            memcpy((unsigned char *)lists + offer->bytes, (const unsigned char *)call->send + lists[n + d] * size,
                   lists[d] * size);
        offer->bytes += lists[d] * size;
    }
}

/* Return the bytes from the buffer's beginning to the end of its last block. */
static size_t extent_of(const tt_work *work) {
    const tt_call *call = &work->call;
    size_t extent = 0, end;
    if (call->op != TT_OP_ALL_TO_ALL_V)
        return source_bytes(work, work->group->rank, NULL);
    for (int d = 0; d < work->group->size; d++)
        if (call->send_counts[d] && (end = call->send_offsets[d] + call->send_counts[d]) > extent)
            extent = end;
    return extent * tt_dtype_size(call->dtype);
}

void tt__blocks_offer(const tt_work *work, tt__offer *offer, void *room) {
    offer->extent = extent_of(work);
    if (offer->extent)
        offer->symmetric = work->call.send;
    if (work->call.op == TT_OP_ALL_TO_ALL_V)
        offer_uneven(work, offer, room);
    else if (offer->extent <= TT__INLINE_MAX)
        *offer = (tt__offer){.payload = work->call.send, .bytes = offer->extent};
}

/* ---- taking blocks */

/* Copy `n` bytes, from byte `at` on, of the block from s to their place. This rank's own may lie there already. */
static void place_bytes(const tt_work *work, int s, size_t at, const unsigned char *from, size_t n) {
    unsigned char *to = blocks_place_of(work, s) + at;
    if (n && to != from)
        memcpy(to, from, n);
}

/* Return where the block from s to this rank can be read whole; NULL if it is staged or there is none. */
static const unsigned char *block_from(const tt_work *work, int s) {
    int me = work->group->rank;
    if (s == me)
        return (const unsigned char *)work->call.send + block_at(work, s, me);
    switch (block_kind(work, s)) {
    case INLINE:
        return inline_block(work, s);
    case IN_PLACE:
        return (const unsigned char *)tt__symmetric(work->group, s, work->seq) + block_at(work, s, me);
    default:
        return NULL;
    }
}

/* Copy all blocks that are not staged. */
static void take_whole_blocks(const tt_work *work) {
    tt_group *group = work->group;
    const uint8_t *order = tt__peer_order(group, unit_bytes(work));
    for (int i = 0; i < group->size; i++) {
        int s = order[i];
        size_t bytes = blocks_block_bytes(work, s, group->rank);
        const unsigned char *from = bytes ? block_from(work, s) : NULL;
        if (from)
            place_bytes(work, s, 0, from, bytes);
    }
}

/* ---- pieces */

static size_t lane_bytes(const tt_work *work) {
    return is_same(work->call.op) ? TT__STAGE_BYTES : (TT__STAGE_BYTES / (size_t)work->group->size) & ~(size_t)63;
}

static unsigned char *lane_of(const tt_work *work, int s, int d, uint32_t piece) {
    return tt__stage(work->group, s, piece) + (is_same(work->call.op) ? 0 : (size_t)d * lane_bytes(work));
}

/* Return the bytes of a piece of a block of `bytes`, and where it begins in the block. */
static size_t in_piece(const tt_work *work, size_t bytes, uint32_t piece, size_t *at) {
    size_t most = lane_bytes(work);
    *at = (size_t)piece * most;
    return *at >= bytes ? 0 : bytes - *at < most ? bytes - *at : most;
}

static void fill_lanes(const tt_work *work, uint32_t piece) {
    int me = work->group->rank;
    for (int d = 0; d < work->group->size; d++) {
        size_t at, n = in_piece(work, blocks_block_bytes(work, me, d), piece, &at);
        if (d == me || !n)
            continue;
        memcpy(lane_of(work, me, d, piece), (const unsigned char *)work->call.send + block_at(work, me, d) + at, n);
        if (is_same(work->call.op))
            return;
    }
}

static void take_lanes(const tt_work *work, uint32_t piece) {
    int me = work->group->rank;
    const uint8_t *order = tt__peer_order(work->group, TT__STAGE_BYTES);
    for (int i = 0; i + 1 < work->group->size; i++) {
        int s = order[i];
        size_t at, n = in_piece(work, blocks_block_bytes(work, s, me), piece, &at);
        if (n && block_kind(work, s) == STAGED)
            place_bytes(work, s, at, lane_of(work, s, me, piece), n);
    }
}

/* Reduce this rank's part, bytes at..at+n-1 of it, over all sources; staged ones have them in `piece`. */
static void reduce_blocks(const tt_work *work, uint32_t piece, size_t at, size_t n) {
    const void *src[TT__MAX_HOST_RANKS];
    double factors[TT__MAX_HOST_RANKS];
    tt_group *group = work->group;
    for (int s = 0; s < group->size; s++) {
        const unsigned char *whole = block_from(work, s);
        src[s] = whole ? whole + at : lane_of(work, s, group->rank, piece);
        factors[s] = tt__factor(group, s, work->seq);
    }
    if (n)
        tt__reduce_tree_scaled(&(void *){(unsigned char *)work->call.recv + at}, 1, src, factors, group->size,
                               n / tt_dtype_size(work->call.dtype), work->call.dtype, work->call.reduce_op);
}

static void take_piece(const tt_work *work, uint32_t piece) {
    size_t at, n = in_piece(work, unit_bytes(work), piece, &at);
    if (work->call.op == TT_OP_REDUCE_SCATTER)
        reduce_blocks(work, piece, at, n);
    else
        take_lanes(work, piece);
}

/* ---- the machine */

/* Compare the headers. All ranks read the same ones, so they come to the same result. */
static tt_status check_uneven(const tt_work *work) {
    int n = work->group->size;
    for (int s = 0; s < n; s++)
        for (int d = 0; d < n; d++) {
            uint64_t sent = header_of(work, s)[d], expected = header_of(work, d)[2 * n + s];
            if (sent != expected)
                return tt__fail(TT_ERR_MISMATCH,
                                "all_to_all_v: rank %d sends %llu elements to rank %d, which expects %llu from it",
                                work->group->ranks[s], (unsigned long long)sent, work->group->ranks[d],
                                (unsigned long long)expected);
        }
    return TT_OK;
}

static void blocks_plan(tt_work *work, state *x) {
    int n = work->group->size;
    size_t largest = 0;
    for (int s = 0; s < n; s++) {
        kind how = block_kind(work, s);
        x->in_place |= how == IN_PLACE;
        for (int d = 0; d < n && how == STAGED; d++) {
            size_t bytes = d == s ? 0 : blocks_block_bytes(work, s, d);
            largest = bytes > largest ? bytes : largest;
        }
    }
    x->pieces = (uint32_t)((largest + lane_bytes(work) - 1) / lane_bytes(work));
    x->base = tt__plan_steps(work->group, 2 * x->pieces + x->in_place);
}

static tt_status blocks_start(tt_work *work, state *x) {
    *x = (state){0};
    if (work->call.op == TT_OP_ALL_TO_ALL_V)
        TT__TRY(check_uneven(work));
    blocks_plan(work, x);
    if (work->call.op != TT_OP_REDUCE_SCATTER)
        take_whole_blocks(work);
    else if (!x->pieces)
        reduce_blocks(work, 0, 0, unit_bytes(work));
    work->stage = x->pieces ? ROOM : FINISH;
    return TT_OK;
}

/* Wait until the readers of this rank's buffer have finished. In calls with a root only the root reads, or is read. */
static tt__next wait_for_readers(tt_work *work, uint32_t step) {
    int root = work->call.root;
    return work->call.op == TT_OP_GATHER ? tt__work_wait_ranks(work, step, root, root + 1)
                                         : tt__work_wait_steps(work, step);
}

static tt__next wait_for_sources(tt_work *work, uint32_t step) {
    int root = work->call.root;
    return has_one_source(work->call.op) ? tt__work_wait_ranks(work, step, root, root + 1)
                                         : tt__work_wait_steps(work, step);
}

static bool reads_lanes(const tt_work *work) {
    tt_op op = work->call.op;
    bool is_root = work->group->rank == work->call.root;
    return !(has_one_source(op) && is_root) && !(op == TT_OP_GATHER && !is_root);
}

/* Must this rank wait before it stages the next piece? The piece TT__STAGE_DEPTH before it, in the same place, must
 * have been read. */
static bool has_to_wait_for_room(tt_work *work, const state *x) {
    return x->piece >= TT__STAGE_DEPTH && block_kind(work, work->group->rank) == STAGED;
}

static void blocks_fill(tt_work *work, const state *x) {
    if (block_kind(work, work->group->rank) == STAGED)
        fill_lanes(work, x->piece);
    tt__finish_step(work->group, x->base + 2 * x->piece + 1);
}

static void blocks_take(tt_work *work, state *x) {
    take_piece(work, x->piece);
    tt__finish_step(work->group, x->base + 2 * x->piece + 2);
    x->piece++;
}

static tt__next blocks_finish(tt_work *work, const state *x) {
    uint32_t last = x->base + 2 * x->pieces + 1;
    if (!x->in_place)
        return TT__NEXT_DONE;
    tt__finish_step(work->group, last);
    return block_kind(work, work->group->rank) == IN_PLACE ? tt__work_wait_last(work, last) : TT__NEXT_DONE;
}

static tt__next blocks_next(tt_work *work) {
    state *x = TT__STATE(state, work);
    for (;;)
        switch ((enum stage)work->stage) {
        case START:
            if (blocks_start(work, x))
                return TT__NEXT_FAILED;
            break;
        case ROOM:
            work->stage = FILL;
            if (has_to_wait_for_room(work, x))
                return wait_for_readers(work, x->base + 2 * (x->piece - TT__STAGE_DEPTH) + 2);
            break;
        case FILL:
            blocks_fill(work, x);
            work->stage = TAKE;
            if (reads_lanes(work))
                return wait_for_sources(work, x->base + 2 * x->piece + 1);
            break;
        case TAKE:
            blocks_take(work, x);
            work->stage = x->piece < x->pieces ? ROOM : FINISH;
            break;
        case FINISH:
            work->stage = DONE;
            return blocks_finish(work, x);
        case DONE:
            return TT__NEXT_DONE;
        }
}

#define BLOCKS(which, which_op) \
    const tt__algorithm tt__##which##_blocks = {.name = "blocks", .op = which_op, .shared = true, .next = blocks_next}
BLOCKS(gather, TT_OP_GATHER);
BLOCKS(scatter, TT_OP_SCATTER);
BLOCKS(all_gather, TT_OP_ALL_GATHER);
BLOCKS(all_gather_v, TT_OP_ALL_GATHER_V);
BLOCKS(all_to_all, TT_OP_ALL_TO_ALL);
BLOCKS(all_to_all_v, TT_OP_ALL_TO_ALL_V);
BLOCKS(reduce_scatter, TT_OP_REDUCE_SCATTER);
BLOCKS(broadcast, TT_OP_BROADCAST);
