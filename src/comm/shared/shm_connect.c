/* Exchange of shared memory between the ranks of a host.
 *
 * Rank r calls every lower rank and is called by every higher one, over sequenced-packet sockets in the abstract name
 * space (no file is left behind). The caller sends a hello with its memory's descriptor attached, and the called rank
 * answers with its own. A hello proves with the receiver's nonce that its sender has read the store; the kernel says
 * which user and process it is. Both sides ask the kernel before they send: the socket behind a name from the store may
 * be anybody's, and a process that gets the descriptor can map the memory. The sockets stay open: when a process ends,
 * its peers read end of file.
 *
 * The kernel lets all processes of an ordinary user together have RLIMIT_NOFILE descriptors on their way, sent and not
 * yet received, and refuses more with ETOOMANYREFS; root is exempt. All pairs of 64 ranks together would be 2016. So a
 * rank has at most MAX_CALLS calls without an answer, and one descriptor of each pair is on its way at a time. The
 * user's other processes count, too, so a refused hello is sent again a little later. A rank serves its callers while
 * it calls, and waits for no single rank, so the order of calls can't make ranks wait in a circle. */
#include "comm/shared/shm_connect.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/fork.h"
#include "base/random_bytes.h"
#include "comm/rendezvous/rendezvous.h"
#include "comm/shared/process.h"
#include "net/local_socket.h"
#include "net/net.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

typedef struct hello {
    char magic[8];
    int32_t rank;
    char nonce[33]; /* of the receiver */
} hello;

static const char MAGIC[8] = "tutti-1";

enum {
    MAX_CALLS = 4,     /* calls without an answer at a time */
    MAX_CALLERS = 256, /* callers without a hello at a time */
    HELLO_MS = 1000,   /* for a caller's hello; a rank sends it as soon as it is connected */
    LOOK_MS = 50,      /* between two looks at absent ranks */
    SHORTEST_PAUSE_MS = 1,
    LONGEST_PAUSE_MS = 16, /* before a refused hello is sent again */
    REFUSED_MS = 60000     /* after which a rank gives up, so that others learn why before their own timeout */
};

/* One rank's exchange with the others of its host. */
typedef struct exchange {
    tt__world *world;
    const tt__card *cards;
    int64_t deadline_ms;
    int absent;   /* ranks whose memory is not here yet */
    int next;     /* the lowest rank that may have to be called yet */
    bool is_busy; /* the queue of callers of rank `next` was full */
    int n_calls;
    int calls[MAX_CALLS]; /* ranks that have been called and have not answered */
    int n_owed;
    int owed[TT__MAX_HOST_RANKS]; /* ranks that are to get this one's hello, in this order */
    int64_t refused_ms;           /* since when the kernel has refused every hello; 0: it has not */
    int64_t may_be_refused_ms;    /* how long the kernel may refuse */
    int pause_ms;
    int n_callers;
    int callers[MAX_CALLERS]; /* sockets of those that have not said hello, the oldest first */
    int64_t until_ms[MAX_CALLERS];
} exchange;

