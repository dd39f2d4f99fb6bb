/* Turns signals and messages, of the keeper and of other nodes, into events for the machine. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/process/limits.h"
#include "launch/launcher_parts.h"
#include "launch/local/error_files.h"
#include "launch/local/keeper.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

typedef tt__launcher_state launcher;

/* ---- signals */

static void take_signal(launcher *l, const tt__signal *signal) {
    tt__event event = {.kind = TT__ON_SIGNAL,
                       .signal = {.sig = signal->sig, .from_terminal = signal->from == TT__FROM_TERMINAL}};
    if (!l->machine.ending.own_signal)
        l->signal_ms = tt__now_ms();
    l->signals_taken++;
    tt__launcher_step(l, &event);
}

/* Give the workers' terminals the size of ours, and then send SIGWINCH to the processes of our group and to those that
 * have left it: the terminal's own SIGWINCH may have reached them before the size was passed on. */
static void resize_window(launcher *l) {
    if (!tt__streams_resize(&l->streams))
        return;
    kill(0, SIGWINCH);
    tt__keeper_send(&l->keeper, TT__KEEPER_PASS, SIGWINCH);
}

/* Stop the job on Ctrl-Z, and continue when the shell says so. Workers have sessions of their own, where SIGTSTP has no
 * effect: they get SIGSTOP. */
static void stop_job(launcher *l) {
    tt__keeper_send(&l->keeper, TT__KEEPER_PASS, SIGSTOP);
    tt__signals_stop_here();
    for (int i = 0; i < l->job->workers; i++) /* we stopped them, which is no failure */
        l->workers[i].stop = (tt__proc_stop){0};
    tt__keeper_send(&l->keeper, TT__KEEPER_PASS, SIGCONT);
}

void tt__launcher_take_signals(launcher *l) {
    tt__signal signal;
    while (tt__signals_take(&l->signals, &signal))
        if (signal.sig == SIGWINCH)
            resize_window(l);
        else if (signal.sig == SIGTSTP && sigismember(&l->job->signals, SIGTSTP) != 1)
            stop_job(l);
        else
            take_signal(l, &signal);
}

/* ---- ends of workers */

/* Name the step at which starting a worker failed, which an errno alone doesn't tell; NULL: executing the program. */
static const char *start_step_text(int step) {
    static const char *const texts[TT__STEPS] = {
        [TT__STEP_FORK] = "can't start a process (ulimit -u limits a user's, pids.max a control group's)",
        [TT__STEP_ENVIRONMENT] = "can't set its environment",
        [TT__STEP_NULL] = "can't open /dev/null",
        [TT__STEP_STREAMS] = "can't set its stdin, stdout and stderr",
        [TT__STEP_CPUS] = "can't bind it to its CPUs",
        [TT__STEP_SECRET] = "can't hand down the job's secret"};
    return step >= 0 && step < TT__STEPS ? texts[step] : NULL;
}

static void set_message(tt__worker *w, char *text) {
    free(w->message);
    w->traceback = NULL;
    w->message = text;
}

/* If the kernel killed the worker because memory ran out, or a process that the worker, a shell, waited for, say so in
 * its message. */
static void note_memory_kill(launcher *l, tt__worker *w) {
    char limit[80] = "the machine has no more", *text;
    bool killed = WIFSIGNALED(w->status) && WTERMSIG(w->status) == SIGKILL;
    bool tells_kill = WIFEXITED(w->status) && WEXITSTATUS(w->status) == 128 + SIGKILL && !w->message;
    if (!(killed || tells_kill) || w->sent_signal || w->late)
        return;
    long long kills = tt__cgroup_memory_kills("");
    if (kills <= l->memory_kills)
        return;
    l->memory_kills++;
    size_t bytes = tt__cgroup_memory_limit("");
    if (bytes != SIZE_MAX)
        snprintf(limit, sizeof limit, "this control group (container) may have %zu bytes", bytes);
    if (asprintf(&text, "%skilled by the kernel because memory ran out: %s",
                 killed ? "" : "a process that it started was ", limit) >= 0)
        set_message(w, text);
}

