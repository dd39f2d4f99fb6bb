/* slices, for all_reduce and reduce: direct slice exchange. Rank r owns slice r of N: it receives all ranks' elements
 * of it, sums them in the one order, and sends the result to all (reduce: to the root).
 *
 * N ranks, n bytes. Long buffers go by segments, each cut into N slices: the exchange of one overlaps with handing out
 * the one before.
 *   steps              2
 *   bytes sent a rank  all_reduce 2 (N-1)/N n; reduce n
 *   reduced            n
 * The fewest bytes that an all_reduce can send, in two steps, but N-1 messages in each: for up to 64 ranks. It is a
 * reduce_scatter followed by an all_gather (Thakur, Rabenseifner, Gropp: Optimization of collective communication
 * operations in MPICH, 2005), both directly. */
#include "comm/collective/message/rounds.h"
#include "comm/reduce/reduce_tree.h"

#include "base/error.h"

typedef struct slices {
    tt__round_state rounds;
    uint64_t count, segment; /* elements: all; of a segment */
    uint64_t area;           /* bytes of a slice */
    unsigned char *areas;    /* (2, N) */
    unsigned char *result;   /* a slice, where it can't lie in the buffer */
    unsigned char *rounded;  /* the same before it is rounded */
    const unsigned char *leaves;
} slices;

static tt__partial slices_wire_of(const tt_work *work) { return tt__wire_of(&work->call, work->group->size); }

static bool slices_wants(const tt_work *work, int r) { return work->call.op != TT_OP_REDUCE || r == work->call.root; }

static tt_status slices_plan(tt_work *work) {
    slices *s = TT__STATE(slices, work);
    const tt__partial wire = slices_wire_of(work);
    const size_t ranks = (size_t)work->group->size, count = tt__operand_of(work).count;
    size_t segment = tt__segment(count, wire.size, 2) * 4;
    segment = count && count < segment ? count : segment;
    size_t area = TT__ALIGN_UP(tt__slice_of(segment, tt_dtype_size(wire.from), (int)ranks, 0).n * wire.size, 64);
    size_t scaled = wire.as_is ? 0 : TT__ALIGN_UP(count * wire.size, 64);
    TT__TRY(tt__machine_scratch(work, scaled + area * (2 * ranks + 2)));
    TT__TRY(tt__rounds_plan(work, tt__segments(count, segment) + 1, 4 * (uint32_t)ranks));
    s->count = count, s->segment = segment, s->area = area;
    s->areas = tt__machine_memory(work) + scaled;
    s->result = s->areas + 2 * area * ranks;
    s->rounded = s->result + area;
    s->leaves = tt__operand_of(work).data;
    if (!wire.as_is) {
        tt__partial_leaf(&wire, tt__machine_memory(work), s->leaves, count);
        s->leaves = tt__machine_memory(work);
    }
    return TT_OK;
}

static unsigned char *slices_area_of(const slices *s, const tt_work *work, uint32_t segment, int r) {
    return s->areas + ((segment & 1) * (size_t)work->group->size + (size_t)r) * s->area;
}

/* Return slice r of segment s, in elements of the whole buffer. */
static tt__slice slices_slice_of(const slices *s, const tt_work *work, uint32_t segment, int r) {
    size_t n = tt__segment_count(s->count, s->segment, segment);
    tt__slice slice = tt__slice_of(n, tt_dtype_size(work->call.dtype), work->group->size, r);
    slice.at += segment * s->segment;
    return slice;
}

static unsigned char *in_buffer(const tt_work *work, tt__slice slice) {
    return tt__operand_of(work).data + slice.at * tt_dtype_size(work->call.dtype);
}

/* Return where this rank's result of a segment lies until it is sent. */
static unsigned char *slices_result(const slices *s, const tt_work *work, uint32_t segment) {
    int rank = work->group->rank;
    return slices_wants(work, rank) ? in_buffer(work, slices_slice_of(s, work, segment, rank)) : s->result;
}

/* Send all slices of a segment to their owners. */
static void slices_early(tt_work *work, uint32_t round) {
    const slices *s = TT__STATE(slices, work);
    size_t size = slices_wire_of(work).size;
    tt__slice mine = slices_slice_of(s, work, round, work->group->rank);
    if (round + 1 == s->rounds.count)
        return;
    for (int i = 1; i < work->group->size; i++) {
        int to = tt__neighbour(work->group, i), from = tt__neighbour(work->group, -i);
        tt__slice theirs = slices_slice_of(s, work, round, to);
        tt__round_recv(work, round, from, 2 * round, slices_area_of(s, work, round, from), mine.n * size);
        tt__round_send(work, round, to, 2 * round, s->leaves + theirs.at * size, theirs.n * size);
    }
}

/* Send the results of the segment before. */
static void slices_post(tt_work *work, uint32_t round) {
    const slices *s = TT__STATE(slices, work);
    size_t size = tt_dtype_size(work->call.dtype);
    if (!round)
        return;
    tt__slice mine = slices_slice_of(s, work, round - 1, work->group->rank);
    for (int i = 1; i < work->group->size; i++) {
        int to = tt__neighbour(work->group, i), from = tt__neighbour(work->group, -i);
        tt__slice theirs = slices_slice_of(s, work, round - 1, from);
        if (slices_wants(work, work->group->rank))
            tt__round_recv(work, round, from, 2 * round - 1, in_buffer(work, theirs), theirs.n * size);
        if (slices_wants(work, to))
            tt__round_send(work, round, to, 2 * round - 1, slices_result(s, work, round - 1), mine.n * size);
    }
}

static void slices_take(tt_work *work, uint32_t round) {
    const slices *s = TT__STATE(slices, work);
    const tt__partial wire = slices_wire_of(work);
    const void *src[TT__DIRECT_RANKS];
    int rank = work->group->rank;
    tt__slice mine = slices_slice_of(s, work, round, rank);
    if (round + 1 == s->rounds.count || !mine.n)
        return;
    for (int r = 0; r < work->group->size; r++)
        src[r] = slices_area_of(s, work, round, r);
    src[rank] = s->leaves + mine.at * wire.size;
    bool round_off = wire.dtype != wire.from;
    void *dst = round_off ? s->rounded : slices_result(s, work, round);
    tt__reduce_tree(&dst, 1, src, work->group->size, mine.n, wire.dtype, wire.op);
    if (round_off)
        tt__partial_finish(&wire, slices_result(s, work, round), s->rounded, mine.n);
}

static tt__next slices_next(tt_work *work) {
    static const tt__rounds rounds = {
        .plan = slices_plan, .early = slices_early, .post = slices_post, .take = slices_take};
    return tt__rounds_next(work, &rounds);
}

static bool slices_serves(const tt_group *group, const tt_call *call) {
    (void)call;
    return group->size <= TT__DIRECT_RANKS;
}

const tt__algorithm tt__all_reduce_slices = {"slices", TT_OP_ALL_REDUCE, .serves = slices_serves, .next = slices_next};
const tt__algorithm tt__reduce_slices = {"slices", TT_OP_REDUCE, .serves = slices_serves, .next = slices_next};
