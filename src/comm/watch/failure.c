/* Detecting ranks that will never arrive.
 *
 * A rank that leaves or fails publishes it in its area, and to other hosts by a message. When one dies, the kernel
 * closes its sockets, of which a forked child has no copy (base/process/fork.h); its pidfd shows the end as well. A
 * stopped one is seen in /proc. Ranks on other hosts are judged by their links (message.h). */
#include "comm/watch/verdicts.h"

#include "base/error.h"
#include "base/machine/clock.h"
#include "comm/record/call_record.h"
#include "comm/shared/arrival.h"
#include "comm/shared/process.h"

#include <stdio.h>

/* ---- whom a work waits for */

static void unfinished_messages(const tt_work *work, tt__rankset *set) {
    const tt_group *group = work->group;
    for (size_t i = 0; i < work->message_used; i++) {
        const tt__message *message = &work->messages[i];
        for (int r = 0; r < group->size && !message->done; r++)
            if (r != group->rank && (group->ranks[r] == message->peer || message->peer == TT_ANY_SOURCE))
                tt__rankset_add(set, r);
    }
}

void tt__work_waits_for(const tt_work *work, tt__rankset *set) {
    if (work->phase != TT__PUBLISHED && work->phase != TT__RUNNING)
        return;
    if (work->wait.what == TT__MESSAGES)
        unfinished_messages(work, set);
    else if (work->wait.what != TT__CHILD)
        for (int r = work->wait.next; r < work->wait.end; r++)
            if (!tt__ready_rank(work->group, &work->wait, r))
                tt__rankset_add(set, r);
}

/* ---- what became of them */

/* ", while rank 0 waits for it in call 5, barrier() at train.c:10" */
static const char *failure_meanwhile(const tt_work *work, char *text, size_t size) {
    char call[256];
    tt__work_text(work, call, sizeof call);
    if (work->seq)
        snprintf(text, size, ", while rank %d waits for it in call %u, %s", work->group->native->world->rank,
                 tt__work_number(work), call);
    else
        snprintf(text, size, ", while rank %d waits for it in %s", work->group->native->world->rank, call);
    return text;
}

tt_status tt__check_failed(const tt_group *group, int r) {
    const tt__area *area = group->native->areas[r];
    const tt_group *top = tt__top_group(group);
    tt__messages *messages = group->native->world->messages;
    tt__news news;
    tt_status status;
    uint32_t seq;
    char said[sizeof group->failure_text];
    if (area)
        return atomic_load_explicit(&area->state, memory_order_acquire) == TT__FAILED &&
                       atomic_load_explicit(&area->group, memory_order_acquire) == group->id
                   ? tt__fail(area->failure, "%.*s", (int)sizeof area->failure_text - 1, area->failure_text)
                   : TT_OK;
    if (!messages || !tt__news_of(messages, group->ranks[r], top->id, &news, &status, &seq, said, sizeof said) ||
        news == TT__NEWS_LEFT)
        return TT_OK;
    return tt__fail(status, "%s", said);
}

/* Fail because rank r left, after an error of its own if `why` isn't empty. */
static tt_status fail_left_after(const tt_work *work, int r, uint32_t seq, const char *why, const char *meanwhile) {
    int rank = work->group->ranks[r];
    return *why ? tt__fail(TT_ERR_PEER, "rank %d failed: %.*s, and left the group after call %u%s", rank,
                           (int)sizeof work->group->failure_text - 1, why, seq, meanwhile)
                : tt__fail(TT_ERR_PEER, "rank %d left the group after call %u%s", rank, seq, meanwhile);
}

/* Check what rank r of the group has published: TT_OK if it is a member; *left: it has left without failing. */
static tt_status check_news(const tt_work *work, int r, bool *left) {
    const tt_group *group = work->group, *top = tt__top_group(group);
    tt__news news;
    tt_status status;
    uint32_t seq;
    char said[sizeof group->failure_text], text[400];
    if (!group->native->world->messages ||
        !tt__news_of(group->native->world->messages, group->ranks[r], top->id, &news, &status, &seq, said, sizeof said))
        return TT_OK;
    *left = true;
    return fail_left_after(work, r, seq, said, failure_meanwhile(work, text, sizeof text));
}

