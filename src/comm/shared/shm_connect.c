/* Exchange of shared memory between the ranks of a host.
 *
 * Rank r calls every lower rank and is called by every higher one, over sequenced-packet sockets in the abstract name
 * space (no file is left behind). Caller and called send one hello each, with their memory's descriptor attached.
 * Sending never blocks, since each hello is the first packet of its socket; so: call and send to all lower ranks, take
 * and answer all callers, then read the lower ranks' answers. A hello proves with the receiver's nonce that its sender
 * has read the store; the kernel says which user and process it is. Both sides ask it before they send: a name from the
 * store may be anybody's socket, and whoever gets a descriptor can map the memory. The sockets stay open: when a
 * process ends, its peers read end of file. */
#include "comm/shared/shm_connect.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "base/fork_fds.h"
#include "comm/shared/process.h"
#include "net/interrupt.h"
#include "net/local_socket.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct hello {
    char magic[8];
    int32_t rank;
    char nonce[33]; /* of the receiver */
} hello;

static const char MAGIC[8] = "tutti-1";

/* How long to wait for a hello, which a rank sends as soon as it is connected, and for how many callers' at a time. */
enum { HELLO_MS = 1000, MAX_CALLERS = 256 };

/* The listener, and callers who have not said hello, the oldest first. */
typedef struct callers {
    struct pollfd polled[1 + MAX_CALLERS];
    int64_t until_ms[1 + MAX_CALLERS];
    int n; /* of `polled` that are used, with the listener */
} callers;

static tt_status random_hex(char text[33]) {
    unsigned char bytes[16];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "getrandom");
    for (size_t i = 0; i < sizeof bytes; i++)
        snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    return TT_OK;
}

tt_status tt__listen(int *fd, int world, tt__card *card) {
    struct sockaddr_un address;
    char name[33];
    TT__TRY(random_hex(name));
    TT__TRY(random_hex(card->nonce));
    snprintf(card->socket, sizeof card->socket, "tutti-%s", name);
    int listener = tt__fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (listener < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make a Unix socket");
    if (bind(listener, (struct sockaddr *)&address, tt__abstract_address(&address, card->socket)) ||
        listen(listener, world)) {
        tt_status status = tt__fail_errno(TT_ERR_SYSTEM, errno, "can't listen on the Unix socket @%s", card->socket);
        close(listener);
        return status;
    }
    *fd = listener;
    return TT_OK;
}

/* Has the process ended? One that was gone before it could be watched has no pidfd. */
static bool has_ended(const tt__peer *peer) {
    struct pollfd gone = {.fd = peer->pidfd, .events = POLLIN};
    return peer->pidfd >= 0 ? poll(&gone, 1, 0) > 0 : peer->pid && kill(peer->pid, 0) && errno == ESRCH;
}

static tt_status hello_fail_ended(int r, const tt__card *cards) {
    return tt__fail(TT_ERR_PEER, "rank %d (pid %ld) ended while joining", r, cards[r].pid);
}

static tt_status fail_hung_up(int r, const tt__card *cards) {
    return tt__fail(TT_ERR_PEER, "rank %d (pid %ld) hung up while joining", r, cards[r].pid);
}

static tt_status send_hello(const tt__world *world, int r, const tt__card *cards, int socket) {
    hello text = {.rank = world->rank};
    memcpy(text.magic, MAGIC, sizeof MAGIC);
    memcpy(text.nonce, cards[r].nonce, sizeof text.nonce);
    return tt__send_packet(socket, &text, sizeof text, world->memory_fd) ? TT_OK : fail_hung_up(r, cards);
}

static bool is_our_user(int socket) {
    uid_t user;
    return tt__local_peer_user(socket, &user) && user == geteuid();
}

/* Read a hello, without waiting. Returns the sender's rank and its memory, or -1 if this is no rank of ours. */
static int receive_hello(int socket, const char *nonce, int world, int *fd) {
    hello text;
    ssize_t n = tt__receive_packet(socket, &text, sizeof text, MSG_DONTWAIT, fd);
    if (n == (ssize_t)sizeof text && *fd >= 0 && !memcmp(text.magic, MAGIC, sizeof MAGIC) &&
        !memcmp(text.nonce, nonce, sizeof text.nonce) && text.rank >= 0 && text.rank < world && is_our_user(socket))
        return text.rank;
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
    return -1;
}

/* Map the memory of rank r, and remember the process behind the socket. Takes both descriptors. */
static tt_status adopt_peer(tt__world *world, int r, int socket, int fd) {
    tt__peer *peer = &world->peers[r];
    struct ucred user = {0};
    socklen_t size = sizeof user;
    peer->socket = socket;
    tt__fork_fd_drop(socket);
    tt_status status = tt__shm_map_peer(&peer->shm, fd, r);
    close(fd);
    TT__TRY(status);
    peer->control = tt__shm_control(&peer->shm);
    if (!getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &user, &size) && user.pid > 0)
        peer->pid = user.pid;
    if (peer->pid && peer->pid != getpid() && peer->pidfd < 0)
        peer->pidfd = tt__fd((int)syscall(SYS_pidfd_open, peer->pid, 0));
    return TT_OK;
}

