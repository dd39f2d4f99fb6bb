#include "launch/local/watch.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "launch/polling.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_CALLERS = 1024, MAX_RECORDER = 1 << 20 };

/* What a rank has handed in. */
typedef struct seat {
    int memory; /* -1: nothing */
    tt__job_recorder at;
    int caller;         /* the index of its connection; -1: that has ended, and `memory` is a copy */
    tt__seen_rank seen; /* `memory`, mapped by the first tt__watch_recorder() */
} seat;

/* A connection. */
typedef struct caller {
    int fd;                                        /* -1: free */
    int seat;                                      /* of a rank; -1: a reader */
    int shown;                                     /* the rank whose recorder it handed in last; -1: none */
    bool awaits;                                   /* that rank listens for rounds */
    int wanted;                                    /* the round that it was last told is wanted (TT__JOB_WANTED) */
    int denied;                                    /* the round that it was last told won't come (TT__JOB_NO_ROUND) */
    bool crashed;                                  /* a rank that waits for tt__watch_let_end() */
    bool timed;                                    /* has handed in timers */
    bool old;                                      /* connected before tt__watch_renew(): no rank of this attempt */
    enum { LISTENS, ASKS, WAITS, IS_TOLD } reader; /* WAITS: for tt__watch_answer() */
    bool bare;                                     /* it wants no descriptors */
    int next;                                      /* IS_TOLD: the packet to send next; 0 is TT__JOB_INFO */
} caller;

struct tt__watch {
    tt__watch_job job;
    int epoll, listener, first_rank, n;
    seat *seats; /* (n) */
    caller callers[MAX_CALLERS];
    int listeners; /* tt__watch_listeners() */
};

enum { LISTENER = MAX_CALLERS };

