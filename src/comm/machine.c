#include "comm/machine.h"

#include "base/error.h"

#include <stdlib.h>

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

static tt__message *message_prepare(tt_work *work, size_t slot, int peer, uint32_t step, void *data, size_t bytes) {
    tt__message *message = &work->messages[slot];
    *message = (tt__message){.key = {.group = work->group->id, .seq = work->seq, .step = step, .word = work->word},
                             .peer = work->group->ranks[peer],
                             .data = data,
                             .bytes = bytes,
                             .pending = &work->pending};
    atomic_fetch_add_explicit(&work->pending, 1, memory_order_relaxed);
    return message;
}

void tt__work_send(tt_work *work, size_t slot, int to, uint32_t step, const void *data, size_t bytes) {
    tt__message_send(work->group->native->world->messages,
                     message_prepare(work, slot, to, step, (void *)(uintptr_t)data, bytes));
}

void tt__work_recv(tt_work *work, size_t slot, int from, uint32_t step, void *data, size_t bytes) {
    tt__message_recv(work->group->native->world->messages, message_prepare(work, slot, from, step, data, bytes));
}

tt__next tt__work_wait_messages(tt_work *work) {
    work->wait = (tt__wait){.what = TT__MESSAGES};
    return TT__NEXT_WAIT;
}

tt__next tt__work_call(tt_work *work, tt_group *group, const tt_call *call) {
    work->child_call = (tt__child_call){group, *call};
    return TT__NEXT_CALL;
}

tt__next tt__work_wait_ranks(tt_work *work, uint32_t step, int next, int end) {
    work->wait = (tt__wait){TT__STEP, step, next, end};
    return TT__NEXT_WAIT;
}

tt__next tt__work_wait_steps(tt_work *work, uint32_t step) {
    return tt__work_wait_ranks(work, step, 0, work->group->size);
}

tt__next tt__work_wait_last(tt_work *work, uint32_t step) {
    work->part_done = true;
    return tt__work_wait_steps(work, step);
}
