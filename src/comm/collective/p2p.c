/* send, recv, batch_isend_irecv: each is one message (message.h), or several that begin together.
 *
 * They go by messages also where the group shares memory, and never wait behind collectives. A message's word is its element type, so that a
 * receive of another one, as of another size, is a mismatch that both sides can name. */
#include "comm/collective/p2p.h"

#include <stdio.h>

enum { ASK_MS = 100 };

static tt_p2p_op op_of(const tt_work *work, size_t i) {
    const tt_call *call = &work->call;
    if (call->op == TT_OP_BATCH_ISEND_IRECV)
        return call->ops[i];
    return (tt_p2p_op){.is_recv = call->op == TT_OP_RECV,
                       .send = call->send,
                       .recv = call->recv,
                       .count = call->count,
                       .dtype = call->dtype,
                       .peer = call->root,
                       .tag = call->tag};
}

static void post(tt_work *work, size_t i) {
    const tt_group *group = work->group;
    const tt_p2p_op op = op_of(work, i);
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
        tt__message_recv(group->world->messages, message);
    else
        tt__message_send(group->world->messages, message);
}

/* Who has left will not receive any more. */
static tt_status check_receivers(const tt_work *work, size_t n) {
    for (size_t i = 0; i < n; i++) {
        const tt_p2p_op op = op_of(work, i);
        if (!op.is_recv && op.peer != work->group->rank)
            TT__TRY(tt__check_member(work, op.peer));
    }
    return TT_OK;
}

static int rank_in_group(const tt_group *group, int job_rank) {
    int r = 0;
    while (r < group->size && group->ranks[r] != job_rank)
        r++;
    return r < group->size ? r : -1;
}

static tt__next run(tt_work *work) {
    size_t n = work->call.op == TT_OP_BATCH_ISEND_IRECV ? work->call.buffers : 1;
    if (work->stage++) {
        if (work->call.op == TT_OP_RECV)
            work->source = rank_in_group(work->group, work->messages[0].source);
        return TT__NEXT_DONE;
    }
    if (check_receivers(work, n) || tt__work_messages(work, n))
        return TT__NEXT_FAILED;
    for (size_t i = 0; i < n; i++)
        post(work, i);
    return tt__work_wait_messages(work);
}

/* "f32 x 4"; what no element type explains in bytes. */
static const char *data_text(uint32_t word, size_t bytes, char *text, size_t size) {
    size_t element = tt_dtype_size((tt_dtype)(word - 1));
    if (element && bytes % element == 0)
        snprintf(text, size, "%s x %zu", tt_dtype_name((tt_dtype)(word - 1)), bytes / element);
    else
        snprintf(text, size, "%zu bytes", bytes);
    return text;
}

static bool find_call(tt__world *world, int rank, uint32_t group, uint32_t record, char *text, size_t size) {
    if (world->peers[rank].control)
        return tt__find_p2p(world, rank, group, record, text, size);
    return record && tt__ask_record(world->messages, rank, group, record, text, size, ASK_MS);
}

/* "Rank 1 called send(f32 x 4, to 0, tag 7) at train.c:88" */
static const char *call_of(tt_group *group, int rank, uint32_t record, char *text, size_t size) {
    char call[256];
    group->world->asking++;
    group->asking = true;
    if (find_call(group->world, rank, group->id, record, call, sizeof call))
        snprintf(text, size, "Rank %d called %s.", rank, call);
    else
        snprintf(text, size, "What rank %d called is not known any more.", rank);
    group->asking = false;
    group->world->asking--;
    return text;
}

tt_status tt__p2p_mismatch(const tt_work *work, tt__message m) {
    char sent[48], received[48], sender_call[320], receiver_call[320];
    tt_group *group = work->group;
    int rank = group->world->rank, sender = m.is_recv ? m.source : rank, receiver = m.is_recv ? rank : m.peer;
    data_text(m.is_recv ? m.got_word : m.key.word, m.is_recv ? m.got : m.bytes, sent, sizeof sent);
    data_text(m.is_recv ? m.key.word : m.got_word, m.is_recv ? m.bytes : m.got, received, sizeof received);
    call_of(group, sender, m.is_recv ? m.got_record : m.key.record, sender_call, sizeof sender_call);
    call_of(group, receiver, m.is_recv ? m.key.record : m.got_record, receiver_call, sizeof receiver_call);
    return tt__fail(TT_ERR_MISMATCH,
                    "rank %d sends %s with tag %u to rank %d, which receives %s: both must name the same count and "
                    "type. %s %s",
                    sender, sent, m.key.step, receiver, received, sender_call, receiver_call);
}

const tt__algorithm tt__send_message = {.name = "message", .op = TT_OP_SEND, .next = run};
const tt__algorithm tt__recv_message = {.name = "message", .op = TT_OP_RECV, .next = run};
const tt__algorithm tt__batch_messages = {.name = "message", .op = TT_OP_BATCH_ISEND_IRECV, .next = run};
