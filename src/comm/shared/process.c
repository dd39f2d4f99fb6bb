#include "comm/shared/process.h"

#include "base/error.h"
#include "base/process/proc_state.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

enum { STOPPED_LOOK_MS = 500 };

const char *tt__process_name(const tt__world *world, int r, char *text, size_t size) {
    int n = snprintf(text, size, "rank %d", r);
    if (world->peers[r].pid)
        snprintf(text + n, size - (size_t)n, " (pid %d)", (int)world->peers[r].pid);
    return text;
}

bool tt__process_ended(const tt__peer *peer) {
    struct pollfd fds[2] = {{.fd = peer->socket, .events = POLLIN | POLLRDHUP}, {.fd = peer->pidfd, .events = POLLIN}};
    return poll(fds, 2, 0) > 0;
}

const char *tt__process_main_ended(const tt__world *world, const tt__rankset *set, char *text, size_t size) {
    char who[48];
    *text = '\0';
    for (int r = tt__rankset_next(set, 0); r >= 0 && !*text; r = tt__rankset_next(set, r + 1))
        if (world->peers[r].pid && tt__proc_main_ended(world->peers[r].pid))
            snprintf(text, size, "; the main thread of %s has ended, and another thread keeps that process alive",
                     tt__process_name(world, r, who, sizeof who));
    return text;
}

/* Is it time to look whether the peer is stopped? Looking takes several system calls a rank, and at the beginning of a
 * large job every rank waits for all others. So look late and seldom. */
static bool is_look_due(const tt__world *world, tt__peer *peer, int64_t now) {
    int64_t interval = world->heartbeat_ms / 8;
    bool first = !peer->looked_ms;
    if (!first && now - peer->looked_ms < (interval < STOPPED_LOOK_MS ? interval : STOPPED_LOOK_MS))
        return false;
    peer->looked_ms = now;
    return !first;
}

/* Return since when the stopped peer has certainly been stopped. If it has run since the last look, it was stopped
 * again. If this process itself was stopped, times count from now. */
static int64_t stopped_since(const tt__world *world, tt__peer *peer, int64_t now) {
    uint64_t activity = tt__proc_activity(peer->pid);
    if (!peer->stopped_ms || activity != peer->activity || now - world->last_check_ms > 1000)
        peer->stopped_ms = now;
    peer->activity = activity;
    return peer->stopped_ms;
}

static bool look_whether_frozen(const tt__world *world, tt__peer *peer, int64_t now) {
    if (!peer->pid || tt__proc_state(peer->pid) != 'T') {
        peer->stopped_ms = 0;
        return false;
    }
    return now - stopped_since(world, peer, now) >= world->heartbeat_ms - world->heartbeat_ms / 4;
}

/* Between looks the last result holds. */
tt_status tt__check_stopped(tt__world *world, int r, int64_t now) {
    tt__peer *peer = &world->peers[r];
    char who[48];
    if (is_look_due(world, peer, now))
        peer->frozen = look_whether_frozen(world, peer, now);
    return peer->frozen ? tt__fail(TT_ERR_PEER, "%s is frozen: stopped by a signal for %lld ms",
                                   tt__process_name(world, r, who, sizeof who), (long long)(now - peer->stopped_ms))
                        : TT_OK;
}
