/* The launcher's loop: wait, give the machine one event after the other, carry out its actions. job.h has the processes
 * of a job, machine/job_machine.h the decisions. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "base/machine/host_name.h"
#include "base/process/waits.h"
#include "launch/cluster/election.h"
#include "launch/launcher_parts.h"
#include "launch/local/children.h"
#include "launch/local/error_files.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

typedef tt__launcher_state launcher;

/* ---- what is shown of a running job */

static const void *look_recorder(void *user, int i, size_t *size) {
    return tt__watch_recorder(((launcher *)user)->watch, i, size);
}

/* Return the node that has the rank. */
static int node_of(const launcher *l, int rank) {
    const tt__round *round = l->machine.membership.round;
    int node = l->job->nodes - 1;
    while (round && node > 0 && round->of[node].first_rank > rank)
        node--;
    return node;
}

static const char *look_place(void *user, int rank, char *text, size_t size) {
    const launcher *l = user;
    char host[64] = "?";
    int i = rank - l->job->first_rank, node = node_of(l, rank);
    bool here = i >= 0 && i < l->job->workers;
    tt__host_name(host, sizeof host);
    if (!here && l->machine.membership.round)
        snprintf(host, sizeof host, "%s", l->machine.membership.round->of[node].hostname);
    if (here)
        snprintf(text, size, "host %s, pid %d", host, (int)l->workers[i].pid);
    else
        snprintf(text, size, "host %s, node %d", host, node);
    return text;
}

static void look_say(void *user, const char *line) {
    tt__streams_print(&((launcher *)user)->streams, "tutti run: %s", line);
}

static void look_show(void *user, const char *line) { tt__streams_show(&((launcher *)user)->streams, line); }

/* Call job->look() if that is due. */
static void look_at_job(launcher *l) {
    const tt__job_look look = {l, look_recorder, look_place, look_say, look_show};
    if (tt__now_ms() < l->look_ms)
        return;
    l->job->look(l->job, &look);
    l->look_ms = tt__deadline_ms(l->job->look_ms);
}

/* ---- descriptors */

/* Descriptors that are opened later. OWN: signals, the keeper, the log, the store and a client of it, the secret, the
 * job's socket, and two files at a time. WORKER: its stderr, its recorder, and connections to the store and the job's
 * socket. */
enum { OWN_DESCRIPTORS = 21, WORKER_DESCRIPTORS = 4, NODES_DESCRIPTORS = 4 };

static int open_descriptors(void) {
    int n = 0;
    DIR *own = opendir("/proc/self/fd");
    for (const struct dirent *entry; own && (entry = readdir(own));)
        n += entry->d_name[0] != '.';
    if (own)
        closedir(own);
    return own ? n - 1 : 3; /* `own` is among them */
}

/* Refuse to begin with too few descriptors: without one the store's event loop would abort, and each worker needs
 * some. *spare: how many are left. */
static tt_status check_descriptors(const tt__job *job, int *spare) {
    struct rlimit limit;
    int need = open_descriptors() + OWN_DESCRIPTORS + WORKER_DESCRIPTORS * job->workers;
    need += tt__follow_descriptors(job) + tt__watchdog_descriptors(job);
    if (job->max_nodes > 1)
        need += NODES_DESCRIPTORS;
    *spare = INT_MAX;
    if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= INT_MAX)
        return TT_OK;
    *spare = (int)limit.rlim_cur - need;
    if (*spare >= 0)
        return TT_OK;
    return tt__fail(TT_ERR_SYSTEM,
                    "launching %d worker%s takes %d descriptors at least, but this process may have %d (ulimit -n)",
                    job->workers, job->workers == 1 ? "" : "s", need, (int)limit.rlim_cur);
}

enum { FLUSH_MIN_MS = 1000 };

/* ---- the loop */

