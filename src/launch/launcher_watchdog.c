/* Workers that crash or hang: reads their stacks, ends processes whose timers expire, and writes the account of the
 * worker that failed first. */
#include "launch/launcher_parts.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/proc_state.h"
#include "launch/local/health.h"
#include "launch/local/reading.h"
#include "launch/local/worker_timers.h"
#include "launch/polling.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef tt__launcher_state launcher;

enum { NO_CALLER = -1, STACKS_MS = 3000 };

/* What is known of a worker that crashes, or one of whose timers has expired. */
typedef struct patient {
    char *expired; /* what the report says of its expired timer; allocated; NULL: none */
    int signal;    /* which it got when the timer expired */
    bool crashed;
    tt__job_crash crash;
    tt__moment when;
    int waiting; /* the watch's caller, whose crash waits for a free reading; NO_CALLER: none */
    char *stack; /* allocated; NULL: not read */
    char *idle;  /* its stack while others waited for it in vain; allocated; NULL: not read */
    pid_t child; /* a process below it of which a timer has expired; 0: none */
    char *child_stack;
} patient;

typedef struct open_reading {
    tt__reading reading;
    int worker; /* below which the process runs; -1: not known */
    int caller; /* the watch's caller, which may end afterwards; NO_CALLER: the process gets `signal`, unless `idle` */
    bool idle;  /* the process is only looked at */
    pid_t pid;
    int pidfd; /* owned; -1: there is none */
    int signal;
} open_reading;

struct tt__watchdog {
    patient *of; /* (workers) */
    open_reading readings[TT__READINGS];
    tt__health *health; /* NULL: health checks are not served */
    tt__timer_list timers;
    bool read_idle;       /* reading idle workers' stacks has begun in this attempt */
    bool idle_is_read;    /* it has ended, and tt__watchdog_take_idle_end() has not told so yet */
    int most_timed;       /* how many processes may have timers */
    bool told_most_timed; /* the user knows that others are not watched */
    tt__file_timers file_timers;
};

tt_status tt__watchdog_open(launcher *l) {
    struct tt__watchdog *w = l->watchdog = calloc(1, sizeof *w);
    if (w)
        w->file_timers.pipe = -1;
    if (!w || !(w->of = calloc((size_t)l->job->workers, sizeof *w->of)))
        return tt__fail(TT_ERR_MEMORY, "no memory to watch %d workers", l->job->workers);
    for (int i = 0; i < l->job->workers; i++)
        w->of[i].waiting = NO_CALLER;
    return l->job->health < 0 ? TT_OK : tt__health_open(&w->health, l->job->health, tt__launcher_health, l);
}

/* A reading takes a pipe, both ends while it begins, and a pidfd. */
int tt__watchdog_descriptors(const tt__job *job) {
    char path[PATH_MAX];
    return 2 * TT__READINGS + 1 + (job->health < 0 ? 0 : TT__HEALTH_DESCRIPTORS) +
           (tt__file_timers_path(job, path) ? 1 : 0);
}

/* Half of what is left is for the store's clients of other nodes and for readers. */
void tt__watchdog_spare(launcher *l, int spare) { l->watchdog->most_timed = spare / 2 / TT__TIMED_DESCRIPTORS; }

static void drop_reading(open_reading *r) {
    bool active = r->reading.child;
    free(tt__reading_take(&r->reading));
    if (active && r->pidfd >= 0)
        close(r->pidfd);
}

void tt__watchdog_free(launcher *l) {
    if (!l->watchdog)
        return;
    for (int i = 0; i < TT__READINGS; i++)
        drop_reading(&l->watchdog->readings[i]);
    tt__timers_free(&l->watchdog->timers);
    tt__file_timers_close(&l->watchdog->file_timers);
    tt__file_timers_unlink(l->job);
    tt__health_free(l->watchdog->health);
    free(l->watchdog->of);
    free(l->watchdog);
    l->watchdog = NULL;
}

/* ---- crashes */

