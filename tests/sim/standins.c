/* Stands in for the parts of the launcher that people see: streams, log files, the job's socket, events. Notes the
 * lines that are printed. */
#include "launch/launcher_parts.h"
#include "launch/local/children.h"
#include "launch/local/follow.h"
#include "launch/local/report.h"
#include "launch/local/watch.h"
#include "sim/descriptors.h"
#include "sim/history.h"
#include "sim/keeper.h"
#include "sim/trainer.h"
#include "sim/verdict.h"

#include "base/error.h"
#include "launch/local/error_files.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- streams */

tt_status tt__streams_open(tt__streams *streams, int n, int out_fd, int *write_ends) {
    (void)out_fd;
    (void)write_ends;
    *streams = (tt__streams){.n = n, .of = sim_memory(calloc((size_t)n + 1, sizeof *streams->of))};
    return TT_OK;
}

void tt__streams_close(tt__streams *streams) {
    free(streams->of);
    *streams = (tt__streams){0};
}

tt_status tt__streams_renew(tt__streams *streams, const bool *kept, int *write_ends) {
    (void)kept;
    (void)streams;
    (void)write_ends;
    return TT_OK;
}

int tt__streams_open_log(tt__streams *streams) {
    (void)streams;
    return -1;
}

bool tt__streams_resize(tt__streams *streams) {
    (void)streams;
    return false;
}

int tt__streams_poll(const tt__streams *streams, struct pollfd *fds, int *timeout_ms) {
    (void)streams;
    (void)fds;
    (void)timeout_ms;
    return 0;
}

void tt__streams_serve(tt__streams *streams) { (void)streams; }

void tt__streams_drain(tt__streams *streams, int rank) {
    (void)streams;
    (void)rank;
}

void tt__streams_write(tt__streams *streams, const char *bytes, size_t n) {
    (void)streams;
    (void)bytes;
    (void)n;
}

void tt__streams_begin_line(tt__streams *streams) { (void)streams; }

bool tt__streams_are_full(const tt__streams *streams) {
    (void)streams;
    return false;
}

static void note_line(const char *format, va_list args) {
    char line[1000];
    vsnprintf(line, sizeof line, format, args);
    sim_note_line(sim_agent_now()->node, line);
}

void tt__streams_print(tt__streams *streams, const char *format, ...) {
    va_list args;
    (void)streams;
    va_start(args, format);
    note_line(format, args);
    va_end(args);
}

void tt__streams_alarm(tt__streams *streams, const char *format, ...) {
    va_list args;
    (void)streams;
    va_start(args, format);
    note_line(format, args);
    va_end(args);
}

void tt__streams_show(tt__streams *streams, const char *text) {
    (void)streams;
    (void)text;
}

void tt__streams_flush(tt__streams *streams, int64_t stall_ms) {
    (void)streams;
    (void)stall_ms;
}

void tt__streams_take_tail(tt__streams *streams, int rank, int fd) {
    (void)streams;
    (void)rank;
    (void)fd;
}

const char *tt__streams_tail(const tt__streams *streams, int rank, char *text) {
    (void)streams;
    (void)rank;
    *text = '\0';
    return text;
}

/* ---- log files */

tt_status tt__follow_new(tt__follow **out, const tt__job *job, tt__streams *errors) {
    (void)job;
    (void)errors;
    *out = NULL;
    return TT_OK;
}

void tt__follow_begin(tt__follow *follow) { (void)follow; }

int tt__follow_poll(const tt__follow *follow, struct pollfd *fds, int *timeout_ms) {
    (void)follow;
    (void)fds;
    (void)timeout_ms;
    return 0;
}

void tt__follow_serve(tt__follow *follow) { (void)follow; }
void tt__follow_end(tt__follow *follow) { (void)follow; }

bool tt__follow_is_behind(const tt__follow *follow, size_t *progress) {
    (void)follow;
    (void)progress;
    return false;
}

int tt__follow_descriptors(const tt__job *job) {
    (void)job;
    return 0;
}

void tt__follow_free(tt__follow *follow) { (void)follow; }

/* ---- the job's socket */

tt_status tt__watch_open(tt__watch **out, int n, const tt__watch_job *job, const char *name) {
    (void)n;
    (void)job;
    (void)name;
    *out = NULL;
    sim_agent_now()->watch_fd = sim_fd_new(SIM_FD_COUNTER, NULL);
    return TT_OK;
}

void tt__watch_free(tt__watch *watch) {
    (void)watch;
    sim_fd_close(sim_agent_now()->watch_fd);
    sim_agent_now()->watch_fd = -1;
}

void tt__watch_first_rank(tt__watch *watch, int first_rank) {
    (void)watch;
    (void)first_rank;
}

void tt__watch_renew(tt__watch *watch) {
    (void)watch;
    sim_keeper_forget_shown(sim_agent_now()->node);
}

int tt__watch_fd(const tt__watch *watch) {
    (void)watch;
    return sim_agent_now()->watch_fd;
}

void tt__watch_serve(tt__watch *watch) {
    (void)watch;
    sim_fd_take(sim_agent_now()->watch_fd);
}
void tt__watch_answer(tt__watch *watch) { (void)watch; }

