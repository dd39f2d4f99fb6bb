/* What groups of all engines share: who is in them, their end, and why they can't be used any more. */
#include "comm/group.h"

#include "base/error.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

tt_group *tt__group_make(const tt__engine *engine, int rank, int size, const int *ranks, int64_t timeout_ms) {
    tt_group *group = calloc(1, sizeof *group);
    int *copy = calloc((size_t)size, sizeof *copy);
    if (!group || !copy) {
        free(group);
        free(copy);
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a group of %d ranks", size);
    }
    for (int r = 0; r < size; r++)
        copy[r] = ranks ? ranks[r] : r;
    tt__watch_forks();
    group->engine = engine;
    group->forks = tt__forks;
    group->owner = getpid();
    group->rank = rank;
    group->size = size;
    group->ranks = copy;
    group->timeout_ms = timeout_ms;
    return group;
}

static void free_work(tt_work *work) {
    free(work->messages);
    free(work->scratch);
    free(work->lists);
    free(work);
}

void tt__group_free(tt_group *group) {
    if (!group)
        return;
    while (group->spare) {
        tt_work *work = group->spare;
        group->spare = work->next;
        free_work(work);
    }
    while (group->allocations) {
        tt__allocation *allocation = group->allocations;
        group->allocations = allocation->next;
        free(allocation);
    }
    tt__group_free(group->local);
    tt__group_free(group->cross);
    free(group->alone.scratch);
    free(group->alone.messages);
    free(group->alone.lists);
    free(group->offsets);
    free(group->by_host);
    free(group->areas);
    free(group->bases);
    free(group->ranks);
    group->freed = true;
    if (!group->owned)
        free(group);
}

/* ---- works */

/* The call's arrays, into memory of the work's own. */
static tt_status copy_lists(tt_work *work) {
    tt_call *call = &work->call;
    size_t n = call->op == TT_OP_ALL_REDUCE_COALESCED ? call->buffers : (size_t)work->group->size;
    struct list {
        void *place; /* of the pointer */
        size_t bytes;
    } lists[] = {{&call->bufs, call->buffers * sizeof *call->bufs}, {&call->ops, call->buffers * sizeof *call->ops},
                 {&call->send_counts, n * sizeof(int64_t)},         {&call->send_offsets, n * sizeof(int64_t)},
                 {&call->recv_counts, n * sizeof(int64_t)},         {&call->recv_offsets, n * sizeof(int64_t)}};
    enum { LISTS = sizeof lists / sizeof *lists };
    const void *given[LISTS];
    size_t bytes = 0;
    for (int i = 0; i < LISTS; i++) {
        memcpy(&given[i], lists[i].place, sizeof given[i]);
        bytes += given[i] ? lists[i].bytes : 0;
    }
    if (bytes > work->lists_bytes) {
        void *room = realloc(work->lists, bytes);
        if (!room)
            return tt__fail(TT_ERR_MEMORY, "no memory for the lists of %s", tt_op_name(call->op));
        work->lists = room;
        work->lists_bytes = bytes;
    }
    unsigned char *to = work->lists;
    for (int i = 0; i < LISTS; i++) {
        if (!given[i] || !lists[i].bytes)
            continue;
        memcpy(to, given[i], lists[i].bytes);
        memcpy(lists[i].place, &(void *){to}, sizeof(void *));
        to += lists[i].bytes;
    }
    return TT_OK;
}

tt_work *tt__work_take(tt_group *group, const tt_call *call) {
    tt_work *work = group->spare;
    if (work)
        group->spare = work->next;
    else if (!(work = calloc(1, sizeof *work)))
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a work");
    tt_work kept = *work;
    *work = (tt_work){.group = group,
                      .call = *call,
                      .source = -1,
                      .messages = kept.messages,
                      .message_count = kept.message_count,
                      .scratch = kept.scratch,
                      .scratch_bytes = kept.scratch_bytes,
                      .lists = kept.lists,
                      .lists_bytes = kept.lists_bytes};
    if (copy_lists(work)) {
        tt__work_give_back(work);
        return NULL;
    }
    return work;
}

void tt__work_give_back(tt_work *work) {
    tt_group *group = work->group;
    if (group->freed) {
        free_work(work);
        return;
    }
    work->next = group->spare;
    group->spare = work;
}

tt_status tt_work_wait(tt_work *work) {
    if (!work)
        return tt__fail(TT_ERR_INVALID, "tt_work_wait: the work is NULL");
    if (!atomic_load_explicit(&work->done, memory_order_acquire))
        return tt__is_inherited(work->group) ? tt__fail_inherited(work->group) : work->group->engine->wait(work);
    return work->status ? tt__work_error(work) : TT_OK;
}

