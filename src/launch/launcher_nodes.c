#include "launch/launcher_parts.h"

#include "base/error.h"
#include "base/process/proc_state.h"
#include "launch/launcher_watchdog.h"
#include "net/job/job_socket.h"
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
    if (!l->nodes || l->machine.attempt.phase == TT__NO_ATTEMPT || l->machine.membership.state == TT__THROUGH)
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
    tt__end_text(w->status, text, sizeof text);
    put_note(l, tt__ended_key(key, l->job->first_rank + i, l->job->recovery), text);
    if (l->nodes && w->status != 0)
        tt__nodes_announce_end(l->nodes, tt__machine_attempt(&l->machine), l->job->first_rank + i, w,
                               tt__streams_tail(&l->streams, i, tail));
}

void tt__launcher_publish_end_of_node(launcher *l, int node) {
    const tt__round_node *of = &l->machine.membership.round->of[node];
    for (int rank = of->first_rank; rank < of->first_rank + of->workers; rank++) {
        char key[64];
        put_note(l, tt__ended_key(key, rank, l->job->recovery), "its node, which is not there any more");
    }
}

void tt__launcher_announce_done(launcher *l) {
    const tt__round *round = l->machine.membership.round;
    tt__snapshot snapshot;
    bool final = round && round->wants_trace && !tt__watch_snapshot(l->watch, &snapshot);
    tt__nodes_announce_done(l->nodes, final ? &snapshot : NULL);
    if (final)
        tt__snapshot_free(&snapshot);
}

/* ---- what they ask */

void tt__launcher_keep_remote(launcher *l, tt__snapshot *snapshot) {
    tt__snapshot_free(&l->remote);
    l->remote = *snapshot;
    *snapshot = (tt__snapshot){0};
}

void tt__launcher_answer_look(launcher *l, int id) {
    tt__snapshot snapshot;
    if (tt__watch_snapshot(l->watch, &snapshot))
        return;
    tt__nodes_show(l->nodes, id, &snapshot);
    tt__snapshot_free(&snapshot);
}