const void *tt__watch_recorder(tt__watch *watch, int i, size_t *size) {
    const sim_worker *w = sim_keeper_shown(sim_agent_now()->node, i);
    return w && w->ended ? NULL : tt__watch_last_recorder(watch, i, size);
}

const void *tt__watch_last_recorder(tt__watch *watch, int i, size_t *size) {
    const sim_worker *w = sim_keeper_shown(sim_agent_now()->node, i);
    (void)watch;
    *size = 0;
    return w ? sim_worker_recorder(w, size) : NULL;
}

void tt__watch_let_end(tt__watch *watch, int caller) {
    (void)watch;
    (void)caller;
}

bool tt__watch_tell_round(tt__watch *watch, int i, tt__job_kind kind, const tt__job_round *round) {
    sim_worker *w = sim_keeper_shown(sim_agent_now()->node, i);
    (void)watch;
    return w && sim_worker_tell(w, kind, round);
}

/* Return another number at each call, so that the launcher always asks again. Workers that were asked before ignore
 * that. */
int tt__watch_listeners(const tt__watch *watch) {
    static int looks;
    (void)watch;
    return looks = (looks + 1) & 0xffff;
}

tt_status tt__watch_snapshot(const tt__watch *watch, tt__snapshot *snapshot) {
    (void)watch;
    *snapshot = (tt__snapshot){0};
    return TT_OK;
}

tt_status tt__watch_snapshot_of(const tt__watch *watch, int i, tt__snapshot *snapshot) {
    (void)i;
    return tt__watch_snapshot(watch, snapshot);
}

/* ---- error files: keeper.c has what is in them */

tt_status tt__job_error_dir_name(tt__job *job) {
    snprintf(job->error_dir, sizeof job->error_dir, "errors");
    return TT_OK;
}

tt_status tt__job_error_dir_failed(int errnum) { return tt__fail_errno(TT_ERR_IO, errnum, "no folder"); }

void tt__job_error_dir_clear(const tt__job *job) { (void)job; }
void tt__job_error_dir_remove(const tt__job *job) { (void)job; }

char *tt__error_file_text(const tt__worker *worker) {
    (void)worker;
    return NULL;
}

int tt__error_file_hand_on(const char *path, const tt__worker *worker) {
    (void)path, (void)worker;
    return 0;
}

/* ---- processes that workers left */

size_t tt__children(pid_t *pids, size_t max) {
    (void)pids;
    (void)max;
    return 0;
}

/* After the keeper was killed: the kernel has killed the workers, so this finds none, which takes a moment. */
size_t tt__children_kill(const pid_t *spared, size_t spared_count, tt__reaped_fn reaped, void *user,
                         int64_t timeout_ms) {
    (void)spared;
    (void)spared_count;
    (void)reaped;
    (void)user;
    (void)timeout_ms;
    sim_wait(sim_now_ns() + 30 * SIM_MS);
    return 0;
}

/* ---- reports: noted, and then made by the product */

void tt__events_write(tt__streams *streams, const tt__job *job, const tt__worker *workers, const tt__moment *started,
                      bool succeeded) {
    (void)streams;
    (void)job;
    (void)workers;
    (void)started;
    (void)succeeded;
}

void __real_tt__report_first(tt__streams *streams, const tt__job *job, const tt__first *first,
                             const tt__moment *started);
void __wrap_tt__report_first(tt__streams *streams, const tt__job *job, const tt__first *first,
                             const tt__moment *started);
void __real_tt__report_attempt(tt__streams *streams, const tt__job *job, const tt__first *first, bool recovers);
void __wrap_tt__report_attempt(tt__streams *streams, const tt__job *job, const tt__first *first, bool recovers);

static void note_first(const tt__first *first, bool of_job) {
    int node = sim_agent_now()->node, attempt;
    sim_keeper_alive(node, &attempt);
    sim_note_report(&(sim_report){node, attempt, first->rank, first->node, first->worker->status}, of_job);
}

void __wrap_tt__report_first(tt__streams *streams, const tt__job *job, const tt__first *first,
                             const tt__moment *started) {
    note_first(first, true);
    __real_tt__report_first(streams, job, first, started);
}

void __wrap_tt__report_attempt(tt__streams *streams, const tt__job *job, const tt__first *first, bool recovers) {
    note_first(first, false);
    __real_tt__report_attempt(streams, job, first, recovers);
}

/* ---- rounds: the next one's number is noted, as the attempt of a kept worker is an older one */

void __real_tt__machine_step(tt__machine *m, tt__event *event, const tt__surroundings *around, tt__actions *actions);
void __wrap_tt__machine_step(tt__machine *m, tt__event *event, const tt__surroundings *around, tt__actions *actions);

void __wrap_tt__machine_step(tt__machine *m, tt__event *event, const tt__surroundings *around, tt__actions *actions) {
    if (event->kind == TT__ON_NEXT && m->membership.next_round)
        sim_keeper_note_round(sim_agent_now()->node, m->membership.next_round->attempt);
    __real_tt__machine_step(m, event, around, actions);
    if (actions->overflowed)
        abort();
}