static tt_status start_listening(tt__watch *watch, const char *name) {
    watch->epoll = tt__fd(epoll_create1(EPOLL_CLOEXEC));
    if (watch->epoll < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make an epoll descriptor");
    TT__TRY(tt__job_socket_listen(&watch->listener, name));
    if (!tt__epoll_watch(watch->epoll, EPOLL_CTL_ADD, watch->listener, LISTENER, EPOLLIN))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't watch the job's socket");
    return TT_OK;
}

tt_status tt__watch_open(tt__watch **out, int n, const tt__watch_job *job, const char *name) {
    tt__watch *watch = malloc(sizeof *watch);
    seat *seats = malloc((size_t)n * sizeof *seats);
    *out = NULL;
    if (!watch || !seats) {
        free(seats);
        free(watch);
        return tt__fail(TT_ERR_MEMORY, "no memory for the recorders of %d workers", n);
    }
    *watch = (tt__watch){.job = *job, .n = n, .seats = seats, .listener = -1, .epoll = -1};
    for (int i = 0; i < n; i++)
        seats[i] = (seat){.memory = -1, .caller = -1};
    for (int i = 0; i < MAX_CALLERS; i++)
        watch->callers[i] = (caller){.fd = -1, .seat = -1, .shown = -1};
    tt_status status = start_listening(watch, name);
    if (status)
        tt__watch_free(watch);
    else
        *out = watch;
    return status;
}

void tt__watch_free(tt__watch *watch) {
    if (!watch)
        return;
    for (int i = 0; i < MAX_CALLERS; i++)
        tt__close_fd(&watch->callers[i].fd);
    for (int i = 0; i < watch->n; i++) {
        tt__seen_unmap(&watch->seats[i].seen);
        tt__close_fd(&watch->seats[i].memory);
    }
    tt__close_fd(&watch->listener);
    tt__close_fd(&watch->epoll);
    free(watch->seats);
    free(watch);
}

void tt__watch_first_rank(tt__watch *watch, int first_rank) { watch->first_rank = first_rank; }

int tt__watch_fd(const tt__watch *watch) { return watch->epoll; }

/* ---- ranks */

static bool read_whole(int fd, void *to, size_t size, uint64_t offset) {
    for (size_t done = 0; done < size;) {
        ssize_t n = pread(fd, (char *)to + done, size - done, (off_t)(offset + done));
        if (n <= 0 && !(n < 0 && errno == EINTR))
            return false;
        done += n > 0 ? (size_t)n : 0;
    }
    return true;
}

/* Copy the recorder into a file of our own; -1 on failure. */
static int copy_recorder(const seat *s) {
    char *bytes = malloc(s->at.size);
    int copy = tt__sealed_memory("tutti-record", s->at.size);
    bool good = bytes && copy >= 0 && read_whole(s->memory, bytes, s->at.size, s->at.offset) &&
                pwrite(copy, bytes, s->at.size, 0) == (ssize_t)s->at.size;
    free(bytes);
    if (!good)
        tt__close_fd(&copy);
    return copy;
}

static void seat_release(seat *s) {
    tt__seen_unmap(&s->seen);
    int copy = copy_recorder(s);
    tt__close_fd(&s->memory);
    s->memory = copy;
    s->at.offset = 0;
    s->caller = -1;
}

/* Take the recorder in `memory`, which this takes over. */
static bool take_recorder(tt__watch *watch, int which, const tt__job_recorder *at, int memory) {
    int i = at->rank - watch->first_rank;
    if (memory < 0 || i < 0 || i >= watch->n || at->size > MAX_RECORDER || at->offset % TT__RECORDER_ALIGN) {
        tt__close_fd(&memory);
        return false;
    }
    seat *s = &watch->seats[i];
    if (s->caller >= 0)
        watch->callers[s->caller].seat = -1;
    tt__seen_unmap(&s->seen);
    tt__close_fd(&s->memory);
    *s = (seat){.memory = memory, .at = *at, .caller = which};
    watch->callers[which].seat = watch->callers[which].shown = i;
    return true;
}

/* A rank may have two connections for a moment, when it has just made another. */
bool tt__watch_tell_round(tt__watch *watch, int i, tt__job_kind kind, const tt__job_round *round) {
    bool told = false;
    for (int k = 0; k < MAX_CALLERS; k++) {
        caller *c = &watch->callers[k];
        tt__job_packet packet = {.round = *round};
        int *last = kind == TT__JOB_WANTED ? &c->wanted : kind == TT__JOB_NO_ROUND ? &c->denied : NULL;
        if (c->fd < 0 || !c->awaits || c->old || c->shown != i || (last && *last == round->number) ||
            !tt__job_send(c->fd, kind, &packet, -1))
            continue;
        told = true;
        if (last)
            *last = round->number;
    }
    return told;
}

int tt__watch_listeners(const tt__watch *watch) { return watch->listeners; }

const void *tt__watch_recorder(tt__watch *watch, int i, size_t *size) {
    return watch->seats[i].caller < 0 ? NULL : tt__watch_last_recorder(watch, i, size);
}

const void *tt__watch_last_recorder(tt__watch *watch, int i, size_t *size) {
    seat *s = &watch->seats[i];
    if (s->memory < 0)
        return NULL;
    if (!s->seen.mapping) {
        s->seen = (tt__seen_rank){.memory = s->memory, .rank.at = s->at};
        tt__seen_map(&s->seen);
    }
    *size = s->at.size;
    return s->seen.recorder;
}

/* ---- readers */

static int remote_count(const tt__watch *watch) { return watch->job.remotes(watch->job.user); }

/* Describe the i-th rank, of this host or another; returns its memory, or -1. */
static int describe_rank(const tt__watch *watch, int i, tt__job_rank *rank) {
    int memory;
    if (i < watch->n) {
        watch->job.local(watch->job.user, i, rank);
        memory = watch->seats[i].memory;
        rank->at = watch->seats[i].at;
    } else {
        memory = watch->job.remote(watch->job.user, i - watch->n, rank);
    }
    if (memory < 0)
        rank->at.size = 0;
    return memory;
}

/* Make a snapshot of the ranks from number `first` on, before `end`. */
static tt_status make_snapshot(const tt__watch *watch, int first, int end, tt__snapshot *snapshot) {
    tt_status status = TT_OK;
    *snapshot = (tt__snapshot){0};
    watch->job.info(watch->job.user, &snapshot->info);
    for (int i = first; !status && i < end; i++) {
        tt__job_rank rank;
        int memory = describe_rank(watch, i, &rank);
        status = tt__snapshot_add(snapshot, &rank, memory >= 0 ? fcntl(memory, F_DUPFD_CLOEXEC, 3) : -1);
    }
    if (status)
        tt__snapshot_free(snapshot);
    return status;
}

tt_status tt__watch_snapshot(const tt__watch *watch, tt__snapshot *snapshot) {
    return make_snapshot(watch, 0, watch->n + remote_count(watch), snapshot);
}

tt_status tt__watch_snapshot_of(const tt__watch *watch, int i, tt__snapshot *snapshot) {
    return make_snapshot(watch, i, i + 1, snapshot);
}

/* Describe a rank without the memory of its recorder. */
static bool send_bare(int fd, tt__job_packet *packet) {
    packet->rank.at.size = 0;
    return tt__job_send(fd, TT__JOB_RANK, packet, -1);
}

/* Send packet number `next` of an answer; false if it can't be sent now. A rank is shown without its recorder while too
 * many of this user's descriptors are on their way. */
static bool caller_send_next(tt__watch *watch, const caller *c) {
    tt__job_packet packet = {0};
    int i = c->next - 1;
    if (i < 0) {
        watch->job.info(watch->job.user, &packet.info);
        return tt__job_send(c->fd, TT__JOB_INFO, &packet, -1);
    }
    if (i >= watch->n + remote_count(watch))
        return tt__job_send(c->fd, TT__JOB_END, &packet, -1);
    int memory = describe_rank(watch, i, &packet.rank);
    if (c->bare)
        return send_bare(c->fd, &packet);
    return tt__job_send(c->fd, TT__JOB_RANK, &packet, memory) || (errno == ETOOMANYREFS && send_bare(c->fd, &packet));
}

/* Send as much as the reader's socket has room for. */
static void caller_send(tt__watch *watch, int which) {
    caller *c = &watch->callers[which];
    int packets = 2 + watch->n + remote_count(watch);
    while (c->next < packets && caller_send_next(watch, c))
        c->next++;
    c->reader = c->next < packets ? IS_TOLD : LISTENS;
    tt__epoll_watch(watch->epoll, EPOLL_CTL_MOD, c->fd, which, EPOLLIN | (c->reader == IS_TOLD ? EPOLLOUT : 0));
}

static void begin_answer(tt__watch *watch, int which) {
    watch->callers[which].next = 0;
    caller_send(watch, which);
}

void tt__watch_answer(tt__watch *watch) {
    for (int i = 0; i < MAX_CALLERS; i++)
        if (watch->callers[i].fd >= 0 && watch->callers[i].reader == WAITS)
            begin_answer(watch, i);
}

/* ---- connections */

static void caller_close(tt__watch *watch, int which) {
    caller *c = &watch->callers[which];
    if (c->seat >= 0)
        seat_release(&watch->seats[c->seat]);
    if (c->timed)
        watch->job.timed(watch->job.user, 0, which, -1);
    c->timed = false;
    tt__close_fd(&c->fd);
}

/* Accept connections. Returns whether there were any. */
static bool accept_callers(tt__watch *watch) {
    int fd;
    bool any = false;
    for (; (fd = tt__job_socket_accept(watch->listener)) >= 0; any = true) {
        int which = 0;
        while (which < MAX_CALLERS && watch->callers[which].fd >= 0)
            which++;
        if (which == MAX_CALLERS || !tt__epoll_watch(watch->epoll, EPOLL_CTL_ADD, fd, which, EPOLLIN)) {
            tt__job_refuse(fd, which == MAX_CALLERS ? "too many others have called it" : "it has no memory for more");
            continue;
        }
        watch->callers[which] = (caller){.fd = fd, .seat = -1, .shown = -1};
    }
    return any;
}

/* A rank crashes. One of an earlier attempt may end at once. */
static void caller_crashes(tt__watch *watch, int which, const tt__job_crash *crash) {
    caller *c = &watch->callers[which];
    if (c->crashed)
        return;
    c->crashed = true;
    if (!c->old)
        watch->job.crashed(watch->job.user, c->seat, tt__job_socket_peer(c->fd), which, crash);
    else
        tt__watch_let_end(watch, which);
}

void tt__watch_let_end(tt__watch *watch, int which) {
    caller *c = &watch->callers[which];
    tt__job_packet packet = {0};
    if (c->fd >= 0 && c->crashed)
        tt__job_send(c->fd, TT__JOB_SEEN, &packet, -1);
}

/* Receive one packet; false if the connection is over. */
static bool caller_receive(tt__watch *watch, int which) {
    caller *c = &watch->callers[which];
    tt__job_packet packet;
    int memory, got = tt__job_receive(c->fd, &packet, &memory);
    if (got <= 0)
        return got == 0;
    if (memory >= 0 && !tt__is_sealed_memory(memory)) { /* reading another kind of file may take any time */
        close(memory);
        return false;
    }
    if (packet.kind == TT__JOB_RECORDER && c->seat < 0 && !c->old)
        return take_recorder(watch, which, &packet.recorder, memory);
    if (packet.kind == TT__JOB_TIMERS && memory >= 0 && c->seat < 0 && !c->old && !c->timed) {
        c->timed = watch->job.timed(watch->job.user, tt__job_socket_peer(c->fd), which, memory);
        return c->timed;
    }
    tt__close_fd(&memory);
    if (packet.kind == TT__JOB_CRASH && c->seat >= 0) {
        caller_crashes(watch, which, &packet.crash);
        return true;
    }
    if (packet.kind == TT__JOB_AWAITS && c->shown >= 0) {
        c->awaits = true;
        watch->listeners++;
        return true;
    }
    if (packet.kind != TT__JOB_LIST || c->reader != LISTENS)
        return false;
    c->reader = ASKS;
    c->bare = packet.list.bare != 0;
    return true;
}

/* Serve the connections. False: there is a new one, which may have sent something already. */
static bool serve_callers(tt__watch *watch) {
    struct epoll_event events[64];
    bool all = true;
    int n = epoll_wait(watch->epoll, events, sizeof events / sizeof *events, 0);
    for (int i = 0; i < n; i++) {
        int which = (int)events[i].data.u32;
        if (which == LISTENER) {
            all = !accept_callers(watch);
            continue;
        }
        if (watch->callers[which].fd >= 0 && events[i].events & EPOLLOUT)
            caller_send(watch, which);
        if (events[i].events & ~(uint32_t)EPOLLOUT && !caller_receive(watch, which))
            caller_close(watch, which);
    }
    return all;
}

void tt__watch_renew(tt__watch *watch) {
    accept_callers(watch);
    for (int i = 0; i < MAX_CALLERS; i++) {
        caller *c = &watch->callers[i];
        c->old = true;
        if (c->seat >= 0)
            tt__close_fd(&c->fd);
        c->seat = -1;
    }
    for (int i = 0; i < watch->n; i++) {
        tt__seen_unmap(&watch->seats[i].seen);
        tt__close_fd(&watch->seats[i].memory);
        watch->seats[i] = (seat){.memory = -1, .caller = -1};
    }
}

/* Serve the socket. All packets are received before readers are answered: a rank hands in its memory before it ends,
 * and a reader must see both. */
void tt__watch_serve(tt__watch *watch) {
    while (!serve_callers(watch))
        ;
    for (int i = 0; i < MAX_CALLERS; i++)
        if (watch->callers[i].fd >= 0 && watch->callers[i].reader == ASKS) {
            watch->callers[i].reader = WAITS;
            if (watch->job.asked(watch->job.user))
                begin_answer(watch, i);
        }
}
