/* Listening for connections, and log lines about refused ones: net.h. */
#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "net/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* With port 0 the first address gets any free port. If that port is taken at a further address, all start again. */
enum { ANY_PORT_ATTEMPTS = 16 };

static void set_port(struct sockaddr *address, int port) {
    if (address->sa_family == AF_INET6)
        ((struct sockaddr_in6 *)(void *)address)->sin6_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in *)(void *)address)->sin_port = htons((uint16_t)port);
}

/* Listen on one address. Returns an errno, 0 for success. */
static int listen_on(struct addrinfo *a, int port, int *out, int *bound) {
    int fd = tt__fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (fd < 0)
        return errno;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (a->ai_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){1}, sizeof(int));
    set_port(a->ai_addr, port);
    struct sockaddr_storage at = {0};
    socklen_t size = sizeof at;
    if (bind(fd, a->ai_addr, a->ai_addrlen) || listen(fd, SOMAXCONN) ||
        getsockname(fd, (struct sockaddr *)&at, &size)) {
        int errnum = errno;
        close(fd);
        return errnum;
    }
    *bound = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                            : ((struct sockaddr_in *)&at)->sin_port);
    *out = fd;
    return 0;
}

void tt__net_no_delay(int fd) { setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)); }

static void close_sockets(const int *fds, size_t n) {
    for (size_t i = 0; i < n; i++)
        close(fds[i]);
}

/* Listen on all addresses with one port. A family that this machine lacks is skipped; 0 if at least one address is
 * served. */
static int listen_list(struct addrinfo *list, int port, int *fds, size_t max, size_t *n, int *bound) {
    int unavailable = EADDRNOTAVAIL;
    *n = 0;
    *bound = port;
    for (struct addrinfo *a = list; a && *n < max; a = a->ai_next) {
        int errnum = listen_on(a, *bound, &fds[*n], bound);
        if (!errnum) {
            ++*n;
        } else if (errnum == EADDRNOTAVAIL || errnum == EAFNOSUPPORT) {
            unavailable = errnum;
        } else {
            close_sockets(fds, *n);
            *n = 0;
            return errnum;
        }
    }
    return *n ? 0 : unavailable;
}

static tt_status fail_listen(int errnum, const char *host, int port) {
    char where[TT__NET_ENDPOINT_SIZE];
    tt__net_endpoint_text(host, port, where);
    if (errnum == EADDRNOTAVAIL)
        return tt__fail(TT_ERR_NET, "can't serve on %s: no interface of this machine has that address", where);
    if (errnum != EADDRINUSE)
        return tt__fail_errno(TT_ERR_NET, errnum, "can't serve on %s", where);
    return tt__fail(
        TT_ERR_NET,
        "can't serve on %s: the port is in use. Stop what uses it, choose another port, or give port 0 for any "
        "free one",
        where);
}

/* Is `host` this machine's own name, with a loopback address, as Debian and others write it into /etc/hosts? Other
 * machines know it by a real address, so such a name is served on all addresses. */
static bool is_own_name(const char *host, const struct addrinfo *list) {
    struct in6_addr number;
    if (!list || strstr(host, "localhost") || inet_pton(AF_INET, host, &number) == 1 ||
        inet_pton(AF_INET6, host, &number) == 1)
        return false;
    for (; list; list = list->ai_next)
        if (!tt__net_is_loopback(list->ai_addr))
            return false;
    return true;
}

static int resolve_host(const char *host, struct addrinfo **list) {
    int error = tt__net_resolve(host, NULL, AI_PASSIVE, list);
    if (error || !is_own_name(host, *list))
        return error;
    freeaddrinfo(*list);
    return getaddrinfo(NULL, "0", &(struct addrinfo){.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE}, list);
}

tt_status tt__net_listen(const char *host, int port, int *fds, size_t max, size_t *n, int *bound) {
    struct addrinfo *list = NULL;
    char bare[TT__NET_HOST_SIZE];
    host = tt__net_bare_host(host, bare);
    *n = 0;
    int gai = resolve_host(host, &list);
    if (gai)
        return tt__fail(TT_ERR_NET, "can't serve on %s: %s", host,
                        gai == EAI_SYSTEM ? strerror(errno) : gai_strerror(gai));
    int errnum, attempt = 0;
    do
        errnum = listen_list(list, port, fds, max, n, bound);
    while (errnum == EADDRINUSE && port == 0 && ++attempt < ANY_PORT_ATTEMPTS);
    freeaddrinfo(list);
    return errnum ? fail_listen(errnum, host, port) : TT_OK;
}

/* ---- lines about refused connections ---- */

enum { LINES = 10, WINDOW_MS = 10000 };

void tt__refusals_flush_now(tt__refusals *refusals, const char *who) {
    if (refusals->suppressed)
        tt__log(TT_LOG_WARNING, "%s: refused %d more connections within %d s", who, refusals->suppressed,
                WINDOW_MS / 1000);
    refusals->lines = refusals->suppressed = 0;
}

void tt__refusals_flush(tt__refusals *refusals, const char *who) {
    int64_t now_ms = tt__now_ms();
    if (refusals->window_ms && now_ms - refusals->window_ms < WINDOW_MS)
        return;
    tt__refusals_flush_now(refusals, who);
    refusals->window_ms = now_ms;
}

void tt__refusals_log(tt__refusals *refusals, const char *who, const char *format, ...) {
    char text[512];
    va_list args;
    tt__refusals_flush(refusals, who);
    if (refusals->lines++ >= LINES) {
        refusals->suppressed++;
        return;
    }
    va_start(args, format);
    tt__vformat(text, sizeof text, format, args);
    va_end(args);
    tt__log(TT_LOG_WARNING, "%s: %s", who, text);
}

int64_t tt__refusals_next_ms(const tt__refusals *refusals) {
    return refusals->suppressed ? refusals->window_ms + WINDOW_MS : -1;
}
