#include "elastic/launcher.h"

#include "base/error.h"
#include "base/plain_text.h"
#include "base/proc_state.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STORE_TIMEOUT_MS = 2000, LOOK_MS = 1500 };

typedef tt__launcher_state launcher;

/* ---- what readers are told */

static void launcher_describe_job(void *user, tt__job_info *info) {
    const launcher *l = user;
    *info = (tt__job_info){.pid = getpid(),
                           .started_realtime_ns = l->started.realtime_ns,
                           .world = l->job->world,
                           .first_rank = l->job->first_rank,
                           .local_ranks = l->job->workers,
                           .node = l->job->node,
                           .nodes = l->job->nodes};
    snprintf(info->program, sizeof info->program, "%s", l->job->file);
    snprintf(info->run_id, sizeof info->run_id, "%s", l->job->run_id);
    gethostname(info->hostname, sizeof info->hostname - 1);
}

static void describe_local(void *user, int i, tt__job_rank *rank) {
    const launcher *l = user;
    const tt__worker *w = &l->workers[i];
    char state = w->pid && !w->ended ? tt__proc_state(w->pid) : 0;
    *rank = (tt__job_rank){.rank = l->job->first_rank + i,
                           .node = l->job->node,
                           .pid = w->pid,
                           .state = w->ended ? TT__JOB_ENDED
                                    : w->pid ? TT__JOB_RUNNING
                                             : TT__JOB_STARTING,
                           .wait_status = w->status,
                           .order = w->order,
                           .secondary = w->secondary,
                           .stopped = state == 'T' || state == 't',
                           .ended = w->when,
                           .now = tt__moment_now()};
    gethostname(rank->hostname, sizeof rank->hostname - 1);
}

static int count_remote(void *user) { return ((const launcher *)user)->remote.n; }

static int describe_remote(void *user, int i, tt__job_rank *rank) {
    const tt__seen_rank *seen = &((const launcher *)user)->remote.ranks[i];
    *rank = seen->rank;
    return seen->memory;
}

static bool reader_asks(void *user) {
    launcher *l = user;
    if (!l->nodes || l->phase == TT__JOINING || l->over)
        return true;
    if (!l->looking)
        tt__nodes_look(l->nodes, LOOK_MS);
    l->looking = true;
    return false;
}

tt_status tt__launcher_watch(launcher *l) {
    const tt__watch_job job = {l, launcher_describe_job, describe_local, count_remote, describe_remote, reader_asks};
    return tt__watch_open(&l->watch, l->job->workers, &job, l->job->socket_name);
}

/* ---- to the other nodes */

static tt__nodes_member member_of(const tt__job *job) {
    return (tt__nodes_member){.node = job->node,
                              .nodes = job->nodes,
                              .host = job->node ? job->master_addr : job->bind_addr,
                              .port = job->master_port,
                              .run_id = job->run_id,
                              .workers = job->workers,
                              .wants_trace = job->at_end != NULL,
                              .has_secret = job->has_secret,
                              .demands_it = job->has_secret && job->store_auth != TT_STORE_AUTH_NONE,
                              .max_restarts = job->max_restarts,
                              .join_ms = job->join_ms,
                              .heartbeat_ms = job->heartbeat_ms};
}

tt_status tt__launcher_join(launcher *l) {
    tt__nodes_member member = member_of(l->job);
    return tt__nodes_start(&l->nodes, &member);
}

tt_status tt__launcher_serve_store(const tt__job *job, tt_store_server **server) {
    return tt_store_server_new(server, job->bind_addr, job->master_port, .auth = job->store_auth,
                               .max_memory = job->store_memory);
}

void tt__job_tell_problem(const tt__job *job, const char *problem) {
    tt_store_server *server = NULL;
    tt__nodes_member member = member_of(job);
    member.problem = problem;
    if (job->node || !tt__launcher_serve_store(job, &server))
        tt__nodes_tell_problem(&member, TT__TELL_MS);
    tt_store_server_free(server);
}

static void put_note(launcher *l, const char *key, const char *text) {
    if (l->nodes) {
        tt__nodes_set(l->nodes, key, text);
        return;
    }
    if (!l->store && !l->store_failed)
        l->store_failed =
            tt_tcp_store(&l->store, l->job->bind_addr, l->job->master_port, .timeout_ms = STORE_TIMEOUT_MS) != TT_OK;
    tt__secret secret = {0};
    if (!l->store_failed)
        l->store_failed =
            tt__secret_load(&secret) || tt__signed_set(l->store, &secret, key, "", text, strlen(text)) != TT_OK;
    tt__secret_wipe(&secret);
}

void tt__launcher_publish_end(launcher *l, int i) {
    const tt__worker *w = &l->workers[i];
    char key[64], text[64], tail[TT__TAIL_BYTES + 1];
    if (l->torch)
        return;
    snprintf(key, sizeof key, "tutti/ended/%d", l->job->first_rank + i);
    tt__end_text(w->status, text, sizeof text);
    put_note(l, key, text);
    if (l->nodes && w->status != 0)
        tt__nodes_announce_end(l->nodes, l->job->attempt, l->job->first_rank + i, w,
                               tt__streams_tail(&l->streams, i, tail));
}

