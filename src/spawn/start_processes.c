/* Starting is all or nothing: children wait for a word of the parent, who gives it when all are there. */
#include "base/args.h"
#include "base/files/fd.h"
#include "base/process/limits.h"
#include "spawn/process_context.h"
#include "spawn/spawned_child.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

static int open_pidfd(pid_t pid) { return tt__fd((int)syscall(SYS_pidfd_open, pid, 0)); }

static tt_status fail_descriptor(int errnum) {
    if (errnum == ENOSYS)
        return tt__fail(TT_ERR_UNSUPPORTED, "tt_spawn: expected Linux 5.4 or later, which has pidfds");
    return tt__fail_errno(TT_ERR_SYSTEM, errnum, "tt_spawn: no descriptor to watch a process with");
}

/* Start process `rank`; all signals are blocked, also in the child. Its stack, and whatever `start` points to, is kept
 * in the child as long as that lives. */
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
        kill(pid, SIGKILL); /* it waits for its word, so this is its pid */
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

/* OMP_NUM_THREADS is the user's word for each process. */
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
                             .port = &c->shared->port,
                             .reports = c->shared->of};
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
    tt_process_context *c = tt__process_context_new(a->nprocs);
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
