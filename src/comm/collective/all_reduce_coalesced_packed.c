/* packed, for all_reduce_coalesced: the buffers are copied into one, which any algorithm of all_reduce reduces (the tuning table's for
 * that size), and back. Copies cost little beside the network, messages of many small buffers much. */
#include "comm/collective/choose.h"
#include "comm/collective/message_algorithms.h"
#include "comm/collective/rounds.h"

static tt__next next(tt_work *work) {
    tt_call whole = work->call;
    whole.op = TT_OP_ALL_REDUCE;
    whole.count = tt__operand_of(work).count;
    const tt__algorithm *algorithm = tt__choose_on_messages(work->group, &whole);
    work->children = algorithm->children; /* later works wait then, lest their children come between */
    tt__next step = algorithm->next(work);
    if (step == TT__NEXT_DONE)
        tt__unpack(work);
    return step;
}

const tt__algorithm tt__all_reduce_coalesced_packed = {"packed", TT_OP_ALL_REDUCE_COALESCED, .next = next};
