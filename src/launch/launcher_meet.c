/* How this node's launcher gets to the others: it serves the store, or finds it. */
#include "launch/launcher_parts.h"

#include "base/error.h"
#include "launch/cluster/election.h"

enum { STORE_TIMEOUT_MS = 2000 };

typedef tt__launcher_state launcher;

static tt__nodes_member member_of(const tt__job *job) {
    return (tt__nodes_member){.coordinates = job->coordinates,
                              .number = job->number,
                              .min_nodes = job->min_nodes,
                              .max_nodes = job->max_nodes,
                              .host = job->coordinates ? job->bind_addr : job->master_addr,
                              .port = job->master_port,
                              .run_id = job->run_id,
                              .workers = job->workers,
                              .wants_trace = job->at_end != NULL,
                              .has_secret = job->has_secret,
                              .demands_it = job->has_secret && job->store_auth != TT_STORE_AUTH_NONE,
                              .max_restarts = job->max_restarts,
                              .attempt = job->attempt,
                              .restarts = job->restarts,
                              .find_ms = job->join_ms,
                              .join_ms = job->join_ms,
                              .last_call_ms = job->last_call_ms,
                              .heartbeat_ms = job->heartbeat_ms};
}

tt_status tt__launcher_join(launcher *l) {
    tt__nodes_member member = member_of(l->job);
    const tt__round *round = l->machine.membership.round;
    if (round)
        member.find_ms = l->job->rejoin_ms;
    member.kept = l->machine.attempt.kept;
    member.recovery = l->job->recovery;
    if (round && round->attempt > member.attempt)
        member.attempt = round->attempt;
    member.election = l->election;
    return tt__nodes_start(&l->nodes, &member);
}

/* If nodes have no numbers, the launcher that can serve the store at the address where they meet does: it is on that
 * host, and came first. */
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

tt_store *tt__launcher_own_store(launcher *l) {
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
        tt_store_server_free(l->server); /* of one that another has replaced */
        l->server = NULL;
        tt__election_reset(l->election);
    }
    if (!l->server)
        TT__TRY(tt__launcher_serve_store(l->job, &l->server));
    return tt__launcher_join(l);
}

/* ---- where etcd names who serves the store */

tt_status tt__launcher_prepare_election(launcher *l) {
    return l->job->etcd && l->job->max_nodes > 1 ? tt__election_new(&l->election, l->job) : TT_OK;
}

void tt__launcher_take_election(launcher *l) {
    tt_store_server *server = l->election ? tt__election_take(l->election, l->job) : NULL;
    if (server)
        l->server = server;
}
