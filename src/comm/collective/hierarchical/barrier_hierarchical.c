/* hierarchical, for barrier: inside the hosts, between one rank of each, and inside again.
 *
 *   steps between hosts   those of a barrier among the hosts */
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/message_algorithms.h"

enum stage { ARRIVE, BETWEEN, LEAVE };

static tt__next hier_barrier_next(tt_work *work) {
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
