#include "comm/native_group.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>

tt_group *tt__native_group_make(tt__world *world, int room, int64_t timeout_ms) {
    tt_group *group = tt__group_make(world->engine, 0, room, NULL, timeout_ms);
    tt__native *native = group ? calloc(1, sizeof *native) : NULL;
    if (!native) {
        tt__group_free(group);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a group of %d ranks", room);
    }
    group->native = native;
    native->world = world;
    native->sync_work = (tt_work){.group = group, .source = -1};
    native->areas = calloc((size_t)room, sizeof *native->areas);
    native->bases = calloc((size_t)room, sizeof *native->bases);
    if (native->areas && native->bases)
        return group;
    tt__native_group_free(group);
    return tt__fail_null(TT_ERR_MEMORY, "no memory for a group of %d ranks", room);
}

void tt__native_group_free(tt_group *group) {
    if (!group)
        return;
    tt__native *native = group->native;
    tt__native_group_free(native->local);
    tt__native_group_free(native->cross);
    free(native->sync_work.scratch);
    free(native->sync_work.messages);
    free(native->sync_work.lists);
    free(native->by_host);
    free(native->areas);
    free(native->bases);
    free(native);
    group->native = NULL;
    tt__works_free(group->free_works);
    tt__group_free(group);
}

void tt__note_hidden(tt_group *group, uint32_t seq) {
    group->native->hidden_seqs[group->native->hidden++ % TT__BEGUN] = seq;
}

void tt__note_step(tt_group *group) { group->native->hidden -= group->native->hidden > 0; }

uint32_t tt__calls_made(const tt_group *group, uint32_t seq) {
    const tt__native *native = group->native;
    uint32_t made = seq - native->hidden, known = native->hidden < TT__BEGUN ? native->hidden : TT__BEGUN;
    for (uint32_t i = 0; i < known; i++)
        made += (int32_t)(native->hidden_seqs[i] - seq) > 0;
    return made;
}

uint32_t tt__call_number(const tt_group *group, uint32_t seq) {
    const tt__native *native = group->native;
    uint32_t known = native->hidden < TT__BEGUN ? native->hidden : TT__BEGUN;
    bool is_hidden = false;
    for (uint32_t i = 0; i < known; i++)
        is_hidden |= native->hidden_seqs[i] == seq;
    return tt__calls_made(group, seq) + is_hidden;
}

uint32_t tt__work_number(const tt_work *work) {
    while (work->parent)
        work = work->parent;
    return tt__call_number(work->group, work->seq);
}

tt_group *tt__find_group(const tt__world *world, uint32_t id) {
    tt_group *group = world->groups;
    while (group && group->id != id)
        group = group->native->next_group;
    return group;
}

tt__rankset tt__job_ranks(const tt_group *group, const tt__rankset *set) {
    tt__rankset job = {0};
    for (int r = 0; r < group->size; r++)
        if (tt__rankset_has(set, r))
            tt__rankset_add(&job, group->ranks[r]);
    return job;
}

int tt__rank_in_group(const tt_group *group, int job_rank) {
    for (int r = 0; r < group->size; r++)
        if (group->ranks[r] == job_rank)
            return r;
    return -1;
}

const char *tt__group_list(const tt_group *group, char *text, size_t size) {
    tt__rankset job = {0};
    for (int r = 0; r < group->size; r++)
        tt__rankset_add(&job, group->ranks[r]);
    return tt__rankset_list(&job, text, size);
}

const char *tt__group_text(const tt_group *group, char *text, size_t size) {
    char list[160];
    if (group->size == group->native->world->size)
        snprintf(text, size, "the group");
    else
        snprintf(text, size, "the group of ranks %s", tt__group_list(group, list, sizeof list));
    return text;
}

/* ---- building blocks of machines */

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
