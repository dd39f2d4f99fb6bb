/* hierarchical, for all_reduce: hosts reduce first, in shared memory, so that less goes between them.
 *
 * H hosts of L ranks, n bytes.
 *   n up to WHOLE_MAX      local reduce to one rank a host, all_reduce between those, local broadcast
 *   else                   local reduce_scatter, all_reduce of every rank's part with the same part on the other hosts,
 *                          local all_gather; what does not divide by L goes with the last part
 *   steps between hosts    those of the all_reduce among H
 *   bytes between hosts    as many as that all_reduce sends for n, a host; not L times as many
 * Only where the one summation order joins the ranks of a host first (group->native->subtrees). Averages scale the
 * leaves before anything is joined. f16 and bf16 are all_reduce_hierarchical_fp16.c's. */
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/rounds.h"

#include "base/error.h"

enum { WHOLE_MAX = 16 << 10 };
enum stage { BEGIN, REMAINDER, SCATTERED, REDUCED, GATHERED, WHOLE, LEADERS, SPREAD, END };

typedef struct shape {
    unsigned char *data;
    size_t count, size, part; /* elements; bytes of one; elements of a rank's part */
    int local, ranks;         /* in the host */
    tt_reduce_op op;
} shape;

static shape shape_of(const tt_work *work) {
    tt__operand operand = tt__operand_of(work);
    const tt__partial partial = tt__partial_of(&work->call, work->group->size);
    const tt_group *local = work->group->native->local;
    return (shape){operand.data, operand.count, partial.size, operand.count / (size_t)local->size,
                   local->rank,  local->size,   partial.op};
}

static unsigned char *element_at(const shape *s, size_t element) { return s->data + element * s->size; }

static tt__next reduce_leg(tt_work *work, tt_group *group, tt_op op, const shape *s, size_t first, size_t count) {
    void *data = element_at(s, first);
    return tt__leg(work, group,
                   (tt_call){.op = op,
                             .reduce_op = s->op,
                             .count = count,
                             .send = data,
                             .recv = data,
                             .root = op == TT_OP_REDUCE ? s->ranks - 1 : 0});
}

static tt_status hier_all_reduce_begin(tt_work *work) {
    const tt__partial partial = tt__partial_of(&work->call, work->group->size);
    TT__TRY(tt__machine_scratch(work, 0));
    const shape s = shape_of(work);
    if (!partial.as_is)
        tt__partial_leaf(&partial, s.data, s.data, s.count);
    bool small = s.count * s.size <= WHOLE_MAX || !s.part;
    work->stage = small ? WHOLE : s.part * (size_t)s.ranks < s.count ? REMAINDER : SCATTERED;
    return TT_OK;
}

/* Make the leg of a stage; all ranks of the host make the same ones. */
static tt__next hier_all_reduce_leg(tt_work *work) {
    const shape s = shape_of(work);
    tt_group *local = work->group->native->local, *cross = work->group->native->cross;
    size_t even = s.part * (size_t)s.ranks, mine = s.part * (size_t)s.local, rest = s.count - even;
    bool last = s.local == s.ranks - 1;
    void *part = element_at(&s, mine);
    switch (work->stage) {
    case REMAINDER:
        return reduce_leg(work, local, TT_OP_REDUCE, &s, even, rest);
    case SCATTERED:
        return tt__leg(
            work, local,
            (tt_call){.op = TT_OP_REDUCE_SCATTER, .reduce_op = s.op, .count = s.part, .send = s.data, .recv = part});
    case REDUCED:
        return reduce_leg(work, cross, TT_OP_ALL_REDUCE, &s, mine, s.part + (last ? rest : 0));
    case GATHERED:
        return tt__leg(work, local, (tt_call){.op = TT_OP_ALL_GATHER, .count = s.part, .send = part, .recv = s.data});
    case WHOLE:
        return reduce_leg(work, local, TT_OP_REDUCE, &s, 0, s.count);
    case LEADERS:
        return reduce_leg(work, cross, TT_OP_ALL_REDUCE, &s, 0, s.count);
    default: /* SPREAD: everything, or what did not divide */
        even = s.count * s.size <= WHOLE_MAX || !s.part ? 0 : even;
        return tt__leg(work, local,
                       (tt_call){.op = TT_OP_BROADCAST,
                                 .count = s.count - even,
                                 .send = element_at(&s, even),
                                 .recv = element_at(&s, even),
                                 .root = s.ranks - 1});
    }
}

static int stage_after(const tt_work *work) {
    const shape s = shape_of(work);
    if (work->stage == WHOLE)
        return s.local == s.ranks - 1 ? LEADERS : SPREAD;
    if (work->stage == GATHERED)
        return s.part * (size_t)s.ranks < s.count ? SPREAD : END;
    return work->stage == LEADERS ? SPREAD : work->stage + 1;
}

/* The sum of all ranks is here. */
static tt__next hier_all_reduce_end(tt_work *work) {
    const tt__partial partial = tt__partial_of(&work->call, work->group->size);
    const shape s = shape_of(work);
    if (partial.divisor != 1)
        tt__partial_finish(&partial, s.data, s.data, s.count);
    return TT__NEXT_DONE;
}

static tt__next hier_all_reduce_next(tt_work *work) {
    if (work->call.dtype == TT_F16 || work->call.dtype == TT_BF16)
        return tt__all_reduce_hierarchical_fp16(work);
    if (work->stage == BEGIN && hier_all_reduce_begin(work))
        return TT__NEXT_FAILED;
    if (work->stage >= END)
        return hier_all_reduce_end(work);
    tt__next step = hier_all_reduce_leg(work);
    if (step == TT__NEXT_CALL)
        work->stage = stage_after(work);
    return step;
}

const tt__algorithm tt__all_reduce_hierarchical = {"hierarchical", TT_OP_ALL_REDUCE, .children = true,
                                                   .serves = tt__serves_subtrees, .next = hier_all_reduce_next};