static void wait_for_events(launcher *l) {
    tt__survivors survivors = tt__launcher_survivors(l);
    bool done = tt__machine_is_done(&l->machine);
    int64_t due_ms = done ? INT64_MAX : tt__machine_due_ms(&l->machine, &survivors);
    if (l->machine.attempt.phase == TT__RUNNING && l->look_ms < due_ms)
        due_ms = l->look_ms;
    int timeout = due_ms == INT64_MAX ? -1 : tt__left_ms(due_ms);
    l->fds[0] = (struct pollfd){.fd = done ? -1 : l->keeper.socket, .events = POLLIN};
    l->fds[1] = (struct pollfd){.fd = l->signals.fd, .events = POLLIN};
    l->fds[2] = (struct pollfd){.fd = tt__watch_fd(l->watch), .events = POLLIN};
    l->fds[3] = (struct pollfd){.fd = l->nodes ? tt__nodes_fd(l->nodes) : -1, .events = POLLIN};
    int n = 4 + tt__streams_poll(&l->streams, l->fds + 4, &timeout);
    n += tt__follow_poll(l->follow, l->fds + n, &timeout);
    n += tt__watchdog_poll(l, l->fds + n, &timeout);
    tt__poll(l->fds, n, timeout);
}

static void launcher_serve(launcher *l) {
    wait_for_events(l);
    tt__launcher_take_signals(l);
    tt__launcher_take_keeper_messages(l);
    tt__launcher_take_node_events(l);
    tt__streams_serve(&l->streams);
    tt__follow_serve(l->follow);
    tt__watch_serve(l->watch);
    tt__watchdog_serve(l);
}

static void launcher_run(launcher *l) {
    while (!tt__machine_is_done(&l->machine)) {
        launcher_serve(l);
        tt__launcher_take_time(l);
        if (l->machine.attempt.phase == TT__RUNNING)
            look_at_job(l);
    }
    tt__streams_show(&l->streams, "");
}

/* Show what the workers have written to files. Stop if the reader takes nothing for the grace period, or a signal
 * comes. */
static void finish_follow(launcher *l) {
    int signals = l->signals_taken;
    size_t progress = 0, before = 0;
    int64_t period = l->job->grace_ms < FLUSH_MIN_MS ? FLUSH_MIN_MS : l->job->grace_ms, deadline = 0;
    tt__follow_end(l->follow);
    for (bool first = true; tt__follow_is_behind(l->follow, &progress) && l->signals_taken == signals; first = false) {
        if (first || progress != before)
            deadline = tt__deadline_ms(period);
        before = progress;
        if (!tt__left_ms(deadline))
            break;
        launcher_serve(l);
    }
    if (tt__follow_is_behind(l->follow, &progress))
        tt__streams_print(&l->streams, "tutti run: the output's reader %s: the rest of what the workers wrote is in %s",
                          l->signals_taken != signals ? "was behind when a signal came" : "has stopped reading",
                          l->job->logs->dir);
}

/* Nothing of the job is left here: wait until the other nodes are done, too, or a signal comes. */
static void wait_for_nodes(launcher *l) {
    int signals = l->signals_taken;
    if (!l->nodes || l->machine.attempt.phase == TT__NO_ATTEMPT || l->failure)
        return;
    tt__launcher_announce_done(l);
    while (!tt__machine_leaves_early(&l->machine) && l->machine.membership.state != TT__THROUGH &&
           l->signals_taken == signals)
        launcher_serve(l);
}

static void look_back(launcher *l) {
    tt__snapshot snapshot;
    if (!l->job->at_end || l->machine.attempt.phase == TT__NO_ATTEMPT || l->failure)
        return;
    tt_status status = tt__watch_snapshot(l->watch, &snapshot);
    if (!status) {
        status = l->job->at_end(l->job, &snapshot);
        tt__snapshot_free(&snapshot);
    }
    if (status)
        tt__streams_print(&l->streams, "tutti run: %s", tt_last_error());
}

/* ---- the beginning */

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

static void warn_without_proc(launcher *l) {
    if (access("/proc/self/stat", R_OK))
        tt__streams_print(&l->streams,
                          "tutti run: /proc can't be read, so processes that the ranks start can't be found: "
                          "they may outlive the job. Mount it, as containers and chroots need");
}

