#include "elastic/launcher.h"

#include "base/error.h"
#include "base/plain_text.h"
#include "base/proc_state.h"
#include "elastic/election.h"
#include "elastic/launcher_watchdog.h"
#include "net/recovery_words.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { LOOK_MS = 1500 };

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
    bool stopped = state == 'T' || state == 't';
    *rank = (tt__job_rank){.rank = l->job->first_rank + i,
                           .node = l->job->node,
                           .pid = w->pid,
                           .state = w->ended ? TT__JOB_ENDED
                                    : w->pid ? TT__JOB_RUNNING
                                             : TT__JOB_STARTING,
                           .wait_status = w->status,
                           .order = w->order,
                           .secondary = w->secondary,
                           .stopped = stopped,
                           .activity = stopped ? tt__proc_activity(w->pid) : 0,
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
    const tt__watch_job job = {l,           launcher_describe_job, describe_local,    count_remote, describe_remote,
                               reader_asks, tt__watchdog_crashed,  tt__watchdog_timed};
    return tt__watch_open(&l->watch, l->job->workers, &job, l->job->socket_name);
}

/* ---- to the other nodes */

static void put_note(launcher *l, const char *key, const char *text) {
    if (l->nodes) {
        tt__nodes_set(l->nodes, key, text);
        return;
    }
    tt__secret secret = {0};
    if (tt__launcher_own_store(l))
        l->store_failed =
            tt__secret_load(&secret) ||
            tt__signed_set(l->store, &secret, key, tt__store_life(l->store, false), text, strlen(text)) != TT_OK;
    tt__secret_wipe(&secret);
}

void tt__launcher_publish_end(launcher *l, int i) {
    const tt__worker *w = &l->workers[i];
    char key[64], text[64], tail[TT__TAIL_BYTES + 1];
    if (l->phase == TT__JOINING) /* it was kept, and is in no round */
        return;
    tt__end_text(w->status, text, sizeof text);
    put_note(l, tt__ended_key(key, l->job->first_rank + i, l->job->recovery), text);
    if (l->nodes && w->status != 0)
        tt__nodes_announce_end(l->nodes, tt__launcher_attempt(l), l->job->first_rank + i, w,
                               tt__streams_tail(&l->streams, i, tail));
}

