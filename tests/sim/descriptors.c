#include "sim/descriptors.h"

#include "base/process/waits.h"
#include "launch/local/signals.h"
#include "sim/history.h"
#include "sim/verdict.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>

enum { FIRST_FD = 1 << 20, MOST_SIGNALS = 8 };

typedef struct descriptor {
    sim_fd_kind kind;
    void *owner;
    uint64_t count; /* of things that can be read */
    int signals[MOST_SIGNALS];
    sim_task *waiter;
} descriptor;

static descriptor *all;
static int used, room, lowest_free;

static descriptor *of_fd(int fd) {
    return fd >= FIRST_FD && fd - FIRST_FD < used && all[fd - FIRST_FD].kind ? &all[fd - FIRST_FD] : NULL;
}

int sim_fd_new(sim_fd_kind kind, void *owner) {
    int i = lowest_free;
    while (i < used && all[i].kind)
        i++;
    if (i == room) {
        room = room ? 2 * room : 64;
        all = sim_memory(realloc(all, (size_t)room * sizeof *all));
    }
    used = i >= used ? i + 1 : used;
    lowest_free = i + 1;
    all[i] = (descriptor){.kind = kind, .owner = owner};
    return FIRST_FD + i;
}

void *sim_fd_owner(int fd, sim_fd_kind kind) {
    const descriptor *d = of_fd(fd);
    return d && d->kind == kind ? d->owner : NULL;
}

void sim_fd_put(int fd) {
    descriptor *d = of_fd(fd);
    if (!d)
        return;
    d->count++;
    sim_wake(d->waiter);
}

void sim_fd_take(int fd) {
    descriptor *d = of_fd(fd);
    if (d && d->count)
        d->count--;
}

bool sim_fd_signal(int fd, int sig) {
    descriptor *d = of_fd(fd);
    if (!d || d->kind != SIM_FD_SIGNALS || d->count == MOST_SIGNALS)
        return false;
    d->signals[d->count] = sig;
    sim_fd_put(fd);
    return true;
}

void sim_fd_close(int fd) {
    descriptor *d = of_fd(fd);
    if (!d)
        return;
    descriptor was = *d;
    *d = (descriptor){0};
    lowest_free = fd - FIRST_FD < lowest_free ? fd - FIRST_FD : lowest_free;
    if (was.kind == SIM_FD_KEEPER)
        sim_keeper_closed(was.owner);
    else if (was.kind == SIM_FD_STREAM)
        sim_stream_closed(was.owner);
}

/* ---- launch/local/signals.h */

tt_status tt__signals_open(tt__signals *signals, const sigset_t *wanted) {
    (void)wanted;
    sim_agent *agent = sim_agent_now();
    *signals = (tt__signals){.fd = sim_fd_new(SIM_FD_SIGNALS, agent)};
    sigemptyset(&signals->before);
    agent->signal_fd = signals->fd;
    return TT_OK;
}

bool tt__signals_take(tt__signals *signals, tt__signal *signal) {
    descriptor *d = of_fd(signals->fd);
    if (!d->count)
        return false;
    *signal = (tt__signal){.sig = d->signals[0]};
    memmove(d->signals, d->signals + 1, sizeof d->signals - sizeof *d->signals);
    d->count--;
    sim_note_signal_read(sim_agent_now()->node, signal->sig);
    return true;
}

void tt__signals_stop_here(void) { sim_fail("simulator", "no plan has a SIGTSTP"); }

void tt__signals_close(tt__signals *signals) {
    sim_fd_close(signals->fd);
    signals->fd = -1;
}

/* ---- base/process/waits.h */

tt_status tt__wake_open(int *wake) {
    *wake = sim_fd_new(SIM_FD_COUNTER, NULL);
    return TT_OK;
}

void tt__wake_ring(int wake) { sim_fd_put(wake); }

void tt__wake_clear(int wake) {
    descriptor *d = of_fd(wake);
    if (d)
        d->count = 0;
}

void tt__wake_close(int wake) { sim_fd_close(wake); }

void tt__sleep_us(int64_t us) {
    int64_t until = sim_now_ns() + us * 1000;
    while (sim_now_ns() < until)
        sim_wait(until);
}

/* Fill in which descriptors can be read; returns how many. Only virtual ones ever are, as the product has no others
 * here. */
static int poll_now(struct pollfd *fds, nfds_t n) {
    int ready = 0;
    for (nfds_t i = 0; i < n; i++) {
        const descriptor *d = fds[i].fd < 0 ? NULL : of_fd(fds[i].fd);
        fds[i].revents = d && d->count ? POLLIN & fds[i].events : 0;
        ready += fds[i].revents != 0;
    }
    return ready;
}

static void set_waiters(const struct pollfd *fds, nfds_t n, sim_task *waiter) {
    for (nfds_t i = 0; i < n; i++) {
        descriptor *d = fds[i].fd < 0 ? NULL : of_fd(fds[i].fd);
        if (d)
            d->waiter = waiter;
    }
}

int tt__poll(struct pollfd *fds, int count, int timeout) {
    nfds_t n = (nfds_t)count;
    int64_t until = timeout < 0 ? SIM_NEVER : sim_now_ns() + timeout * SIM_MS;
    int ready = poll_now(fds, n);
    if (ready || timeout == 0) {
        sim_wait(sim_now_ns() + 1000); /* a call takes a moment */
        return ready ? poll_now(fds, n) : 0;
    }
    set_waiters(fds, n, sim_task_now());
    while (!(ready = poll_now(fds, n)) && sim_now_ns() < until)
        sim_wait(until);
    set_waiters(fds, n, NULL);
    return ready;
}
