/* Starting, watching and ending processes.
 *
 * Starting is all or nothing: children wait until the parent lets them go, when all are there. They are watched by
 * pidfds. A pid may be another process's as soon as somebody has waited for it; if the program ignores SIGCHLD, or
 * waits for all its children, that is at once. */
#include "spawn/process_context.h"

#include "base/args.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/limits.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- how one ended */

/* The beginning of struct pidfd_info, which <linux/pidfd.h> has from Linux 6.15 on. */
typedef struct pidfd_info_v0 {
    uint64_t mask, cgroup;
    uint32_t ids[11];
    int32_t wait_status;
} pidfd_info_v0;

enum { PIDFD_HAS_EXIT = 1 << 3 };

static void note_wait_status(tt__process *p, int wait_status) {
    p->code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 0;
    p->sig = WIFSIGNALED(wait_status) ? WTERMSIG(wait_status) : 0;
}

/* Find out how a process ended that somebody else has waited for. */
static void note_end_of_reaped(tt__process *p, const tt__child_report *report) {
    pidfd_info_v0 info = {.mask = PIDFD_HAS_EXIT};
    if (ioctl(p->pidfd, _IOWR(0xFF, 11, pidfd_info_v0), &info) == 0 && info.mask & PIDFD_HAS_EXIT)
        note_wait_status(p, info.wait_status);
    else if (report->has_ended)
        p->code = report->code;
    else
        p->unknown = true;
}

/* Note the end of a process whose pidfd is readable. False: it has not ended. */
static bool reap_process(tt__process *p, const tt__child_report *report) {
    siginfo_t info = {.si_pid = 0};
    if (waitid(P_PIDFD, (id_t)p->pidfd, &info, WEXITED | WNOHANG) == 0) {
        if (!info.si_pid)
            return false;
        p->code = info.si_code == CLD_EXITED ? info.si_status : 0;
        p->sig = info.si_code == CLD_EXITED ? 0 : info.si_status;
    } else {
        note_end_of_reaped(p, report);
    }
    p->seen_ms = tt__now_ms();
    p->over = true;
    return true;
}

/* ---- all of them */

