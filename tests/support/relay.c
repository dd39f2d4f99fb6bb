/* See relay.h. One process, one poll loop. A pair joins the two ends of a connection; each of its two directions holds
 * at most one piece. */
#include "support/relay.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAIRS = 256, CALLERS = 64, PIECE = 64 << 10 };

typedef struct direction {
    unsigned char piece[PIECE];
    size_t begin, end;      /* what of it is still to be written */
    int64_t due_ms, passed; /* bytes before this piece */
    bool ended;             /* the reading side is at its end */
} direction;

typedef struct pair {
    int fds[2]; /* caller, called; -1: a free place */
    int caller;
    direction *way; /* [2]: from fds[0] to fds[1], and back */
} pair;

typedef struct state {
    int listener, control;
    relay_order orders[CALLERS]; /* amount counts down */
    pair pairs[PAIRS];
} state;

static void must(bool done, const char *what) {
    if (done)
        return;
    perror(what);
    exit(1);
}

static int64_t now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void drop(pair *p, bool reset) {
    for (int i = 0; i < 2; i++) {
        if (reset)
            setsockopt(p->fds[i], SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
        close(p->fds[i]);
        p->fds[i] = -1;
    }
    free(p->way);
    p->way = NULL;
}

static bool read_whole(int fd, void *buf, size_t size) { return recv(fd, buf, size, MSG_WAITALL) == (ssize_t)size; }

/* The caller has said whom it meant: call that one. */
static void take_call(state *s) {
    relay_call call;
    int on = 1, from = accept(s->listener, NULL, NULL), to = -1;
    pair *p = s->pairs;
    while (p < s->pairs + PAIRS - 1 && p->way)
        p++;
    if (from >= 0 && !p->way && read_whole(from, &call, sizeof call) && call.caller >= 0 && call.caller < CALLERS)
        to = socket(call.address.ss_family, SOCK_STREAM, 0);
    if (to < 0 || connect(to, (struct sockaddr *)&call.address, call.address_size)) {
        close(from);
        close(to);
        return;
    }
    setsockopt(from, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(to, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    *p = (pair){{from, to}, call.caller, calloc(2, sizeof(direction))};
    must(p->way != NULL, "relay: memory");
}

static void take_order(state *s) {
    relay_order order;
    char done = 0;
    if (recv(s->control, &order, sizeof order, 0) != sizeof order)
        _exit(0);
    for (int c = 0; c < CALLERS; c++)
        if (order.caller < 0 || order.caller == c)
            s->orders[c] = order;
    if (send(s->control, &done, 1, MSG_NOSIGNAL) != 1)
        _exit(0);
}

static void flip_at(const relay_order *order, direction *way, bool said) {
    int64_t at = order->amount - way->passed;
    if (order->how == (said ? RELAY_FLIP_SAID : RELAY_FLIP_HEARD) && at >= 0 && at < (int64_t)way->end)
        way->piece[at] ^= 16;
    way->passed += (int64_t)way->end;
}

/* A piece was read: what is to happen to it? False: the pair is gone. */
static bool treat(state *s, pair *p, direction *way) {
    relay_order *order = &s->orders[p->caller];
    int64_t left = order->amount, n = (int64_t)way->end;
    if (order->how == RELAY_DELAY) {
        way->due_ms = now_ms() + order->amount;
        return true;
    }
    if (order->how != RELAY_STALL && order->how != RELAY_TEAR && order->how != RELAY_FLIP)
        return true;
    order->amount = left > n ? left - n : 0;
    if (left >= n)
        return true;
    if (order->how == RELAY_FLIP) {
        way->piece[left] ^= 16;
        order->how = RELAY_FORWARD;
        return true;
    }
    way->end = (size_t)left; /* the torn half still goes out; a stalled way reads no more */
    return true;
}

static bool stalled(const state *s, const pair *p) {
    const relay_order *order = &s->orders[p->caller];
    return order->how == RELAY_STALL && order->amount == 0;
}

static bool torn(const state *s, const pair *p) {
    const relay_order *order = &s->orders[p->caller];
    return order->how == RELAY_TEAR && order->amount == 0;
}

static bool read_piece(state *s, pair *p, int i) {
    direction *way = &p->way[i];
    ssize_t n = recv(p->fds[i], way->piece, PIECE, MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR;
    way->begin = 0;
    way->end = (size_t)n;
    way->due_ms = 0;
    if (n == 0) {
        way->ended = true;
        shutdown(p->fds[!i], SHUT_WR);
        return !p->way[!i].ended;
    }
    flip_at(&s->orders[p->caller], way, i == 0);
    return treat(s, p, way);
}

static bool write_piece(const state *s, pair *p, int i) {
    direction *way = &p->way[i];
    size_t n = way->end - way->begin;
    if (s->orders[p->caller].how == RELAY_CHOP && n > 1)
        n = 1;
    ssize_t sent = send(p->fds[!i], way->piece + way->begin, n, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent > 0)
        way->begin += (size_t)sent;
    return sent > 0 || errno == EAGAIN || errno == EINTR;
}

/* One end is gone and takes nothing more; what it sent before still goes to the other, as it would without a relay.
 * False: nothing is left. */
static bool give_up_writing(pair *p, int i) {
    direction *way = &p->way[i];
    way->begin = way->end = 0;
    way->ended = true;
    return !p->way[!i].ended;
}

static bool full(const direction *way) { return way->begin < way->end; }

/* Which events a pair waits for; the smallest time until one of its pieces is due. */
static void watch(const state *s, const pair *p, struct pollfd fds[2], int *timeout_ms) {
    for (int i = 0; i < 2; i++)
        fds[i] = (struct pollfd){.fd = p->fds[i]};
    for (int i = 0; i < 2; i++) {
        const direction *way = &p->way[i];
        int64_t left = full(way) ? way->due_ms - now_ms() : 0;
        if (left > 0)
            *timeout_ms = left < *timeout_ms ? (int)left : *timeout_ms;
        else if (full(way))
            fds[!i].events |= POLLOUT;
        else if (!way->ended && !stalled(s, p))
            fds[i].events |= POLLIN;
    }
    for (int i = 0; i < 2; i++)
        if (!fds[i].events) /* else the end of one side would be reported for ever */
            fds[i].fd = -1;
}

static void move(state *s, pair *p, const struct pollfd fds[2]) {
    for (int i = 0; i < 2; i++) {
        direction *way = &p->way[i];
        bool alive = true;
        if (full(way) && fds[!i].revents && way->due_ms <= now_ms())
            alive = write_piece(s, p, i) || give_up_writing(p, i);
        else if (!full(way) && fds[i].revents && !way->ended && !stalled(s, p))
            alive = read_piece(s, p, i);
        if (alive && !full(way) && torn(s, p))
            alive = false;
        if (!alive) {
            drop(p, true);
            return;
        }
    }
}

static void serve(state *s) {
    struct pollfd fds[2 + 2 * PAIRS];
    pair *pairs[PAIRS];
    for (;;) {
        int n = 0, timeout_ms = 1000;
        fds[0] = (struct pollfd){.fd = s->listener, .events = POLLIN};
        fds[1] = (struct pollfd){.fd = s->control, .events = POLLIN};
        for (pair *p = s->pairs; p < s->pairs + PAIRS; p++)
            if (p->way) {
                watch(s, p, &fds[2 + 2 * n], &timeout_ms);
                pairs[n++] = p;
            }
        if (poll(fds, (nfds_t)(2 + 2 * n), timeout_ms) < 0)
            continue;
        for (int i = 0; i < n; i++)
            move(s, pairs[i], &fds[2 + 2 * i]);
        if (fds[1].revents)
            take_order(s);
        if (fds[0].revents)
            take_call(s);
    }
}

void relay_start(relay *relay) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t size = sizeof address;
    int ends[2], listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    bool ready = listener >= 0 && !bind(listener, (struct sockaddr *)&address, sizeof address) &&
                 !listen(listener, 128) && !getsockname(listener, (struct sockaddr *)&address, &size) &&
                 !socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends);
    must(ready, "relay: sockets");
    *relay = (struct relay){.port = ntohs(address.sin_port), .control = ends[0]};
    fflush(NULL);
    relay->pid = fork();
    must(relay->pid >= 0, "relay: fork");
    if (!relay->pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        state *s = calloc(1, sizeof *s);
        must(s != NULL, "relay: memory");
        s->listener = listener;
        s->control = ends[1];
        serve(s);
    }
    close(listener);
    close(ends[1]);
}

void relay_tell(const relay *relay, int caller, relay_how how, int64_t amount) {
    relay_order order = {.caller = caller, .how = (int32_t)how, .amount = amount};
    char done;
    bool told = send(relay->control, &order, sizeof order, MSG_NOSIGNAL) == sizeof order &&
                recv(relay->control, &done, 1, 0) == 1;
    must(told, "relay: control");
}

void relay_stop(relay *relay) {
    close(relay->control);
    waitpid(relay->pid, NULL, 0);
}
