/* Connecting, with patience: the ranks of a job start in any order, so "nobody listens yet" is the normal case. */
#include "net/net.h"

#include "base/clock.h"
#include "base/error.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* Pauses between rounds grow from the first to the last of these: a peer that is just starting is found at once, a late one is not
 * hammered by thousands. */
enum { PAUSE_FIRST_MS = 1, PAUSE_LAST_MS = 64 };

/* A port of the ephemeral range can connect to itself while nobody listens (TCP's simultaneous open). */
static bool connected_to_self(int fd) {
    struct sockaddr_storage here = {0}, there = {0};
    socklen_t here_size = sizeof here, there_size = sizeof there;
    return !getsockname(fd, (struct sockaddr *)&here, &here_size) &&
           !getpeername(fd, (struct sockaddr *)&there, &there_size) && here_size == there_size &&
           !memcmp(&here, &there, here_size);
}

static int finish_connect(int fd, int64_t deadline_ms) {
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    int n;
    while ((n = poll(&p, 1, tt__left_ms(deadline_ms))) < 0 && errno == EINTR)
        ;
    if (n < 0)
        return errno;
    if (n == 0)
        return ETIMEDOUT;
    int errnum = 0;
    socklen_t size = sizeof errnum;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &size) ? errno : errnum;
}

/* One attempt at one address: an errno, 0 for success. */
static int try_address(const struct addrinfo *a, int64_t deadline_ms, int *out) {
    int fd = socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return errno;
    int errnum = connect(fd, a->ai_addr, a->ai_addrlen) ? errno : 0;
    if (errnum == EINPROGRESS || errnum == EINTR)
        errnum = finish_connect(fd, deadline_ms);
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

/* Loopback without a route is an interface that is down, as in a new network name space: waiting won't mend it. IPv4 says EADDRNOTAVAIL
 * when all ports are taken, which passes. */
static bool loopback_is_down(const struct addrinfo *a, int errnum) {
    return tt__net_is_loopback(a->ai_addr) &&
           (errnum == ENETUNREACH || (errnum == EADDRNOTAVAIL && a->ai_family == AF_INET6));
}

/* One round over all addresses of the host. `why` receives the last reason of failure, `hopeless` whether another round can't help. */
static bool try_host(const char *host, const char *port, int64_t deadline_ms, int *fd, char *why, size_t why_size,
                     bool *hopeless) {
    struct addrinfo *list = NULL;
    int gai = tt__net_resolve(host, port, AI_NUMERICSERV, &list);
    if (gai) {
        snprintf(why, why_size, "%s", gai == EAI_SYSTEM ? strerror(errno) : gai_strerror(gai));
        return false;
    }
    int errnum = EADDRNOTAVAIL;
    *hopeless = list != NULL;
    for (const struct addrinfo *a = list; a && errnum; a = a->ai_next) {
        errnum = try_address(a, deadline_ms, fd);
        *hopeless = *hopeless && loopback_is_down(a, errnum);
    }
    freeaddrinfo(list);
    if (errnum)
        snprintf(why, why_size, "%s", strerror(errnum));
    return !errnum;
}

tt_status tt__net_connect(int *fd, const char *host, int port, int64_t deadline_ms) {
    char service[16], why[128] = "";
    snprintf(service, sizeof service, "%d", port);
    int64_t start = tt__now_ms();
    bool hopeless = false;
    for (int pause = PAUSE_FIRST_MS;; pause = pause * 2 < PAUSE_LAST_MS ? pause * 2 : PAUSE_LAST_MS) {
        if (try_host(host, service, deadline_ms, fd, why, sizeof why, &hopeless))
            return TT_OK;
        int left = tt__left_ms(deadline_ms);
        if (!left || hopeless)
            break;
        if (pause > left)
            pause = left;
        nanosleep(&(struct timespec){.tv_nsec = pause * 1000000L}, NULL);
    }
    char where[TT__NET_ENDPOINT_SIZE];
    tt__net_endpoint_text(host, port, where);
    if (hopeless)
        return tt__fail(TT_ERR_NET, "could not connect to %s (%s). Is the loopback interface up (ip link set lo up)?",
                        where, why);
    return tt__fail(TT_ERR_TIMEOUT,
                    "could not connect to %s within %lld ms (%s). Is anything serving there, and is the address right?",
                    where, (long long)(tt__now_ms() - start), why);
}
