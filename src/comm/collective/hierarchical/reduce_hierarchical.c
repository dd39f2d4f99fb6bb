/* hierarchical, for reduce: every host reduces to one of its ranks, in shared memory, and those to the root.
 *
 * H hosts of L ranks, n bytes (w: of the same as partial results; 2 n for f16 and bf16, else n). The rank of a host
 * that acts for it has the root's number.
 *   steps between hosts   those of a reduce among H
 *   bytes between hosts   w sent a host; flat algorithms send L n
 * Only where the one summation order joins the ranks of a host first, and not for 16-bit floats of two ranks a host,
 * whose sum is as long as they are. Nobody's buffer but the root's is written, so the others that act have room of
 * their own. */
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/rounds.h"

#include "base/error.h"

enum stage { BEGIN, BETWEEN, END };

typedef struct state {
    unsigned char *data; /* this rank's leaf, then the host's sum */
} state;

static tt__partial hier_reduce_partial_of(const tt_work *work) {
    return tt__partial_of(&work->call, work->group->size);
}

static bool hier_reduce_acts(const tt_work *work) {
    return work->group->native->local->rank == tt__local_of(work->group, work->call.root);
}

static tt_status hier_reduce_plan(tt_work *work) {
    const tt__partial partial = hier_reduce_partial_of(work);
    size_t bytes = work->call.count * partial.size;
    bool same_size = partial.dtype == partial.from;
    bool in_place = work->group->rank == work->call.root ? same_size : partial.as_is && !hier_reduce_acts(work);
    TT__TRY(tt__machine_scratch(work, in_place ? 0 : bytes));
    unsigned char *data = in_place ? work->call.recv : tt__machine_memory(work);
    state *s = TT__STATE(state, work);
    s->data = data;
    tt__partial_leaf(&partial, data, work->call.send, work->call.count);
    return TT_OK;
}

static tt__next hier_reduce_leg(tt_work *work, tt_group *group, int root) {
    const tt__partial partial = hier_reduce_partial_of(work);
    const state *s = TT__STATE(state, work);
    return tt__leg_of(work, group, partial.dtype,
                      (tt_call){.op = TT_OP_REDUCE,
                                .reduce_op = partial.op,
                                .count = work->call.count,
                                .send = s->data,
                                .recv = s->data,
                                .root = root});
}

static tt__next hier_reduce_next(tt_work *work) {
    const tt_group *group = work->group;
    const tt__partial partial = hier_reduce_partial_of(work);
    const state *s = TT__STATE(state, work);
    int root = work->call.root;
    switch (work->stage++) {
    case BEGIN:
        if (hier_reduce_plan(work))
            return TT__NEXT_FAILED;
        return hier_reduce_leg(work, group->native->local, tt__local_of(group, root));
    case BETWEEN:
        return hier_reduce_acts(work) ? hier_reduce_leg(work, group->native->cross, tt__host_of(group, root))
                                      : TT__NEXT_DONE;
    default:
        if (group->rank == root)
            tt__partial_finish(&partial, work->call.recv, s->data, work->call.count);
        return TT__NEXT_DONE;
    }
}

const tt__algorithm tt__reduce_hierarchical = {"hierarchical", TT_OP_REDUCE, .children = true,
                                               .serves = tt__serves_sums, .next = hier_reduce_next};