static tt_status check_peer(const tt_work *work, int r, bool *left) {
    const tt_group *group = work->group;
    const tt__area *area = group->native->areas[r];
    char text[400];
    TT__TRY(tt__check_failed(group, r));
    if (!area)
        return check_news(work, r, left);
    uint32_t state = atomic_load_explicit(&area->state, memory_order_acquire);
    uint32_t id = atomic_load_explicit(&area->group, memory_order_acquire);
    *left = state == TT__LEFT || (id != group->id && id != TT__FORMING);
    if (!*left)
        return TT_OK;
    if (id != group->id) /* it ended so long ago that another group has its place */
        return tt__fail(TT_ERR_PEER, "rank %d left the group%s", group->ranks[r],
                        failure_meanwhile(work, text, sizeof text));
    return fail_left_after(work, r, area->calls_made, area->failure_text, failure_meanwhile(work, text, sizeof text));
}

/* Check the link to a rank. If the rank is gone, its launcher knows how it ended. Ask about a silent rank, too: a
 * process made without fork() may still hold its connections. */
static tt_status check_link(tt__world *world, int r) {
    char end[80];
    tt_status status = world->messages ? tt__link_check(world->messages, r) : TT_OK;
    if (status == TT_ERR_PEER && (tt__link_is_gone(world->messages, r) || tt__link_silent(world->messages, r))) {
        char why[512];
        snprintf(why, sizeof why, "%s", tt_last_error());
        if (*tt__agent_store_end_of(&world->agent_store, r, end, sizeof end))
            return tt__fail(status, "rank %d ended with %s: %s", r, end, why);
        return tt__fail(status, "%s", why);
    }
    return status;
}

static tt_status failure_fail_ended(const tt__world *world, int r, const char *doing) {
    char who[48], end[80];
    tt__agent_store_end_of(&world->agent_store, r, end, sizeof end);
    return tt__fail(TT_ERR_PEER, "%s ended%s%s%s", tt__process_name(world, r, who, sizeof who), *end ? " with " : "",
                    end, doing);
}

static tt_status check_process(const tt_work *work, int r, int64_t now) {
    tt__world *world = work->group->native->world;
    char text[400];
    if (!world->peers[r].local)
        return check_link(world, r);
    if (tt__process_ended(&world->peers[r]))
        return failure_fail_ended(world, r, failure_meanwhile(work, text, sizeof text));
    return tt__check_stopped(world, r, now);
}

/* Return the ranks that the work waits for now: what a rank did before it ended may be seen late. */
static tt__rankset still_waits_for(const tt_work *work) {
    tt__rankset set = {0};
    if (work->group->native->world->messages)
        tt__messages_progress(work->group->native->world->messages);
    tt__work_waits_for(work, &set);
    return set;
}

static bool still_waits_for_rank(const tt_work *work, int r) {
    tt__rankset set = still_waits_for(work);
    return tt__rankset_has(&set, r);
}

/* Find out why rank r, of a group that was made from another, is gone. If the new group has seen no call yet, the rank
 * may have failed in the other group before it learned of the new one. Returns that error, or `status`, which is
 * recorded. */
static tt_status why_gone(const tt_group *group, int r, tt_status status) {
    const tt_group *top = tt__top_group(group), *origin;
    tt__world *world = group->native->world;
    int rank = group->ranks[r];
    if (!top->native->is_made || top->native->seq > 1 ||
        (world->peers[rank].local ? !tt__process_ended(&world->peers[rank]) : tt__link_silent(world->messages, rank)))
        return status;
    origin = tt__find_group(world, top->native->origin);
    tt_status said = origin ? tt__check_failed(origin, tt__rank_in_group(origin, rank)) : TT_OK;
    return said ? said : status;
}

/* Find out what is wrong with rank r, after a message failed. */
tt_status tt__check_rank(tt_work *work, int r) {
    tt_status status = check_process(work, work->group->ranks[r], tt__now_ms());
    bool left = false;
    tt_status said = check_peer(work, r, &left);
    return said ? said : status ? why_gone(work->group, r, status) : TT_OK;
}

