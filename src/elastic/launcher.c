/* The launcher's side of a job: what happens when a worker fails or a signal comes.
 *
 *   JOINING ---> RUNNING --a worker fails--> SETTLING --settle_ms--> TERMINATING --grace_ms--> KILLING
 *     ^           ^   |                         |                        |                        |
 *     |           |   +-------------------------+------- nothing left ---+------------------------+
 *     |           |                                          v
 *     |           +-- another attempt ---------------------- GONE --else--> done
 *     +-------------- the job is lost ------------------------+
 *
 * JOINING: other nodes are not here yet. SETTLING: the others are finding out why; most end by themselves and report
 * it. Where they are started again they have only until it is clear who failed first. TERMINATING: they have got
 * SIGTERM. KILLING: the keeper kills every descendant. GONE: the keeper has reported that nothing is left here; other
 * nodes are waited for, and then, with a fresh store and all that was known of the workers forgotten, the next attempt
 * begins (launcher_attempt.c), or the job is done. Where nodes may come and go, one that is cut off from the job kills
 * its workers, except such as survive that (launcher_recovery.c), and joins anew.
 *
 * A signal to the launcher goes to the workers and leads to TERMINATING, a second one to KILLING; after any there is no
 * further attempt. When all workers have ended and something they started is still there, it goes through the same
 * phases. */
#include "elastic/launcher.h"

#include "base/cgroup.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/fd.h"
#include "elastic/children.h"
#include "elastic/election.h"
#include "elastic/events.h"
#include "elastic/launcher_watchdog.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

typedef tt__launcher_state launcher;

enum { FLUSH_MIN_MS = 1000 };
enum { LOST_LATE_MS = 1000 }; /* news of a lost node take so long at most, beside the heartbeat */

/* Signals. */

/* Receive the job's signals, SIGWINCH and SIGTSTP through a signalfd. Those that the parent made us ignore (nohup, a
 * shell's background) stay ignored. The job keeps the mask that workers are to get back. */