void tt__launcher_announce_done(launcher *l) {
    tt__snapshot snapshot;
    bool final = tt__nodes_want_final(l->nodes) && !tt__watch_snapshot(l->watch, &snapshot);
    tt__nodes_announce_done(l->nodes, final ? &snapshot : NULL);
    if (final)
        tt__snapshot_free(&snapshot);
}

/* ---- from the other nodes */

static void replace_remote(launcher *l, tt__snapshot *snapshot) {
    tt__snapshot_free(&l->remote);
    l->remote = *snapshot;
    *snapshot = (tt__snapshot){0};
}

static void answer_look(launcher *l, int id) {
    tt__snapshot snapshot;
    if (tt__watch_snapshot(l->watch, &snapshot))
        return;
    tt__nodes_show(l->nodes, id, &snapshot);
    tt__snapshot_free(&snapshot);
}

static void keep_event(tt__nodes_event **list, tt__nodes_event *event) {
    event->next = *list;
    *list = event;
}

static void take_node_signal(launcher *l, const tt__nodes_event *event) {
    char name[32];
    l->node_signal = true;
    if (l->phase != TT__RUNNING && l->phase != TT__SETTLING)
        return;
    tt__streams_print(&l->streams, "tutti run: node %d (%s) got %s: ending the workers here, too", event->node,
                      tt__nodes_hostname(l->nodes, event->node), tt__signal_name(event->value, name, sizeof name));
    tt__launcher_terminate(l, SIGTERM);
}

/* A worker of another node failed. One of an attempt that has not begun here is counted when it has. */
static void take_node_failure(launcher *l, tt__nodes_event *event) {
    bool early = event->value > l->job->attempt;
    keep_event(early ? &l->early : &l->others, event);
    if (!early)
        tt__launcher_settle(l);
}

/* Another launcher is done. While workers of ours are there it has not ended with the others: it is missing. */
static bool take_left(launcher *l, tt__nodes_event *event) {
    if (l->done)
        return false;
    l->node_left = true;
    if (l->phase >= TT__GONE || l->node_signal || l->got_signal)
        return false;
    event->text = strdup("its launcher has ended");
    keep_event(&l->lost, event);
    tt__launcher_settle(l);
    return true;
}

static void take_joined(launcher *l) {
    if (l->phase != TT__JOINING || l->done)
        return;
    l->job->world = tt__nodes_world(l->nodes);
    l->job->first_rank = tt__nodes_first_rank(l->nodes, l->job->node);
    tt__launcher_begin(l);
}

/* Handle an event; true: it is kept. */
static bool take_event(launcher *l, tt__nodes_event *event) {
    switch (event->kind) {
    case TT__NODES_JOINED:
        take_joined(l);
        return false;
    case TT__NODES_FAILED:
        l->failure =
            tt__fail(TT_ERR_PEER, "%s", event->text ? tt__make_plain(event->text) : "the other nodes can't be joined");
        l->done = true;
        return false;
    case TT__NODES_WAITS:
        tt__streams_print(&l->streams, "tutti run: %s", event->text ? event->text : "waiting for other nodes");
        return false;
    case TT__NODES_SIGNAL:
        take_node_signal(l, event);
        return false;
    case TT__NODES_LOOK:
        answer_look(l, event->value);
        return false;
    case TT__NODES_SEEN:
        l->looking = false;
        replace_remote(l, &event->snapshot);
        tt__watch_answer(l->watch);
        return false;
    case TT__NODES_OVER:
        l->over = true;
        if (event->snapshot.n)
            replace_remote(l, &event->snapshot);
        tt__watch_answer(l->watch);
        return false;
    case TT__NODES_ENDED:
        take_node_failure(l, event);
        return true;
    case TT__NODES_LOST:
        keep_event(&l->lost, event);
        tt__launcher_settle(l);
        return true;
    case TT__NODES_GONE:
        l->all_gone = l->phase == TT__GONE && event->value == l->job->attempt;
        return false;
    case TT__NODES_AGAIN:
        l->again = event->value;
        return false;
    case TT__NODES_DONE:
        return take_left(l, event);
    }
    return false;
}

void tt__launcher_take_node_events(launcher *l) {
    tt__nodes_event *event;
    while (l->nodes && (event = tt__nodes_next(l->nodes)))
        if (!take_event(l, event))
            tt__nodes_event_free(event);
    tt__launcher_go_on(l);
}

/* ---- the end */

void tt__launcher_report_lost(launcher *l) {
    for (const tt__nodes_event *event = l->lost; event; event = event->next)
        tt__streams_alarm(&l->streams, "tutti run: node %d (%s) is lost: %s", event->node,
                          tt__nodes_hostname(l->nodes, event->node), event->text ? event->text : "?");
}

void tt__launcher_leave(launcher *l) {
    tt__nodes_free(l->nodes);
    tt__launcher_free_events(l->others);
    tt__launcher_free_events(l->early);
    tt__launcher_free_events(l->lost);
    tt__snapshot_free(&l->remote);
}