/* Has the rank left the group without failing? */
static bool has_left(const tt_group *group, int r) {
    const tt__area *area = group->native->areas[r];
    tt__news news;
    tt_status status;
    uint32_t seq;
    char text[1];
    if (area)
        return atomic_load_explicit(&area->state, memory_order_acquire) == TT__LEFT ||
               (atomic_load_explicit(&area->group, memory_order_acquire) != group->id &&
                atomic_load_explicit(&area->group, memory_order_acquire) != TT__FORMING);
    return group->native->world->messages &&
           tt__news_of(group->native->world->messages, group->ranks[r], group->id, &news, &status, &seq, text,
                       sizeof text) &&
           news == TT__NEWS_LEFT;
}

tt_status tt__check_gone(const tt_group *group, int r, bool may_leave, const char *doing) {
    tt__world *world = group->native->world;
    int whom = group->ranks[r];
    TT__TRY(tt__check_failed(group, r));
    if (has_left(group, r))
        return may_leave ? TT_OK : tt__fail(TT_ERR_PEER, "rank %d left the group%s", whom, doing);
    if (!world->peers[whom].local)
        return check_link(world, whom);
    return tt__process_ended(&world->peers[whom]) ? failure_fail_ended(world, whom, doing)
                                                  : tt__check_stopped(world, whom, tt__now_ms());
}

/* Can the work do without the rank? A receive from any source can do without ranks that have left, as long as another
 * is there. */
static bool does_without(const tt_work *work, int r) {
    const tt_group *group = work->group;
    if (!work->message_used || work->seq || !has_left(group, r))
        return false;
    for (size_t i = 0; i < work->message_used; i++)
        if (!work->messages[i].done && work->messages[i].peer == group->ranks[r])
            return false;
    for (int other = 0; other < group->size; other++)
        if (other != group->rank && !has_left(group, other))
            return true;
    return false;
}

/* Has any rank published that the group failed? */
static tt_status check_said(const tt_group *group) {
    for (int r = 0; r < group->size; r++)
        if (r != group->rank)
            TT__TRY(tt__check_failed(group, r));
    return TT_OK;
}

/* Check all ranks while joining. In the first barrier rank A may wait for B, and B for a lost C, which only A can see
 * (it has a link to C, or shares its memory). So A checks all ranks, not only those that it waits for. They have the
 * same numbers in the first group as in the job. */
static tt_status check_joining(const tt_work *work, int64_t now) {
    const tt_group *top = tt__top_group(work->group);
    for (int r = 0; r < top->size; r++) {
        tt_status status = r == top->rank || has_left(top, r) ? TT_OK : check_process(work, r, now);
        if (!status || has_left(top, r))
            continue;
        tt__rankset set = still_waits_for(work);
        tt_status said = check_said(top); /* the reason why that rank has gone, unless it failed first */
        if (tt__rankset_count(&set))
            return said ? said : status;
    }
    return TT_OK;
}

/* Check the peers. A rank that is not waited for may leave; but if it failed, so has the group. */
tt_status tt__check_peers(tt_work *work, bool processes) {
    int64_t now = processes ? tt__now_ms() : 0;
    tt__rankset set = {0};
    tt__work_waits_for(work, &set);
    for (int r = 0; r < work->group->size; r++) {
        bool waited_for = tt__rankset_has(&set, r), left = false;
        if (r == work->group->rank)
            continue;
        tt_status status = processes && waited_for ? check_process(work, work->group->ranks[r], now) : TT_OK;
        tt_status said = check_peer(work, r, &left); /* tells more than the process's end */
        if (waited_for ? (status || said) && still_waits_for_rank(work, r) && !does_without(work, r) : said && !left)
            return said ? said : why_gone(work->group, r, status);
    }
    return processes && work->group->native->world->in_first_barrier ? check_joining(work, now) : TT_OK;
}

tt_status tt__check_receivers(const tt_work *work) {
    const tt_call *call = &work->call;
    size_t n = call->op == TT_OP_BATCH_ISEND_IRECV ? call->buffers : 1;
    for (size_t i = 0; i < n; i++) {
        const tt_p2p_op op = tt__p2p_op_of(call, i);
        bool left = false;
        if (!op.is_recv && op.peer != work->group->rank)
            TT__TRY(check_peer(work, op.peer, &left));
    }
    return TT_OK;
}