static void note_own_message(const launcher *l, tt__worker *w) {
    const char *step = w->exec_errno ? start_step_text(w->start_step) : NULL;
    if (l->machine.ending.damage == TT__KEEPER_LOST && !w->message) /* for the reports of other nodes */
        set_message(w, strdup("killed by the kernel, because the keeper process of its launcher was killed"));
    if (w->late)
        set_message(w, strdup("killed by tutti: the other ranks wait for the next round, and this one did not come"));
    if (step)
        set_message(w, strdup(step));
}

static void read_tail(launcher *l, int i) {
    tt__streams_drain(&l->streams, i);
    if (l->job->logs && l->job->logs->files[i] & TT__STDERR)
        tt__streams_take_tail(&l->streams, i,
                              tt__logs_open(l->job->logs, l->job->attempt, i, tt__logs_file(TT__STDERR)));
}

/* Worker `i` has ended. untold: the keeper had certainly not signalled it before. */
static void worker_ended(launcher *l, int i, int status, bool untold) {
    tt__worker *w = &l->workers[i];
    tt__event event = {.kind = TT__ON_ENDED, .ended = {.worker = i}};
    char path[PATH_MAX];
    if (untold && status == 0)
        w->sent_signal = 0;
    w->order = tt__ledger_ended(&l->machine.ledger);
    w->ended = true;
    w->status = status;
    w->when = tt__moment_now();
    tt__log(TT_LOG_DEBUG, "rank %d ended: %s", l->job->first_rank + i, tt__end_text(status, path, sizeof path));
    read_tail(l, i);
    if (!w->sent_signal)
        w->sent_signal = event.ended.agreed = tt__launcher_agreed_stop(l, i);
    w->waited = tt__launcher_waits(l, i);
    if (status != 0 && w->pid) /* if never started, it has at most a file of an earlier attempt */
        tt__job_error_file_read(l->job, i, w);
    note_memory_kill(l, w);
    note_own_message(l, w);
    tt__watchdog_ended(l, i);
    tt__launcher_step(l, &event);
}

/* A worker can't be started, which ends the job at once. */
static void worker_not_started(launcher *l, const tt__keeper_message *m) {
    tt__worker *w = &l->workers[m->worker];
    w->exec_errno = m->not_started.errnum;
    w->start_step = m->not_started.step;
    if (!m->not_started.pid) /* no process: no message will report its end */
        worker_ended(l, m->worker, 127 << 8, false);
    tt__launcher_step(l, &(tt__event){.kind = TT__ON_UNSTARTABLE});
}

/* The keeper was killed, and the kernel has killed the workers with it. The processes that they started are our
 * children now. */
static void lose_keeper(launcher *l) {
    tt__attempt_phase phase = l->machine.attempt.phase;
    tt__launcher_step(l, &(tt__event){.kind = TT__ON_KEEPER_LOST});
    l->keeper.pid = 0;
    for (int i = 0; i < l->job->workers; i++)
        if (!l->workers[i].ended && (phase != TT__NO_ATTEMPT || l->workers[i].pid))
            worker_ended(l, i, SIGKILL, false);
}

/* The launcher can't work without the keeper: the job ends. */
static void fail_without_keeper(launcher *l, tt_status failure) {
    l->failure = failure;
    tt__launcher_step(l, &(tt__event){.kind = TT__ON_FAILURE});
}

