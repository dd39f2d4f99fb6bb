/* packed, for all_reduce_coalesced: the buffers are copied into one, which work->packed_as reduces (the tuning table's
 * for that size), and back. Copies cost little beside the network, messages of many small buffers much. */
#include "comm/collective/message/message_algorithms.h"
#include "comm/collective/message/rounds.h"

static tt__next packed_next(tt_work *work) {
    tt__next step = work->packed_as->next(work);
    if (step == TT__NEXT_DONE)
        tt__unpack(work);
    return step;
}

const tt__algorithm tt__all_reduce_coalesced_packed = {"packed", TT_OP_ALL_REDUCE_COALESCED, .next = packed_next};
