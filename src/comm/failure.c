/* Who will never come, and what happens to the group then.
 *
 * A rank that leaves or fails says so in its area, and to other hosts by a message. One that dies closes its sockets, which the kernel tells; where a child
 * of it has inherited them, its pidfd tells. One that is stopped is seen in /proc. Of ranks on other hosts the links tell (message.h). */
#include "base/clock.h"
#include "base/error.h"
#include "base/saved_error.h"
#include "comm/group.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

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
static const char *meanwhile(const tt_work *work, char *text, size_t size) {
    char call[256];
    tt__work_text(work, call, sizeof call);
    if (work->seq)
        snprintf(text, size, ", while rank %d waits for it in call %u, %s", work->group->world->rank, work->seq, call);
    else
        snprintf(text, size, ", while rank %d waits for it in %s", work->group->world->rank, call);
    return text;
}

tt_status tt__check_failed(const tt_group *group, int r) {
    const tt__area *area = group->areas[r];
    const tt_group *top = group->parent ? group->parent : group;
    tt__messages *messages = group->world->messages;
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

/* What rank r of the group says of itself: TT_OK if it is a member; *left: it is none any more, but did not fail. */
static tt_status check_news(const tt_work *work, int r, bool *left) {
    const tt_group *group = work->group, *top = group->parent ? group->parent : group;
    tt__news news;
    tt_status status;
    uint32_t seq;
    char said[1], text[400];
    if (!group->world->messages ||
        !tt__news_of(group->world->messages, group->ranks[r], top->id, &news, &status, &seq, said, sizeof said))
        return TT_OK;
    *left = true;
    return tt__fail(TT_ERR_PEER, "rank %d left the group after call %u%s", group->ranks[r], seq,
                    meanwhile(work, text, sizeof text));
}

static tt_status check_state(const tt_work *work, int r, bool *left) {
    const tt_group *group = work->group;
    const tt__area *area = group->areas[r];
    char text[400];
    TT__TRY(tt__check_failed(group, r));
    if (!area)
        return check_news(work, r, left);
    uint32_t state = atomic_load_explicit(&area->state, memory_order_acquire);
    uint32_t id = atomic_load_explicit(&area->group, memory_order_acquire);
    *left = state == TT__LEFT || (id != group->id && id != TT__FORMING);
    if (!*left)
        return TT_OK;
    if (id != group->id) /* it was so long ago that the place has been taken */
        return tt__fail(TT_ERR_PEER, "rank %d left the group%s", group->ranks[r], meanwhile(work, text, sizeof text));
    return tt__fail(TT_ERR_PEER, "rank %d left the group after call %u%s", group->ranks[r], area->left_seq,
                    meanwhile(work, text, sizeof text));
}

/* "rank 3 (pid 1234)"; the pid only where it means something to this process. */
static const char *name_of(const tt__world *world, int r, char *text, size_t size) {
    int n = snprintf(text, size, "rank %d", r);
    if (world->peers[r].pid)
        snprintf(text + n, size - (size_t)n, " (pid %d)", (int)world->peers[r].pid);
    return text;
}

static bool has_ended(const tt__peer *peer) {
    struct pollfd fds[2] = {{.fd = peer->socket, .events = POLLIN | POLLRDHUP}, {.fd = peer->pidfd, .events = POLLIN}};
    return poll(fds, 2, 0) > 0;
}

/* State T, "stopped by a signal"; a process under a debugger (t) is left alone. */
static bool is_stopped(pid_t pid) {
    char path[40], text[256];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    text[n < 0 ? 0 : n] = '\0';
    const char *name_end = strrchr(text, ')');
    return name_end && name_end[1] == ' ' && name_end[2] == 'T';
}

/* This process may have been stopped itself: what it did not see running meanwhile counts from now on. */
tt_status tt__check_stopped(tt__world *world, int r, int64_t now) {
    tt__peer *peer = &world->peers[r];
    if (!peer->pid || !is_stopped(peer->pid)) {
        peer->stopped_ms = 0;
        return TT_OK;
    }
    if (!peer->stopped_ms || now - world->last_check_ms > 1000)
        peer->stopped_ms = now;
    int64_t patience = world->heartbeat_ms - world->heartbeat_ms / 4;
    if (now - peer->stopped_ms < patience)
        return TT_OK;
    char who[48];
    return tt__fail(TT_ERR_PEER, "%s is frozen: stopped by a signal for %lld ms", name_of(world, r, who, sizeof who),
                    (long long)(now - peer->stopped_ms));
}

/* A connection tells that a rank is gone; how it ended, its launcher. */
static tt_status check_link(tt__world *world, int r) {
    char end[80];
    tt_status status = world->messages ? tt__link_check(world->messages, r) : TT_OK;
    if (status == TT_ERR_PEER && tt__link_is_gone(world->messages, r)) {
        char why[512];
        snprintf(why, sizeof why, "%s", tt_last_error());
        if (*tt__launcher_end_of(&world->launcher, r, end, sizeof end))
            return tt__fail(status, "rank %d ended with %s: %s", r, end, why);
        return tt__fail(status, "%s", why);
    }
    return status;
}

static tt_status fail_ended(const tt__world *world, int r, const char *doing) {
    char who[48], end[80];
    tt__launcher_end_of(&world->launcher, r, end, sizeof end);
    return tt__fail(TT_ERR_PEER, "%s ended%s%s%s", name_of(world, r, who, sizeof who), *end ? " with " : "", end,
                    doing);
}

static tt_status check_process(const tt_work *work, int r, int64_t now) {
    tt__world *world = work->group->world;
    char text[400];
    if (!world->peers[r].local)
        return check_link(world, r);
    if (has_ended(&world->peers[r]))
        return fail_ended(world, r, meanwhile(work, text, sizeof text));
    return tt__check_stopped(world, r, now);
}

/* What a rank did before it went may still be on its way to be seen. */
static tt__rankset still_waits_for(const tt_work *work) {
    tt__rankset set = {0};
    if (work->group->world->messages)
        tt__messages_progress(work->group->world->messages);
    tt__work_waits_for(work, &set);
    return set;
}

static bool still_waits_for_rank(const tt_work *work, int r) {
    tt__rankset set = still_waits_for(work);
    return tt__rankset_has(&set, r);
}

/* Rank r of a group that was made from another is gone. If the new one has seen no call yet, it may never have come to know of it, having failed in that other:
 * then that is why. Returns that error, or `status`, which is recorded. */
static tt_status why_gone(const tt_group *group, int r, tt_status status) {
    const tt_group *top = group->parent ? group->parent : group, *origin = group->world->groups;
    tt__world *world = group->world;
    int rank = group->ranks[r];
    if (!top->is_made || top->seq > 1 ||
        (world->peers[rank].local ? !has_ended(&world->peers[rank]) : tt__link_silent(world->messages, rank)))
        return status;
    while (origin && origin->id != top->origin)
        origin = origin->next_group;
    tt_status said = origin ? tt__check_failed(origin, tt_get_group_rank(origin, rank)) : TT_OK;
    return said ? said : status;
}

/* After a message failed: what is wrong with rank r? */
tt_status tt__check_rank(tt_work *work, int r) {
    tt_status status = check_process(work, work->group->ranks[r], tt__now_ms());
    bool left = false;
    tt_status said = check_state(work, r, &left);
    return said ? said : status ? why_gone(work->group, r, status) : TT_OK;
}

tt_status tt__check_member(const tt_work *work, int r) {
    bool left = false;
    return check_state(work, r, &left);
}

/* Left, not failed. */
static bool has_left(const tt_group *group, int r) {
    const tt__area *area = group->areas[r];
    tt__news news;
    tt_status status;
    uint32_t seq;
    char text[1];
    if (area)
        return atomic_load_explicit(&area->state, memory_order_acquire) == TT__LEFT ||
               (atomic_load_explicit(&area->group, memory_order_acquire) != group->id &&
                atomic_load_explicit(&area->group, memory_order_acquire) != TT__FORMING);
    return group->world->messages &&
           tt__news_of(group->world->messages, group->ranks[r], group->id, &news, &status, &seq, text, sizeof text) &&
           news == TT__NEWS_LEFT;
}

tt_status tt__check_gone(const tt_group *group, int r, bool may_leave, const char *doing) {
    tt__world *world = group->world;
    int whom = group->ranks[r];
    TT__TRY(tt__check_failed(group, r));
    if (has_left(group, r))
        return may_leave ? TT_OK : tt__fail(TT_ERR_PEER, "rank %d left the group%s", whom, doing);
    if (!world->peers[whom].local)
        return check_link(world, whom);
    return has_ended(&world->peers[whom]) ? fail_ended(world, whom, doing)
                                          : tt__check_stopped(world, whom, tt__now_ms());
}

/* A receive from any source does without a rank that has left, as long as another is there. */
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

/* Who is lost while joining is waited for by those that have no link to it yet, and can't know; and they by those that have one, or share its memory. So these
 * look after all ranks, which have the same numbers in the first group as in the job. */
static tt_status check_joining(const tt_work *work, int64_t now) {
    const tt_group *top = work->group->parent ? work->group->parent : work->group;
    for (int r = 0; r < top->size; r++) {
        tt_status status = r == top->rank || has_left(top, r) ? TT_OK : check_process(work, r, now);
        if (!status || has_left(top, r))
            continue;
        tt__rankset set = still_waits_for(work);
        if (tt__rankset_count(&set))
            return status;
    }
    return TT_OK;
}

/* A rank that is not waited for may leave; but if it failed, so has the group. */
tt_status tt__check_peers(tt_work *work, bool processes) {
    int64_t now = processes ? tt__now_ms() : 0;
    tt__rankset set = {0};
    tt__work_waits_for(work, &set);
    for (int r = 0; r < work->group->size; r++) {
        bool waited_for = tt__rankset_has(&set, r), left = false;
        if (r == work->group->rank)
            continue;
        tt_status status = processes && waited_for ? check_process(work, work->group->ranks[r], now) : TT_OK;
        tt_status said = check_state(work, r, &left); /* knows more than the process's end */
        if (waited_for ? (status || said) && still_waits_for_rank(work, r) && !does_without(work, r) : said && !left)
            return said ? said : why_gone(work->group, r, status);
    }
    return processes && work->group->world->joining ? check_joining(work, now) : TT_OK;
}

/* ---- the end of the group */

/* The last call published. On shared memory a thread without the lock may be at its next one: its words tell. */
static uint32_t last_call(const tt_group *group) {
    const tt__area *self = group->areas[group->rank];
    if (!group->shared)
        return group->seq;
    uint32_t even = (uint32_t)atomic_load_explicit(&self->slots[0].word, memory_order_acquire),
             odd = (uint32_t)atomic_load_explicit(&self->slots[1].word, memory_order_acquire);
    return (int32_t)(even - odd) > 0 ? even : odd;
}

void tt__say(tt_group *group, tt_status status, const char *text) {
    tt__world *world = group->world;
    tt__area *self = group->areas[group->rank];
    if (group->said || world->forked)
        return;
    group->said = true;
    if (world->threaded && !group->parent)
        tt__news_send(world->messages, group->id, group->ranks, group->size,
                      status == TT_ERR_ABORTED ? TT__NEWS_ABORTED
                      : status                 ? TT__NEWS_FAILED
                                               : TT__NEWS_LEFT,
                      status, last_call(group), text);
    if (!self)
        return;
    if (status) {
        snprintf(self->failure_text, sizeof self->failure_text, "%s", text);
        self->failure = status;
    }
    self->left_seq = last_call(group);
    atomic_store_explicit(&self->state, status ? TT__FAILED : TT__LEFT, memory_order_release);
    tt__ring_peers(group);
}

static void fail_works(tt_group *group, tt_status status) {
    for (tt_work *work = group->queue; work; work = work->next)
        if (work->phase != TT__DONE)
            tt__work_complete(work, status);
    for (tt_work *work = group->loose; work; work = work->next)
        if (work->phase != TT__DONE)
            tt__work_complete(work, status);
    tt__group_unlink(group);
}

/* These name the culprit already; for anything else it is this rank. */
static bool is_about_another(tt_status status) {
    return status == TT_ERR_PEER || status == TT_ERR_TIMEOUT || status == TT_ERR_MISMATCH || status == TT_ERR_ABORTED;
}

tt_status tt__group_fail(tt_group *group) {
    tt_status status = tt_last_status();
    char said[sizeof group->failure_text];
    if (group->failed)
        return group->failed;
    tt__group_note_failure(group);
    if (is_about_another(status))
        snprintf(said, sizeof said, "%s", group->failure_text);
    else
        snprintf(said, sizeof said, "rank %d failed: %.*s", group->world->rank, (int)sizeof said - 40,
                 group->failure_text);
    tt__say(group, status, said);
    if (group->local)
        tt__group_fail(group->local);
    if (group->cross)
        tt__group_fail(group->cross);
    fail_works(group, status);
    if (group->parent)
        tt__group_fail(group->parent);
    else if (status == TT_ERR_PEER)
        tt__error_file_write(group->failure_text, true);
    tt__world_wake(group->world);
    return status;
}

static void retire(tt_group *group) {
    if (group->failed)
        return;
    tt__say(group, TT_OK, "");
    fail_works(group, TT_ERR_STATE);
}

void tt__native_retire(tt_group *group) {
    tt__world_own(group->world);
    tt__world_lock(group->world);
    tt__world_settle(group->world); /* a thread of ours may be about to say why some group failed */
    retire(group);
    if (group->local)
        retire(group->local);
    if (group->cross)
        retire(group->cross);
    tt__world_unlock(group->world);
}

void tt__native_abort(tt_group *group, const char *reason) {
    tt__saved_error saved;
    tt__error_save(&saved);
    tt__world_own(group->world);
    tt__world_lock(group->world);
    tt__fail(TT_ERR_ABORTED, "rank %d aborted the group: %s", group->world->rank, reason);
    tt__group_fail(group);
    tt__world_unlock(group->world);
    tt__error_restore(&saved);
}