/* Could the worker that crashes now be what is reported as the first failure? */
static bool may_be_first(const launcher *l) {
    tt__failure first;
    if (!tt__machine_works(&l->machine))
        return false;
    if (!tt__ledger_first(&l->machine.ledger, &first) || tt__is_consequence(first.worker))
        return true;
    int64_t ns = tt__moment_now().realtime_ns - first.worker->when.realtime_ns;
    return !WIFSIGNALED(first.worker->status) && ns < (int64_t)TT__TIE_MS * 1000000;
}

/* How long reading may take: a bit less than the rank waits. */
static int64_t crash_read_ms(void) { return tt__job_crash_ms() * 9 / 10; }

static open_reading *free_reading(struct tt__watchdog *w) {
    for (int i = 0; i < TT__READINGS; i++)
        if (!w->readings[i].reading.child)
            return &w->readings[i];
    return NULL;
}

/* Begin to read stacks of process `what.pid`. False: no reading is free, or it could not begin. */
static bool begin_reading(launcher *l, open_reading what, pid_t thread, uint64_t pc, int64_t patience_ms) {
    open_reading *r = free_reading(l->watchdog);
    if (!r || !tt__reading_begin(&what.reading, l->job, what.pid, thread, pc, patience_ms))
        return false;
    *r = what;
    return true;
}

/* If many ranks crash at once, a few are read at a time. The others wait: if they ended now, they would seem to have
 * failed first. */
void tt__watchdog_crashed(void *user, int i, pid_t pid, int caller, const tt__job_crash *crash) {
    launcher *l = user;
    patient *p = &l->watchdog->of[i];
    const open_reading what = {.worker = i, .caller = caller, .pid = pid, .pidfd = -1};
    p->crashed = true;
    p->crash = *crash;
    p->when = tt__moment_now();
    if (pid && !p->stack && may_be_first(l)) {
        if (!free_reading(l->watchdog)) {
            p->waiting = caller;
            return;
        }
        if (begin_reading(l, what, crash->thread, crash->pc, crash_read_ms()))
            return;
    }
    tt__watch_let_end(l->watch, caller);
}

/* Send a signal, by the pidfd if there is one, since a pid may be reused. SIGCONT follows: the process may be
 * stopped. */
static void send_to(pid_t pid, int pidfd, int sig) {
    const int signals[] = {sig, SIGCONT};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++)
        if (pidfd >= 0)
            syscall(SYS_pidfd_send_signal, pidfd, signals[i], NULL, 0);
        else
            kill(pid, signals[i]);
}

static void finish_reading(launcher *l, open_reading *r) {
    struct tt__watchdog *w = l->watchdog;
    bool others = false;
    char *stack = tt__reading_take(&r->reading);
    if (r->worker >= 0) {
        patient *p = &w->of[r->worker];
        bool of_child = r->caller == NO_CALLER && !r->idle && r->pid != l->workers[r->worker].pid;
        char **place = r->idle ? &p->idle : of_child ? &p->child_stack : &p->stack;
        p->child = of_child ? r->pid : p->child;
        free(*place);
        *place = stack;
    } else {
        free(stack);
    }
    if (r->caller != NO_CALLER)
        tt__watch_let_end(l->watch, r->caller);
    else if (!r->idle)
        send_to(r->pid, r->pidfd, r->signal);
    tt__close_fd(&r->pidfd);
    for (int i = 0; i < TT__READINGS; i++)
        others = others || w->readings[i].reading.child;
    w->idle_is_read = w->idle_is_read || (r->idle && !others);
    for (int i = 0; i < l->job->workers && !others; i++) {
        if (w->of[i].waiting != NO_CALLER)
            tt__watch_let_end(l->watch, w->of[i].waiting);
        w->of[i].waiting = NO_CALLER;
    }
}

/* ---- timers */

/* Find the worker below which the process runs; -1: none. */
static int worker_above(const launcher *l, pid_t pid) {
    enum { DEEPEST = 64 };
    for (int depth = 0; pid > 1 && depth < DEEPEST; depth++) {
        for (int i = 0; i < l->job->workers; i++)
            if (l->workers[i].pid == pid)
                return i;
        pid = tt__proc_look(pid).parent;
    }
    return -1;
}

