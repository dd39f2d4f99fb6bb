/* hierarchical, for reduce_scatter: hosts reduce first, in shared memory, so that only sums go between them.
 *
 * H hosts of L ranks, numbered host by host; parts of m bytes (w: of the same as partial results; 2 m for f16 and bf16,
 * else m).
 *   inside, once for every host   a reduce_scatter of its ranks' parts: rank number l of this host gets that of rank
 *                                 number l of that host
 *   between                       a reduce_scatter of these H sums among the ranks with the same number
 *   steps between hosts   those of a reduce_scatter among H
 *   bytes between hosts   (H-1) L w sent a host; flat algorithms send L times m for every w
 * Not for 16-bit floats of two ranks a host, whose sum is as long as they are. Up to TT__PACK_MAX bytes, and where
 * leaves have to be scaled or widened, which copies them anyway, a single call inside does for all hosts. */
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/rounds.h"

#include "base/error.h"

typedef struct state {
    const unsigned char *leaves;
    unsigned char *sums;   /* (H): this host's, of the ranks with this rank's number */
    unsigned char *result; /* before it is rounded; the caller's buffer where nothing is rounded */
    uint64_t part;         /* bytes */
    int calls;             /* inside */
    bool packed;           /* leaves are ordered by number, then by host */
} state;

static tt__partial hier_reduce_scatter_partial_of(const tt_work *work) {
    return tt__partial_of(&work->call, work->group->size);
}

static const unsigned char *own_part(const tt_work *work, int r) {
    return (const unsigned char *)work->call.send + (size_t)r * work->call.count * tt_dtype_size(work->call.dtype);
}

static void hier_reduce_scatter_pack(const tt_work *work, const tt__partial *partial, unsigned char *to) {
    const tt_group *group = work->group;
    for (int l = 0; l < group->native->local->size; l++)
        for (int h = 0; h < group->native->cross->size; h++, to += work->call.count * partial->size)
            tt__partial_leaf(partial, to, own_part(work, tt__rank_on(group, h, l)), work->call.count);
}

static tt_status hier_reduce_scatter_plan(tt_work *work) {
    state *s = TT__STATE(state, work);
    const tt__partial partial = hier_reduce_scatter_partial_of(work);
    size_t part = work->call.count * partial.size, hosts = (size_t)work->group->native->cross->size;
    size_t all = part * (size_t)work->group->size;
    bool packed = !partial.as_is || all <= TT__PACK_MAX, rounded = partial.dtype != partial.from;
    size_t leaves = packed ? TT__ALIGN_UP(all, 64) : 0, sums = TT__ALIGN_UP(part * hosts, 64);
    TT__TRY(tt__machine_scratch(work, leaves + sums + (rounded ? part : 0)));
    unsigned char *memory = tt__machine_memory(work);
    *s = (state){.part = part, .calls = packed ? 1 : (int)hosts, .packed = packed};
    s->leaves = packed ? memory : work->call.send;
    s->sums = memory + leaves;
    s->result = rounded ? s->sums + sums : work->call.recv;
    if (packed)
        hier_reduce_scatter_pack(work, &partial, memory);
    return TT_OK;
}

static tt__next hier_reduce_scatter_inside(tt_work *work, const state *s, int h) {
    const tt__partial partial = hier_reduce_scatter_partial_of(work);
    tt_group *local = work->group->native->local;
    return tt__leg_of(work, local, partial.dtype,
                      (tt_call){.op = TT_OP_REDUCE_SCATTER,
                                .reduce_op = partial.op,
                                .count = work->call.count * (s->packed ? (size_t)work->group->native->cross->size : 1),
                                .send = s->leaves + (size_t)(h * local->size) * s->part,
                                .recv = s->sums + (size_t)h * s->part});
}

static tt__next hier_reduce_scatter_between(tt_work *work, const state *s) {
    const tt__partial partial = hier_reduce_scatter_partial_of(work);
    return tt__leg_of(work, work->group->native->cross, partial.dtype,
                      (tt_call){.op = TT_OP_REDUCE_SCATTER,
                                .reduce_op = partial.op,
                                .count = work->call.count,
                                .send = s->sums,
                                .recv = s->result});
}

static tt__next hier_reduce_scatter_next(tt_work *work) {
    const tt__partial partial = hier_reduce_scatter_partial_of(work);
    const state *s = TT__STATE(state, work);
    if (!work->stage && hier_reduce_scatter_plan(work))
        return TT__NEXT_FAILED;
    int stage = work->stage++;
    if (stage < s->calls)
        return hier_reduce_scatter_inside(work, s, stage);
    if (stage == s->calls)
        return hier_reduce_scatter_between(work, s);
    tt__partial_finish(&partial, work->call.recv, s->result, work->call.count);
    return TT__NEXT_DONE;
}

const tt__algorithm tt__reduce_scatter_hierarchical = {"hierarchical", TT_OP_REDUCE_SCATTER, .children = true,
                                                       .serves = tt__serves_sums, .next = hier_reduce_scatter_next};
