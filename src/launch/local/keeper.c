#include "launch/local/keeper.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "launch/local/children.h"
#include "launch/local/error_files.h"
#include "launch/local/worker_timers.h"
#include "launch/polling.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILL_TIMEOUT_MS = 4000, REAPED_AT_ONCE = 64, TELL_REST_MS = 10 };

/* The keeper's own state, in its process only. */
struct keeper {
    tt__job *job;
    int *stderr_ends; /* by rank; -1 = none */
    int socket;
    int child_signals; /* signalfd of SIGCHLD */
    int ends; /* epoll of the workers' pidfds: it lists them in the order in which they ended, wait(2) does not */
    pid_t self;
    pid_t *pids; /* by rank; 0 = not running */
    int *pidfds; /* by rank; -1 = none */
    bool *told;  /* by rank: an order has sent it a signal */
    int living;
    bool started; /* an attempt is under way: its end is still to be reported */
    bool told_leftovers;
    tt__telling telling; /* of this attempt */
    int64_t tell_ms;     /* when to call tt__tell_rest(), as some have ended; 0: none has */
};

static void keeper_send(const struct keeper *k, tt__keeper_message message) {
    while (send(k->socket, &message, sizeof message, MSG_NOSIGNAL) < 0 && errno == EINTR)
        ;
}

/* pid: 0 = there is no process. */
static void report_not_started(const struct keeper *k, int rank, int errnum, tt__start_step step, pid_t pid) {
    keeper_send(k, (tt__keeper_message){
                       .kind = TT__KEEPER_NOT_STARTED, .worker = rank, .not_started = {errnum, (int32_t)step, pid}});
}

/* Watch for the end of a worker. Without pidfds (old kernels), ends at one time are reported in any order. */
static int keeper_watch(const struct keeper *k, int rank, pid_t pid) {
    int fd = tt__fd((int)syscall(SYS_pidfd_open, pid, 0));
    if (fd < 0 || tt__epoll_watch(k->ends, EPOLL_CTL_ADD, fd, rank, EPOLLIN))
        return fd;
    close(fd);
    return -1;
}

static void start_worker(struct keeper *k, int rank) {
    pid_t pid = fork();
    if (pid == 0) {
        tt__start_step step;
        int errnum = tt__worker_exec(k->job, rank, k->stderr_ends[rank], k->self, &step);
        if (step != TT__STEP_PARENT) /* the launcher sees for itself that its keeper has ended, and blames no rank */
            report_not_started(k, rank, errnum, step, getpid());
        _exit(127);
    }
    if (pid < 0) {
        report_not_started(k, rank, errno, TT__STEP_FORK, 0);
    } else {
        k->told[rank] = false;
        k->pids[rank] = pid;
        k->pidfds[rank] = keeper_watch(k, rank, pid);
        k->living++;
        keeper_send(k, (tt__keeper_message){.kind = TT__KEEPER_STARTED, .worker = rank, .started = {pid}});
    }
    tt__close_fd(&k->stderr_ends[rank]);
}

/* Start the workers that are missing. */
static void start_workers(struct keeper *k, const tt__keeper_message *order) {
    k->started = true;
    k->told_leftovers = false;
    k->tell_ms = 0;
    tt__telling_clear(&k->telling);
    k->job->master_port = order->start.master_port;
    k->job->attempt = order->start.attempt;
    k->job->recovery = order->start.recovery;
    if (!k->living) {
        tt__job_error_dir_clear(k->job);
        tt__file_timers_make(k->job);
    }
    for (int rank = 0; rank < k->job->workers; rank++) {
        if (k->pids[rank])
            continue;
        tt__job_error_file_remove(k->job, rank);
        start_worker(k, rank);
    }
}

static int rank_of(const struct keeper *k, pid_t pid) {
    for (int rank = 0; rank < k->job->workers; rank++)
        if (k->pids[rank] == pid)
            return rank;
    return -1;
}

static void worker_reaped(void *user, pid_t pid, int status) {
    struct keeper *k = user;
    int rank = rank_of(k, pid);
    if (rank < 0)
        return;
    if (k->pidfds[rank] >= 0) {
        epoll_ctl(k->ends, EPOLL_CTL_DEL, k->pidfds[rank], NULL); /* a worker before its exec may hold a copy */
        close(k->pidfds[rank]);
    }
    k->pids[rank] = 0;
    k->living--;
    keeper_send(k, (tt__keeper_message){.kind = TT__KEEPER_ENDED, .worker = rank, .ended = {status, k->told[rank]}});
}

static void reap_one(struct keeper *k, pid_t pid) {
    int status;
    if (waitpid(pid, &status, WNOHANG | __WALL) == pid)
        worker_reaped(k, pid, status);
}