static void say_too_many_timed(launcher *l, pid_t pid) {
    if (!l->watchdog->told_most_timed)
        tt__streams_print(&l->streams,
                          "tutti run: timers of process %d, and of others that come, are not watched: descriptors are "
                          "left for those of %d processes (ulimit -n)",
                          (int)pid, l->watchdog->most_timed);
    l->watchdog->told_most_timed = true;
}

bool tt__watchdog_timed(void *user, pid_t pid, int caller, int memory) {
    launcher *l = user;
    if (memory < 0) {
        tt__timers_remove(&l->watchdog->timers, caller);
        return true;
    }
    if (pid > 1 && l->watchdog->timers.n < l->watchdog->most_timed)
        return tt__timers_add(&l->watchdog->timers, caller, worker_above(l, pid), pid, memory);
    if (pid > 1)
        say_too_many_timed(l, pid);
    close(memory);
    return false;
}

/* A timer has expired. If it is a worker's, the report says so. If it is another process's, the user is told at
 * once, as the worker may go on without that process. */
static void note_expired(launcher *l, const tt__expired *expired) {
    int i = expired->worker;
    char name[32], whose[48] = "";
    tt__signal_name(expired->signal, name, sizeof name);
    if (i < 0 || l->workers[i].ended || expired->pid != l->workers[i].pid) {
        if (i >= 0)
            snprintf(whose, sizeof whose, ", below rank %d", l->job->first_rank + i);
        tt__streams_print(&l->streams, "tutti run: process %d%s: %s; it gets %s", (int)expired->pid, whose,
                          expired->text, name);
        return;
    }
    patient *p = &l->watchdog->of[i];
    if (p->expired)
        return;
    p->signal = expired->signal;
    if (asprintf(&p->expired, "rank %d: %s; tutti sent %s", l->job->first_rank + i, expired->text, name) < 0)
        p->expired = NULL;
    else if (!l->workers[i].message)
        l->workers[i].message = strdup(p->expired);
}

/* End the process, after a look at its stacks. */
static void expire(launcher *l, const tt__expired *expired) {
    open_reading what = {.worker = expired->worker,
                         .caller = NO_CALLER,
                         .pid = expired->pid,
                         .pidfd = expired->pidfd < 0 ? -1 : fcntl(expired->pidfd, F_DUPFD_CLOEXEC, 3),
                         .signal = expired->signal};
    note_expired(l, expired);
    if (begin_reading(l, what, expired->thread, 0, STACKS_MS))
        return;
    tt__close_fd(&what.pidfd);
    send_to(expired->pid, expired->pidfd, expired->signal);
}

/* Open the pipe of torchrun's timers, which is there when the first worker is. */
static void open_file_timers(launcher *l) {
    tt__file_timers *timers = &l->watchdog->file_timers;
    char path[PATH_MAX];
    if (timers->pipe >= 0 || timers->failed || l->machine.attempt.phase != TT__RUNNING || !l->workers[0].pid ||
        !tt__file_timers_path(l->job, path) || tt__file_timers_open(timers, l->job))
        return;
    timers->failed = true;
    int errnum = errno;
    tt__streams_print(&l->streams, "tutti run: can't watch torchrun's timers: %s is no named pipe of this job: %s",
                      tt__file_timers_path(l->job, path), strerror(errnum));
}

/* While the job ends, a timer that expires has no effect. */
static void look_at_timers(launcher *l) {
    tt__expired expired;
    open_file_timers(l);
    tt__file_timers_read(&l->watchdog->file_timers);
    if (!tt__machine_works(&l->machine))
        return;
    while (tt__timers_expired(&l->watchdog->timers, &expired))
        expire(l, &expired);
    while (tt__file_timers_expired(&l->watchdog->file_timers, &expired)) {
        expired.pidfd = tt__fd((int)syscall(SYS_pidfd_open, expired.pid, 0)); /* first: it may end at any time */
        expired.worker = worker_above(l, expired.pid);
        if (expired.worker >= 0) /* else it has ended, and its pid may be another process's */
            expire(l, &expired);
        tt__close_fd(&expired.pidfd);
    }
}