static tt_status call_rank(tt__world *world, int r, const tt__card *cards, int64_t deadline_ms) {
    struct sockaddr_un address;
    socklen_t length = tt__abstract_address(&address, cards[r].socket);
    int left = tt__left_ms(deadline_ms);
    struct timeval limit = {left / 1000, left % 1000 * 1000 + 1};
    int s = tt__fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (s < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make a Unix socket");
    world->peers[r].socket = s;
    setsockopt(s, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(s, (struct sockaddr *)&address, length))
        return tt__fail_errno(TT_ERR_PEER, errno, "rank %d (pid %ld) can't be reached: it ended while joining", r,
                              cards[r].pid);
    if (!is_our_user(s))
        return tt__fail(
            TT_ERR_AUTH,
            "the socket that the store names for rank %d belongs to another user: somebody else has written "
            "into the store, or the ranks of this host were started by different users",
            r);
    return send_hello(world, r, cards, s);
}

/* Has a rank that has not called or answered yet ended, or is it stopped? Its pid is on its card, and may be invisible
 * here. */
static tt_status check_absent(tt__world *world, const tt__card *cards) {
    int64_t now = tt__now_ms();
    TT__TRY(tt__net_interrupted());
    for (int r = 0; r < world->size; r++) {
        if (r == world->rank || !world->peers[r].local || world->peers[r].control)
            continue;
        if (has_ended(&world->peers[r]))
            return hello_fail_ended(r, cards);
        TT__TRY(tt__check_stopped(world, r, now));
    }
    world->last_check_ms = now;
    return TT_OK;
}

/* Fail with a timeout that names the absent ranks, from rank `from` on. */
static tt_status fail_absent(const tt__world *world, int from) {
    tt__rankset absent = {0};
    char who[256];
    for (int r = from; r < world->size; r++)
        if (r != world->rank && world->peers[r].local && !world->peers[r].control)
            tt__rankset_add(&absent, r);
    return tt__fail(TT_ERR_TIMEOUT, "%s did not join rank %d on its host (%s) in time",
                    tt__rankset_text(&absent, who, sizeof who), world->rank, world->peers[world->rank].hostname);
}

/* Wait until `fd` is readable; looks after absent ranks now and then. Those from rank `from` on are waited for. */
static tt_status wait_readable(tt__world *world, int fd, const tt__card *cards, int64_t deadline_ms, int from) {
    for (;;) {
        int left = tt__left_ms(deadline_ms);
        struct pollfd ready = {.fd = fd, .events = POLLIN};
        int n = poll(&ready, 1, left < 50 ? left : 50);
        if (n > 0)
            return TT_OK;
        if (n < 0 && errno != EINTR)
            return tt__fail_errno(TT_ERR_SYSTEM, errno, "poll");
        TT__TRY(check_absent(world, cards));
        if (!left)
            return fail_absent(world, from);
    }
}

/* Serve the hello of a caller, who is done with then: a stranger is hung up on. */
static tt_status take_hello(tt__world *world, int s, const tt__card *cards, int *taken) {
    errno = 0;
    int fd = -1, r = receive_hello(s, cards[world->rank].nonce, world->size, &fd);
    if (r < 0 && errno == EMFILE) {
        close(s);
        return tt__fail_errno(TT_ERR_SYSTEM, EMFILE, "can't take the memory of another rank");
    }
    if (r <= world->rank || !world->peers[r].local || world->peers[r].control) {
        if (fd >= 0)
            close(fd);
        close(s);
        return TT_OK;
    }
    TT__TRY(adopt_peer(world, r, s, fd));
    ++*taken;
    return send_hello(world, r, cards, s);
}

/* Accept one caller. Of another user's nothing is heard. */
static tt_status accept_caller(callers *all) {
    int s = tt__fd(accept4(all->polled[0].fd, NULL, NULL, SOCK_CLOEXEC));
    if (s < 0)
        return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR
                   ? TT_OK
                   : tt__fail_errno(TT_ERR_SYSTEM, errno, "accept on a Unix socket");
    if (!is_our_user(s)) {
        close(s);
        return TT_OK;
    }
    all->polled[all->n] = (struct pollfd){.fd = s, .events = POLLIN};
    all->until_ms[all->n++] = tt__deadline_ms(HELLO_MS);
    return TT_OK;
}

/* Serve callers who have spoken, and drop those who were silent for too long. */
static tt_status hear_callers(tt__world *world, callers *all, const tt__card *cards, int *taken) {
    tt_status status = TT_OK;
    int kept = 1;
    for (int i = 1; i < all->n; i++) {
        int s = all->polled[i].fd;
        if (!status && all->polled[i].revents) {
            status = take_hello(world, s, cards, taken);
        } else if (status || tt__left_ms(all->until_ms[i]) > 0) {
            all->until_ms[kept] = all->until_ms[i];
            all->polled[kept++] = all->polled[i];
        } else {
            close(s);
        }
    }
    all->n = kept;
    return status;
}

/* Wait for callers and serve them, none of whom keeps another waiting. */
static tt_status take_calls(tt__world *world, callers *all, const tt__card *cards, int64_t deadline_ms, int expected) {
    for (int taken = 0; taken < expected;) {
        int left = tt__left_ms(deadline_ms);
        all->polled[0].events = all->n <= MAX_CALLERS ? POLLIN : 0;
        int n = poll(all->polled, (nfds_t)all->n, left < 50 ? left : 50);
        if (n < 0 && errno != EINTR)
            return tt__fail_errno(TT_ERR_SYSTEM, errno, "poll");
        if (n <= 0 || tt__now_ms() - world->last_check_ms > 50)
            TT__TRY(check_absent(world, cards));
        if (!left)
            return fail_absent(world, world->rank + 1);
        if (n < 0)
            continue;
        bool called = all->polled[0].revents;
        TT__TRY(hear_callers(world, all, cards, &taken));
        if (called)
            TT__TRY(accept_caller(all));
    }
    return TT_OK;
}

static tt_status read_answer(tt__world *world, int r, const tt__card *cards, int64_t deadline_ms) {
    int fd, s = world->peers[r].socket;
    TT__TRY(wait_readable(world, s, cards, deadline_ms, r));
    errno = 0;
    if (receive_hello(s, cards[world->rank].nonce, world->size, &fd) == r)
        return adopt_peer(world, r, s, fd);
    if (errno == EMFILE)
        return tt__fail_errno(TT_ERR_SYSTEM, EMFILE, "can't take the memory of rank %d", r);
    if (fd >= 0)
        close(fd);
    return fail_hung_up(r, cards);
}

static tt_status watch_processes(tt__world *world, const tt__card *cards) {
    for (int r = 0; r < world->size; r++) {
        if (r == world->rank || !world->peers[r].local || cards[r].pid == getpid() ||
            strcmp(cards[r].pid_space, cards[world->rank].pid_space) != 0)
            continue;
        world->peers[r].pid = (pid_t)cards[r].pid;
        world->peers[r].pidfd = tt__fd((int)syscall(SYS_pidfd_open, (pid_t)cards[r].pid, 0));
        if (world->peers[r].pidfd < 0 && errno == EMFILE)
            return tt__fail_errno(TT_ERR_SYSTEM, EMFILE, "can't watch rank %d", r);
    }
    return TT_OK;
}

tt_status tt__connect_all(tt__world *world, int listener, const tt__card *cards, int64_t deadline_ms) {
    TT__TRY(watch_processes(world, cards));
    int expected = 0;
    for (int r = 0; r < world->size; r++) {
        expected += r > world->rank && world->peers[r].local;
        if (r < world->rank && world->peers[r].local)
            TT__TRY(call_rank(world, r, cards, deadline_ms));
    }
    callers all = {.n = 1};
    all.polled[0].fd = listener;
    tt_status status = take_calls(world, &all, cards, deadline_ms, expected);
    for (int i = 1; i < all.n; i++)
        close(all.polled[i].fd);
    TT__TRY(status);
    for (int r = 0; r < world->rank; r++)
        if (world->peers[r].local)
            TT__TRY(read_answer(world, r, cards, deadline_ms));
    return TT_OK;
}
