/* all_reduce: every call is a work in the group's queue, synchronous ones are waited for at once.
 *
 *   up to TT__INLINE_MAX bytes   reduce_inline.c     1 synchronisation, every rank reduces all
 *   symmetric on all ranks       reduce_symmetric.c  2 synchronisations, no copy
 *   else                         reduce_staged.c     2 synchronisations a piece, overlapped
 *
 * A work's phases. Who completes it: complete() or tt__group_fail(), in the one thread that uses the group, exactly once. */
#include "base/error.h"
#include "comm/collective/collective.h"

enum phase {
    QUEUED,    /* not yet told to the others: the agreement on its predecessor is open */
    PUBLISHED, /* told; not all ranks have come */
    STAGED,    /* agreed; has to be staged, which waits, so it is left to whoever waits */
    REDUCED,   /* this rank's part is done; `seq` is now the step by which all have done theirs */
};

static size_t bytes_of(const tt__work *work) { return work->count * tt_dtype_size(work->dtype); }

static tt__reduction reduction_of(const tt__work *work) {
    return (tt__reduction){work->buf, work->count, work->dtype, work->op, TT__ALL};
}

static void publish(tt_group *group, tt__work *work) {
    const tt__call call = {.op = TT__OP_ALL_REDUCE,
                           .dtype = work->dtype,
                           .reduce_op = work->op,
                           .count = work->count,
                           .file = work->file,
                           .line = work->line};
    size_t bytes = bytes_of(work);
    if (bytes <= TT__INLINE_MAX)
        tt__publish(group, &call, work->buf, bytes, NULL);
    else
        tt__publish(group, &call, NULL, 0, tt__in_heap(group, work->buf, bytes) ? work->buf : NULL);
    work->seq = group->seq;
    work->phase = PUBLISHED;
}

static void complete(tt_group *group, tt__work *work) {
    group->queue = work->next;
    if (!group->queue)
        group->queue_end = NULL;
    work->status = TT_OK;
    work->done = true;
}

/* All have come: this rank's part. An inline work is complete with it; it is the head then, or becomes so without waiting for more than
 * the steps before it. */
static tt_status act(tt_group *group, tt__work *work) {
    const tt__reduction reduction = reduction_of(work);
    uint32_t seq = (uint32_t)work->seq;
    bool symmetric;
    TT__TRY(tt__agree(group, seq, &symmetric));
    if (group->world == 1) {
        work->seq = group->step;
    } else if (bytes_of(work) <= TT__INLINE_MAX) {
        tt__reduce_inline(group, &reduction, seq);
        work->seq = group->step;
    } else if (symmetric) {
        work->seq = tt__plan_steps(group, 1) + 1;
        tt__reduce_symmetric(group, &reduction, seq);
        tt__finish_step(group, (uint32_t)work->seq);
    } else {
        work->phase = STAGED;
        return TT_OK;
    }
    work->phase = REDUCED;
    return TT_OK;
}

static tt__wait condition(const tt_group *group, const tt__work *work) {
    return (tt__wait){work->phase == PUBLISHED ? TT__ARRIVAL : TT__STEP, (uint32_t)work->seq, 0, group->world};
}

/* Move one work as far as it goes without waiting. */
static tt_status advance(tt_group *group, tt__work *work) {
    if (work->phase == QUEUED)
        publish(group, work);
    tt__wait wait = condition(group, work);
    if (work->phase == PUBLISHED && tt__ready(group, &wait)) {
        tt__ring(group); /* nobody should sleep through what may be a long reduction */
        TT__TRY(act(group, work));
    }
    wait = condition(group, work);
    if (work->phase == REDUCED && work == group->queue && tt__ready(group, &wait))
        complete(group, work);
    return TT_OK;
}

tt_status tt__group_progress(tt_group *group) {
    TT__TRY(tt__group_usable(group));
    tt_status status = TT_OK;
    for (tt__work *work = group->queue, *next; work && !status; work = next) {
        next = work->next;
        status = advance(group, work);
        if (!status && !work->done && work->phase != REDUCED)
            break; /* later ones wait for the agreement on this one */
    }
    tt__ring(group);
    return status;
}

/* Wait for the next thing that the first work of the queue needs. */
static tt_status wait_for_head(tt_group *group) {
    tt__work *head = group->queue;
    if (head->phase == QUEUED)
        publish(group, head);
    if (head->phase == STAGED) {
        const tt__reduction reduction = reduction_of(head);
        TT__TRY(tt__reduce_staged(group, &reduction));
        complete(group, head);
        return TT_OK;
    }
    tt__wait wait = condition(group, head);
    TT__TRY(tt__wait_for(group, &wait));
    if (head->phase == PUBLISHED)
        return act(group, head);
    complete(group, head);
    return TT_OK;
}

static tt_status wait_until_done(tt_group *group, const tt__work *work) {
    while (!work->done) {
        if (group->queue->next)
            TT__TRY(tt__group_progress(group));
        if (!work->done)
            TT__TRY(wait_for_head(group));
    }
    return TT_OK;
}

tt_status tt__work_wait(tt__work *work) {
    if (!work->done)
        return wait_until_done(work->group, work);
    if (work->status)
        tt__group_usable(work->group); /* records the text again */
    return work->status;
}

tt_status tt__work_drain(tt_group *group) {
    return group->queue_end ? wait_until_done(group, group->queue_end) : TT_OK;
}

static void enqueue(tt__work *work, tt_group *group, void *buf, size_t count, tt_dtype dtype, tt_reduce_op op,
                    const char *file, int line) {
    *work =
        (tt__work){.group = group, .buf = buf, .count = count, .dtype = dtype, .op = op, .file = file, .line = line};
    if (group->queue_end)
        group->queue_end->next = work;
    else
        group->queue = work;
    group->queue_end = work;
}

tt_status tt__all_reduce_begin(tt__work *work, tt_group *group, void *buf, size_t count, tt_dtype dtype,
                               tt_reduce_op op, const char *file, int line) {
    tt_status status = tt__check_call(group, "all_reduce", buf, count, dtype, op, 0);
    if (!status && !tt__in_heap(group, buf, count * tt_dtype_size(dtype)))
        status = tt__fail(TT_ERR_INVALID, "an asynchronous all_reduce needs memory of tt_group_alloc()");
    if (status) {
        *work = (tt__work){.group = group, .done = true, .status = status};
        return status;
    }
    enqueue(work, group, buf, count, dtype, op, file, line);
    return tt__group_progress(group);
}

tt_status tt__all_reduce_at(tt_group *group, void *buf, size_t count, tt_dtype dtype, tt_reduce_op op, const char *file,
                            int line) {
    TT__TRY(tt__check_call(group, "all_reduce", buf, count, dtype, op, 0));
    enqueue(&group->synchronous, group, buf, count, dtype, op, file, line);
    return tt__work_wait(&group->synchronous);
}
