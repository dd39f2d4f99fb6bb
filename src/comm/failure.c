/* Who will never come, and what happens to the group then.
 *
 * A rank that leaves or fails says so in its control page. One that dies closes its sockets, which the kernel tells; where a child of it has
 * inherited them, its pidfd tells. One that is stopped is seen in /proc. */
#include "base/clock.h"
#include "base/error.h"
#include "comm/group.h"

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* What this rank is waiting in, for the end of a sentence. */
static const char *current_call(const tt_group *group, char *text, size_t size) {
    tt__call_text(group, group->rank, group->seq, text, size);
    return text;
}

/* What rank r says of itself. */
static tt_status check_state(const tt_group *group, int r) {
    const tt__control *control = group->peers[r].control;
    char call[256];
    switch (atomic_load_explicit(&control->state, memory_order_acquire)) {
    case TT__LEFT:
        return tt__fail(TT_ERR_PEER, "rank %d left the group after call %u, while rank %d waits for it in call %u, %s",
                        r, control->left_seq, group->rank, group->seq, current_call(group, call, sizeof call));
    case TT__FAILED:
        return tt__fail(control->failure, "rank %d failed: %.*s", r, (int)sizeof control->failure_text - 1,
                        control->failure_text);
    default:
        return TT_OK;
    }
}

/* "rank 3 (pid 1234)"; the pid only where it means something to this process. */
static const char *name_of(const tt_group *group, int r, char *text, size_t size) {
    int n = snprintf(text, size, "rank %d", r);
    if (group->peers[r].pid)
        snprintf(text + n, size - (size_t)n, " (pid %d)", (int)group->peers[r].pid);
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
tt_status tt__check_stopped(tt_group *group, int r, int64_t now) {
    tt__peer *peer = &group->peers[r];
    if (!peer->pid || !is_stopped(peer->pid)) {
        peer->stopped_ms = 0;
        return TT_OK;
    }
    if (!peer->stopped_ms || now - group->last_check_ms > 1000)
        peer->stopped_ms = now;
    int64_t patience = group->heartbeat_ms - group->heartbeat_ms / 4;
    if (now - peer->stopped_ms < patience)
        return TT_OK;
    char who[48];
    return tt__fail(TT_ERR_PEER, "%s is frozen: stopped by a signal for %lld ms", name_of(group, r, who, sizeof who),
                    (long long)(now - peer->stopped_ms));
}

static tt_status check_process(tt_group *group, int r, int64_t now) {
    char call[256], who[48], end[80];
    if (has_ended(&group->peers[r])) {
        tt__launcher_end_of(&group->launcher, r, end, sizeof end);
        return tt__fail(TT_ERR_PEER, "%s ended%s%s, while rank %d waits for it in call %u, %s",
                        name_of(group, r, who, sizeof who), *end ? " with " : "", end, group->rank, group->seq,
                        current_call(group, call, sizeof call));
    }
    return tt__check_stopped(group, r, now);
}

tt_status tt__check_peers(tt_group *group, const tt__wait *wait, bool processes) {
    int64_t now = processes ? tt__now_ms() : 0;
    for (int r = wait->next; r < wait->end; r++) {
        if (r == group->rank || tt__ready_rank(group, wait, r))
            continue;
        tt_status status = processes ? check_process(group, r, now) : TT_OK;
        tt_status said = check_state(group, r); /* knows more than the process's end */
        if ((status || said) && !tt__ready_rank(group, wait, r))
            return said ? said : status;
    }
    return TT_OK;
}

static void fail_works(tt_group *group, tt_status status) {
    while (group->queue) {
        tt__work *work = group->queue;
        group->queue = work->next;
        work->status = status;
        work->done = true;
    }
    group->queue_end = NULL;
}

tt_status tt__group_fail(tt_group *group) {
    tt__control *self = group->peers[group->rank].control;
    tt_status status = tt_last_status();
    if (group->failed)
        return group->failed;
    group->failed = status;
    snprintf(group->failure_text, sizeof group->failure_text, "%s", tt_last_error());
    memcpy(self->failure_text, group->failure_text, sizeof self->failure_text);
    self->failure = status;
    self->left_seq = group->seq;
    atomic_store_explicit(&self->state, TT__FAILED, memory_order_release);
    group->unrung = true;
    tt__ring(group);
    fail_works(group, status);
    if (status == TT_ERR_PEER)
        tt__error_file_write(group->failure_text, true);
    return status;
}

void tt__group_retire(tt_group *group) {
    group->destroyed = true;
    if (!group->failed)
        fail_works(group, TT_ERR_STATE);
}

tt_status tt__group_usable(const tt_group *group) {
    if (!group)
        return tt__fail(TT_ERR_INVALID, "the group is NULL");
    if (group->destroyed)
        return tt__fail(TT_ERR_STATE, "the group was destroyed; what was made on it can only be freed");
    if (group->failed)
        return tt__fail(group->failed, "the group failed before and can't be used any more: %s", group->failure_text);
    return TT_OK;
}