void tt__launcher_announce_done(launcher *l) {
    tt__snapshot snapshot;
    bool final = l->round && l->round->wants_trace && !tt__watch_snapshot(l->watch, &snapshot);
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

static void keep_lost(launcher *l, tt__nodes_event *event) {
    if (!l->lost)
        l->lost_ns = tt__moment_now().realtime_ns;
    keep_event(&l->lost, event);
}

static const char *hostname_of(const launcher *l, int node) { return l->round->of[node].hostname; }

/* Say of a node's ranks that they have ended, for those that wait for them while they join: no one else may. */
static void publish_end_of_node(launcher *l, int node) {
    if (!l->job->coordinates || !l->round)
        return;
    const tt__round_node *of = &l->round->of[node];
    for (int rank = of->first_rank; rank < of->first_rank + of->workers; rank++) {
        char key[64];
        put_note(l, tt__ended_key(key, rank, l->job->recovery), "its node, which is not there any more");
    }
}

/* Another node leaves a job that goes on. */
static void node_goes(launcher *l, int node, const char *why) {
    char text[160];
    if (!l->job->coordinates || !l->round)
        return;
    publish_end_of_node(l, node);
    snprintf(text, sizeof text, "node %d (%s) leaves (%s)", node, hostname_of(l, node), why);
    tt__launcher_regroup(l, text);
}

static void take_node_signal(launcher *l, const tt__nodes_event *event) {
    char name[32];
    tt__signal_name(event->value, name, sizeof name);
    if (tt__launcher_is_elastic(l) && event->node > 0) {
        node_goes(l, event->node, name);
        return;
    }
    l->node_signal = event->value;
    if (l->phase != TT__RUNNING && l->phase != TT__SETTLING)
        return;
    publish_end_of_node(l, event->node); /* it may have had none yet */
    tt__streams_print(&l->streams, "tutti run: node %d (%s) got %s: ending the workers here, too", event->node,
                      hostname_of(l, event->node), name);
    tt__launcher_terminate(l, SIGTERM);
}

/* A node is lost, perhaps this one, as the coordinator sees it, or the coordinator. */
static void take_lost_node(launcher *l, tt__nodes_event *event) {
    bool replaced = tt__launcher_replaces(l), own = event->node == l->job->node;
    bool deaf = own && l->job->coordinates; /* it can't reach the store that it serves */
    keep_lost(l, event);
    l->node_left = l->node_left || deaf;
    if (!replaced || deaf) {
        tt__launcher_settle(l);
    } else if (!l->job->coordinates && (own || event->node == 0)) {
        tt__launcher_lose_job(l);
    } else {
        publish_end_of_node(l, event->node);
        tt__launcher_change(l);
    }
}

/* Another launcher is done. While workers of ours are there it has not ended with the others: it is missing, or goes
 * where it may; but not when those are there that were kept for another round, and none follows. */
static bool take_left(launcher *l, tt__nodes_event *event) {
    if (l->done || l->is_last || !tt__launcher_may_go_on(l))
        return false;
    if (tt__launcher_is_elastic(l) && event->node > 0) {
        if (l->phase < TT__GONE)
            node_goes(l, event->node, "its launcher's end");
        return false;
    }
    /* its keeper is lost, say */
    if (tt__launcher_replaces(l) && event->node > 0 && !l->node_signal && !l->got_signal) {
        if (l->phase >= TT__GONE)
            return false;
        event->text = strdup("its launcher has ended");
        take_lost_node(l, event);
        return true;
    }
    l->node_left = true;
    if (l->phase >= TT__GONE || l->node_signal || l->got_signal)
        return false;
    event->text = strdup("its launcher has ended");
    keep_lost(l, event);
    tt__launcher_settle(l);
    return true;
}

/* Ranks of another node wait for the next round. */
static void take_recovery_elsewhere(launcher *l, const tt__nodes_event *event) {
    if (event->value != tt__launcher_attempt(l) || (l->phase != TT__RUNNING && l->phase != TT__SETTLING))
        return;
    tt__launcher_settle(l);
    if (event->rank >= 0 && tt__launcher_can_recover(l))
        tt__launcher_kill_late(l, event->rank);
}

static void take_round(launcher *l, tt__nodes_event *event) {
    if (l->done || (l->phase != TT__JOINING && l->phase != TT__GONE))
        return;
    if (l->phase == TT__JOINING && l->node_signal) {
        l->failure = tt__fail(TT_ERR_PEER, "another node was told to end before the workers here began");
        l->node_left = l->done = true;
        return;
    }
    tt__launcher_take_round(l, event->round);
    event->round = NULL;
}

/* There is no round. After an attempt what is known of it is reported. */
static void take_no_round(launcher *l, const tt__nodes_event *event) {
    const char *text = event->text ? tt__make_plain(event->text) : "the other nodes can't be joined";
    if (l->phase == TT__JOINING)
        l->failure = tt__fail(TT_ERR_PEER, "%s", text);
    else
        tt__streams_alarm(&l->streams, "tutti run: %s", text);
    l->node_left = l->done = l->over = true;
}

static void take_end_of_all(launcher *l, tt__nodes_event *event) {
    l->over = true;
    if (l->phase == TT__JOINING && !l->done) {
        tt__streams_print(&l->streams, "tutti run: the job has ended: this node was not needed");
        l->done = true;
    }
    if (event->snapshot.n)
        replace_remote(l, &event->snapshot);
    tt__watch_answer(l->watch);
}

/* Another coordinates by now. */
static void step_down(launcher *l) {
    l->job->coordinates = false;
    if (l->done)
        return;
    tt__streams_alarm(&l->streams, "tutti run: etcd names another node than this one by now, which was silent or cut "
                                   "off: it leaves its round");
    if (tt__launcher_replaces(l)) {
        tt__launcher_lose_job(l);
        return;
    }
    l->node_left = true;
    tt__launcher_settle(l);
}

/* The round that was to begin here has gone on without this node, which stood still. */
static void take_missed(launcher *l) {
    if (l->done)
        return;
    tt__streams_alarm(&l->streams, "tutti run: this node was silent, and the job has gone on without it");
    if (l->phase == TT__JOINING)
        tt__launcher_rejoin(l);
    else if (l->phase == TT__GONE)
        l->rejoins = true;
}

/* The coordinator is gone, and there was no round yet. Where a signal has ended the workers that were kept there is
 * nobody to wait for. */
static void take_again(launcher *l) {
    if (l->phase == TT__JOINING && !l->done)
        tt__launcher_rejoin(l);
    else
        l->over = true;
}

/* Handle an event; true: it is kept. */
static bool take_event(launcher *l, tt__nodes_event *event) {
    switch (event->kind) {
    case TT__NODES_ROUND:
        take_round(l, event);
        return false;
    case TT__NODES_FAILED:
        take_no_round(l, event);
        return false;
    case TT__NODES_MISSED:
        take_missed(l);
        return false;
    case TT__NODES_AGAIN:
        take_again(l);
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
        take_end_of_all(l, event);
        return false;
    case TT__NODES_ENDED:
        if (event->value != tt__launcher_attempt(l))
            return false;
        keep_event(&l->others, event);
        tt__launcher_settle(l);
        return true;
    case TT__NODES_LOST:
        take_lost_node(l, event);
        return true;
    case TT__NODES_REGROUP:
        if (event->value == tt__launcher_attempt(l))
            tt__launcher_regroup(l, event->text ? tt__make_plain(event->text) : "the nodes change");
        return false;
    case TT__NODES_END:
        l->is_last = event->value == tt__launcher_attempt(l);
        return false;
    case TT__NODES_GONE:
        l->all_gone = l->phase == TT__GONE && event->value == tt__launcher_attempt(l);
        l->any_kept = event->rank;
        l->all_well = event->well;
        return false;
    case TT__NODES_RECOVER:
        take_recovery_elsewhere(l, event);
        return false;
    case TT__NODES_NEWCOMER:
        if (l->phase == TT__RUNNING && !l->told_success)
            tt__launcher_regroup(l, event->text ? tt__make_plain(event->text) : "another node joins");
        return false;
    case TT__NODES_DONE:
        return take_left(l, event);
    case TT__NODES_DEPOSED:
        step_down(l);
        return false;
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

void tt__launcher_leave(launcher *l) {
    tt__nodes_free(l->nodes);
    free(l->round);
    tt__launcher_free_events(l->others);
    tt__launcher_free_events(l->lost);
    tt__snapshot_free(&l->remote);
}
