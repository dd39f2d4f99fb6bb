/* Connecting with patience: the ranks of a job start in any order, so usually the other side does not listen yet. */
#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/waits.h"
#include "net/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Pauses between rounds grow from the first to the last of these: a peer that is just starting is found at once, and
 * thousands of ranks don't overload a late one. */
enum { PAUSE_FIRST_MS = 1, PAUSE_LAST_MS = 64 };

/* Deadlines are long, and a wrong address looks like a late server: warn after the first time, and then repeatedly. */
enum { WARN_AFTER_MS = 5000, WARN_EVERY_MS = 60000 };

typedef struct waiting {
    const char *host;
    int port;
    int64_t start_ms, deadline_ms, warn_ms, every_ms;
    char why[160];    /* the last reason of failure */
    const char *step; /* the call that failed */
    bool forbidden;   /* this process may not make that call */
} waiting;

static void warn_if_due(waiting *w) {
    int64_t now = tt__now_ms();
    if (now < w->warn_ms)
        return;
    w->warn_ms = now + w->every_ms;
    char where[TT__NET_ENDPOINT_SIZE];
    tt__net_endpoint_text(w->host, w->port, where);
    tt__log(TT_LOG_WARNING, "no connection to %s for %.1f s (%s); trying for %.0f s more. Is the address right?", where,
            (double)(now - w->start_ms) / 1000, *w->why ? w->why : "no answer",
            (double)tt__left_ms(w->deadline_ms) / 1000);
}

/* Has the socket connected to itself? That can happen with a port of the ephemeral range on which nobody listens (TCP's
 * simultaneous open). */
static bool connected_to_self(int fd) {
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_size = sizeof here, there_size = sizeof there;
    return !getsockname(fd, (struct sockaddr *)&here, &here_size) &&
           !getpeername(fd, (struct sockaddr *)&there, &there_size) && here_size == there_size &&
           !memcmp(&here, &there, here_size);
}

/* Wait until the socket is writable; log a warning whenever one is due. */
static int wait_writable(int fd, waiting *w) {
    for (;;) {
        int64_t until = w->warn_ms < w->deadline_ms ? w->warn_ms : w->deadline_ms;
        struct pollfd p[2] = {{.fd = fd, .events = POLLOUT}, {.fd = tt__net_interrupt_fd(), .events = POLLIN}};
        int n = poll(p, 2, tt__left_ms(until));
        if (n > 0)
            return p[0].revents ? 0 : ECANCELED;
        if (n < 0 && errno != EINTR)
            return errno;
        if (!tt__left_ms(w->deadline_ms))
            return ETIMEDOUT;
        warn_if_due(w);
    }
}

static int await_connect(int fd, waiting *w) {
    int errnum = wait_writable(fd, w);
    socklen_t size = sizeof errnum;
    if (errnum)
        return errnum;
    if (!getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &size))
        return errnum;
    w->step = "getsockopt";
    return errno;
}

/* Try one address once. Returns an errno, 0 for success. */
static int try_address(const struct addrinfo *a, waiting *w, int *out) {
    w->step = "socket";
    int fd = tt__fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return errno;
    w->step = "connect";
    int errnum = connect(fd, a->ai_addr, a->ai_addrlen) ? errno : 0;
    if (errnum == EINPROGRESS || errnum == EINTR)
        errnum = await_connect(fd, w);
    if (!errnum && connected_to_self(fd))
        errnum = ECONNREFUSED;
    if (errnum) {
        close(fd);
        return errnum;
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    *out = fd;
    return 0;
}

/* Is the loopback interface down, as in a new network name space? Waiting won't help then. With IPv4, EADDRNOTAVAIL can
 * also mean that all ports are taken, which passes. */
static bool loopback_is_down(const struct addrinfo *a, int errnum) {
    return tt__net_is_loopback(a->ai_addr) &&
           (errnum == ENETUNREACH || (errnum == EADDRNOTAVAIL && a->ai_family == AF_INET6));
}

/* Does the system forbid this call? Then the other end can't change anything. */
static bool is_forbidden(int errnum) { return errnum == EPERM || errnum == EACCES || errnum == ENOSYS; }

/* Try all addresses of the host once. *hopeless: another round can't help. */
static bool try_host(waiting *w, int *fd, bool *hopeless) {
    struct addrinfo *list = NULL;
    char service[16];
    snprintf(service, sizeof service, "%d", w->port);
    int gai = tt__net_resolve(w->host, service, AI_NUMERICSERV, &list);
    if (gai) {
        snprintf(w->why, sizeof w->why, "%s", gai == EAI_SYSTEM ? strerror(errno) : gai_strerror(gai));
        return false;
    }
    int errnum = EADDRNOTAVAIL;
    *hopeless = list != NULL;
    for (const struct addrinfo *a = list; a && errnum; a = a->ai_next) {
        errnum = try_address(a, w, fd);
        *hopeless = *hopeless && (loopback_is_down(a, errnum) || is_forbidden(errnum));
    }
    freeaddrinfo(list);
    if (is_forbidden(errnum))
        snprintf(w->why, sizeof w->why, "%s: %s: a sandbox (seccomp) or a firewall forbids it", w->step,
                 strerror(errnum));
    else if (errnum)
        snprintf(w->why, sizeof w->why, "%s", strerror(errnum));
    w->forbidden = is_forbidden(errnum);
    return !errnum;
}

/* Try until the deadline. Success: *fd >= 0. *hopeless: given up earlier, because trying again can't help. */
static tt_status try_until_deadline(waiting *w, int *fd, bool *hopeless) {
    *fd = -1;
    *hopeless = false;
    for (int pause = PAUSE_FIRST_MS;; pause = pause * 2 < PAUSE_LAST_MS ? pause * 2 : PAUSE_LAST_MS) {
        if (try_host(w, fd, hopeless))
            return TT_OK;
        TT__TRY(tt__net_interrupted());
        int left = tt__left_ms(w->deadline_ms);
        if (!left || *hopeless)
            return TT_OK;
        warn_if_due(w);
        if (pause > left)
            pause = left;
        tt__sleep_ms(pause);
    }
}

tt_status tt__net_connect_warning(int *fd, const char *host, int port, int64_t deadline_ms, int64_t warn_after_ms,
                                  int64_t warn_every_ms) {
    int64_t start = tt__now_ms();
    waiting w = {.host = host,
                 .port = port,
                 .start_ms = start,
                 .deadline_ms = deadline_ms,
                 .warn_ms = start + warn_after_ms,
                 .every_ms = warn_every_ms};
    bool hopeless;
    char where[TT__NET_ENDPOINT_SIZE];
    TT__TRY(try_until_deadline(&w, fd, &hopeless));
    if (*fd >= 0)
        return TT_OK;
    tt__net_endpoint_text(host, port, where);
    if (hopeless && w.forbidden)
        return tt__fail(TT_ERR_SYSTEM, "could not connect to %s: %s", where, w.why);
    if (hopeless)
        return tt__fail(TT_ERR_NET, "could not connect to %s (%s). Is the loopback interface up (ip link set lo up)?",
                        where, w.why);
    return tt__fail(TT_ERR_TIMEOUT,
                    "could not connect to %s within %lld ms (%s). Is anything serving there, and is the address right?",
                    where, (long long)(tt__now_ms() - start), w.why);
}

tt_status tt__net_connect(int *fd, const char *host, int port, int64_t deadline_ms) {
    return tt__net_connect_warning(fd, host, port, deadline_ms, WARN_AFTER_MS, WARN_EVERY_MS);
}
