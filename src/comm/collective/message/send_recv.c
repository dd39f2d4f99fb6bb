/* send, recv, batch_isend_irecv: each is one message (message.h), or several that begin together.
 *
 * They go by messages also where the group shares memory, and never wait behind collectives. A message's word is its
 * element type: a receive of another type or size is a mismatch that both sides can name. */
#include "comm/collective/message/rounds.h"

static void p2p_post(tt_work *work, size_t i) {
    const tt_group *group = work->group;
    const tt_p2p_op op = tt__p2p_op_of(&work->call, i);
    tt__message *message = &work->messages[i];
    *message = (tt__message){.key = {.group = group->id,
                                     .step = (uint32_t)op.tag,
                                     .word = (uint32_t)op.dtype + 1,
                                     .record = work->record_number},
                             .peer = op.peer == TT_ANY_SOURCE ? TT_ANY_SOURCE : group->ranks[op.peer],
                             .data = op.is_recv ? op.recv : (void *)(uintptr_t)op.send,
                             .bytes = (size_t)op.count * tt_dtype_size(op.dtype),
                             .pending = &work->pending};
    atomic_fetch_add_explicit(&work->pending, 1, memory_order_relaxed);
    if (op.is_recv)
        tt__message_recv(group->native->world->messages, message);
    else
        tt__message_send(group->native->world->messages, message);
}

static tt__next p2p_run(tt_work *work) {
    size_t n = work->call.op == TT_OP_BATCH_ISEND_IRECV ? work->call.buffers : 1;
    if (work->stage++) {
        if (work->call.op == TT_OP_RECV)
            work->source = tt__rank_in_group(work->group, work->messages[0].source);
        return TT__NEXT_DONE;
    }
    if (tt__work_messages(work, n))
        return TT__NEXT_FAILED;
    for (size_t i = 0; i < n; i++)
        p2p_post(work, i);
    return tt__work_wait_messages(work);
}

const tt__algorithm tt__send_message = {.name = "message", .op = TT_OP_SEND, .next = p2p_run};
const tt__algorithm tt__recv_message = {.name = "message", .op = TT_OP_RECV, .next = p2p_run};
const tt__algorithm tt__batch_messages = {.name = "message", .op = TT_OP_BATCH_ISEND_IRECV, .next = p2p_run};
