/* Makes events for the machine of signals, and of messages of the keeper and of the other nodes. */
#include "launch/launcher_parts.h"

#include "base/error.h"
#include "base/files/fd.h"
#include "base/machine/clock.h"
#include "base/process/limits.h"
#include "launch/launcher_watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

typedef tt__launcher_state launcher;

/* ---- signals */

/* Those that the parent made us ignore (nohup, a shell's background) stay ignored. The job keeps the mask that workers
 * are to get back. */
tt_status tt__launcher_open_signals(launcher *l) {
    sigset_t set;
    int terminal = tt__fd(open("/dev/tty", O_RDONLY | O_NOCTTY | O_CLOEXEC));
    l->has_terminal = terminal >= 0;
    if (terminal >= 0)
        close(terminal);
    sigemptyset(&set);
    for (int sig = 1; sig <= SIGRTMAX; sig++) {
        struct sigaction action;
        if ((sig == SIGWINCH || sig == SIGTSTP || sigismember(&l->job->signals, sig) == 1) &&
            sigaction(sig, NULL, &action) == 0 && action.sa_handler != SIG_IGN)
            sigaddset(&set, sig);
    }
    sigprocmask(SIG_BLOCK, &set, &l->job->worker_mask);
    l->signals = tt__fd(signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC));
    return l->signals < 0 ? tt__fail_errno(TT_ERR_SYSTEM, errno, "can't receive signals") : TT_OK;
}

/* Did the terminal send the signal to its foreground process group? SIGHUP at the end of a terminal goes to the
 * session's leader alone. */
static bool is_from_terminal(const struct signalfd_siginfo *info) {
    return info->ssi_code == SI_KERNEL && info->ssi_signo != SIGHUP;
}

/* Is it the kernel's SIGHUP to an orphaned process group? A group gets that if one of its processes is stopped when its
 * last parent outside of it ends. In a session with a terminal, SIGHUP means that the terminal is gone. */
static bool is_for_an_orphan(const launcher *l, const struct signalfd_siginfo *info) {
    return info->ssi_code == SI_KERNEL && info->ssi_signo == SIGHUP && !l->has_terminal;
}

static void take_signal(launcher *l, const struct signalfd_siginfo *info) {
    tt__event event = {.kind = TT__ON_SIGNAL,
                       .signal = {.sig = (int)info->ssi_signo, .from_terminal = is_from_terminal(info)}};
    if (!l->machine.ending.own_signal)
        l->signal_ms = tt__now_ms();
    l->signals_taken++;
    tt__launcher_step(l, &event);
}

/* Pass the size of the terminal's window on to the workers' terminals, and then send SIGWINCH to the processes of our
 * group and to those that have left it: those that the terminal had told may have asked for the size too early. */
static void resize_window(launcher *l) {
    if (!tt__streams_resize(&l->streams))
        return;
    kill(0, SIGWINCH);
    tt__keeper_send(&l->keeper, TT__KEEPER_PASS, SIGWINCH);
}

/* Stop the job, as Ctrl-Z wants, and go on when the shell says so. Workers have sessions of their own, where SIGTSTP
 * stops nobody. */
static void stop_here(launcher *l) {
    sigset_t stop;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    tt__keeper_send(&l->keeper, TT__KEEPER_PASS, SIGSTOP);
    kill(getpid(), SIGTSTP);
    sigprocmask(SIG_UNBLOCK, &stop, NULL); /* stops, unless nobody could continue this process */
    sigprocmask(SIG_BLOCK, &stop, NULL);
    for (int i = 0; i < l->job->workers; i++) /* whose stop was ours */
        l->workers[i].stop = (tt__proc_stop){0};
    tt__keeper_send(&l->keeper, TT__KEEPER_PASS, SIGCONT);
}

void tt__launcher_take_signals(launcher *l) {
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGWINCH)
            resize_window(l);
        else if (info.ssi_signo == SIGTSTP && sigismember(&l->job->signals, SIGTSTP) != 1)
            stop_here(l);
        else if (!is_for_an_orphan(l, &info))
            take_signal(l, &info);
}

/* ---- ends of workers */

static void set_message(tt__worker *w, char *text) {
    free(w->message);
    w->traceback = NULL;
    w->message = text;
}

/* If the kernel killed the worker because memory ran out, say so in its message. */
static void note_memory_kill(launcher *l, tt__worker *w) {
    char limit[80] = "the machine has no more", *text;
    if (!WIFSIGNALED(w->status) || WTERMSIG(w->status) != SIGKILL || w->sent_signal || w->late)
        return;
    long long kills = tt__cgroup_memory_kills("");
    if (kills <= l->memory_kills)
        return;
    l->memory_kills++;
    size_t bytes = tt__cgroup_memory_limit("");
    if (bytes != SIZE_MAX)
        snprintf(limit, sizeof limit, "this control group (container) may have %zu bytes", bytes);
    if (asprintf(&text, "killed by the kernel because memory ran out: %s", limit) >= 0)
        set_message(w, text);
}

static void note_own_message(tt__worker *w) {
    const char *step = w->exec_errno ? tt__start_step_text(w->start_step) : NULL;
    if (w->late)
        set_message(w, strdup("killed by tutti: the other ranks wait for the next round, and this one did not come"));
    if (step)
        set_message(w, strdup(step));
}

static void read_tail(launcher *l, int i) {
    char path[PATH_MAX];
    tt__streams_drain(&l->streams, i);
    if (l->job->logs && l->job->logs->files[i] & TT__STDERR)
        tt__streams_take_tail(&l->streams, i,
                              tt__logs_path(l->job->logs, l->job->attempt, i, tt__logs_file(TT__STDERR), path));
}

/* Worker `i` has ended. untold: it certainly had no signal of ours before. */
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
    if (status != 0)
        tt__error_file_read(tt__job_error_file(l->job, i, path), w);
    note_memory_kill(l, w);
    note_own_message(w);
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

static void take_message(launcher *l, const tt__keeper_message *m) {
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
        l->failure = tt__job_error_dir_failed(m->errnum);
        tt__launcher_step(l, &(tt__event){.kind = TT__ON_FAILURE});
        break;
    case TT__KEEPER_UNABLE:
        l->failure = tt__fail_errno(TT_ERR_SYSTEM, m->unable.errnum, "the keeper process can't work without %s",
                                    tt__keeper_needs[m->unable.need]);
        tt__launcher_step(l, &(tt__event){.kind = TT__ON_FAILURE});
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

static void take_decision(launcher *l, tt__nodes_event *event) {
    if (event->event.kind == TT__ON_ROUND)
        give_round(l, &event->event);
    else
        tt__launcher_step(l, &event->event);
    if (event->event.kind != TT__ON_OVER)
        return;
    if (event->snapshot.n)
        tt__launcher_keep_remote(l, &event->snapshot);
    tt__watch_answer(l->watch);
}

static void take_node_event(launcher *l, tt__nodes_event *event) {
    switch (event->kind) {
    case TT__NODES_DECIDES:
        take_decision(l, event);
        break;
    case TT__NODES_WAITS:
        tt__streams_print(&l->streams, "tutti run: %s", event->text ? event->text : "waiting for other nodes");
        break;
    case TT__NODES_LOOK:
        tt__launcher_answer_look(l, event->look);
        break;
    case TT__NODES_SEEN:
        l->looking = false;
        tt__launcher_keep_remote(l, &event->snapshot);
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
    if (tt__watchdog_has_read_idle(l))
        tt__launcher_step(l, &(tt__event){.kind = TT__ON_IDLE_READ});
    tt__launcher_step(l, &(tt__event){.kind = TT__ON_TIME});
}
