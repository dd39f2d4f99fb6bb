/* Waiting for processes, and which of several failures is the cause. */
#include "base/args.h"
#include "base/machine/clock.h"
#include "base/process/proc_state.h"
#include "spawn/process_context.h"

#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    DEFAULT_GRACE_MS = 30000,
    CAUSE_MS = 3000 /* how long to wait for the cause if a process failed because of another */
};

/* ---- who failed first */

/* Rate a process as the cause: 0 did not fail; 1 likeliest, 3 least. */
static int blame_of(const tt_process_context *c, int r) {
    const tt__process *p = &c->process[r];
    return !tt__process_failed(p) ? 0 : p->sent ? 3 : c->shared->of[r].secondary ? 2 : 1;
}

/* Did `a` fail before `b`, of the same rating? If both say when they ended, that counts. */
static bool ended_before(const tt_process_context *c, int a, int b) {
    const tt__process *p = &c->process[a], *q = &c->process[b];
    const tt__child_report *m = &c->shared->of[a], *n = &c->shared->of[b];
    if (llabs(p->seen_ms - q->seen_ms) < TT__TIE_MS && tt__is_struck_by(p->sig) != tt__is_struck_by(q->sig))
        return tt__is_struck_by(p->sig);
    return m->has_ended && n->has_ended ? m->ended_ns < n->ended_ns : p->seen_ms < q->seen_ms;
}

/* Return the rank of the process that failed first; -1: none has failed. */
static int first_failed(const tt_process_context *c) {
    int first = -1;
    for (int r = 0; r < c->started; r++) {
        int mine = blame_of(c, r), best = first < 0 ? 4 : blame_of(c, first);
        if (mine && (mine < best || (mine == best && ended_before(c, r, first))))
            first = r;
    }
    return first;
}

/* Wait a moment after a failure: another one may turn out to be its cause. */
static void wait_for_cause(tt_process_context *c) {
    int64_t since_ms = tt__now_ms();
    for (int first; c->running; tt__processes_look(c, TT__TIE_MS)) {
        first = first_failed(c);
        bool secondary = blame_of(c, first) > 1;
        if (tt__is_struck_by(c->process[first].sig) || tt__now_ms() - since_ms >= (secondary ? CAUSE_MS : TT__TIE_MS))
            return;
    }
}

/* ---- the error */

static void copy_text(char *to, const char *from) {
    snprintf(to, TT__REPORT_TEXT_SIZE, "%.*s", TT__REPORT_TEXT_SIZE - 1, from);
}

/* Copy the child's report. It may have died in the middle of writing it. */
static void note_failure(tt_process_context *c, int r) {
    const tt__process *p = &c->process[r];
    const tt__child_report *report = &c->shared->of[r];
    tt_process_failure *f = &c->failure;
    *f = (tt_process_failure){.rank = r,
                              .pid = c->pids[r],
                              .exit_code = p->unknown ? TT_EXIT_CODE_UNKNOWN
                                           : p->sig   ? -p->sig
                                                      : p->code,
                              .status = report->has_ended ? report->status : TT_OK,
                              .text = c->failure_text};
    if (*report->last_error)
        copy_text(c->failure_text, report->last_error);
    else if (report->has_told)
        copy_text(c->failure_text, report->told);
    if (p->sig) {
        const char *name = sigabbrev_np(p->sig);
        if (name)
            snprintf(c->signal_name, sizeof c->signal_name, "SIG%s", name);
        else
            snprintf(c->signal_name, sizeof c->signal_name, "%d", p->sig);
        f->signal_name = c->signal_name;
    }
    c->status = report->secondary ? TT_ERR_PEER : TT_ERR_PROCESS;
}

static void end_words(const tt_process_context *c, char *text, size_t size) {
    const tt_process_failure *f = &c->failure;
    if (f->signal_name)
        snprintf(text, size, "with signal %s", f->signal_name);
    else if (f->exit_code == TT_EXIT_CODE_UNKNOWN)
        snprintf(text, size, "in a way that is not known, as the program ignores SIGCHLD or has waited for it itself");
    else
        snprintf(text, size, "with exit code %d", f->exit_code);
}

