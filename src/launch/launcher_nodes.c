/* The other nodes: how this launcher meets them, by serving the store or finding it, and what it tells them and readers
 * of the job (tutti top). */
#include "base/error.h"
#include "base/machine/host_name.h"
#include "base/process/proc_state.h"
#include "launch/cluster/election.h"
#include "launch/launcher_parts.h"
#include "net/job/job_socket.h"
#include "store/signed.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STORE_TIMEOUT_MS = 2000, LOOK_MS = 1500 };

typedef tt__launcher_state launcher;

static tt__nodes_member member_of(const tt__job *job) {
    return (tt__nodes_member){.job = job,
                              .coordinates = job->coordinates,
                              .host = job->coordinates ? job->bind_addr : job->master_addr,
                              .port = job->master_port,
                              .counts = {job->attempt, job->restarts, job->recovery},
                              .find_ms = job->join_ms};
}

tt_status tt__launcher_join(launcher *l) {
    tt__nodes_member member = member_of(l->job);
    const tt__round *round = l->machine.membership.round;
    if (round)
        member.find_ms = l->job->rejoin_ms;
    if (round && round->attempt > member.counts.attempt)
        member.counts.attempt = round->attempt;
    member.kept = l->machine.attempt.kept;
    member.election = l->election;
    return tt__nodes_start(&l->nodes, &member);
}

/* If nodes have no numbers, the first launcher on the host of the meeting address serves the store: no other can
 * take that address. */
tt_status tt__launcher_serve_store(tt__job *job, tt_store_server **server) {
    bool may = job->number < 0 && job->serves < 0;
    *server = NULL;
    if (job->etcd) { /* the election will tell */
        job->coordinates = false;
        return TT_OK;
    }
    job->coordinates = job->number == 0 || (job->number < 0 && job->serves != 0);
    if (!job->coordinates)
        return TT_OK;
    tt_status status = tt_store_server_new(server, job->bind_addr, job->master_port, .auth = job->store_auth,
                                           .max_memory = job->store_memory);
    job->coordinates = !status;
    if (status == TT_ERR_NET && may) {
        tt__log(TT_LOG_DEBUG, "another node serves the store: %s", tt_last_error());
        return TT_OK;
    }
    if (status == TT_ERR_NET && job->number == 0 && job->max_nodes > 1) {
        tt__saved_error error;
        tt__error_save(&error);
        return tt__fail(status, "%.1500s. Each node has its own --node-rank: is another launcher node 0, too?",
                        error.text);
    }
    if (!status)
        tt__log(TT_LOG_DEBUG, "serving the store at %s:%d", job->bind_addr, tt_store_server_port(*server));
    return status;
}

void tt__job_tell_problem(const tt__job *job, const char *problem) {
    tt_store_server *server = NULL;
    tt__job own = *job;
    tt__election *election = NULL;
    if ((!own.etcd || !tt__election_new(&election, &own)) && !tt__launcher_serve_store(&own, &server)) {
        tt__nodes_member member = member_of(&own);
        member.election = election;
        member.problem = problem;
        tt__nodes_tell_problem(&member, TT__TELL_MS);
    }
    tt__election_free(election);
    tt_store_server_free(server);
}

/* Connect to the store that this node serves, if that has not been done; NULL: it does not answer. */
static tt_store *own_store(launcher *l) {
    if (!l->store && !l->store_failed)
        l->store_failed =
            tt_tcp_store(&l->store, l->job->bind_addr, l->job->master_port, .timeout_ms = STORE_TIMEOUT_MS) != TT_OK;
    return l->store_failed ? NULL : l->store;
}

static void say_meeting_place(launcher *l) {
    long long for_s = (long long)l->job->rejoin_ms / 1000;
    if (l->election)
        tt__streams_print(&l->streams, "tutti run: looking for the job again in etcd, for at most %lld s", for_s);
    else
        tt__streams_print(&l->streams, "tutti run: looking for the job again at %s:%d, for at most %lld s",
                          l->job->master_addr, l->job->master_port, for_s);
}

tt_status tt__launcher_rejoin(launcher *l) {
    say_meeting_place(l);
    tt__nodes_free(l->nodes);
    l->nodes = NULL;
    if (l->election) {
        tt_store_server_free(l->server); /* another node's store has replaced it */
        l->server = NULL;
        tt__election_reset(l->election);
    }
    if (!l->server)
        TT__TRY(tt__launcher_serve_store(l->job, &l->server));
    return tt__launcher_join(l);
}

void tt__launcher_take_election(launcher *l) {
    tt_store_server *server = l->election ? tt__election_take(l->election, l->job) : NULL;
    if (server)
        l->server = server;
}

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
    tt__host_name(info->hostname, sizeof info->hostname);
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
    tt__host_name(rank->hostname, sizeof rank->hostname);
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
        tt__nodes_leave_note(l->nodes, key, text);
        return;
    }
    tt__secret secret = {0};
    if (own_store(l))
        l->store_failed = tt__secret_load(&secret) ||
                          tt__signed_set(l->store, &secret, key, tt__store_life(l->store), text, strlen(text)) != TT_OK;
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