/* Make a context for `nprocs` processes, none of which is started. NULL and an error: there is no memory. */
static tt_process_context *process_context_new(int nprocs) {
    size_t n = (size_t)nprocs;
    tt_process_context *c = calloc(1, sizeof *c);
    if (!c)
        return tt__fail_null(TT_ERR_MEMORY, "no memory for a context of %d processes", nprocs);
    c->owner = getpid();
    c->shared_size = sizeof *c->shared + n * sizeof c->shared->of[0];
    c->shared = mmap(NULL, c->shared_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (c->shared == MAP_FAILED)
        c->shared = NULL;
    c->process = calloc(n, sizeof *c->process);
    c->pids = calloc(n, sizeof *c->pids);
    c->polls = calloc(n, sizeof *c->polls);
    if (c->shared && c->process && c->pids && c->polls)
        return c;
    tt_process_context_free(c);
    return tt__fail_null(TT_ERR_MEMORY, "no memory for a context of %d processes", nprocs);
}

void tt__processes_look(tt_process_context *c, int timeout_ms) {
    nfds_t n = 0;
    for (int r = 0; r < c->started; r++)
        if (!c->process[r].over)
            c->polls[n++] = (struct pollfd){.fd = c->process[r].pidfd, .events = POLLIN};
    if (!n || poll(c->polls, n, timeout_ms) <= 0)
        return;
    n = 0;
    for (int r = 0; r < c->started; r++)
        if (!c->process[r].over && c->polls[n++].revents && reap_process(&c->process[r], &c->shared->of[r]))
            c->running--;
}

void tt__processes_signal(tt_process_context *c, int sig) {
    for (int r = 0; r < c->started; r++)
        if (!c->process[r].over)
            syscall(SYS_pidfd_send_signal, c->process[r].pidfd, sig, NULL, 0);
}

static void look_until(tt_process_context *c, int64_t deadline_ms) {
    while (c->running && tt__left_ms(deadline_ms))
        tt__processes_look(c, tt__left_ms(deadline_ms));
}

void tt__processes_end(tt_process_context *c, int64_t grace_ms) {
    tt__processes_look(c, 0);
    for (int r = 0; r < c->started; r++)
        c->process[r].sent = !c->process[r].over;
    if (grace_ms > 0) {
        tt__processes_signal(c, SIGTERM);
        tt__processes_signal(c, SIGCONT);
        look_until(c, tt__deadline_ms(grace_ms));
    }
    tt__processes_signal(c, SIGKILL);
    look_until(c, tt__deadline_ms(TT__KILLED_MS));
}

void tt_process_context_free(tt_process_context *c) {
    if (!c)
        return;
    if (c->owner == getpid()) {
        tt__processes_end(c, 0);
        tt_store_server_free(c->server); /* in a forked child the server has no thread to end */
    }
    for (int r = 0; r < c->started; r++)
        close(c->process[r].pidfd);
    if (c->shared)
        munmap(c->shared, c->shared_size);
    free(c->process);
    free(c->pids);
    free(c->polls);
    free(c);
}

static int open_pidfd(pid_t pid) { return tt__fd((int)syscall(SYS_pidfd_open, pid, 0)); }

static tt_status fail_descriptor(int errnum) {
    if (errnum == ENOSYS)
        return tt__fail(TT_ERR_UNSUPPORTED, "tt_spawn: expected Linux 5.4 or later, which has pidfds");
    return tt__fail_errno(TT_ERR_SYSTEM, errnum, "tt_spawn: no descriptor to watch a process with");
}

/* Start process `rank`. All signals are blocked, also in the child, which keeps this stack and what `start` points to
 * as long as it lives. */
static tt_status fork_child(tt_process_context *c, const tt__child_start *start, int rank) {
    pid_t pid = fork();
    if (!pid) {
        for (int r = 0; r < rank; r++)
            close(c->process[r].pidfd);
        tt__spawned_child_run(start, rank);
    }
    if (pid < 0)
        return tt__fail_errno(TT_ERR_SYSTEM, errno,
                              "tt_spawn: can't start process %d of %d (ulimit -u limits a user's processes, pids.max a "
                              "cgroup's); those before it are ended",
                              rank, start->nprocs);
    int pidfd = open_pidfd(pid);
    if (pidfd < 0) {
        int errnum = errno;
        kill(pid, SIGKILL); /* it waits to be let go, so the pid is still its own */
        while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
            ;
        return fail_descriptor(errnum);
    }
    c->process[rank].pidfd = pidfd;
    c->pids[rank] = pid;
    c->started++;
    c->running++;
    return TT_OK;
}

static tt_status fork_children(tt_process_context *c, tt__child_start *start) {
    sigset_t all;
    tt_status status = TT_OK;
    sigfillset(&all);
    tt__flush_streams();
    pthread_sigmask(SIG_SETMASK, &all, &start->mask);
    for (int rank = 0; rank < start->nprocs && !status; rank++)
        status = fork_child(c, start, rank);
    pthread_sigmask(SIG_SETMASK, &start->mask, NULL);
    return status;
}

/* The store's thread begins after the forks: a child has no copy of it, nor of its locks. */
static tt_status let_go(tt_process_context *c, const tt__child_start *start, bool rendezvous) {
    uint64_t children = (uint64_t)start->nprocs;
    if (rendezvous) {
        TT__TRY(tt_store_server_new(&c->server, "127.0.0.1", 0));
        c->shared->port = tt_store_server_port(c->server);
    }
    if (write(start->go, &children, sizeof children) != sizeof children)
        return tt__fail_errno(TT_ERR_SYSTEM, errno, "tt_spawn: can't let the processes run");
    return TT_OK;
}

/* Return how many threads each process computes with; 0: as OMP_NUM_THREADS says. */
static int threads_of_each(int nprocs) {
    const char *given = getenv("OMP_NUM_THREADS");
    if (given && *given)
        return 0;
    int cpus = tt__cpu_share();
    int share = (cpus ? cpus : tt__cores()) / nprocs;
    return share < 1 ? 1 : share;
}

static tt_status start_all(tt_process_context *c, const tt_start_processes_args *a) {
    tt__child_start start = {.fn = a->fn,
                             .arg = a->arg,
                             .nprocs = a->nprocs,
                             .parent_pid = getpid(),
                             .threads = threads_of_each(a->nprocs),
                             .go = tt__fd(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE)),
                             .shared = c->shared};
    if (start.go < 0)
        return fail_descriptor(errno);
    start.parent = open_pidfd(getpid());
    tt_status status = start.parent < 0 ? fail_descriptor(errno) : fork_children(c, &start);
    if (!status)
        status = let_go(c, &start, a->rendezvous);
    close(start.go);
    if (start.parent >= 0)
        close(start.parent);
    return status;
}

tt_status tt__processes_start(const char *who, const tt_start_processes_args *a) {
    if (a->out)
        *a->out = NULL;
    if (!a->out || !a->fn)
        return tt__fail_argument("%s: expected %s, got NULL", who, a->out ? "a function" : "a place for it");
    if (a->nprocs < 1 || a->nprocs > TT_SPAWN_MAX_PROCESSES)
        return tt__fail(TT_ERR_INVALID, "%s: expected 1 to %d processes, got %d", who, TT_SPAWN_MAX_PROCESSES,
                        a->nprocs);
    tt_process_context *c = process_context_new(a->nprocs);
    if (!c)
        return tt_last_status();
    tt_status status = start_all(c, a);
    if (status) {
        tt_process_context_free(c);
        return status;
    }
    *a->out = c;
    return TT_OK;
}

tt_status tt_start_processes_with(const tt_start_processes_args *args, size_t size) {
    tt_start_processes_args a;
    TT__ARGS_COPY(a, args, size);
    return tt__processes_start("tt_start_processes", &a);
}
