/* What algorithms made of calls inside and between hosts share, and the two short ones. */
#include "comm/collective/hierarchical/hierarchical.h"

#include "comm/reduce/reduce_tree.h"

bool tt__serves_hosts(const tt_group *group, const tt_call *call) {
    (void)call;
    return group->native->local && group->native->cross && group->native->local->size > 1 &&
           group->native->cross->size > 1;
}

bool tt__serves_subtrees(const tt_group *group, const tt_call *call) {
    return tt__serves_hosts(group, call) && group->native->subtrees;
}

bool tt__serves_sums(const tt_group *group, const tt_call *call) {
    bool longer = tt__partial_dtype(call->dtype) != call->dtype;
    return tt__serves_subtrees(group, call) && !(longer && group->native->local->size == 2);
}

tt__next tt__leg_of(tt_work *work, tt_group *group, tt_dtype dtype, tt_call call) {
    call.dtype = dtype;
    call.timeout_ms = work->call.timeout_ms;
    call.file = work->call.file;
    call.line = work->call.line;
    return tt__work_call(work, group, &call);
}

tt__next tt__leg(tt_work *work, tt_group *group, tt_call call) {
    return tt__leg_of(work, group, work->call.dtype, call);
}

/* ---- barrier: inside the hosts, between one rank of each, and inside again
 *
 *   steps between hosts   those of a barrier among the hosts */

static tt__next hier_barrier_next(tt_work *work) {
    enum { ARRIVE, BETWEEN, LEAVE };
    const tt_call barrier = {.op = TT_OP_BARRIER};
    int stage = work->stage++;
    if (stage == BETWEEN && work->group->native->local->rank)
        stage = work->stage++;
    if (stage == BETWEEN)
        return tt__leg(work, work->group->native->cross, barrier);
    return stage <= LEAVE ? tt__leg(work, work->group->native->local, barrier) : TT__NEXT_DONE;
}

const tt__algorithm tt__barrier_hierarchical = {"hierarchical", TT_OP_BARRIER, .children = true,
                                                .serves = tt__serves_hosts, .next = hier_barrier_next};

/* ---- broadcast: the root's buffer goes to one rank of every host, and there to all in shared memory
 *
 *   steps, bytes between hosts   those of a broadcast among the hosts */

static tt__next hier_broadcast_next(tt_work *work) {
    enum { BETWEEN, INSIDE };
    tt_group *local = work->group->native->local, *cross = work->group->native->cross;
    tt_call call = {.op = TT_OP_BROADCAST, .count = work->call.count, .send = work->call.send, .recv = work->call.recv};
    int root = work->call.root, number = tt__local_of(work->group, root);
    switch (work->stage++) {
    case BETWEEN:
        call.root = tt__host_of(work->group, root);
        if (local->rank == number)
            return tt__leg(work, cross, call);
        work->stage++; /* fall through: nothing between hosts for this one */
        __attribute__((fallthrough));
    case INSIDE:
        call.root = number;
        return tt__leg(work, local, call);
    default:
        return TT__NEXT_DONE;
    }
}

const tt__algorithm tt__broadcast_hierarchical = {"hierarchical", TT_OP_BROADCAST, .children = true,
                                                  .serves = tt__serves_hosts, .next = hier_broadcast_next};
