/* What machines on messages are made of (work.h), and what becomes of messages that fail. */
#include "base/error.h"
#include "comm/group.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

tt_status tt__work_messages(tt_work *work, size_t n) {
    work->message_used = n;
    if (n > work->message_count) {
        tt__message *messages = realloc(work->messages, n * sizeof *messages);
        if (!messages) {
            work->message_used = 0;
            return tt__fail(TT_ERR_MEMORY, "no memory for %zu messages", n);
        }
        work->messages = messages;
        work->message_count = n;
    }
    for (size_t i = 0; i < n; i++)
        work->messages[i] = (tt__message){.done = true};
    return TT_OK;
}

static tt__message *prepare(tt_work *work, size_t slot, int peer, uint32_t step, void *data, size_t bytes) {
    tt__message *message = &work->messages[slot];
    *message = (tt__message){.key = {work->group->id, work->seq, step, work->word},
                             .peer = work->group->ranks[peer],
                             .data = data,
                             .bytes = bytes,
                             .pending = &work->pending};
    atomic_fetch_add_explicit(&work->pending, 1, memory_order_relaxed);
    return message;
}

void tt__work_send(tt_work *work, size_t slot, int to, uint32_t step, const void *data, size_t bytes) {
    tt__message_send(work->group->world->messages, prepare(work, slot, to, step, (void *)(uintptr_t)data, bytes));
}

void tt__work_recv(tt_work *work, size_t slot, int from, uint32_t step, void *data, size_t bytes) {
    tt__message_recv(work->group->world->messages, prepare(work, slot, from, step, data, bytes));
}

tt__next tt__work_wait_messages(tt_work *work) {
    work->wait = (tt__wait){.what = TT__MESSAGES};
    return TT__NEXT_WAIT;
}

tt_status tt__work_scratch(tt_work *work, size_t bytes) {
    if (bytes <= work->scratch_bytes)
        return TT_OK;
    void *scratch = NULL;
    if (posix_memalign(&scratch, 64, bytes))
        return tt__fail(TT_ERR_MEMORY, "no memory for %zu bytes that %s needs", bytes, tt_op_name(work->call.op));
    free(work->scratch);
    work->scratch = scratch;
    work->scratch_bytes = bytes;
    return TT_OK;
}

void tt__cancel_messages(tt_work *work) {
    for (size_t i = 0; i < work->message_used; i++)
        if (!work->messages[i].done)
            tt__message_cancel(work->group->world->messages, &work->messages[i], TT_ERR_ABORTED);
}

static tt_status message_error(const tt_work *work, const tt__message *message) {
    char call[160];
    tt__work_text(work, call, sizeof call);
    switch (message->status) {
    case TT_ERR_MISMATCH:
        return tt__fail(TT_ERR_MISMATCH, "rank %d calls something else than this rank's %s", message->peer, call);
    case TT_ERR_PEER:
        return tt__fail(TT_ERR_PEER, "%s: rank %d is gone", call, message->peer);
    default:
        return tt__fail(message->status, "%s: a message %s rank %d failed", call, message->is_recv ? "from" : "to",
                        message->peer);
    }
}

tt_status tt__check_messages(tt_work *work) {
    for (size_t i = 0; i < work->message_used; i++)
        if (work->messages[i].done && work->messages[i].status)
            return message_error(work, &work->messages[i]);
    return TT_OK;
}
