/* dissemination, for barrier: in step k every rank sends a message to the one 2^k places after it; it says that the
 * sender, and all ranks whose arrival it knows of, have arrived.
 *
 * N ranks.
 *   steps              log2 N, rounded up
 *   bytes sent a rank  none but headers
 * Hensgen, Finkel, Manber: Two algorithms for barrier synchronization, 1988. */
#include "comm/collective/message/rounds.h"

static tt_status dissemination_plan(tt_work *work) {
    return tt__rounds_plan(work, (uint32_t)tt__log2_ceil(work->group->size), 2);
}

static void dissemination_early(tt_work *work, uint32_t round) {
    tt__round_recv(work, round, tt__neighbour(work->group, -(1 << round)), round, NULL, 0);
}

static void dissemination_post(tt_work *work, uint32_t round) {
    tt__round_send(work, round, tt__neighbour(work->group, 1 << round), round, NULL, 0);
}

static tt__next dissemination_next(tt_work *work) {
    static const tt__rounds rounds = {
        .plan = dissemination_plan, .early = dissemination_early, .post = dissemination_post};
    return tt__rounds_next(work, &rounds);
}

const tt__algorithm tt__barrier_dissemination = {"dissemination", TT_OP_BARRIER, .next = dissemination_next};
