/* Processes are watched by pidfds: a pid may be another process's as soon as somebody has waited for it, and where the
 * program ignores SIGCHLD, or waits for all its children, that is at once. */
#include "spawn/process_context.h"

#include "base/machine/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- how one ended */

/* As <linux/pidfd.h> has it from Linux 6.15 on, up to the field that is needed. */
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

/* Somebody else has waited for it. */
static void note_end_of_reaped(tt__process *p, const tt__child_report *report) {
    pidfd_info_v0 info = {.mask = PIDFD_HAS_EXIT};
    if (ioctl(p->pidfd, _IOWR(0xFF, 11, pidfd_info_v0), &info) == 0 && info.mask & PIDFD_HAS_EXIT)
        note_wait_status(p, info.wait_status);
    else if (report->has_ended)
        p->code = report->code;
    else
        p->unknown = true;
}

/* Its pidfd says that it has ended. */
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

tt_process_context *tt__process_context_new(int nprocs) {
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
        tt_store_server_free(c->server); /* a fork's copy has no thread to end */
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
