/* direct, for all_reduce, reduce and reduce_scatter: every rank that wants a result receives all ranks' elements of it
 * and sums them itself.
 *
 * N ranks; n: bytes of the result a rank wants (all_reduce, reduce: the buffer; reduce_scatter: one part). Long ones go
 * by segments, whose messages overlap.
 *   steps              1
 *   bytes sent a rank  all_reduce (N-1) n; reduce n (root: 0); reduce_scatter (N-1) n
 *   reduced            N n wherever there is a result
 * The fewest steps there are. For two ranks all_reduce sends no more bytes than any other algorithm; for reduce_scatter
 * that holds for any number of ranks. Leaves arrive unrounded and unscaled, so the order and rounding of reduce_tree.c
 * need nothing special; only the factor of a premultiplied sum is known to its own rank alone, which scales and widens
 * before it sends. */
#include "comm/collective/message/rounds.h"
#include "comm/reduce/reduce_tree.h"

#include "base/error.h"

typedef struct direct {
    tt__round_state rounds;
    uint64_t count, segment; /* elements of a result, of a segment */
    uint64_t area;           /* bytes of one rank's received segment */
    unsigned char *areas;    /* (2, N) */
    unsigned char *rounded;  /* a segment's result before it is rounded; NULL: needs none */
    const unsigned char *leaves;
} direct;

static tt__partial direct_wire_of(const tt_work *work) { return tt__wire_of(&work->call, work->group->size); }

static bool direct_wants(const tt_work *work, int r) { return work->call.op != TT_OP_REDUCE || r == work->call.root; }

/* Return where rank r's result begins among the leaves, in elements. */
static size_t direct_begin_of(const tt_work *work, int r) {
    return work->call.op == TT_OP_REDUCE_SCATTER ? (size_t)r * work->call.count : 0;
}

static const unsigned char *own_leaves(const tt_work *work) {
    return work->call.op == TT_OP_REDUCE_SCATTER ? work->call.send : tt__operand_of(work).data;
}

static tt_status direct_plan(tt_work *work) {
    direct *d = TT__STATE(direct, work);
    const tt__partial wire = direct_wire_of(work);
    int ranks = work->group->size;
    size_t count = tt__operand_of(work).count,
           all = direct_begin_of(work, ranks) ? direct_begin_of(work, ranks) : count;
    size_t segment = tt__segment(count, wire.size, 2 * ranks), area = TT__ALIGN_UP(segment * wire.size, 64);
    size_t scaled = wire.as_is ? 0 : TT__ALIGN_UP(all * wire.size, 64);
    TT__TRY(tt__machine_scratch(work, scaled + area * (2 * (size_t)ranks + 1)));
    TT__TRY(tt__rounds_plan(work, tt__segments(count, segment), 2 * (uint32_t)ranks));
    d->count = count, d->segment = segment, d->area = area;
    d->areas = tt__machine_memory(work) + scaled;
    d->rounded = wire.dtype == wire.from ? NULL : d->areas + 2 * area * (size_t)ranks;
    d->leaves = own_leaves(work);
    if (!wire.as_is) {
        tt__partial_leaf(&wire, tt__machine_memory(work), d->leaves, all);
        d->leaves = tt__machine_memory(work);
    }
    return TT_OK;
}

static unsigned char *direct_area_of(const direct *d, const tt_work *work, uint32_t round, int r) {
    return d->areas + ((round & 1) * (size_t)work->group->size + (size_t)r) * d->area;
}

static void direct_early(tt_work *work, uint32_t round) {
    const direct *d = TT__STATE(direct, work);
    size_t size = direct_wire_of(work).size, n = tt__segment_count(d->count, d->segment, round) * size;
    for (int i = 1; i < work->group->size; i++) {
        int to = tt__neighbour(work->group, i), from = tt__neighbour(work->group, -i);
        if (direct_wants(work, work->group->rank))
            tt__round_recv(work, round, from, round, direct_area_of(d, work, round, from), n);
        if (direct_wants(work, to))
            tt__round_send(work, round, to, round, d->leaves + (direct_begin_of(work, to) + round * d->segment) * size,
                           n);
    }
}

static void direct_take(tt_work *work, uint32_t round) {
    const direct *d = TT__STATE(direct, work);
    const tt__partial wire = direct_wire_of(work);
    const void *src[TT__DIRECT_RANKS];
    size_t n = tt__segment_count(d->count, d->segment, round), at = round * d->segment;
    if (!direct_wants(work, work->group->rank) || !n)
        return;
    for (int r = 0; r < work->group->size; r++)
        src[r] = direct_area_of(d, work, round, r);
    src[work->group->rank] = d->leaves + (direct_begin_of(work, work->group->rank) + at) * wire.size;
    unsigned char *result = work->call.op == TT_OP_REDUCE_SCATTER ? work->call.recv : tt__operand_of(work).data;
    result += at * tt_dtype_size(wire.from);
    void *dst = d->rounded ? d->rounded : result;
    tt__reduce_tree(&dst, 1, src, work->group->size, n, wire.dtype, wire.op);
    if (d->rounded)
        tt__partial_finish(&wire, result, d->rounded, n);
}

static tt__next direct_next(tt_work *work) {
    static const tt__rounds rounds = {.plan = direct_plan, .early = direct_early, .take = direct_take};
    return tt__rounds_next(work, &rounds);
}

static bool direct_serves(const tt_group *group, const tt_call *call) {
    (void)call;
    return group->size <= TT__DIRECT_RANKS;
}

const tt__algorithm tt__all_reduce_direct = {"direct", TT_OP_ALL_REDUCE, .serves = direct_serves, .next = direct_next};
const tt__algorithm tt__reduce_direct = {"direct", TT_OP_REDUCE, .serves = direct_serves, .next = direct_next};
const tt__algorithm tt__reduce_scatter_direct = {"direct", TT_OP_REDUCE_SCATTER, .serves = direct_serves,
                                                 .next = direct_next};