/* Reap workers, in the order in which they ended. Returns whether there was any. */
static bool reap_workers(struct keeper *k) {
    struct epoll_event events[REAPED_AT_ONCE];
    int n = epoll_wait(k->ends, events, REAPED_AT_ONCE, 0);
    for (int i = 0; i < n; i++)
        reap_one(k, k->pids[events[i].data.u32]);
    return n > 0;
}

/* Note that all ranks are about to be told. Those that have ended before are reaped first: they were not told. */
static void note_told(struct keeper *k) {
    for (int i = 0; i <= k->job->workers / REAPED_AT_ONCE; i++)
        reap_workers(k);
    for (int rank = 0; rank < k->job->workers; rank++)
        k->told[rank] = true;
}

/* Send a signal to everything below this process. */
static void tell_below(struct keeper *k, pid_t but, int sig) {
    k->tell_ms = 0;
    tt__tell_all(&k->telling, k->pids, (size_t)k->job->workers, but, sig);
}

static void tell_rest(struct keeper *k) {
    if (!k->tell_ms || tt__left_ms(k->tell_ms))
        return;
    k->tell_ms = 0;
    tt__tell_rest(&k->telling);
}

static void pass(struct keeper *k, int sig) {
    if (sig == SIGWINCH || sig == SIGSTOP || sig == SIGCONT) {
        tt__tell_state(k->job->group, sig);
        return;
    }
    note_told(k);
    tell_below(k, k->job->group, sig);
}

/* Kill all descendants. Workers are killed by their known pids first: that needs no /proc. */
static size_t kill_all(struct keeper *k) {
    note_told(k);
    for (int rank = 0; rank < k->job->workers; rank++)
        if (k->pids[rank])
            kill(k->pids[rank], SIGKILL);
    return tt__children_kill(NULL, 0, worker_reaped, k, KILL_TIMEOUT_MS);
}

/* The attempt is over. Orders that come for it later find nothing to do. */
static void attempt_over(struct keeper *k, size_t unkillable) {
    k->started = false;
    keeper_send(k, (tt__keeper_message){.kind = TT__KEEPER_DONE, .worker = -1, .unkillable = (int32_t)unkillable});
}

/* Keep `fd`, which came with the message, as a worker's stderr; -1: none came. */
static void take_stream(struct keeper *k, int rank, int fd) {
    if (fd >= 0 && rank >= 0 && rank < k->job->workers && k->stderr_ends[rank] < 0)
        k->stderr_ends[rank] = fd;
    else if (fd >= 0)
        close(fd);
}