static void take_message(launcher *l, const tt__keeper_message *m) {
    static const char *const needs[] = {[TT__NEED_SIGNALS] = "signalfd() of SIGCHLD",
                                        [TT__NEED_EPOLL] = "epoll_create1()",
                                        [TT__NEED_MEMORY] = "memory for its workers",
                                        [TT__NEED_SUBREAPER] = "prctl(PR_SET_CHILD_SUBREAPER)"};
    switch ((tt__keeper_kind)m->kind) {
    case TT__KEEPER_STARTED:
        l->workers[m->worker].pid = m->started.pid;
        tt__log(TT_LOG_DEBUG, "rank %d is process %d", l->job->first_rank + m->worker, (int)m->started.pid);
        break;
    case TT__KEEPER_NOT_STARTED:
        worker_not_started(l, m);
        break;
    case TT__KEEPER_ENDED:
        worker_ended(l, m->worker, m->ended.status, !m->ended.signalled);
        break;
    case TT__KEEPER_LEFTOVERS:
        tt__launcher_step(l, &(tt__event){.kind = TT__ON_LEFTOVERS});
        break;
    case TT__KEEPER_FOLDER:
        l->job->error_dir_id = m->folder;
        break;
    case TT__KEEPER_NO_FOLDER:
        fail_without_keeper(l, tt__job_error_dir_failed(m->errnum));
        break;
    case TT__KEEPER_UNABLE:
        fail_without_keeper(l, tt__fail_errno(TT_ERR_SYSTEM, m->unable.errnum,
                                              "the keeper process can't work without %s", needs[m->unable.need]));
        break;
    case TT__KEEPER_DONE:
        tt__launcher_step(l, &(tt__event){.kind = TT__ON_CLEARED, .unkillable = m->unkillable});
        break;
    default:
        break;
    }
}

void tt__launcher_take_keeper_messages(launcher *l) {
    tt__keeper_message message;
    int received;
    while (!tt__machine_is_done(&l->machine) && (received = tt__keeper_receive(&l->keeper, &message)) != 0) {
        if (received < 0)
            lose_keeper(l);
        else
            take_message(l, &message);
    }
}

/* ---- the other nodes */

/* A round begins, if the machine takes it. */
static void give_round(launcher *l, tt__event *event) {
    tt__launcher_take_election(l);
    event->round.coordinates = l->job->coordinates;
    tt__launcher_step(l, event);
}

/* Keep the calls of other nodes' ranks for readers. Takes the snapshot's contents. */
static void keep_remote(launcher *l, tt__snapshot *snapshot) {
    tt__snapshot_free(&l->remote);
    l->remote = *snapshot;
    *snapshot = (tt__snapshot){0};
}

/* Answer a look of a reader on another node. */
static void answer_look(launcher *l, int id) {
    tt__snapshot snapshot;
    if (tt__watch_snapshot(l->watch, &snapshot))
        return;
    tt__nodes_show(l->nodes, id, &snapshot);
    tt__snapshot_free(&snapshot);
}

static void give_to_machine(launcher *l, tt__nodes_event *event) {
    if (event->event.kind == TT__ON_ROUND)
        give_round(l, &event->event);
    else
        tt__launcher_step(l, &event->event);
    if (event->event.kind != TT__ON_OVER)
        return;
    if (event->snapshot.n)
        keep_remote(l, &event->snapshot);
    tt__watch_answer(l->watch);
}

static void take_node_event(launcher *l, tt__nodes_event *event) {
    switch (event->kind) {
    case TT__NODES_FOR_MACHINE:
        give_to_machine(l, event);
        break;
    case TT__NODES_WAITS:
        tt__streams_print(&l->streams, "tutti run: %s", event->text ? event->text : "waiting for other nodes");
        break;
    case TT__NODES_LOOK:
        answer_look(l, event->look);
        break;
    case TT__NODES_SEEN:
        l->looking = false;
        keep_remote(l, &event->snapshot);
        tt__watch_answer(l->watch);
        break;
    }
}

void tt__launcher_take_node_events(launcher *l) {
    tt__nodes_event *event;
    while (l->nodes && (event = tt__nodes_next(l->nodes))) {
        take_node_event(l, event);
        tt__nodes_event_free(event);
    }
}

/* ---- time */

void tt__launcher_take_time(launcher *l) {
    if (tt__watchdog_take_idle_end(l))
        tt__launcher_step(l, &(tt__event){.kind = TT__ON_IDLE_READ});
    tt__launcher_step(l, &(tt__event){.kind = TT__ON_TIME});
}