/* Fork the keeper, before the store's thread exists. */
static tt_status start_keeper(launcher *l) {
    l->spared_count = tt__children(l->spared, TT__MAX_SPARED);
    l->job->group = getpgrp();
    TT__TRY(tt__job_error_dir_name(l->job));
    return tt__keeper_start(&l->keeper, l->job);
}

static void begin_machine(launcher *l) {
    tt__job *job = l->job;
    const tt__machine_job described = {.alone = job->max_nodes == 1,
                                       .elastic = job->min_nodes < job->max_nodes,
                                       .numbered = job->number >= 0,
                                       .max_restarts = job->max_restarts,
                                       .settle_ms = job->settle_ms,
                                       .grace_ms = job->grace_ms};
    tt__machine_begin(&l->machine, &described, l->workers, job->workers);
    job->attempt = l->machine.membership.counts.attempt;
}

static tt_status launcher_start(launcher *l) {
    int spare;
    TT__TRY(check_descriptors(l->job, &spare));
    TT__TRY(launcher_allocate(l));
    begin_machine(l);
    tt__watchdog_spare(l, spare);
    TT__TRY(tt__signals_open(&l->signals, &l->job->signals));
    l->job->worker_mask = l->signals.before;
    TT__TRY(tt__job_socket_name(l->job->socket_name));
    if (l->job->etcd && !l->machine.job.alone)
        TT__TRY(tt__election_new(&l->election, l->job)); /* before the keeper is forked */
    TT__TRY(start_keeper(l));
    TT__TRY(tt__streams_open(&l->streams, l->job->workers, STDERR_FILENO, l->pipe_ends));
    warn_without_proc(l);
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
    if (!l->machine.job.alone)
        return tt__launcher_join(l);
    l->job->nodes = 1;
    l->job->world = l->job->role_world = l->job->workers;
    tt__launcher_step(l, &(tt__event){.kind = TT__ON_BEGIN});
    return TT_OK;
}

/* ---- the end */

/* Write what is left to stderr. Give up if the reader takes nothing for the grace period, which begins with the first
 * signal, if one has come. */
static void flush_streams(launcher *l) {
    int64_t left = l->job->grace_ms - (l->signals_taken ? tt__now_ms() - l->signal_ms : 0);
    if (l->log >= 0) {
        tt__log_to_descriptor(STDERR_FILENO);
        close(l->log);
    }
    tt__streams_flush(&l->streams, left < FLUSH_MIN_MS ? FLUSH_MIN_MS : left);
}

static void launcher_finish(launcher *l) {
    tt__keeper_dismiss(&l->keeper); /* it ends while this process cleans up */
    tt__nodes_free(l->nodes);
    tt__machine_end(&l->machine);
    tt__snapshot_free(&l->remote);
    tt__election_free(l->election);
    tt_store_free(l->store);
    tt_store_server_free(l->server);
    tt__watch_free(l->watch);
    tt__keeper_wait(&l->keeper, TT__KEEPER_KILL_MS);
    tt__job_error_dir_remove(l->job); /* if the keeper was killed */
    tt__signals_close(&l->signals);   /* only writing is left: a signal may end that */
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
    for (int i = 0; i < TT__MAX_EARLIER; i++)
        free(l->earlier[i]);
}

tt_status tt__job_run(tt__job *job, int *exit_code) {
    launcher l = {.job = job, .signals = {.fd = -1}, .log = -1, .look_ms = INT64_MAX, .keeper = {.socket = -1}};
    tt_status status = launcher_start(&l);
    if (!status) {
        launcher_run(&l);
        for (int rank = 0; rank < job->workers; rank++)
            tt__streams_drain(&l.streams, rank);
        finish_follow(&l);
        tt__watch_serve(l.watch); /* the recorders of workers that were killed with the keeper */
        wait_for_nodes(&l);
        look_back(&l);
        status = l.failure;
        if (!status)
            *exit_code = tt__launcher_report_end(&l);
    }
    launcher_finish(&l);
    return status;
}