/* Room for a control message with one descriptor. */
union with_descriptor {
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

/* *fd := the descriptor that came with the message, or -1. */
static ssize_t receive_order(int socket, tt__keeper_message *message, int *fd) {
    union with_descriptor control = {0};
    struct iovec bytes = {message, sizeof *message};
    struct msghdr packet = {
        .msg_iov = &bytes, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t n = recvmsg(socket, &packet, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    const struct cmsghdr *head = n > 0 ? CMSG_FIRSTHDR(&packet) : NULL;
    *fd = -1;
    if (head && head->cmsg_level == SOL_SOCKET && head->cmsg_type == SCM_RIGHTS)
        memcpy(fd, CMSG_DATA(head), sizeof *fd);
    return n;
}

static void keeper_execute(struct keeper *k, const tt__keeper_message *message, int fd) {
    switch ((tt__keeper_kind)message->kind) {
    case TT__KEEPER_PLACE:
        k->job->first_rank = message->place.first_rank;
        k->job->world = message->place.world;
        k->job->first_role_rank = message->place.first_role_rank;
        k->job->role_world = message->place.role_world;
        k->job->node = message->place.node;
        k->job->nodes = message->place.nodes;
        k->job->restarts = message->place.restarts;
        break;
    case TT__KEEPER_STREAM:
        take_stream(k, message->worker, fd);
        break;
    case TT__KEEPER_START:
        start_workers(k, message);
        break;
    case TT__KEEPER_SIGNAL:
        note_told(k);
        tell_below(k, 0, message->sig);
        break;
    case TT__KEEPER_PASS:
        pass(k, message->sig);
        break;
    case TT__KEEPER_SWEEP:
        tell_below(k, 0, message->sig);
        break;
    case TT__KEEPER_KILL_ONE:
        if (message->worker >= 0 && message->worker < k->job->workers && k->pids[message->worker])
            kill(k->pids[message->worker], SIGKILL);
        break;
    case TT__KEEPER_KILL:
        if (k->started)
            attempt_over(k, kill_all(k));
        break;
    default:
        break;
    }
}

/* Read an order of the launcher. The socket ends when the launcher dies, in whatever way, or closes it, having read the
 * error files. */
static void keeper_read(struct keeper *k) {
    tt__keeper_message message;
    int fd;
    ssize_t n = receive_order(k->socket, &message, &fd);
    if (n == (ssize_t)sizeof message) {
        keeper_execute(k, &message, fd);
    } else if (n >= 0 || (errno != EAGAIN && errno != EINTR)) {
        if (k->started)
            kill_all(k);
        tt__file_timers_unlink(k->job);
        tt__job_error_dir_remove(k->job);
        _exit(0);
    }
}

/* Reap all that have ended. Returns whether a child is left. */
static bool reap_all(struct keeper *k) {
    for (;;) {
        siginfo_t info = {0};
        if (reap_workers(k))
            continue;
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL) < 0)
            return errno != ECHILD;
        if (!info.si_pid)
            return true;
        int rank = rank_of(k, info.si_pid);
        if (rank < 0 || k->pidfds[rank] < 0) /* else it ended just now: the next reap_workers() takes it */
            reap_one(k, info.si_pid);
    }
}

/* Reap, and report when no child is left: then there is no descendant, as an orphan would be our child. */
static void keeper_reap(struct keeper *k) {
    struct signalfd_siginfo ignored;
    while (read(k->child_signals, &ignored, sizeof ignored) > 0)
        ;
    bool children = reap_all(k);
    if (!k->started || k->living)
        return;
    if (!children) {
        attempt_over(k, 0);
    } else if (!k->told_leftovers) {
        k->told_leftovers = true;
        keeper_send(k, (tt__keeper_message){.kind = TT__KEEPER_LEFTOVERS, .worker = -1});
    }
}

/* Get what the keeper needs. False: *missing can't be had; errno. */
static bool get_needs(struct keeper *k, tt__keeper_need *missing) {
    size_t n = (size_t)k->job->workers;
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    *missing = TT__NEED_SIGNALS;
    if ((k->child_signals = tt__fd(signalfd(-1, &child, SFD_NONBLOCK | SFD_CLOEXEC))) < 0)
        return false;
    *missing = TT__NEED_EPOLL;
    if ((k->ends = tt__fd(epoll_create1(EPOLL_CLOEXEC))) < 0)
        return false;
    *missing = TT__NEED_MEMORY;
    k->pids = calloc(n, sizeof *k->pids);
    k->pidfds = calloc(n, sizeof *k->pidfds);
    k->told = calloc(n, sizeof *k->told);
    k->stderr_ends = malloc(n * sizeof *k->stderr_ends);
    if (!k->pids || !k->pidfds || !k->told || !k->stderr_ends)
        return false;
    for (size_t i = 0; i < n; i++)
        k->stderr_ends[i] = -1;
    *missing = TT__NEED_SUBREAPER;
    return !prctl(PR_SET_CHILD_SUBREAPER, 1);
}

static void make_folder_of_errors(const struct keeper *k) {
    int failed = tt__job_error_dir_make(k->job);
    if (failed) {
        keeper_send(k, (tt__keeper_message){.kind = TT__KEEPER_NO_FOLDER, .worker = -1, .errnum = failed});
        _exit(1);
    }
    keeper_send(k, (tt__keeper_message){.kind = TT__KEEPER_FOLDER, .worker = -1, .folder = k->job->error_dir_id});
}

static _Noreturn void keeper_main(struct keeper *k) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    k->self = getpid();
    setpgid(0, 0);
    prctl(PR_SET_NAME, "tutti-keeper");
    if (k->job->health >= 0)
        close(k->job->health); /* it is the launcher's alone */
    tt__keeper_need missing;
    if (!get_needs(k, &missing)) {
        keeper_send(k,
                    (tt__keeper_message){.kind = TT__KEEPER_UNABLE, .worker = -1, .unable = {(int32_t)missing, errno}});
        _exit(1);
    }
    make_folder_of_errors(k);
    for (;;) {
        struct pollfd fds[] = {{.fd = k->socket, .events = POLLIN}, {.fd = k->child_signals, .events = POLLIN}};
        poll(fds, 2, k->tell_ms ? tt__left_ms(k->tell_ms) : -1);
        if (fds[0].revents)
            keeper_read(k);
        if (fds[1].revents && k->telling.sig && !k->tell_ms)
            k->tell_ms = tt__deadline_ms(TELL_REST_MS);
        keeper_reap(k);
        tell_rest(k);
    }
}

tt_status tt__keeper_start(tt__keeper *keeper, tt__job *job) {
    int ends[2];
    *keeper = (tt__keeper){.socket = -1};
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends))
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "can't make a socket for the keeper");
    pid_t pid = fork();
    if (pid < 0) {
        int errnum = errno;
        close(ends[0]);
        close(ends[1]);
        return tt__fail_errno(TT_ERR_SYSTEM, errnum,
                              "can't start the keeper process (ulimit -u limits a user's processes, pids.max a "
                              "control group's)");
    }
    if (pid == 0) {
        close(ends[0]);
        static struct keeper own; /* this process's only one, as long as it lives */
        own = (struct keeper){.job = job, .socket = ends[1]};
        keeper_main(&own);
    }
    close(ends[1]);
    *keeper = (tt__keeper){.pid = pid, .socket = ends[0]};
    return TT_OK;
}

