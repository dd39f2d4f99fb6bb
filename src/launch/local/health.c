#include "launch/local/health.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "launch/polling.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

/* A client that is slower than CLIENT_MS, or one too many, is disconnected. */
enum {
    CLIENTS = TT__HEALTH_CLIENTS,
    LISTENER_EVENT = CLIENTS,
    REQUEST = 4096,
    ANSWER = TT__HEALTH_BODY + 256,
    CLIENT_MS = 5000
};

typedef struct probe {
    int fd; /* -1: free */
    int64_t until_ms;
    char request[REQUEST + 1];
    size_t got;
    char answer[ANSWER];
    size_t size, sent; /* size 0: the request is still being read */
    bool ended;        /* it sends no more, and may wait for the answer */
    struct in6_addr from;
} probe;

struct tt__health {
    int epoll, listener;
    bool deaf; /* no descriptors are left: the listener is ignored until a client has gone or deaf_until_ms */
    int64_t deaf_until_ms;
    tt__health_look *look;
    void *user;
    probe probes[CLIENTS];
};

tt_status tt__health_open(tt__health **out, int listener, tt__health_look *look, void *user) {
    tt__health *h = *out = calloc(1, sizeof *h);
    if (!h) {
        close(listener);
        return tt__fail(TT_ERR_MEMORY, "no memory to answer health checks");
    }
    *h = (tt__health){.listener = listener, .look = look, .user = user};
    for (int i = 0; i < CLIENTS; i++)
        h->probes[i].fd = -1;
    h->epoll = tt__fd(epoll_create1(EPOLL_CLOEXEC));
    if (h->epoll >= 0 && tt__epoll_watch(h->epoll, EPOLL_CTL_ADD, listener, LISTENER_EVENT, EPOLLIN))
        return TT_OK;
    int errnum = errno;
    tt__health_free(h);
    *out = NULL;
    return tt__fail_errno(TT_ERR_SYSTEM, errnum, "can't answer health checks");
}

/* ---- one client */

static void probe_close(tt__health *h, probe *p) {
    if (p->fd < 0)
        return;
    close(p->fd);
    p->fd = -1;
    if (h->deaf)
        h->deaf = !tt__epoll_watch(h->epoll, EPOLL_CTL_MOD, h->listener, LISTENER_EVENT, EPOLLIN);
}

/* Compose the answer. HEAD gets what GET gets, without the body. */
static void probe_answer(const tt__health *h, probe *p, int code, const char *reason) {
    char body[TT__HEALTH_BODY] = "";
    bool well = true;
    if (!code)
        well = h->look(h->user, body);
    else
        snprintf(body, sizeof body, "{\"error\": \"%s\"}", reason);
    if (!code)
        reason = well ? "OK" : "Service Unavailable";
    bool bare = !strncmp(p->request, "HEAD ", 5);
    int n = snprintf(p->answer, sizeof p->answer,
                     "HTTP/1.0 %d %s\r\nContent-Type: application/json\r\nContent-Length: %zu\r\n%s"
                     "Cache-Control: no-store\r\nConnection: close\r\n\r\n%s%s",
                     code   ? code
                     : well ? 200
                            : 503,
                     reason, strlen(body) + 1, code == 405 ? "Allow: GET, HEAD\r\n" : "", bare ? "" : body,
                     bare ? "" : "\n");
    p->size = n < (int)sizeof p->answer ? (size_t)n : sizeof p->answer - 1;
}

/* Look at what was read so far, and answer when the request is whole. */
static void probe_parse(const tt__health *h, probe *p) {
    const char *line_end = memchr(p->request, '\n', p->got);
    bool whole = strstr(p->request, "\r\n\r\n") || strstr(p->request, "\n\n");
    if (memchr(p->request, '\0', p->got) ||
        (line_end && !memmem(p->request, (size_t)(line_end - p->request), " HTTP/1.", 8)))
        probe_answer(h, p, 400, "Bad Request");
    else if (!whole && p->got == REQUEST)
        probe_answer(h, p, 431, "Request Header Fields Too Large");
    else if (!whole)
        return;
    else if (strncmp(p->request, "GET ", 4) != 0 && strncmp(p->request, "HEAD ", 5) != 0)
        probe_answer(h, p, 405, "Method Not Allowed");
    else
        probe_answer(h, p, 0, NULL);
}

