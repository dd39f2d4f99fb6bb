#include "sim/descriptors.h"

#include "sim/history.h"
#include "sim/verdict.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum { FIRST_FD = 1 << 20, MOST_SIGNALS = 8 };

typedef struct descriptor {
    sim_fd_kind kind;
    void *owner;
    uint64_t count; /* of what can be read */
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

/* ---- system calls */

int __real_close(int fd);
ssize_t __real_read(int fd, void *bytes, size_t size);
ssize_t __real_write(int fd, const void *bytes, size_t size);
int __wrap_eventfd(unsigned count, int flags);
int __wrap_signalfd(int fd, const sigset_t *set, int flags);
int __wrap_close(int fd);
ssize_t __wrap_read(int fd, void *bytes, size_t size);
ssize_t __wrap_write(int fd, const void *bytes, size_t size);
int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout);
ssize_t __wrap___read_chk(int fd, void *bytes, size_t size, size_t room);
int __wrap___poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room);

int __wrap_eventfd(unsigned count, int flags) {
    (void)flags;
    int fd = sim_fd_new(SIM_FD_COUNTER, NULL);
    of_fd(fd)->count = count;
    return fd;
}

int __wrap_signalfd(int fd, const sigset_t *set, int flags) {
    (void)fd;
    (void)set;
    (void)flags;
    sim_agent *agent = sim_agent_now();
    return agent->signal_fd = sim_fd_new(SIM_FD_SIGNALS, agent);
}

int __wrap_close(int fd) {
    descriptor *d = of_fd(fd);
    if (!d)
        return __real_close(fd);
    descriptor was = *d;
    *d = (descriptor){0};
    lowest_free = fd - FIRST_FD < lowest_free ? fd - FIRST_FD : lowest_free;
    if (was.kind == SIM_FD_KEEPER)
        sim_keeper_closed(was.owner);
    else if (was.kind == SIM_FD_STREAM)
        sim_stream_closed(was.owner);
    return 0;
}

static ssize_t read_signal(descriptor *d, void *bytes, size_t size) {
    struct signalfd_siginfo info = {.ssi_signo = (uint32_t)d->signals[0], .ssi_code = SI_USER};
    if (size < sizeof info)
        sim_fail("simulator", "a read of %zu bytes from a signalfd", size);
    memcpy(bytes, &info, sizeof info);
    memmove(d->signals, d->signals + 1, sizeof d->signals - sizeof *d->signals);
    d->count--;
    sim_note_signal_read(sim_agent_now()->node, (int)info.ssi_signo);
    return sizeof info;
}

ssize_t __wrap_read(int fd, void *bytes, size_t size) {
    descriptor *d = of_fd(fd);
    if (!d)
        return __real_read(fd, bytes, size);
    if (!d->count) {
        errno = EAGAIN;
        return -1;
    }
    if (d->kind == SIM_FD_SIGNALS)
        return read_signal(d, bytes, size);
    if (d->kind != SIM_FD_COUNTER || size < sizeof d->count)
        sim_fail("simulator", "a read of %zu bytes from a virtual descriptor", size);
    memcpy(bytes, &d->count, sizeof d->count);
    d->count = 0;
    return sizeof d->count;
}

ssize_t __wrap_write(int fd, const void *bytes, size_t size) {
    if (!of_fd(fd))
        return __real_write(fd, bytes, size);
    sim_fd_put(fd);
    return (ssize_t)size;
}

/* Fill in what can be read; returns how many. A descriptor of the machine's never is: the product has none here. */
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

int __wrap_poll(struct pollfd *fds, nfds_t n, int timeout) {
    int64_t until = timeout < 0 ? SIM_NEVER : sim_now_ns() + timeout * SIM_MS;
    int ready = poll_now(fds, n);
    if (ready || timeout == 0) {
        sim_wait(sim_now_ns() + 1000); /* which takes a moment, too */
        return ready ? poll_now(fds, n) : 0;
    }
    set_waiters(fds, n, sim_task_now());
    while (!(ready = poll_now(fds, n)) && sim_now_ns() < until)
        sim_wait(until);
    set_waiters(fds, n, NULL);
    return ready;
}

/* Where the compiler is to check sizes, it makes these of the calls. */

ssize_t __wrap___read_chk(int fd, void *bytes, size_t size, size_t room) {
    return __wrap_read(fd, bytes, size < room ? size : room);
}

int __wrap___poll_chk(struct pollfd *fds, nfds_t n, int timeout, size_t room) {
    (void)room;
    return __wrap_poll(fds, n, timeout);
}
