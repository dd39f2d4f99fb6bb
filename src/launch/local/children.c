#include "launch/local/children.h"

#include "base/machine/clock.h"
#include "base/process/proc_state.h"
#include "base/process/waits.h"

#include <dirent.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static bool ignored_before; /* our parent left us SIGCHLD ignored */

void tt__children_keep_ends(void) {
    struct sigaction action;
    if (sigaction(SIGCHLD, NULL, &action) || action.sa_handler != SIG_IGN)
        return;
    ignored_before = true;
    signal(SIGCHLD, SIG_DFL);
}

void tt__children_restore_signal(void) {
    if (ignored_before)
        signal(SIGCHLD, SIG_IGN);
}

/* Return the pid of the next process of this machine; 0: there is no other. proc: /proc, or NULL. */
static pid_t next_process(DIR *proc) {
    for (const struct dirent *entry; proc && (entry = readdir(proc));)
        if (entry->d_name[0] >= '1' && entry->d_name[0] <= '9')
            return (pid_t)atoi(entry->d_name);
    return 0;
}

size_t tt__children(pid_t *pids, size_t max) {
    size_t n = 0;
    pid_t self = getpid(), pid;
    DIR *proc = opendir("/proc");
    while (n < max && (pid = next_process(proc)))
        if (tt__proc_look(pid).parent == self)
            pids[n++] = pid;
    if (proc)
        closedir(proc);
    return n;
}

static bool is_among(pid_t pid, const pid_t *pids, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (pids[i] == pid)
            return true;
    return false;
}

/* Without /proc no child is listed: reap those that have ended. Returns 1 if a child is left, else 0. */
static size_t reap_unlisted(tt__reaped_fn reaped, void *user) {
    for (int status;;) {
        siginfo_t info = {0};
        if (waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT | __WALL))
            return 0;
        if (!info.si_pid)
            return 1;
        if (waitpid(info.si_pid, &status, WNOHANG | __WALL) == info.si_pid && reaped)
            reaped(user, info.si_pid, status);
    }
}

/* Kill and reap the present children once. A child's pid can't be reused before it is reaped here, so no other process
 * is hit. */
static size_t kill_once(const pid_t *spared, size_t spared_count, tt__reaped_fn reaped, void *user) {
    enum { MAX = 1024 };
    pid_t pids[MAX];
    size_t n = tt__children(pids, MAX), left = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_among(pids[i], spared, spared_count))
            continue;
        int status;
        kill(pids[i], SIGKILL);
        if (waitpid(pids[i], &status, WNOHANG | __WALL) == pids[i] && reaped)
            reaped(user, pids[i], status);
        left++; /* even if reaped: its children are ours from now on, so look again */
    }
    bool listed = left || spared_count || access("/proc/self/stat", R_OK) == 0;
    return listed ? left : reap_unlisted(reaped, user);
}

size_t tt__children_kill(const pid_t *spared, size_t spared_count, tt__reaped_fn reaped, void *user,
                         int64_t timeout_ms) {
    int64_t deadline = tt__deadline_ms(timeout_ms);
    size_t left;
    while ((left = kill_once(spared, spared_count, reaped, user)) && tt__left_ms(deadline))
        tt__sleep_ms(1);
    return left;
}

/* ---- all processes below this one */

typedef struct processes {
    tt__proc *of; /* (n) by pid */
    size_t n;
} processes;

static int compare_pids(const void *a, const void *b) {
    pid_t x = ((const tt__proc *)a)->pid, y = ((const tt__proc *)b)->pid;
    return (x > y) - (x < y);
}

/* List all processes of this machine; without memory, those read so far. */
static processes all_processes(void) {
    processes all = {NULL, 0};
    size_t size = 0;
    DIR *proc = opendir("/proc");
    for (pid_t pid; (pid = next_process(proc));) {
        if (all.n == size) {
            tt__proc *more = realloc(all.of, (size = 2 * size + 256) * sizeof *more);
            if (!more)
                break;
            all.of = more;
        }
        all.of[all.n] = tt__proc_look(pid);
        all.n += all.of[all.n].pid != 0;
    }
    if (proc)
        closedir(proc);
    if (all.n)
        qsort(all.of, all.n, sizeof *all.of, compare_pids);
    return all;
}