static tt_status random_hex(char text[33]) {
    unsigned char bytes[16];
    TT__TRY(tt__random_bytes(bytes, sizeof bytes));
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

/* Does the process at the other end belong to this user? Fails if the kernel can't tell, as in a sandbox. */
static tt_status ask_user(int socket, bool *ours) {
    uid_t user;
    if (!tt__local_peer_user(socket, &user))
        return tt__fail_errno(TT_ERR_SYSTEM, errno,
                              "can't find out whose process is at the other end of a Unix socket: "
                              "getsockopt(SO_PEERCRED)");
    *ours = user == geteuid();
    return TT_OK;
}

/* Read a hello, without waiting. Returns the sender's rank and its memory, or -1 if this is no rank of ours. */
static int receive_hello(int socket, const char *nonce, int world, int *fd) {
    hello text;
    ssize_t n = tt__receive_packet(socket, &text, sizeof text, MSG_DONTWAIT, fd);
    if (n == (ssize_t)sizeof text && *fd >= 0 && !memcmp(text.magic, MAGIC, sizeof MAGIC) &&
        !memcmp(text.nonce, nonce, sizeof text.nonce) && text.rank >= 0 && text.rank < world &&
        tt__local_peer_is_us(socket))
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

static bool is_absent(const tt__world *world, int r) {
    return r != world->rank && world->peers[r].local && !world->peers[r].control;
}

/* Has joining failed elsewhere? */
static tt_status check_notes(const tt__world *world) {
    tt__rankset absent = {0};
    if (!world->joining_watch || !tt__joining_watch_due(world->joining_watch))
        return TT_OK;
    for (int r = 0; r < world->size; r++)
        if (is_absent(world, r))
            tt__rankset_add(&absent, r);
    return tt__joining_watch_look(world->joining_watch, &absent);
}

/* Has a rank that has not called or answered yet ended, or is it stopped? Its card has its pid, which may be invisible
 * here. */
static tt_status check_absent(tt__world *world, const tt__card *cards) {
    int64_t now = tt__now_ms();
    TT__TRY(tt__net_interrupted());
    for (int r = 0; r < world->size; r++) {
        if (!is_absent(world, r))
            continue;
        if (has_ended(&world->peers[r]))
            return hello_fail_ended(r, cards);
        TT__TRY(tt__check_stopped(world, r, now));
    }
    world->last_check_ms = now;
    return check_notes(world);
}

/* Fail with a timeout that names the absent ranks. */
static tt_status fail_absent(const tt__world *world) {
    tt__rankset absent = {0};
    char who[256];
    for (int r = 0; r < world->size; r++)
        if (is_absent(world, r))
            tt__rankset_add(&absent, r);
    return tt__fail(TT_ERR_TIMEOUT, "%s did not join rank %d on its host (%s) in time",
                    tt__rankset_text(&absent, who, sizeof who), world->rank, world->peers[world->rank].hostname);
}

/* ---- what this rank says */

static void owe_hello(exchange *x, int r) { x->owed[x->n_owed++] = r; }

/* Connect to rank x->next, unless its queue of callers is full. */
static tt_status call_next(exchange *x) {
    struct sockaddr_un address;
    int r = x->next, *s = &x->world->peers[r].socket;
    socklen_t length = tt__abstract_address(&address, x->cards[r].socket);
    if (*s < 0)
        *s = tt__fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (*s < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make a Unix socket");
    bool called = !connect(*s, (struct sockaddr *)&address, length);
    x->is_busy = !called && (errno == EAGAIN || errno == EINTR);
    if (x->is_busy)
        return TT_OK;
    if (!called)
        return tt__fail_errno(TT_ERR_PEER, errno, "rank %d (pid %ld) can't be reached: it ended while joining", r,
                              x->cards[r].pid);
    bool ours = false;
    TT__TRY(ask_user(*s, &ours));
    if (!ours)
        return tt__fail(
            TT_ERR_AUTH,
            "the socket that the store names for rank %d belongs to another user: somebody else has written "
            "into the store, or the ranks of this host were started by different users",
            r);
    x->calls[x->n_calls++] = r;
    x->next++;
    owe_hello(x, r);
    return TT_OK;
}

static tt_status call_lower_ranks(exchange *x) {
    x->is_busy = false;
    while (x->next < x->world->rank && x->n_calls < MAX_CALLS && !x->is_busy) {
        if (!x->world->peers[x->next].local)
            x->next++;
        else
            TT__TRY(call_next(x));
    }
    return TT_OK;
}

static tt_status fail_refused(const exchange *x) {
    struct rlimit limit = {0};
    getrlimit(RLIMIT_NOFILE, &limit);
    return tt__fail_errno(TT_ERR_SYSTEM, ETOOMANYREFS,
                          "can't hand rank %d the memory of rank %d: for %lld ms this user's processes have had more "
                          "than %llu descriptors on their way in Unix sockets (`ulimit -n` raises that limit; or end "
                          "the process that does not receive them)",
                          x->owed[0], x->world->rank, (long long)(tt__now_ms() - x->refused_ms),
                          (unsigned long long)limit.rlim_cur);
}

/* The kernel refused another descriptor: wait until some on their way have been received. */
static tt_status hold_back(exchange *x) {
    if (!x->refused_ms) {
        x->refused_ms = tt__now_ms();
        x->pause_ms = SHORTEST_PAUSE_MS;
    } else if (x->pause_ms < LONGEST_PAUSE_MS) {
        x->pause_ms *= 2;
    }
    return tt__now_ms() - x->refused_ms < x->may_be_refused_ms ? TT_OK : fail_refused(x);
}

/* Say hello to rank r. *refused: not now. */
static tt_status say_hello(const exchange *x, int r, bool *refused) {
    hello text = {.rank = x->world->rank};
    memcpy(text.magic, MAGIC, sizeof MAGIC);
    memcpy(text.nonce, x->cards[r].nonce, sizeof text.nonce);
    bool said = tt__send_packet(x->world->peers[r].socket, &text, sizeof text, x->world->memory_fd);
    *refused = !said && (errno == ETOOMANYREFS || errno == EAGAIN);
    if (said || *refused)
        return TT_OK;
    if (errno == EPIPE || errno == ECONNRESET)
        return fail_hung_up(r, x->cards);
    return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't hand rank %d the memory of rank %d", r, x->world->rank);
}

static tt_status say_hellos(exchange *x) {
    int said = 0;
    bool refused = false;
    tt_status status = TT_OK;
    while (!status && said < x->n_owed && !refused) {
        status = say_hello(x, x->owed[said], &refused);
        said += !status && !refused;
    }
    x->n_owed -= said;
    memmove(x->owed, x->owed + said, (size_t)x->n_owed * sizeof *x->owed);
    if (said || !refused)
        x->refused_ms = 0;
    return status || !refused ? status : hold_back(x);
}

/* ---- what it hears */

/* Adopt the memory of rank r, which has said hello. */
static tt_status take_peer(exchange *x, int r, int socket, int fd) {
    TT__TRY(adopt_peer(x->world, r, socket, fd));
    x->absent--;
    return TT_OK;
}

/* Serve a caller's hello, and remove the caller; close a stranger's connection. */
static tt_status take_hello(exchange *x, int s) {
    const tt__world *world = x->world;
    errno = 0;
    int fd = -1, r = receive_hello(s, x->cards[world->rank].nonce, world->size, &fd);
    if (r < 0 && errno == EMFILE) {
        close(s);
        return tt__fail_errno(TT_ERR_SYSTEM, EMFILE, "can't take the memory of another rank");
    }
    if (r <= world->rank || !is_absent(world, r)) {
        if (fd >= 0)
            close(fd);
        close(s);
        return TT_OK;
    }
    TT__TRY(take_peer(x, r, s, fd));
    owe_hello(x, r);
    return TT_OK;
}

/* Accept one caller. Close connections of other users. */
static tt_status accept_caller(exchange *x, int listener) {
    int s = tt__fd(accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (s < 0)
        return errno == EAGAIN || errno == ECONNABORTED || errno == EINTR
                   ? TT_OK
                   : tt__fail_errno(TT_ERR_SYSTEM, errno, "accept on a Unix socket");
    bool ours = false;
    tt_status status = ask_user(s, &ours);
    if (!ours) {
        close(s);
        return status;
    }
    x->callers[x->n_callers] = s;
    x->until_ms[x->n_callers++] = tt__deadline_ms(HELLO_MS);
    return TT_OK;
}

/* Serve callers that have sent something, and drop those that were silent for too long. */
static tt_status hear_callers(exchange *x, const struct pollfd *polled) {
    tt_status status = TT_OK;
    int n = x->n_callers;
    x->n_callers = 0;
    for (int i = 0; i < n; i++) {
        if (!status && polled[i].revents) {
            status = take_hello(x, x->callers[i]);
        } else if (status || tt__left_ms(x->until_ms[i]) > 0) {
            x->until_ms[x->n_callers] = x->until_ms[i];
            x->callers[x->n_callers++] = x->callers[i];
        } else {
            close(x->callers[i]);
        }
    }
    return status;
}

static tt_status hear_answer(exchange *x, int r) {
    int fd, s = x->world->peers[r].socket;
    errno = 0;
    if (receive_hello(s, x->cards[x->world->rank].nonce, x->world->size, &fd) == r)
        return take_peer(x, r, s, fd);
    if (errno == EMFILE)
        return tt__fail_errno(TT_ERR_SYSTEM, EMFILE, "can't take the memory of rank %d", r);
    if (fd >= 0)
        close(fd);
    return fail_hung_up(r, x->cards);
}

static tt_status hear_answers(exchange *x, const struct pollfd *polled) {
    int n = x->n_calls;
    x->n_calls = 0;
    for (int i = 0; i < n; i++) {
        if (polled[i].revents)
            TT__TRY(hear_answer(x, x->calls[i]));
        else
            x->calls[x->n_calls++] = x->calls[i];
    }
    return TT_OK;
}

/* ---- both */

/* Wait until something can be read or sent, or it is time to look at absent ranks. */
static tt_status hear(exchange *x) {
    struct pollfd polled[1 + MAX_CALLS + MAX_CALLERS];
    int n = 0, left = tt__left_ms(x->deadline_ms), wait_ms = left < LOOK_MS ? left : LOOK_MS;
    int n_calls = x->n_calls, listener = x->world->listener;
    polled[n++] = (struct pollfd){.fd = listener, .events = x->n_callers < MAX_CALLERS ? POLLIN : 0};
    for (int i = 0; i < n_calls; i++)
        polled[n++] = (struct pollfd){.fd = x->world->peers[x->calls[i]].socket, .events = POLLIN};
    for (int i = 0; i < x->n_callers; i++)
        polled[n++] = (struct pollfd){.fd = x->callers[i], .events = POLLIN};
    int pause_ms = x->refused_ms ? x->pause_ms : x->is_busy ? LONGEST_PAUSE_MS : wait_ms;
    int ready = poll(polled, (nfds_t)n, pause_ms < wait_ms ? pause_ms : wait_ms);
    if (ready < 0 && errno != EINTR)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "poll");
    if ((ready <= 0 && !x->refused_ms) || tt__now_ms() - x->world->last_check_ms > LOOK_MS)
        TT__TRY(check_absent(x->world, x->cards));
    if (!left)
        return x->refused_ms ? fail_refused(x) : fail_absent(x->world);
    if (ready <= 0)
        return TT_OK;
    TT__TRY(hear_answers(x, polled + 1));
    TT__TRY(hear_callers(x, polled + 1 + n_calls));
    return polled[0].revents ? accept_caller(x, listener) : TT_OK;
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

tt_status tt__connect_all(tt__world *world, const tt__card *cards, int64_t deadline_ms) {
    int half_ms = tt__left_ms(deadline_ms) / 2;
    exchange x = {.world = world,
                  .cards = cards,
                  .deadline_ms = deadline_ms,
                  .may_be_refused_ms = half_ms < REFUSED_MS ? half_ms : REFUSED_MS};
    tt_status status = watch_processes(world, cards);
    for (int r = 0; r < world->size; r++)
        x.absent += is_absent(world, r);
    while (!status && (x.absent || x.n_owed)) {
        status = call_lower_ranks(&x);
        if (!status)
            status = say_hellos(&x);
        if (!status && x.absent + x.n_owed)
            status = hear(&x);
    }
    for (int i = 0; i < x.n_callers; i++)
        close(x.callers[i]);
    return status;
}