static void write_error(tt_process_context *c) {
    const tt_process_failure *f = &c->failure;
    char how[128], left[64] = "";
    end_words(c, how, sizeof how);
    bool memory = f->exit_code == -SIGKILL && !*f->text;
    if (c->running)
        snprintf(left, sizeof left, "; %d of the others did not end by SIGKILL", c->running);
    snprintf(c->error_text, sizeof c->error_text, "process %d terminated %s (pid %d)%s%.1800s%s%s", f->rank, how,
             f->pid, *f->text ? ": " : "", f->text,
             memory ? "; when memory runs out the kernel sends it (see dmesg)" : "", left);
}

/* ---- public calls */

static tt_status check_context(const char *who, const tt_process_context *c) {
    if (!c)
        return tt__fail_argument("%s: expected a context, got NULL", who);
    if (c->owner != getpid())
        return tt__fail(TT_ERR_STATE, "%s: the context is process %d's, which forked this one (%d)", who, (int)c->owner,
                        (int)getpid());
    return TT_OK;
}

static void fail_processes(tt_process_context *c, int64_t grace_ms) {
    wait_for_cause(c);
    tt__processes_end(c, grace_ms < 0 ? DEFAULT_GRACE_MS : grace_ms);
    note_failure(c, first_failed(c));
    write_error(c);
}

tt_status tt_process_context_join(tt_process_context *c, int64_t timeout_ms, int64_t grace_ms, bool *all_ended) {
    if (all_ended)
        *all_ended = false;
    TT__TRY(check_context("tt_process_context_join", c));
    int64_t deadline = timeout_ms < 0 ? INT64_MAX : tt__deadline_ms(timeout_ms);
    do
        tt__processes_look(c, tt__left_ms(deadline));
    while (c->running && first_failed(c) < 0 && tt__left_ms(deadline));
    if (!c->status && first_failed(c) >= 0)
        fail_processes(c, grace_ms);
    if (all_ended)
        *all_ended = !c->running;
    return c->status ? tt__fail(c->status, "%s", c->error_text) : TT_OK;
}

const int *tt_process_context_pids(const tt_process_context *c, int64_t *count) {
    if (count)
        *count = c ? c->started : 0;
    return c ? c->pids : NULL;
}

tt_status tt_process_context_kill(tt_process_context *c, int signal) {
    TT__TRY(check_context("tt_process_context_kill", c));
    if (signal < 1 || signal > SIGRTMAX)
        return tt__fail(TT_ERR_INVALID, "tt_process_context_kill: expected a signal from 1 to %d, got %d", SIGRTMAX,
                        signal);
    tt__processes_signal(c, signal);
    return TT_OK;
}

const tt_process_failure *tt_process_context_failure(const tt_process_context *c) {
    return c && c->status ? &c->failure : NULL;
}

static tt_status fail_late(tt_process_context *c, int64_t timeout_ms, int64_t grace_ms) {
    int running = c->running, first = 0;
    while (c->process[first].over)
        first++;
    tt__processes_end(c, grace_ms);
    return tt__fail(TT_ERR_TIMEOUT,
                    "tt_spawn: %d of %d processes still ran after %" PRId64
                    " ms, the first of them process %d (pid %d); they were ended",
                    running, c->started, timeout_ms, first, c->pids[first]);
}

tt_status tt_spawn_with(const tt_spawn_args *args, size_t size) {
    tt_spawn_args a;
    tt_process_context *c;
    bool all_ended = false;
    TT__ARGS_COPY(a, args, size);
    int64_t grace_ms = !a.grace_ms ? DEFAULT_GRACE_MS : a.grace_ms < 0 ? 0 : a.grace_ms;
    const tt_start_processes_args start = {
        .out = &c, .fn = a.fn, .arg = a.arg, .nprocs = a.nprocs, .rendezvous = a.rendezvous};
    TT__TRY(tt__processes_start("tt_spawn", &start));
    tt_status status = tt_process_context_join(c, a.timeout_ms > 0 ? a.timeout_ms : -1, grace_ms, &all_ended);
    if (!status && !all_ended)
        status = fail_late(c, a.timeout_ms, grace_ms);
    tt_process_context_free(c);
    return status;
}
