/* ring, for all_reduce: pieces travel around and grow (reduce_scatter), then the finished ones travel around once more
 * (all_gather).
 *
 * N ranks, n bytes in N pieces (w: of the same as partial results; 2 n for f16 and bf16, else n).
 *   steps              2 (N-1)
 *   bytes sent a rank  (N-1)/N (w + n)
 *   reduced            (N-1)/N w
 * Each rank talks to its two neighbours alone. Piece c is summed from rank c on around the ring, an order of its own
 * for each: results differ in the last bits from those of all other algorithms (they are the same on all ranks), so it
 * is never chosen unless it is named. Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of
 * workstations, 2009. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

typedef struct ring {
    tt__round_state rounds;
    uint64_t count;
    uint64_t area;          /* bytes of a piece of partial results */
    unsigned char *sum;     /* (count) partial results: the buffer itself, where a partial result is an element */
    unsigned char *landing; /* (2) pieces */
} ring;

static tt__partial ring_partial_of(const tt_work *work) { return tt__partial_of(&work->call, work->group->size); }

static tt__slice piece_of(const ring *a, const tt_work *work, uint32_t round, int places_back) {
    int ranks = work->group->size, piece = tt__neighbour(work->group, -(int)(round % (uint32_t)ranks) - places_back);
    return tt__slice_of(a->count, tt_dtype_size(work->call.dtype), ranks, piece);
}

static tt_status ring_plan(tt_work *work) {
    ring *a = TT__STATE(ring, work);
    const tt__partial partial = ring_partial_of(work);
    tt__operand operand = tt__operand_of(work);
    int ranks = work->group->size;
    bool in_place = partial.dtype == partial.from;
    size_t area = TT__ALIGN_UP(tt__slice_of(operand.count, tt_dtype_size(partial.from), ranks, 0).n * partial.size, 64);
    TT__TRY(tt__machine_scratch(work, 2 * area + (in_place ? 0 : operand.count * partial.size)));
    TT__TRY(tt__rounds_plan(work, 2 * (uint32_t)(ranks - 1), 2));
    operand = tt__operand_of(work);
    a->count = operand.count, a->area = area;
    a->landing = tt__machine_memory(work);
    a->sum = in_place ? operand.data : a->landing + 2 * area;
    tt__partial_leaf(&partial, a->sum, operand.data, operand.count);
    return TT_OK;
}

static bool is_reducing(const ring *a, uint32_t round) { return round < a->rounds.count / 2; }

/* Round s: piece rank-s goes on, piece rank-s-1 arrives. On the second way round it is one place further. */
static void ring_early(tt_work *work, uint32_t round) {
    const ring *a = TT__STATE(ring, work);
    if (!is_reducing(a, round))
        return;
    tt__slice piece = piece_of(a, work, round, 1);
    tt__round_recv(work, round, tt__neighbour(work->group, -1), round, a->landing + (round & 1) * a->area,
                   piece.n * ring_partial_of(work).size);
}

static void ring_post(tt_work *work, uint32_t round) {
    const ring *a = TT__STATE(ring, work);
    int ring_next = tt__neighbour(work->group, 1), previous = tt__neighbour(work->group, -1);
    tt__slice mine = piece_of(a, work, round, 0);
    if (is_reducing(a, round)) {
        size_t size = ring_partial_of(work).size;
        tt__round_send(work, round, ring_next, round, a->sum + mine.at * size, mine.n * size);
        return;
    }
    unsigned char *data = tt__operand_of(work).data;
    size_t size = tt_dtype_size(work->call.dtype);
    tt__slice theirs = piece_of(a, work, round, 1);
    tt__round_recv(work, round, previous, round, data + theirs.at * size, theirs.n * size);
    tt__round_send(work, round, ring_next, round, data + mine.at * size, mine.n * size);
}

static void ring_take(tt_work *work, uint32_t round) {
    const ring *a = TT__STATE(ring, work);
    const tt__partial partial = ring_partial_of(work);
    if (!is_reducing(a, round))
        return;
    tt__slice piece = piece_of(a, work, round, 1);
    unsigned char *mine = a->sum + piece.at * partial.size;
    tt__partial_join(&partial, mine, a->landing + (round & 1) * a->area, mine, piece.n);
    if (round + 1 == a->rounds.count / 2)
        tt__partial_finish(&partial, tt__operand_of(work).data + piece.at * tt_dtype_size(partial.from), mine, piece.n);
}

static tt__next ring_next(tt_work *work) {
    static const tt__rounds rounds = {.plan = ring_plan, .early = ring_early, .post = ring_post, .take = ring_take};
    return tt__rounds_next(work, &rounds);
}

const tt__algorithm tt__all_reduce_ring = {"ring", TT_OP_ALL_REDUCE, .own_order = true, .next = ring_next};