tt_status tt__work_error(const tt_work *work) {
    const tt_group *group = work->group;
    if (work->refused)
        return tt__fail(work->status, "%s", (const char *)work->scratch);
    if (work->status == group->failed)
        return tt__fail(work->status, "%s", group->failure_text);
    if (work->status == TT_ERR_STATE)
        return tt__fail(TT_ERR_STATE, "the group was destroyed before the work was done");
    return tt__fail(work->status, "%s failed: %s", tt_op_name(work->call.op), tt_status_text(work->status));
}

tt_status tt_work_wait_all(tt_work *const *works, int64_t count) {
    tt_status first = TT_OK;
    if (count < 0)
        return tt__fail(TT_ERR_INVALID, "tt_work_wait_all: expected 0 or more works, got %lld", (long long)count);
    if (!works && count)
        return tt__fail(TT_ERR_INVALID, "tt_work_wait_all: the list of %lld works is NULL", (long long)count);
    for (int64_t i = 0; i < count; i++) {
        tt_status status = works[i] && !first ? tt_work_wait(works[i]) : TT_OK;
        first = first ? first : status;
    }
    return first;
}

bool tt_work_is_completed(tt_work *work) {
    if (!work)
        return false;
    if (!atomic_load_explicit(&work->done, memory_order_acquire) && !tt__is_inherited(work->group))
        work->group->engine->progress(work->group);
    return atomic_load_explicit(&work->done, memory_order_acquire);
}

int tt_work_source_rank(const tt_work *work) {
    return work && atomic_load_explicit(&work->done, memory_order_acquire) ? work->source : -1;
}

void tt_work_free(tt_work *work) {
    if (!work)
        return;
    tt_group *group = work->group;
    if (!group->freed) {
        group->engine->forget(work);
        return;
    }
    free_work(work);
    if (--group->owned == 0)
        free(group);
}

/* ---- the end */

void tt__group_note_failure(tt_group *group) {
    if (group->failed)
        return;
    group->failed = tt_last_status();
    snprintf(group->failure_text, sizeof group->failure_text, "%s", tt_last_error());
    atomic_store(&group->ended, true);
}

tt_status tt__group_check(tt_group *group) {
    if (!group)
        return tt__fail(TT_ERR_INVALID, "the group is NULL");
    if (group->destroyed)
        return tt__fail(TT_ERR_STATE, "the group was destroyed; what was made on it can only be freed");
    if (tt__is_inherited(group))
        return tt__fail_inherited(group);
    if (!atomic_load(&group->ended)) /* first: another thread may be about to abort the group */
        return TT_OK;
    if (!group->failed)
        group->engine->progress(group); /* it was aborted: learn why */
    if (group->failed)
        return tt__fail(group->failed, "the group failed before and can't be used any more: %s", group->failure_text);
    return TT_OK;
}

tt_status tt__group_progress(tt_group *group) {
    TT__TRY(tt__group_usable(group));
    return group->engine->progress(group);
}

void tt_destroy_process_group(tt_group *group) {
    if (!group || group->destroyed)
        return;
    group->engine->retire(group);
    group->destroyed = true;
    atomic_store(&group->ended, true);
    if (!group->holders)
        group->engine->release(group);
}

void tt__group_hold(tt_group *group) { group->holders++; }

void tt__group_let_go(tt_group *group) {
    if (--group->holders == 0 && group->destroyed)
        group->engine->release(group);
}

void tt_group_abort(tt_group *group, const char *reason) {
    if (group && !tt__is_inherited(group)) /* it is the parent's to end */
        group->engine->abort(group, reason ? reason : "no reason given");
}

/* ---- who */

int tt_get_rank(const tt_group *group) { return group ? group->rank : -1; }

int tt_get_world_size(const tt_group *group) { return group ? group->size : -1; }

int tt_get_global_rank(const tt_group *group, int group_rank) {
    return group && group_rank >= 0 && group_rank < group->size ? group->ranks[group_rank] : -1;
}

int tt_get_group_rank(const tt_group *group, int global_rank) {
    for (int r = 0; group && r < group->size; r++)
        if (group->ranks[r] == global_rank)
            return r;
    return -1;
}

const char *tt_get_backend(const tt_group *group) { return group ? group->engine->name : "?"; }

int64_t tt_group_timeout_ms(const tt_group *group) { return group ? group->timeout_ms : -1; }

void tt_group_set_timeout_ms(tt_group *group, int64_t timeout_ms) {
    if (group)
        group->timeout_ms = timeout_ms > 0 ? timeout_ms : TT_DEFAULT_TIMEOUT_MS;
}