/* ---- who is waited for in vain */

/* Did it end because it had waited for others? */
static bool has_waited_in_vain(const tt__worker *w) {
    return !w->exec_errno && (tt__is_consequence(w) || (w->message && strcasestr(w->message, "timeout")));
}

/* Return worker `i`'s process, or the one below it that joined the group, if it makes no call; else 0. */
static pid_t idle_process(const launcher *l, int i) {
    tt__snapshot snapshot;
    if (!l->workers[i].pid || l->workers[i].ended || !l->job->idle || tt__watch_snapshot_of(l->watch, i, &snapshot))
        return 0;
    pid_t pid = l->job->idle(&snapshot);
    return pid && worker_above(l, pid) == i ? pid : 0;
}

bool tt__watchdog_begin_idle_reading(launcher *l) {
    bool begun = false;
    tt__failure first;
    if (l->watchdog->read_idle || !tt__job_crash_ms() || !tt__ledger_first(&l->machine.ledger, &first) ||
        !has_waited_in_vain(first.worker))
        return false;
    l->watchdog->read_idle = true;
    for (int i = 0; i < l->job->workers && free_reading(l->watchdog); i++) {
        pid_t pid = idle_process(l, i);
        const open_reading what = {.worker = i, .caller = NO_CALLER, .idle = true, .pid = pid, .pidfd = -1};
        begun = (pid && begin_reading(l, what, 0, 0, STACKS_MS)) || begun;
    }
    return begun;
}

bool tt__watchdog_take_idle_end(launcher *l) {
    bool has = l->watchdog->idle_is_read;
    l->watchdog->idle_is_read = false;
    return has;
}

/* ---- the account */

static void write_crash(const patient *p, FILE *out) {
    char name[32], where[64] = "";
    if (p->crash.address || p->crash.signal == SIGSEGV)
        snprintf(where, sizeof where, ", %saddress 0x%" PRIx64, p->crash.jumped ? "no code at " : "", p->crash.address);
    fprintf(out, "its stack (%s%s):\n%s", tt__signal_name(p->crash.signal, name, sizeof name),
            p->crash.code > 0 ? where : "", p->stack);
}

static void write_last_calls(const launcher *l, int i, FILE *out) {
    tt__snapshot snapshot;
    if (!l->job->last_calls || tt__watch_snapshot_of(l->watch, i, &snapshot))
        return;
    if (snapshot.n == 1)
        snapshot.ranks[0].rank.ended = l->workers[i].when;
    l->job->last_calls(&snapshot, out);
    tt__snapshot_free(&snapshot);
}

static void write_account(const patient *p, FILE *out) {
    if (p->crashed && p->stack && *p->stack)
        write_crash(p, out);
    else if (p->expired && p->stack && *p->stack)
        fprintf(out, "its stacks when the timer expired:\n%s", p->stack);
    else if (p->child_stack && *p->child_stack)
        fprintf(out, "the stacks of process %d, below it, when its timer expired:\n%s", (int)p->child, p->child_stack);
}

static void write_idle(const patient *p, FILE *out) { fprintf(out, "its stacks then:\n%s", p->idle); }

/* Write what is known of a worker that has ended, and its last calls; allocated, NULL: no memory. */
static char *describe(const launcher *l, int i, void (*begin)(const patient *p, FILE *out)) {
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return NULL;
    begin(&l->watchdog->of[i], out);
    write_last_calls(l, i, out);
    fclose(out);
    return text;
}

/* If the signal of its timer has ended the worker, directly or by a handler's exit(), the timer's text is its
 * message. A worker that went on after the signal ended for another reason. */
