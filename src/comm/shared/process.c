#include "comm/shared/process.h"

#include "base/error.h"
#include "base/proc_state.h"

#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

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

/* Fail if rank r is stopped. This process may have been stopped itself: then times count from now on. */
tt_status tt__check_stopped(tt__world *world, int r, int64_t now) {
    tt__peer *peer = &world->peers[r];
    if (!peer->pid || tt__proc_state(peer->pid) != 'T') {
        peer->stopped_ms = 0;
        return TT_OK;
    }
    if (!peer->stopped_ms || now - world->last_check_ms > 1000)
        peer->stopped_ms = now;
    int64_t patience = world->heartbeat_ms - world->heartbeat_ms / 4;
    if (now - peer->stopped_ms < patience)
        return TT_OK;
    char who[48];
    return tt__fail(TT_ERR_PEER, "%s is frozen: stopped by a signal for %lld ms",
                    tt__process_name(world, r, who, sizeof who), (long long)(now - peer->stopped_ms));
}
