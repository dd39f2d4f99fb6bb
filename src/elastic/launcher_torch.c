#include "elastic/launcher_torch.h"

#include "base/error.h"
#include "base/plain_text.h"
#include "elastic/torch_job.h"

#include <stdio.h>
#include <stdlib.h>

typedef tt__launcher_state launcher;

struct tt__launcher_torch {
    tt__torch_agent *agent;
    tt_store_server *server; /* the rendezvous', if it is here */
    bool changed;            /* the workers end because nodes come or went */
    bool ended;              /* the other nodes have ended the job, or their store is lost */
    bool over;               /* the agent says no more */
};

/* ---- joining */

/* Serve the store, unless it is on another host, or another process serves it already. */
static tt_status torch_serve(launcher *l) {
    const tt__job *job = l->job;
    if (job->torch->host == TT__TORCH_HOST_NO)
        return TT_OK;
    tt_status status = tt_store_server_new(&l->torch->server, job->bind_addr, job->master_port,
                                           .auth = TT_STORE_AUTH_NONE, .secret = "", .max_memory = job->store_memory);
    if (status != TT_ERR_NET || job->torch->host == TT__TORCH_HOST_YES)
        return status;
    tt__log(TT_LOG_DEBUG, "not serving the rendezvous' store: %s", tt_last_error());
    return TT_OK;
}

tt_status tt__launcher_torch_join(launcher *l) {
    tt__torch_config *config = &l->job->torch->config;
    l->torch = calloc(1, sizeof *l->torch);
    if (!l->torch)
        return tt__fail(TT_ERR_MEMORY, "no memory for a job of PyTorch's agents");
    TT__TRY(torch_serve(l));
    config->host = l->torch->server ? l->job->bind_addr : l->job->master_addr;
    config->port = l->torch->server ? tt_store_server_port(l->torch->server) : l->job->master_port;
    config->run_id = l->job->run_id;
    config->role = l->job->role;
    config->workers = l->job->workers;
    config->join_ms = l->job->join_ms;
    return tt__torch_agent_start(&l->torch->agent, config);
}

void tt__launcher_torch_free(launcher *l) {
    if (!l->torch)
        return;
    tt__torch_agent_free(l->torch->agent);
    tt_store_server_free(l->torch->server);
    free(l->torch);
    l->torch = NULL;
}

/* ---- what the agent says */

int tt__launcher_torch_fd(const launcher *l) { return l->torch ? tt__torch_agent_fd(l->torch->agent) : -1; }

/* A round begins: the first, or one after that before has ended here. */
static void take_begin(launcher *l, const tt__torch_assignment *placed) {
    bool first = l->phase == TT__JOINING, changed = l->torch->changed;
    if (l->done || (!first && l->phase != TT__GONE))
        return;
    l->job->torch->placed = *placed;
    l->job->torch->is_placed = true;
    l->job->node = placed->node;
    l->job->nodes = placed->nodes;
    l->job->world = placed->ranks.world;
    l->job->first_rank = placed->ranks.first_rank;
    l->torch->changed = l->asked = false;
    tt__streams_print(&l->streams, "tutti run: round %lld: node %d of %d, ranks %d to %d of %d",
                      (long long)placed->round, placed->node, placed->nodes, l->job->first_rank,
                      l->job->first_rank + l->job->workers - 1, l->job->world);
    if (first)
        tt__launcher_begin(l);
    else
        tt__launcher_begin_next(l, !changed);
}

/* The set of nodes has changed. Workers that have failed already are started again all the same. */
static void take_changed(launcher *l, const char *text) {
    if (l->phase != TT__RUNNING || l->got_signal)
        return;
    tt__streams_print(&l->streams, "tutti run: %s: all workers begin again", text);
    l->torch->changed = true;
    l->job->torch->changes++;
    tt__launcher_terminate(l, SIGTERM);
}

/* There will be no further round. Workers have the settle period to end by themselves and say why. */
static void take_ended(launcher *l, const char *text) {
    l->torch->ended = l->node_left = true;
    if (l->done)
        return;
    tt__streams_print(&l->streams, "tutti run: %s", text);
    if (l->phase == TT__RUNNING)
        tt__launcher_enter(l, TT__SETTLING, l->job->settle_ms);
    else if (l->phase == TT__GONE)
        l->done = true;
}

static void take_agent_failed(launcher *l, char *text) {
    l->torch->over = true;
    if (l->phase != TT__JOINING) {
        take_ended(l, tt__make_plain(text));
        return;
    }
    l->failure = tt__fail(TT_ERR_PEER, "%s", tt__make_plain(text));
    l->done = true;
}

static void take_agent_over(launcher *l, const char *text) {
    l->torch->over = true;
    if (*text)
        tt__streams_print(&l->streams, "tutti run: %s", text);
    if (l->phase == TT__JOINING || l->phase == TT__GONE)
        l->done = true;
}

/* From one round to the next. */
static void torch_go_on(launcher *l) {
    if (!l->torch || l->phase != TT__GONE || l->done || l->asked)
        return;
    if (l->got_signal || l->torch->over || l->torch->ended || !(l->torch->changed || tt__launcher_may_try_again(l))) {
        l->done = true;
        return;
    }
    l->asked = true;
    tt__torch_agent_again(l->torch->agent);
}

void tt__launcher_torch_take(launcher *l) {
    tt__torch_event event;
    while (l->torch && tt__torch_agent_next(l->torch->agent, &event)) {
        switch (event.kind) {
        case TT__TORCH_BEGIN:
            take_begin(l, &event.assignment);
            break;
        case TT__TORCH_CHANGED:
            take_changed(l, event.text);
            break;
        case TT__TORCH_ENDED:
            take_ended(l, event.text);
            break;
        case TT__TORCH_WAITS:
            tt__streams_print(&l->streams, "tutti run: %s", event.text);
            break;
        case TT__TORCH_FAILED:
            take_agent_failed(l, event.text);
            break;
        case TT__TORCH_OVER:
            take_agent_over(l, event.text);
            break;
        case TT__TORCH_NO_EVENT:
            break;
        }
    }
    torch_go_on(l);
}

/* ---- the end */

/* Did a worker of this node fail by itself? */
static bool own_worker_failed(const launcher *l) {
    for (int i = 0; i < l->job->workers; i++)
        if (l->workers[i].status != 0 || l->workers[i].exec_errno)
            return true;
    return false;
}

void tt__launcher_torch_finish(launcher *l, void (*serve)(launcher *l)) {
    int signals = l->signals_taken;
    if (!l->torch || l->torch->over)
        return;
    l->deadline_ms = INT64_MAX;
    if (l->got_signal || l->phase == TT__JOINING)
        tt__torch_agent_leave(l->torch->agent);
    else
        tt__torch_agent_finish(l->torch->agent, own_worker_failed(l));
    while (!l->torch->over && l->signals_taken == signals)
        serve(l);
}