static void note_timers_end(tt__worker *worker, const patient *p) {
    bool is_its_end = p->expired && worker->status && tt__end_code(worker->status) == 128 + p->signal;
    if (!p->expired || (!is_its_end && (!worker->message || strcmp(worker->message, p->expired) != 0)))
        return;
    free(worker->message);
    worker->traceback = NULL;
    worker->message = is_its_end ? strdup(p->expired) : NULL;
}

/* Could worker `i`, which has just ended, be what is reported as the first failure on this node? */
static bool may_be_reported(const launcher *l, int i) {
    int first = tt__first_failure(l->workers, l->job->workers), own = l->job->first_rank;
    return first == i || (first > i && tt__failed_alike(&l->workers[first], own + first, &l->workers[i], own + i));
}

void tt__watchdog_ended(launcher *l, int i) {
    tt__worker *worker = &l->workers[i];
    const patient *p = &l->watchdog->of[i];
    tt__watch_serve(l->watch);             /* it may have handed in its recorder just now */
    for (int k = 0; k < TT__READINGS; k++) /* it ended during the reading */
        if (l->watchdog->readings[k].reading.child && l->watchdog->readings[k].worker == i)
            finish_reading(l, &l->watchdog->readings[k]);
    if (p->crashed && WIFSIGNALED(worker->status) && WTERMSIG(worker->status) == p->crash.signal)
        worker->when = p->when; /* when it crashed, before its stack was read */
    note_timers_end(worker, p);
    if (p->idle && *p->idle)
        worker->idle = describe(l, i, write_idle);
    if (!worker->status || worker->exec_errno || !may_be_reported(l, i))
        return;
    free(worker->account);
    worker->account = describe(l, i, write_account);
}

void tt__watchdog_forget(launcher *l, int i) {
    patient *p = l->watchdog && l->watchdog->of ? &l->watchdog->of[i] : NULL;
    free(l->workers[i].message);
    free(l->workers[i].account);
    free(l->workers[i].idle);
    l->workers[i].message = l->workers[i].account = l->workers[i].idle = NULL;
    if (!p)
        return;
    tt__timers_forget(&l->watchdog->timers, i);
    if (l->workers[i].pid)
        tt__file_timers_forget(&l->watchdog->file_timers, l->workers[i].pid);
    free(p->expired);
    free(p->stack);
    free(p->idle);
    free(p->child_stack);
    *p = (patient){.waiting = NO_CALLER};
}

void tt__watchdog_forget_all(launcher *l) {
    l->watchdog->read_idle = false;
    tt__file_timers_close(&l->watchdog->file_timers);
}

/* ---- the loop */

int tt__watchdog_poll(launcher *l, struct pollfd *fds, int *timeout_ms) {
    int n = 0;
    for (int i = 0; i < TT__READINGS; i++) {
        const tt__reading *r = &l->watchdog->readings[i].reading;
        if (!r->child)
            continue;
        fds[n++] = (struct pollfd){.fd = r->from, .events = POLLIN};
        tt__lower_timeout(timeout_ms, r->deadline_ms);
    }
    if (l->watchdog->file_timers.pipe >= 0)
        fds[n++] = (struct pollfd){.fd = l->watchdog->file_timers.pipe, .events = POLLIN};
    if (tt__machine_works(&l->machine)) {
        tt__lower_timeout(timeout_ms, tt__timers_look_ms(&l->watchdog->timers));
        tt__lower_timeout(timeout_ms, tt__file_timers_look_ms(&l->watchdog->file_timers));
    }
    if (l->watchdog->health)
        fds[n++] = (struct pollfd){.fd = tt__health_poll(l->watchdog->health, timeout_ms), .events = POLLIN};
    return n;
}

void tt__watchdog_serve(launcher *l) {
    for (int i = 0; i < TT__READINGS; i++) {
        open_reading *r = &l->watchdog->readings[i];
        if (r->reading.child && tt__reading_step(&r->reading))
            finish_reading(l, r);
    }
    look_at_timers(l);
    if (l->watchdog->health)
        tt__health_serve(l->watchdog->health);
}