static bool launcher_send(const tt__keeper *keeper, tt__keeper_message message) {
    ssize_t n;
    while ((n = send(keeper->socket, &message, sizeof message, MSG_NOSIGNAL | MSG_DONTWAIT)) < 0 && errno == EINTR)
        ;
    return n == (ssize_t)sizeof message;
}

bool tt__keeper_send(const tt__keeper *keeper, tt__keeper_kind kind, int sig) {
    return launcher_send(keeper, (tt__keeper_message){.kind = kind, .worker = -1, .sig = sig});
}

void tt__keeper_kill_worker(const tt__keeper *keeper, int i) {
    launcher_send(keeper, (tt__keeper_message){.kind = TT__KEEPER_KILL_ONE, .worker = i});
}

void tt__keeper_kill(const tt__keeper *keeper) { kill(keeper->pid, SIGKILL); }

void tt__keeper_dismiss(tt__keeper *keeper) { tt__close_fd(&keeper->socket); }

void tt__keeper_wait(const tt__keeper *keeper, int64_t timeout_ms) {
    if (!keeper->pid)
        return;
    int64_t deadline = tt__deadline_ms(timeout_ms);
    struct pollfd end = {.fd = tt__fd((int)syscall(SYS_pidfd_open, keeper->pid, 0)), .events = POLLIN};
    while (end.fd >= 0 && !end.revents && tt__left_ms(deadline))
        poll(&end, 1, tt__left_ms(deadline));
    if (end.fd >= 0 && !end.revents) /* it is stopped */
        tt__keeper_kill(keeper);
    tt__close_fd(&end.fd);
    waitpid(keeper->pid, NULL, 0);
}

void tt__keeper_send_place(const tt__keeper *keeper, const tt__job *job) {
    launcher_send(keeper, (tt__keeper_message){.kind = TT__KEEPER_PLACE,
                                               .worker = -1,
                                               .place = {job->first_rank, job->world, job->first_role_rank,
                                                         job->role_world, job->node, job->nodes, job->restarts}});
}

/* Send a message, with descriptor `fd` (-1: none), when the keeper has room for it. */
static bool send_patiently(const tt__keeper *keeper, tt__keeper_message message, int fd, int64_t deadline) {
    union with_descriptor control = {
        .head = {.cmsg_len = CMSG_LEN(sizeof fd), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS}};
    struct iovec bytes = {&message, sizeof message};
    struct msghdr packet = {.msg_iov = &bytes, .msg_iovlen = 1};
    if (fd >= 0) {
        memcpy(CMSG_DATA(&control.head), &fd, sizeof fd);
        packet.msg_control = &control;
        packet.msg_controllen = sizeof control;
    }
    while (sendmsg(keeper->socket, &packet, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) {
        struct pollfd room = {.fd = keeper->socket, .events = POLLOUT};
        bool crowded = errno == ETOOMANYREFS; /* too many descriptors are under way: it reads them soon */
        if ((errno != EAGAIN && errno != EINTR && !crowded) || !tt__left_ms(deadline))
            return false;
        poll(&room, crowded ? 0 : 1, crowded ? 1 : tt__left_ms(deadline));
    }
    return true;
}

void tt__keeper_start_workers(const tt__keeper *keeper, const tt__job *job, const int *stderr_ends) {
    int64_t deadline = tt__deadline_ms(TT__KEEPER_TAKE_MS);
    bool sent = true;
    for (int rank = 0; rank < job->workers && sent; rank++)
        sent = send_patiently(keeper, (tt__keeper_message){.kind = TT__KEEPER_STREAM, .worker = rank},
                              stderr_ends[rank], deadline);
    if (!sent || !send_patiently(keeper,
                                 (tt__keeper_message){.kind = TT__KEEPER_START,
                                                      .worker = -1,
                                                      .start = {job->attempt, job->recovery, job->master_port}},
                                 -1, deadline))
        kill(keeper->pid, SIGKILL); /* even if it is dead, the pid is its own: it is not reaped yet */
}

/* Receive a message of the keeper. If it ended before it read our last order, a reset is reported once, before the
 * messages that it had sent. */
int tt__keeper_receive(const tt__keeper *keeper, tt__keeper_message *message) {
    ssize_t n;
    while ((n = recv(keeper->socket, message, sizeof *message, MSG_DONTWAIT)) < 0 &&
           (errno == EINTR || errno == ECONNRESET))
        ;
    if (n == (ssize_t)sizeof *message)
        return 1;
    return n < 0 && errno == EAGAIN ? 0 : -1;
}
