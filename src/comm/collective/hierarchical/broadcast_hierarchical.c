/* hierarchical, for broadcast: the root's buffer goes to one rank of every host, and there to all in shared memory.
 *
 *   steps, bytes between hosts   those of a broadcast among the hosts */
#include "comm/collective/hierarchical/hierarchical.h"
#include "comm/collective/message/message_algorithms.h"

enum stage { BETWEEN, INSIDE, END };

static tt__next hier_broadcast_next(tt_work *work) {
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
