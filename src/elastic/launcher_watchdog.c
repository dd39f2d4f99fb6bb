#include "elastic/launcher_watchdog.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/struck.h"
#include "elastic/health.h"
#include "elastic/launcher_health.h"
#include "elastic/reading.h"

#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/wait.h>

typedef tt__launcher_state launcher;

enum { NO_CALLER = -1 };

/* What is known of a worker that crashes. */
typedef struct patient {
    bool crashed;
    tt__job_crash crash;
    tt__moment when;
    int waiting; /* the watch's caller, which waits until another one's stack has been read; NO_CALLER */
    char *stack; /* allocated; NULL: not read */
} patient;

typedef struct open_reading {
    tt__reading reading;
    int worker, caller;
} open_reading;

struct tt__watchdog {
    patient *of; /* (workers) */
    open_reading readings[TT__READINGS];
    tt__health *health; /* NULL: nobody asks */
};

tt_status tt__watchdog_open(launcher *l) {
    struct tt__watchdog *w = l->watchdog = calloc(1, sizeof *w);
    if (!w || !(w->of = calloc((size_t)l->job->workers, sizeof *w->of)))
        return tt__fail(TT_ERR_MEMORY, "no memory to watch %d workers", l->job->workers);
    for (int i = 0; i < l->job->workers; i++)
        w->of[i].waiting = NO_CALLER;
    return l->job->health < 0 ? TT_OK : tt__health_open(&w->health, l->job->health, tt__launcher_health, l);
}

void tt__watchdog_free(launcher *l) {
    if (!l->watchdog)
        return;
    for (int i = 0; i < TT__READINGS; i++)
        free(tt__reading_take(&l->watchdog->readings[i].reading));
    tt__health_free(l->watchdog->health);
    free(l->watchdog->of);
    free(l->watchdog);
    l->watchdog = NULL;
}

/* ---- crashes */

/* Could the worker that crashes now be what is reported as the first failure? */
static bool may_be_first(const launcher *l) {
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    int own;
    if (l->phase != TT__RUNNING && l->phase != TT__SETTLING)
        return false;
    if (!tt__launcher_first(l, &first, &own, tail) || first.worker->secondary || first.worker->sent_signal)
        return true;
    int64_t ns = tt__moment_now().realtime_ns - first.worker->when.realtime_ns;
    return !WIFSIGNALED(first.worker->status) && ns < (int64_t)TT__TIE_MS * 1000000;
}

/* Be done before the rank stops waiting. */
static int64_t crash_read_ms(void) { return tt__job_crash_ms() * 9 / 10; }

static open_reading *free_reading(struct tt__watchdog *w) {
    for (int i = 0; i < TT__READINGS; i++)
        if (!w->readings[i].reading.child)
            return &w->readings[i];
    return NULL;
}

/* Ranks that crash at once are read a few at a time. The others wait, lest they seem to have been the first. */
void tt__watchdog_crashed(void *user, int i, pid_t pid, int caller, const tt__job_crash *crash) {
    launcher *l = user;
    patient *p = &l->watchdog->of[i];
    open_reading *r = free_reading(l->watchdog);
    p->crashed = true;
    p->crash = *crash;
    p->when = tt__moment_now();
    if (pid && !p->stack && may_be_first(l)) {
        if (!r) {
            p->waiting = caller;
            return;
        }
        if (tt__reading_begin(&r->reading, l->job, pid, crash->thread, crash->pc, crash_read_ms())) {
            r->worker = i;
            r->caller = caller;
            return;
        }
    }
    tt__watch_let_end(l->watch, caller);
}

static void finish_reading(launcher *l, open_reading *r) {
    struct tt__watchdog *w = l->watchdog;
    bool others = false;
    free(w->of[r->worker].stack);
    w->of[r->worker].stack = tt__reading_take(&r->reading);
    tt__watch_let_end(l->watch, r->caller);
    for (int i = 0; i < TT__READINGS; i++)
        others = others || w->readings[i].reading.child;
    for (int i = 0; i < l->job->workers && !others; i++) {
        if (w->of[i].waiting != NO_CALLER)
            tt__watch_let_end(l->watch, w->of[i].waiting);
        w->of[i].waiting = NO_CALLER;
    }
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

void tt__watchdog_ended(launcher *l, int i) {
    tt__worker *worker = &l->workers[i];
    const patient *p = &l->watchdog->of[i];
    char *text = NULL;
    size_t size;
    tt__watch_serve(l->watch);             /* it may have handed in its recorder just now */
    for (int k = 0; k < TT__READINGS; k++) /* it could not wait any longer */
        if (l->watchdog->readings[k].reading.child && l->watchdog->readings[k].worker == i)
            finish_reading(l, &l->watchdog->readings[k]);
    if (p->crashed && WIFSIGNALED(worker->status) && WTERMSIG(worker->status) == p->crash.signal)
        worker->when = p->when; /* what was before its stack was read */
    if (!worker->status || worker->exec_errno || tt__first_failure(l->workers, l->job->workers) != i)
        return;
    FILE *out = open_memstream(&text, &size);
    if (!out)
        return;
    if (p->crashed && p->stack && *p->stack)
        write_crash(p, out);
    write_last_calls(l, i, out);
    fclose(out);
    free(worker->account);
    worker->account = text;
}

void tt__watchdog_forget(launcher *l, int i) {
    patient *p = l->watchdog && l->watchdog->of ? &l->watchdog->of[i] : NULL;
    free(l->workers[i].message);
    free(l->workers[i].account);
    l->workers[i].message = l->workers[i].account = NULL;
    if (!p)
        return;
    free(p->stack);
    *p = (patient){.waiting = NO_CALLER};
}

/* ---- the loop */

int tt__watchdog_poll(launcher *l, struct pollfd *fds, int *timeout_ms) {
    int n = 0;
    for (int i = 0; i < TT__READINGS; i++) {
        const tt__reading *r = &l->watchdog->readings[i].reading;
        if (!r->child)
            continue;
        int left = tt__left_ms(r->deadline_ms);
        fds[n++] = (struct pollfd){.fd = r->from, .events = POLLIN};
        *timeout_ms = *timeout_ms < 0 || left < *timeout_ms ? left : *timeout_ms;
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
    if (l->watchdog->health)
        tt__health_serve(l->watchdog->health);
}
