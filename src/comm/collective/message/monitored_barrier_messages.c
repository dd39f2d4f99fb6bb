/* monitored_barrier: a barrier whose error names all ranks that did not arrive.
 *
 * By messages, also inside a host: every rank reports to rank 0 that it has arrived; rank 0 answers with the list of
 * the ranks that have not. At its deadline, rank 0 cancels the receives that are still open: those are the missing
 * ranks. It does not count as a call of the group, so the words of earlier calls stay in place for ranks that come
 * late. */
#include "comm/collective/message/rounds.h"

#include "base/error.h"

#include <stdio.h>
#include <string.h>

/* How much longer a rank waits for the verdict than rank 0 waits for the ranks, since it may have arrived first. */
enum { VERDICT_MS = 1000, TEXT_SIZE = 1024 };

/* Steps of keys beside those of sends and receives, whose tags are not negative. */
static const uint32_t HERE = UINT32_C(1) << 31, VERDICT = UINT32_C(3) << 30;

typedef struct verdict {
    tt__rankset missing; /* of the group's ranks */
    int64_t waited_ms;
} verdict;

static verdict *verdict_of(const tt_work *work) { return (verdict *)(void *)((char *)work->scratch + TEXT_SIZE); }

/* Record the error; its text stays with the work. */
static tt_status fail_missing(tt_work *work) {
    const verdict *v = verdict_of(work);
    tt__rankset job = tt__job_ranks(work->group, &v->missing);
    char ranks[512];
    snprintf(work->scratch, TEXT_SIZE, "%s did not come to monitored_barrier() within %lld ms",
             tt__rankset_text(&job, ranks, sizeof ranks), (long long)v->waited_ms);
    return tt__fail(TT_ERR_TIMEOUT, "%s", (const char *)work->scratch);
}

enum { BEGIN, ASK, ANNOUNCE };

static tt__next as_root(tt_work *work, uint32_t number) {
    int n = work->group->size;
    switch (work->stage++) {
    case BEGIN:
        for (int r = 1; r < n; r++)
            tt__work_recv(work, (size_t)r, r, HERE | number, NULL, 0);
        return tt__work_wait_messages(work);
    case ASK:
        for (int r = 1; r < n; r++)
            tt__work_send(work, (size_t)r, r, VERDICT | number, verdict_of(work), sizeof(verdict));
        return tt__work_wait_messages(work);
    default:
        if (!tt__rankset_count(&verdict_of(work)->missing))
            return TT__NEXT_DONE;
        fail_missing(work);
        return TT__NEXT_REFUSED;
    }
}

static tt__next as_other(tt_work *work, uint32_t number) {
    switch (work->stage++) {
    case BEGIN:
        work->deadline_ms += VERDICT_MS;
        tt__work_send(work, 0, 0, HERE | number, NULL, 0);
        tt__work_recv(work, 1, 0, VERDICT | number, verdict_of(work), sizeof(verdict));
        return tt__work_wait_messages(work);
    default:
        if (!tt__rankset_count(&verdict_of(work)->missing))
            return TT__NEXT_DONE;
        fail_missing(work);
        return TT__NEXT_FAILED;
    }
}

static tt__next monitored_next(tt_work *work) {
    tt_group *group = work->group;
    if (group->size == 1)
        return TT__NEXT_DONE;
    if (work->stage == BEGIN) {
        size_t messages = group->rank ? 2 : (size_t)group->size;
        if (tt__work_scratch(work, TEXT_SIZE + sizeof(verdict)) || tt__work_messages(work, messages))
            return TT__NEXT_FAILED;
        memset(work->scratch, 0, TEXT_SIZE + sizeof(verdict));
        group->native->monitored++;
    }
    uint32_t number = group->native->monitored & ~VERDICT;
    return group->rank ? as_other(work, number) : as_root(work, number);
}

/* End the barrier at its deadline: list the ranks that have not arrived. */
static bool monitored_expire(tt_work *work) {
    verdict *v = work->scratch ? verdict_of(work) : NULL;
    if (work->group->rank || work->stage != ASK)
        return false;
    for (int r = 1; r < work->group->size; r++) {
        if (work->messages[r].done)
            continue;
        tt__rankset_add(&v->missing, r);
        tt__message_cancel(work->group->native->world->messages, &work->messages[r], TT_OK);
    }
    v->waited_ms = work->call.timeout_ms;
    return true;
}

const tt__algorithm tt__monitored_barrier_messages = {
    .name = "messages", .op = TT_OP_MONITORED_BARRIER, .next = monitored_next, .expire = monitored_expire};