/* Once all is sent, wait for the client's end: closing with bytes of it unread would reset what it has not read. */
static bool probe_send(probe *p) {
    while (p->sent < p->size) {
        ssize_t n = send(p->fd, p->answer + p->sent, p->size - p->sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        p->sent += (size_t)n;
        if (p->sent == p->size)
            shutdown(p->fd, SHUT_WR);
    }
    return true;
}

/* Read what there is; what follows the request is thrown away. False: the client is gone. */
static bool probe_receive(const tt__health *h, probe *p) {
    char rest[512];
    for (int i = 0; i < 16 && !p->ended; i++) { /* a client that sends without end must not occupy the launcher */
        bool reads = !p->size;
        ssize_t n =
            recv(p->fd, reads ? p->request + p->got : rest, reads ? REQUEST - p->got : sizeof rest, MSG_DONTWAIT);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return errno == EAGAIN;
        if (!n) {
            p->ended = true;
            return p->size != 0;
        }
        if (!reads)
            continue;
        p->got += (size_t)n;
        p->request[p->got] = '\0';
        probe_parse(h, p);
    }
    return true;
}

static void probe_serve(tt__health *h, int which) {
    probe *p = &h->probes[which];
    if (p->fd < 0)
        return;
    bool lives = probe_receive(h, p) && probe_send(p);
    if (!lives || (p->ended && p->sent == p->size))
        probe_close(h, p);
    else
        tt__epoll_watch(h->epoll, EPOLL_CTL_MOD, p->fd, which,
                        (p->ended ? 0 : EPOLLIN) | (p->sent < p->size ? EPOLLOUT : 0));
}

/* ---- all */

static bool same_client_host(const struct in6_addr *a, const struct in6_addr *b) { return !memcmp(a, b, sizeof *a); }

/* Score a client for losing its place to one from `next`: the highest score goes. Clients that have their answer go
 * first, then those whose address has the most places. */
static int dispensable(const tt__health *h, const probe *p, const struct in6_addr *next) {
    int places = same_client_host(&p->from, next);
    for (int i = 0; i < CLIENTS; i++)
        places += same_client_host(&h->probes[i].from, &p->from);
    return p->size && p->sent == p->size ? CLIENTS + 2 : places;
}

/* Return a free place for a client from `from`; if there is none, close the most dispensable client, of equal ones
 * the oldest. */
static int make_place(tt__health *h, const struct in6_addr *from) {
    int found = 0, most = 0;
    for (int i = 0; i < CLIENTS; i++)
        if (h->probes[i].fd < 0)
            return i;
    for (int i = 0; i < CLIENTS; i++) {
        int here = dispensable(h, &h->probes[i], from);
        if (here < most || (here == most && h->probes[i].until_ms >= h->probes[found].until_ms))
            continue;
        found = i;
        most = here;
    }
    probe_close(h, &h->probes[found]);
    return found;
}

static struct in6_addr host_address(const struct sockaddr_storage *peer) {
    struct in6_addr host = {0};
    if (peer->ss_family == AF_INET6)
        host = ((const struct sockaddr_in6 *)peer)->sin6_addr;
    else if (peer->ss_family == AF_INET)
        memcpy(&host, &((const struct sockaddr_in *)peer)->sin_addr, sizeof(struct in_addr));
    return host;
}

static int accept_probe(const tt__health *h, struct in6_addr *from) {
    struct sockaddr_storage peer = {0};
    socklen_t size = sizeof peer;
    int fd = tt__fd(accept4(h->listener, (struct sockaddr *)&peer, &size, SOCK_CLOEXEC | SOCK_NONBLOCK));
    int errnum = errno;
    *from = host_address(&peer);
    errno = errnum;
    return fd;
}

static void accept_probes(tt__health *h) {
    struct in6_addr from;
    int fd;
    while ((fd = accept_probe(h, &from)) >= 0) {
        int which = make_place(h, &from);
        h->probes[which] = (probe){.fd = fd, .until_ms = tt__deadline_ms(CLIENT_MS), .from = from};
        if (!tt__epoll_watch(h->epoll, EPOLL_CTL_ADD, fd, which, EPOLLIN))
            probe_close(h, &h->probes[which]);
        else
            probe_serve(h, which);
    }
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM)
        return;
    h->deaf = tt__epoll_watch(h->epoll, EPOLL_CTL_MOD, h->listener, LISTENER_EVENT, 0);
    h->deaf_until_ms = tt__deadline_ms(1000);
}

int tt__health_poll(const tt__health *h, int *timeout_ms) {
    int64_t until = h->deaf ? h->deaf_until_ms : INT64_MAX;
    for (int i = 0; i < CLIENTS; i++)
        if (h->probes[i].fd >= 0 && h->probes[i].until_ms < until)
            until = h->probes[i].until_ms;
    tt__lower_timeout(timeout_ms, until);
    return h->epoll;
}

void tt__health_serve(tt__health *h) {
    struct epoll_event events[CLIENTS + 1];
    int n = epoll_wait(h->epoll, events, CLIENTS + 1, 0);
    for (int i = 0; i < n; i++)
        if (events[i].data.u32 != LISTENER_EVENT)
            probe_serve(h, (int)events[i].data.u32);
    for (int i = 0; i < CLIENTS; i++)
        if (h->probes[i].fd >= 0 && !tt__left_ms(h->probes[i].until_ms))
            probe_close(h, &h->probes[i]);
    if (h->deaf && !tt__left_ms(h->deaf_until_ms))
        h->deaf = !tt__epoll_watch(h->epoll, EPOLL_CTL_MOD, h->listener, LISTENER_EVENT, EPOLLIN);
    for (int i = 0; i < n; i++)
        if (events[i].data.u32 == LISTENER_EVENT)
            accept_probes(h);
}

void tt__health_free(tt__health *h) {
    if (!h)
        return;
    for (int i = 0; i < CLIENTS; i++)
        tt__close_fd(&h->probes[i].fd);
    tt__close_fd(&h->epoll);
    close(h->listener);
    free(h);
}
