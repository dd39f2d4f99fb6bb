/* Works of all engines: their memory, their lists, how they failed. */
#include "comm/work.h"

#include "base/error.h"
#include "base/quarantine.h"
#include "comm/group.h"
#include "comm/op.h"

#include <stdlib.h>
#include <string.h>

static void free_work(tt_work *work) {
    free(work->messages);
    free(work->scratch);
    free(work->lists);
    tt__quarantine(work, sizeof *work, free);
}

void tt__works_free(tt_work *list) {
    while (list) {
        tt_work *work = list;
        list = work->next;
        free_work(work);
    }
}

/* Copy the call's arrays into memory of the work's own. */
static tt_status copy_lists(tt_work *work) {
    tt_call *call = &work->call;
    int64_t n = call->op == TT_OP_ALL_REDUCE_COALESCED ? call->buffers : work->group->size;
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
    tt_work *work = group->free_works;
    if (work)
        group->free_works = work->next;
    else if (!(work = calloc(1, sizeof *work)))
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a work");
    tt_work room = *work;
    *work = (tt_work){.group = group,
                      .call = *call,
                      .source = -1,
                      .messages = room.messages,
                      .message_count = room.message_count,
                      .scratch = room.scratch,
                      .scratch_bytes = room.scratch_bytes,
                      .lists = room.lists,
                      .lists_bytes = room.lists_bytes};
    if (copy_lists(work)) {
        tt__work_give_back(work);
        return NULL;
    }
    return work;
}

void tt__work_give_back(tt_work *work) {
    tt_group *group = work->group;
    if (group->freed || tt__is_debugging()) {
        free_work(work);
        return;
    }
    work->next = group->free_works;
    group->free_works = work;
}

void tt__work_let_go(tt_work *work) {
    if (work->phase == TT__DONE && !work->owned && !work->parent && !work->waiters && !work->linked)
        tt__work_give_back(work);
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

/* ---- lists */

void tt__work_enqueue(tt_work *work) {
    tt_group *group = work->group;
    atomic_fetch_add_explicit(&group->works, 1, memory_order_relaxed);
    work->next = NULL;
    work->linked = true;
    if (tt__op_is(work->call.op, TT__OP_P2P)) {
        work->next = group->unordered;
        group->unordered = work;
        return;
    }
    if (group->queue_end)
        group->queue_end->next = work;
    else
        group->queue = work;
    group->queue_end = work;
}

/* Take done works out of a list. `in_order`: no work behind one that is queued is done. Returns the last work seen that
 * stays. */
static tt_work *unlink_done(tt_group *group, tt_work **list, bool in_order) {
    tt_work *last = NULL;
    for (tt_work **at = list; *at;) {
        tt_work *work = *at;
        if (work->phase == TT__DONE) {
            *at = work->next;
            work->linked = false;
            tt__work_let_go(work);
            atomic_fetch_sub_explicit(&group->works, 1, memory_order_release);
        } else {
            last = work;
            if (in_order && work->phase == TT__QUEUED)
                break;
            at = &work->next;
        }
    }
    return last;
}

void tt__works_unlink(tt_group *group) {
    tt_work *last = unlink_done(group, &group->queue, true);
    if (!last || !last->next)
        group->queue_end = last;
    unlink_done(group, &group->unordered, false);
}

/* ---- failure */

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