static tt_status open_signals(launcher *l) {
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

/* Did the terminal send it to its foreground process group? The end of a terminal is told to the session's leader
 * alone. */
static bool is_for_all(const struct signalfd_siginfo *info) {
    return info->ssi_code == SI_KERNEL && info->ssi_signo != SIGHUP;
}

/* The kernel tells a process group of which one is stopped, and whose last parent outside of it ends, as the keeper is
 * while it has workers. In a session that has a terminal it is that which has gone. */
static bool is_for_an_orphan(const launcher *l, const struct signalfd_siginfo *info) {
    return info->ssi_code == SI_KERNEL && info->ssi_signo == SIGHUP && !l->has_terminal;
}

/* Do the others go on when this node ends? Its workers, if they survive the loss of others, would tell them all to
 * stop. */
static bool can_leave(const launcher *l) {
    return tt__launcher_is_elastic(l) && !l->job->coordinates && tt__launcher_can_recover(l);
}

/* Handle a signal. Ctrl-C at a terminal has reached the workers already, except those that have left the process group,
 * as under timeout(1) and setsid(1). */
static void take_signal(launcher *l, const struct signalfd_siginfo *info) {
    char name[32];
    int sig = (int)info->ssi_signo, living = l->job->workers - l->ended;
    tt__signal_name(sig, name, sizeof name);
    l->signals_taken++;
    if (l->done) {
        tt__streams_print(&l->streams, "tutti run: got %s: not waiting any longer", name);
        l->got_signal = l->got_signal ? l->got_signal : sig;
        l->signal_ms = tt__now_ms();
        return;
    }
    if (l->got_signal) {
        tt__streams_print(&l->streams, "tutti run: got %s again: killing what is left", name);
        tt__launcher_kill(l);
        return;
    }
    bool leaves = can_leave(l);
    l->got_signal = sig;
    l->signal_ms = tt__now_ms();
    if (l->nodes)
        tt__nodes_announce_signal(l->nodes, sig);
    if (leaves) {
        tt__streams_print(&l->streams, "tutti run: got %s: this node leaves the job, which goes on without it", name);
        tt__launcher_kill(l);
        return;
    }
    if (l->phase == TT__GONE && !l->kept)
        tt__streams_print(&l->streams, "tutti run: got %s: not waiting for another attempt", name);
    if ((l->phase == TT__JOINING || l->phase == TT__GONE) && !l->kept) {
        l->done = true;
        return;
    }
    tt__streams_print(&l->streams, "tutti run: got %s: ending %d worker%s, SIGKILL in %.3g s (a second signal: now)",
                      name, living, living == 1 ? "" : "s", (double)l->job->grace_ms / 1000);
    if (l->phase >= TT__TERMINATING && l->phase != TT__GONE)
        return;
    if (is_for_all(info)) {
        tt__launcher_note_signal(l, sig);
        tt__keeper_send(&l->keeper, TT__KEEPER_PASS, sig);
        tt__launcher_enter(l, TT__TERMINATING, l->job->grace_ms);
    } else {
        tt__launcher_terminate(l, sig);
    }
}

/* Pass the size of the terminal's window on to the workers', and tell the processes of our group, which have asked too
 * early if the terminal told them, too; then those that have left it. */
static void resize(launcher *l) {
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
    for (int rank = 0; rank < l->job->workers; rank++) /* whose stop was ours */
        l->workers[rank].stop = (tt__proc_stop){0};
    tt__keeper_send(&l->keeper, TT__KEEPER_PASS, SIGCONT);
}

static void take_signals(launcher *l) {
    struct signalfd_siginfo info;
    while (read(l->signals, &info, sizeof info) == (ssize_t)sizeof info)
        if (info.ssi_signo == SIGWINCH)
            resize(l);
        else if (info.ssi_signo == SIGTSTP && sigismember(&l->job->signals, SIGTSTP) != 1)
            stop_here(l);
        else if (!is_for_an_orphan(l, &info))
            take_signal(l, &info);
}

/* Messages of the keeper. */

/* If the kernel killed the worker because memory ran out, say so in its message. */
static void note_memory_kill(launcher *l, tt__worker *w) {
    char limit[80] = "the machine has no more";
    if (!WIFSIGNALED(w->status) || WTERMSIG(w->status) != SIGKILL || w->sent_signal || w->late)
        return;
    long long kills = tt__cgroup_memory_kills("");
    if (kills <= l->memory_kills)
        return;
    l->memory_kills++;
    size_t bytes = tt__cgroup_memory_limit("");
    if (bytes != SIZE_MAX)
        snprintf(limit, sizeof limit, "this control group (container) may have %zu bytes", bytes);
    free(w->message);
    w->traceback = NULL;
    if (asprintf(&w->message, "killed by the kernel because memory ran out: %s", limit) < 0)
        w->message = NULL;
}

static void note_late_kill(tt__worker *w) {
    if (!w->late)
        return;
    free(w->message);
    w->traceback = NULL;
    w->message = strdup("killed by tutti: the other ranks wait for the next round, and this one did not come");
}

static void note_start_step(tt__worker *w) {
    const char *text = w->exec_errno ? tt__start_step_text(w->start_step) : NULL;
    if (!text)
        return;
    free(w->message);
    w->traceback = NULL;
    w->message = strdup(text);
}

/* `told`: it may have had a signal of ours before. */
static void worker_ended(launcher *l, int rank, int status, bool told) {
    tt__worker *w = &l->workers[rank];
    char path[PATH_MAX];
    if (!told && status == 0)
        w->sent_signal = 0;
    w->ended = true;
    w->status = status;
    w->order = l->ended++;
    w->when = tt__moment_now();
    tt__log(TT_LOG_DEBUG, "rank %d ended: %s", l->job->first_rank + rank, tt__end_text(status, path, sizeof path));
    tt__streams_drain(&l->streams, rank);
    if (l->job->logs && l->job->logs->files[rank] & TT__STDERR)
        tt__streams_take_tail(&l->streams, rank,
                              tt__logs_path(l->job->logs, l->job->attempt, rank, tt__logs_file(TT__STDERR), path));
    if (!w->sent_signal && (w->sent_signal = tt__launcher_agreed_stop(l, rank)) != 0)
        l->stopped = w->sent_signal;
    w->waited = tt__launcher_waits(l, rank);
    if (status != 0)
        tt__error_file_read(tt__job_error_file(l->job, rank, path), w);
    note_memory_kill(l, w);
    note_late_kill(w);
    note_start_step(w);
    tt__watchdog_ended(l, rank);
    tt__launcher_publish_end(l, rank);
    if (l->stopped)
        tt__launcher_settle_stopped(l);
    else if (status != 0)
        tt__launcher_settle(l);
    else if (l->nodes && tt__launcher_is_elastic(l) && !l->told_success && !w->sent_signal) {
        l->told_success = true;
        tt__nodes_announce_success(l->nodes, tt__launcher_attempt(l));
    }
}

/* End the job at once: a worker can't be started. */
static void worker_not_started(launcher *l, int rank, int value, pid_t pid) {
    l->workers[rank].exec_errno = value % TT__STEP_FACTOR;
    l->workers[rank].start_step = value / TT__STEP_FACTOR;
    if (!pid) /* no process: no message will report its end */
        worker_ended(l, rank, 127 << 8, true);
    if (l->phase < TT__KILLING)
        tt__launcher_kill(l);
}

static void take_message(launcher *l, const tt__keeper_message *m) {
    switch ((tt__keeper_kind)m->kind) {
    case TT__KEEPER_STARTED:
        l->workers[m->rank].pid = m->pid;
        tt__log(TT_LOG_DEBUG, "rank %d is process %d", l->job->first_rank + m->rank, (int)m->pid);
        break;
    case TT__KEEPER_NOT_STARTED:
        worker_not_started(l, m->rank, m->value, m->pid);
        break;
    case TT__KEEPER_ENDED:
        worker_ended(l, m->rank, m->value, m->pid != 0);
        break;
    case TT__KEEPER_LEFTOVERS:
        if (l->phase == TT__TERMINATING)
            tt__launcher_terminate(l, SIGTERM);
        else if (l->phase == TT__RUNNING)
            tt__launcher_enter(l, TT__SETTLING, l->job->settle_ms);
        break;
    case TT__KEEPER_FOLDER:
        l->job->error_dir_id = m->folder;
        break;
    case TT__KEEPER_NO_FOLDER:
        l->failure = tt__job_error_dir_failed(m->value);
        l->done = true;
        break;
    case TT__KEEPER_UNABLE:
        l->failure = tt__fail_errno(TT_ERR_SYSTEM, m->value, "the keeper process can't work without %s",
                                    tt__keeper_needs[m->rank]);
        l->done = true;
        break;
    case TT__KEEPER_DONE:
        tt__launcher_attempt_over(l, m->value);
        break;
    default:
        break;
    }
}

/* The kernel has killed the workers with their keeper: the other nodes, which see none of that, are told so. */
static void count_killed_workers(launcher *l) {
    tt__launcher_note_signal(l, SIGKILL);
    for (int rank = 0; rank < l->job->workers; rank++)
        if (!l->workers[rank].ended && (l->phase != TT__JOINING || l->workers[rank].pid))
            worker_ended(l, rank, SIGKILL, true);
}

/* Handle the keeper's death. The processes that the workers started are our children now. */
static void lose_keeper(launcher *l) {
    l->done = l->keeper_lost = true;
    tt__streams_print(&l->streams, "tutti run: the keeper process (pid %d) was killed: ending the job",
                      (int)l->keeper.pid);
    tt__children_kill(l->spared, l->spared_count, NULL, NULL, TT__KEEPER_KILL_MS);
    count_killed_workers(l);
    l->keeper.pid = 0;
}

static void take_keeper_messages(launcher *l) {
    tt__keeper_message message;
    int received;
    while (!l->done && (received = tt__keeper_receive(&l->keeper, &message)) != 0) {
        if (received < 0)
            lose_keeper(l);
        else
            take_message(l, &message);
    }
}

/* The loop. */

static void next_phase(launcher *l) {
    if (tt__now_ms() < l->deadline_ms)
        return;
    if (l->phase == TT__SETTLING) {
        tt__launcher_settled(l);
    } else if (l->phase == TT__TERMINATING) {
        tt__launcher_kill(l);
    } else { /* a keeper that does not respond even to this */
        kill(l->keeper.pid, SIGKILL);
        l->deadline_ms = INT64_MAX;
    }
}

static void wait_for_events(launcher *l) {
    int64_t deadline = l->phase == TT__RUNNING && l->look_ms < l->deadline_ms ? l->look_ms : l->deadline_ms;
    int timeout = deadline == INT64_MAX ? -1 : tt__left_ms(deadline);
    l->fds[0] = (struct pollfd){.fd = l->done ? -1 : l->keeper.socket, .events = POLLIN};
    l->fds[1] = (struct pollfd){.fd = l->signals, .events = POLLIN};
    l->fds[2] = (struct pollfd){.fd = tt__watch_fd(l->watch), .events = POLLIN};
    l->fds[3] = (struct pollfd){.fd = l->nodes ? tt__nodes_fd(l->nodes) : -1, .events = POLLIN};
    int n = 4 + tt__streams_poll(&l->streams, l->fds + 4, &timeout);
    n += tt__follow_poll(l->follow, l->fds + n, &timeout);
    n += tt__watchdog_poll(l, l->fds + n, &timeout);
    tt__launcher_survivors_due(l, &timeout);
    poll(l->fds, (nfds_t)n, timeout);
}

static void launcher_serve(launcher *l) {
    wait_for_events(l);
    take_signals(l);
    take_keeper_messages(l);
    tt__launcher_take_node_events(l);
    tt__streams_serve(&l->streams);
    tt__follow_serve(l->follow);
    tt__watch_serve(l->watch);
    tt__watchdog_serve(l);
}

static void launcher_run(launcher *l) {
    while (!l->done) {
        launcher_serve(l);
        if (l->done)
            break;
        tt__launcher_look_at_survivors(l);
        next_phase(l);
        if (l->phase == TT__RUNNING)
            tt__launcher_look(l);
    }
    tt__streams_show(&l->streams, "");
}

/* Show what the workers have written to files. Who takes nothing of it for the grace period does not keep us, nor does
 * a signal's sender. */
static void finish_follow(launcher *l) {
    int signals = l->signals_taken;
    size_t progress = 0, before = 0;
    int64_t period = l->job->grace_ms < FLUSH_MIN_MS ? FLUSH_MIN_MS : l->job->grace_ms, deadline = 0;
    l->deadline_ms = INT64_MAX;
    tt__follow_end(l->follow);
    for (bool first = true; tt__follow_is_behind(l->follow, &progress) && l->signals_taken == signals; first = false) {
        if (first || progress != before)
            deadline = tt__deadline_ms(period);
        before = progress;
        if (!tt__left_ms(deadline))
            break;
        launcher_serve(l);
    }
}

/* Wait for the other nodes; nothing of the job is left here. A signal now means that the user won't wait. */
static void wait_for_nodes(launcher *l) {
    int signals = l->signals_taken;
    if (!l->nodes || l->phase == TT__JOINING || l->failure)
        return;
    l->deadline_ms = INT64_MAX;
    tt__launcher_announce_done(l);
    if (tt__launcher_is_elastic(l) && !l->job->coordinates && (l->got_signal || l->keeper_lost || l->stuck))
        return; /* the others go on */
    while (!l->over && l->signals_taken == signals)
        launcher_serve(l);
}

/* The end. */

static int exit_code_of(const tt__worker *w) {
    return w->exec_errno == ENOENT && !w->message ? 127 : w->exec_errno ? 126 : tt__end_code(w->status);
}

/* A worker learns it from write(2), which many programs don't look at. */
static void tell_full_disk(launcher *l) {
    struct statvfs disk;
    const char *dir = l->job->logs ? l->job->logs->dir : NULL;
    if (dir && statvfs(dir, &disk) == 0 && disk.f_blocks && !disk.f_bavail)
        tt__streams_print(&l->streams, "tutti run: no room is left for logs in %s: some of them may be missing", dir);
}

/* Did nobody fail before the signal came, or a node or the keeper was lost, to judge by who failed first? Ranks of
 * other nodes may notice the end of those that were told before they are told themselves. */
static bool was_asked(const launcher *l, const tt__worker *first) {
    bool told = l->got_signal || l->node_signal;
    bool other = l->stopped || l->lost || l->keeper_lost;
    return ((told || other) && tt__was_told_to_end(first)) || (told && first->secondary);
}

/* May it have failed because a node was lost, which is heard of later? A rank that has lost the store can't say so. */
static bool may_follow_a_loss(const launcher *l, const tt__worker *first) {
    return l->lost && first->when.realtime_ns > l->lost_ns - (l->job->heartbeat_ms + LOST_LATE_MS) * 1000000;
}

static int launcher_conclude(launcher *l) {
    tt__first first;
    char tail[TT__TAIL_BYTES + 1];
    int own;
    bool failed = l->phase != TT__JOINING && tt__launcher_first(l, &first, &own, tail); /* else it was in no round */
    bool asked = failed && was_asked(l, first.worker);
    bool stranded = l->kept && l->phase != TT__JOINING; /* ranks wait for a round that can't begin */
    tt__launcher_report_lost(l);
    tell_full_disk(l);
    if (l->job->events && l->phase != TT__JOINING)
        tt__events_write(&l->streams, l->job, l->workers, &l->started,
                         !failed && !stranded && !l->got_signal && !l->lost);
    if (failed && !asked && (!l->job->node_0_reports || l->lost)) {
        first.unsure = may_follow_a_loss(l, first.worker);
        tt__report_first(&l->streams, l->job, &first, &l->started);
        tt__report_others(&l->streams, l->job, l->workers, own);
        tt__report_idle(&l->streams, l->job, l->workers);
        tt__launcher_report_attempts(l);
    }
    if (l->got_signal || l->stopped)
        return 128 + (l->got_signal ? l->got_signal : l->stopped);
    if ((l->lost || l->keeper_lost || stranded) && (!failed || asked))
        return 1;
    if (l->node_signal && asked)
        return 128 + l->node_signal;
    return failed ? exit_code_of(first.worker) : 0;
}

static void look_back(launcher *l) {
    tt__snapshot snapshot;
    if (!l->job->at_end || l->phase == TT__JOINING || l->failure)
        return;
    tt_status status = tt__watch_snapshot(l->watch, &snapshot);
    if (!status) {
        status = l->job->at_end(l->job, &snapshot);
        tt__snapshot_free(&snapshot);
    }
    if (status)
        tt__streams_print(&l->streams, "tutti run: %s", tt_last_error());
}

static tt_status launcher_allocate(launcher *l) {
    size_t n = (size_t)l->job->workers;
    l->workers = calloc(n, sizeof *l->workers);
    l->fds = calloc(n + 8 + TT__WATCHDOG_FDS, sizeof *l->fds);
    l->pipe_ends = malloc(n * sizeof *l->pipe_ends);
    for (size_t i = 0; l->pipe_ends && i < n; i++)
        l->pipe_ends[i] = -1;
    if (tt__watchdog_open(l) || !l->workers || !l->fds || !l->pipe_ends)
        return tt__fail(TT_ERR_MEMORY, "no memory for a job of %d workers", l->job->workers);
    return TT_OK;
}

/* Fork the keeper, before the store's thread exists. */
static tt_status start_keeper(launcher *l) {
    l->spared_count = tt__children(l->spared, TT__MAX_SPARED);
    l->job->group = getpgrp();
    prctl(PR_SET_CHILD_SUBREAPER, 1);
    TT__TRY(tt__job_error_dir_name(l->job));
    return tt__keeper_start(&l->keeper, l->job);
}

static tt_status launcher_start(launcher *l) {
    int spare;
    TT__TRY(tt__launcher_check_descriptors(l->job, &spare));
    TT__TRY(launcher_allocate(l));
    tt__watchdog_spare(l, spare);
    TT__TRY(open_signals(l));
    TT__TRY(tt__job_socket_name(l->job->socket_name));
    TT__TRY(tt__launcher_prepare_election(l));
    TT__TRY(start_keeper(l));
    TT__TRY(tt__streams_open(&l->streams, l->job->workers, STDERR_FILENO, l->pipe_ends));
    TT__TRY(tt__follow_new(&l->follow, l->job, &l->streams));
    signal(SIGPIPE, SIG_IGN); /* after the fork: workers keep what they had */
    signal(SIGXFSZ, SIG_IGN); /* our stderr may be a file that can't grow any more (ulimit -f) */
    l->log = tt__streams_open_log(&l->streams);
    if (l->log >= 0)
        tt__log_to_descriptor(l->log);
    TT__TRY(tt__launcher_watch(l));
    TT__TRY(tt__launcher_serve_store(l->job, &l->server));
    if (l->server)
        l->job->master_port = tt_store_server_port(l->server);
    if (l->job->max_nodes > 1) {
        l->job->attempt = -1;
        return tt__launcher_join(l);
    }
    l->job->nodes = 1;
    l->job->world = l->job->workers;
    tt__launcher_begin(l);
    return TT_OK;
}

/* Write what is left. Who reads our stderr, but takes nothing for the grace period, which a signal has begun, does not
 * keep us. */
static void flush_streams(launcher *l) {
    int64_t left = l->job->grace_ms - (l->got_signal ? tt__now_ms() - l->signal_ms : 0);
    if (l->log >= 0) {
        tt__log_to_descriptor(STDERR_FILENO);
        close(l->log);
    }
    tt__streams_flush(&l->streams, left < FLUSH_MIN_MS ? FLUSH_MIN_MS : left);
}

static void launcher_finish(launcher *l) {
    if (l->keeper.socket >= 0)
        close(l->keeper.socket); /* the keeper ends now, while this process cleans up */
    tt__launcher_leave(l);
    tt__election_free(l->election);
    tt_store_free(l->store);
    tt_store_server_free(l->server);
    tt__watch_free(l->watch);
    if (l->keeper.pid)
        waitpid(l->keeper.pid, NULL, 0);
    tt__job_error_dir_remove(l->job); /* if the keeper was killed */
    /* Only writing is left: who asks us to end now means that. */
    if (l->signals >= 0) {
        sigprocmask(SIG_SETMASK, &l->job->worker_mask, NULL);
        close(l->signals);
    }
    flush_streams(l);
    tt__launcher_close_pipes(l);
    tt__follow_free(l->follow);
    tt__streams_close(&l->streams);
    for (int rank = 0; l->workers && rank < l->job->workers; rank++)
        tt__watchdog_forget(l, rank);
    tt__watchdog_free(l);
    free(l->workers);
    free(l->fds);
    free(l->pipe_ends);
    tt__launcher_forget_attempts(l);
}

tt_status tt__job_run(tt__job *job, int *exit_code) {
    tt__ticks_init();
    launcher l = {
        .job = job, .signals = -1, .log = -1, .deadline_ms = INT64_MAX, .look_ms = INT64_MAX, .keeper = {.socket = -1}};
    tt_status status = launcher_start(&l);
    if (!status) {
        launcher_run(&l);
        for (int rank = 0; rank < job->workers; rank++)
            tt__streams_drain(&l.streams, rank);
        finish_follow(&l);
        tt__watch_serve(l.watch); /* those that were killed with the keeper */
        wait_for_nodes(&l);
        look_back(&l);
        status = l.failure;
        if (!status)
            *exit_code = launcher_conclude(&l);
    }
    launcher_finish(&l);
    return status;
}