static const tt__proc *process_of(const processes *all, pid_t pid) {
    tt__proc key = {.pid = pid};
    return all->n ? bsearch(&key, all->of, all->n, sizeof key, compare_pids) : NULL;
}

/* Does `p` lead a group, but no session? */
static bool passes_on(const tt__proc *p) { return p->pid == p->group && p->pid != p->session; }

/* Does `p` run below this process? *relayed := whether one above it leads its group and passes signals on. */
static bool runs_below(const processes *all, const tt__proc *p, bool *relayed) {
    pid_t self = getpid(), group = p->group;
    *relayed = false;
    for (size_t depth = 0; p && p->pid != self && depth < all->n; depth++) {
        if (p->parent == self)
            return true;
        p = process_of(all, p->parent);
        *relayed = *relayed || (p && p->pid == group && passes_on(p));
    }
    return false;
}

/* ---- who has been told */

static uint64_t ticks_since_boot(void) {
    struct timespec t;
    uint64_t hz = (uint64_t)sysconf(_SC_CLK_TCK);
    clock_gettime(CLOCK_BOOTTIME, &t);
    return (uint64_t)t.tv_sec * hz + (uint64_t)t.tv_nsec * hz / 1000000000;
}

static bool was_told(const tt__telling *t, const tt__proc *p) {
    for (size_t i = 0; i < t->n; i++)
        if (t->told[i].pid == p->pid && t->told[i].started == p->started)
            return true;
    return false;
}

/* Note that `p` has been told. Without memory it may be told again, which is better than not at all. */
static void add_told(tt__telling *t, const tt__proc *p) {
    if (t->n == t->size) {
        size_t size = 2 * t->size + 64;
        tt__proc *more = realloc(t->told, size * sizeof *more);
        if (!more)
            return;
        t->told = more;
        t->size = size;
    }
    t->told[t->n++] = *p;
}

void tt__telling_clear(tt__telling *t) {
    free(t->told);
    t->told = NULL;
    t->n = t->size = 0;
    t->sig = 0;
    t->when = 0;
}

/* ---- telling */

/* Send a signal, and SIGCONT: a stopped process does not see SIGTERM before it is continued. */
static void send_signal(pid_t pid, int sig) {
    kill(pid, sig);
    kill(pid, SIGCONT);
}

/* Tell a rank, and at the same moment all of its group if it leads its session. Needs no /proc. */
static void tell_rank(pid_t pid, pid_t but, int sig) {
    if (!but || getpgid(pid) != but)
        send_signal(getsid(pid) == pid ? -pid : pid, sig);
}

/* Tell the processes that have been told neither by themselves nor with the group of a rank. */
static void tell_found(tt__telling *t, const processes *all, const pid_t *ranks, size_t n, pid_t but) {
    for (size_t i = 0; i < all->n; i++) {
        const tt__proc *p = &all->of[i];
        bool relayed;
        if (p->started > t->when || !runs_below(all, p, &relayed) || relayed || was_told(t, p))
            continue;
        add_told(t, p);
        bool by_rank = is_among(p->pid, ranks, n) || is_among(p->group, ranks, n);
        if (!by_rank && (!but || p->group != but))
            send_signal(p->pid, t->sig);
    }
}

void tt__tell_all(tt__telling *t, const pid_t *ranks, size_t n, pid_t but, int sig) {
    processes all = all_processes(); /* before anybody is told: handlers may start others, not to be told */
    if (t->sig != sig)
        tt__telling_clear(t);
    t->sig = sig;
    t->when = ticks_since_boot();
    for (size_t i = 0; i < n; i++)
        if (ranks[i])
            tell_rank(ranks[i], but, sig);
    tell_found(t, &all, ranks, n, but);
    free(all.of);
}

void tt__tell_rest(tt__telling *t) {
    if (!t->sig)
        return;
    processes all = all_processes();
    tell_found(t, &all, NULL, 0, 0);
    free(all.of);
}

void tt__tell_state(pid_t but, int sig) {
    processes all = all_processes();
    bool relayed;
    for (size_t i = 0; i < all.n; i++) {
        const tt__proc *p = &all.of[i];
        if (p->group == but || !runs_below(&all, p, &relayed))
            continue;
        if (p->pid == p->group)
            kill(-p->group, sig);
        else if (sig != SIGWINCH)
            kill(p->pid, sig);
    }
    free(all.of);
}
