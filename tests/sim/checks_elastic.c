#include "sim/checks_elastic.h"

#include "sim/checks.h"
#include "sim/cluster.h"
#include "sim/groups.h"
#include "sim/keeper.h"
#include "sim/network.h"
#include "sim/trainer.h"
#include "sim/verdict.h"

#include <stdlib.h>

enum { KILL_MS = 6000, LEFTOVER_MS = 8000, PATIENCE_MS = 20000, SLACK_MS = 20000, STALE_MS = 100 };

static const sim_plan *elastic_plan(void) { return sim_cluster_plan(); }

/* Has anything happened to this launcher, or to the one that serves its store, so that one may take the other for
 * lost? */
static bool may_be_lost(int node) {
    return sim_cluster_disturbed_itself(node) ||
           sim_cluster_disturbed_itself(sim_store_server_of(sim_cluster_agent(node)->generation));
}

/* ---- while it runs */

/* How long launchers may go on after their job's store is gone, before they notice. */
static int64_t unaware_ns(void) {
    const sim_plan *p = elastic_plan();
    return (2 * p->heartbeat_ms + p->grace_ms + KILL_MS + 1000) * SIM_MS;
}

void sim_elastic_check_alone(int node) {
    const sim_round *own = sim_keeper_round(node);
    for (int k = 0; k < sim_cluster_launchers(); k++) {
        const sim_round *round = sim_keeper_round(k);
        int attempt;
        if (k == node || !round || round == own || !sim_keeper_alive(k, &attempt))
            continue;
        bool same = round->generation == own->generation;
        bool long_quiet = sim_now_ns() > sim_cluster_quiet_since_ns() + unaware_ns();
        if (same && (long_quiet || (!may_be_lost(k) && !may_be_lost(node))))
            sim_fail("alone", "launcher %d begins attempt %d while launcher %d has processes of attempt %d", node,
                     own->attempt, k, attempt);
        if (!same && sim_now_ns() - sim_store_gone_ns(round->generation) > unaware_ns() &&
            !sim_cluster_disturbed_itself(k))
            sim_fail("split",
                     "launcher %d runs attempt %d with one coordinator while launcher %d runs attempt %d with "
                     "the one before",
                     node, own->attempt, k, attempt);
    }
}

static void check_elastic_ranks(const sim_start *start) {
    const sim_plan *p = elastic_plan();
    if (start->nodes < p->min_nodes || start->nodes > p->max_nodes || start->world != start->nodes * p->workers ||
        start->first_rank < 0 || start->first_rank + start->workers > start->world)
        sim_fail("ranks",
                 "launcher %d begins attempt %d on %d nodes with ranks %d to %d of %d; expected %d to %d nodes "
                 "of %d",
                 start->node, start->attempt, start->nodes, start->first_rank, start->first_rank + start->workers - 1,
                 start->world, p->min_nodes, p->max_nodes, p->workers);
    for (int i = 0; i + 1 < sim_seen.start_count; i++) {
        const sim_start *other = &sim_seen.starts[i];
        if (other->attempt != start->attempt || other->generation != start->generation)
            continue;
        if (other->world != start->world || (other->first_rank < start->first_rank + start->workers &&
                                             start->first_rank < other->first_rank + other->workers))
            sim_fail("ranks", "in attempt %d launcher %d has rank %d of %d, launcher %d rank %d of %d", start->attempt,
                     other->node, other->first_rank, other->world, start->node, start->first_rank, start->world);
    }
}

/* Rounds' numbers only grow, for each launcher and with each coordinator, and so does the count of restarts. */
static void check_growth(const sim_start *start) {
    for (int i = 0; i + 1 < sim_seen.start_count; i++) {
        const sim_start *other = &sim_seen.starts[i];
        bool same = other->node == start->node;
        if (same && (other->attempt >= start->attempt || other->restarts > start->restarts))
            sim_fail("order", "launcher %d begins attempt %d (restarts %d) after attempt %d (restarts %d)", start->node,
                     start->attempt, start->restarts, other->attempt, other->restarts);
        if (other->generation == start->generation && other->attempt > start->attempt && !may_be_lost(start->node))
            sim_fail("order", "launcher %d begins attempt %d when launcher %d has begun attempt %d", start->node,
                     start->attempt, other->node, other->attempt);
    }
}

/* After a round in which all workers succeeded, and none was told to end, no launcher begins another round. */
static void check_not_again(const sim_start *start) {
    const sim_round *round = sim_keeper_round(start->node), *before = round->next;
    int good = 0, told = 0;
    while (before && (before->generation != start->generation || before->good != before->world))
        before = before->next;
    for (int i = 0; before && i < sim_seen.end_count; i++) {
        const sim_end *end = &sim_seen.ends[i];
        good += end->round == before && !end->status;
        told += end->round == before && end->told;
    }
    for (int k = 0; k < sim_cluster_launchers(); k++)
        if (sim_seen.exits[k].lost_some)
            return;
    if (before && good == before->world && !told)
        sim_fail("again", "launcher %d begins attempt %d, although all workers of attempt %d have ended well",
                 start->node, start->attempt, before->attempt);
}

/* No launcher begins a round that the others left long ago. */
static void check_not_stale(const sim_start *start) {
    for (int i = 0; i + 1 < sim_seen.start_count; i++) {
        const sim_start *other = &sim_seen.starts[i];
        if (other->generation == start->generation && other->attempt > start->attempt &&
            start->when_ns - other->when_ns > STALE_MS * SIM_MS)
            sim_fail("stale", "launcher %d begins attempt %d, %.1f s after launcher %d has begun attempt %d",
                     start->node, start->attempt, (double)(start->when_ns - other->when_ns) / 1e9, other->node,
                     other->attempt);
    }
}

void sim_elastic_check_start(const sim_start *start) {
    const sim_exit *x = &sim_seen.exits[start->node];
    if (start->restarts > elastic_plan()->max_restarts)
        sim_fail("attempts", "launcher %d begins attempt %d after %d restarts; there are %d at most", start->node,
                 start->attempt, start->restarts, elastic_plan()->max_restarts);
    if (x->signal)
        sim_fail("signal", "launcher %d begins attempt %d although it took signal %d at %.3f s", start->node,
                 start->attempt, x->signal, (double)x->signal_ns / 1e9);
    check_elastic_ranks(start);
    check_growth(start);
    check_not_again(start);
    check_not_stale(start);
    if (start->attempt >= sim_result->attempts)
        sim_result->attempts = start->attempt + 1;
}

/* ---- all launchers end */

static int64_t elastic_patience_ms(void) {
    const sim_plan *p = elastic_plan();
    int64_t work_ms = p->recovers ? sim_plan_epoch_ms(p) + 2 * SIM_SILENCE_MS : p->work_ms;
    int64_t round_ms = p->last_call_ms + work_ms + p->settle_ms + p->grace_ms + KILL_MS + LEFTOVER_MS + PATIENCE_MS;
    return 2 * p->join_ms + 2 * p->rejoin_ms + (p->max_restarts + p->n + 2) * round_ms + 4 * p->heartbeat_ms + SLACK_MS;
}

int64_t sim_survivors_quiet_since_ns(void) {
    static int64_t until_ns;
    int64_t quiet_ns = sim_cluster_quiet_since_ns(), missed_ns = sim_workers_missed_by_none_until_ns();
    until_ns = missed_ns > until_ns ? missed_ns : until_ns;
    return until_ns > quiet_ns ? until_ns : quiet_ns;
}

int64_t sim_elastic_deadline_ns(void) { return sim_survivors_quiet_since_ns() + elastic_patience_ms() * SIM_MS; }

/* ---- at the end */

static const sim_start *last_start(int node) {
    const sim_start *last = NULL;
    for (int i = 0; i < sim_seen.start_count; i++)
        if (sim_seen.starts[i].node == node)
            last = &sim_seen.starts[i];
    return last;
}

/* A launcher that ends with 0 was in a round in which its workers succeeded, or was never needed. */
static void check_elastic_exit(int node) {
    const sim_exit *x = &sim_seen.exits[node];
    const sim_start *last = last_start(node);
    int good = 0;
    if (!x->ended)
        return;
    if (x->signal && !x->status && x->code != 128 + x->signal)
        sim_fail("code", "launcher %d took signal %d, but ends with code %d", node, x->signal, x->code);
    if (x->status || x->code || x->unneeded)
        return;
    for (int i = 0; last && i < sim_seen.end_count; i++)
        good += sim_seen.ends[i].node == node && sim_seen.ends[i].attempt == last->attempt && !sim_seen.ends[i].status;
    if (good != elastic_plan()->workers)
        sim_fail("code", "launcher %d ends with code 0, but %d of its %d workers have succeeded", node, good,
                 elastic_plan()->workers);
}

/* Does nothing happen to the machine, except that its launcher may be late? */
static bool is_spared(int machine) {
    for (int i = 0; i < elastic_plan()->n; i++) {
        const sim_item *item = &elastic_plan()->items[i];
        if (item->node == machine && item->kind >= SIM_FREEZE && item->kind != SIM_LATE &&
            (item->kind == SIM_SIGNAL || sim_item_is_harsh(elastic_plan(), item)))
            return false;
    }
    return true;
}

/* The one thing that happens to the machine or its launcher; NULL: nothing, or more than one. */
static const sim_item *only_item(int machine) {
    const sim_plan *p = elastic_plan();
    const sim_item *only = NULL;
    int items = 0;
    for (int i = 0; i < p->n; i++)
        if (p->items[i].node == machine && p->items[i].kind >= SIM_FREEZE) {
            only = &p->items[i];
            items++;
        }
    return items == 1 ? only : NULL;
}

/* Is the launcher that serves the store killed in the first round, and started again in time? The others look for
 * it. */
static bool comes_back(int machine) {
    const sim_plan *p = elastic_plan();
    const sim_item *item = only_item(machine);
    return item && item->kind == SIM_KILL_LAUNCHER && item->value && item->from == SIM_FROM_START && !item->attempt &&
           item->at_ms < p->work_ms && p->min_nodes < p->max_nodes;
}

/* Had this launcher begun no round when the store's launcher was killed? Then it ends, as it can't know what to look
 * for. */
static bool came_too_early(int machine) { return comes_back(0) && !last_start(machine); }

/* Is the machine away for less time than the others would wait for it? */
static bool returns(int machine) {
    const sim_item *item = only_item(machine);
    return item && item->kind <= SIM_PARTITION && item->for_ms < elastic_plan()->join_ms * 2 / 3;
}

/* Does the item cost a restart? Surviving ranks that have not heard of each other for a while want another round. */
static bool takes_restart(const sim_item *item) {
    const sim_plan *p = elastic_plan();
    if (p->recovers && (item->kind == SIM_STOPS || item->kind == SIM_PAUSE || item->kind == SIM_PARTITION))
        return item->for_ms > SIM_SILENCE_MS / 2;
    return item->kind == SIM_FAILS ||
           (item->kind >= SIM_FREEZE && item->kind != SIM_LATE && item->node && !is_spared(item->node) &&
            (p->min_nodes == p->max_nodes || item->kind == SIM_KILL_KEEPER));
}

/* Can the job certainly do its work? Yes if the store's launcher is spared or comes back, enough others are spared, and
 * restarts are left for every failure. */
static bool must_succeed(void) {
    const sim_plan *p = elastic_plan();
    int spared = 0, failures = 0;
    for (int machine = 0; machine < p->nodes; machine++)
        spared += (is_spared(machine) || returns(machine)) && !came_too_early(machine);
    for (int i = 0; i < p->n; i++) {
        const sim_item *item = &p->items[i];
        failures += takes_restart(item);
        if (item->kind == SIM_LATE && item->node == 0)
            return false;
        if (item->kind == SIM_SIGNAL && (p->min_nodes == p->max_nodes || p->stops))
            return false;
    }
    bool served = is_spared(0) || comes_back(0);
    spared += comes_back(0);
    return served && spared >= p->min_nodes && failures <= p->max_restarts && !sim_plan_is_slow(p);
}

/* Had all workers of the launcher's last round succeeded before a node was lost? */
static bool had_ended_well(int node) {
    const sim_round *round = sim_keeper_round(node);
    return sim_seen.exits[node].lost_some && round && round->good == round->world;
}

static int64_t last_end_ms(void) {
    return sim_seen.ends[sim_seen.end_count - 1].realtime_ns / SIM_MS - elastic_plan()->skew_ms;
}

/* A launcher that comes while the job still runs for a while is taken, if there is room. Only checked if no node is
 * lost: a lost one may delay a job's end long after the job was closed to others. */
static void check_newcomers(void) {
    const sim_plan *p = elastic_plan();
    for (int machine = 0; machine < p->nodes; machine++)
        if (!is_spared(machine))
            return;
    for (int i = 0; i < p->n && p->lost <= 10; i++) {
        const sim_item *item = &p->items[i];
        int64_t came_ms = item->at_ms + 500, over_ms = sim_seen.end_count ? last_end_ms() : 0;
        for (int k = 0; k < p->n; k++) /* a node may be late twice */
            if (p->items[k].kind == SIM_LATE && p->items[k].node == item->node && p->items[k].at_ms + 500 > came_ms)
                came_ms = p->items[k].at_ms + 500;
        if (item->kind == SIM_LATE && !last_start(item->node) && p->max_nodes == p->nodes && over_ms - came_ms > 8000)
            sim_fail("left out", "launcher %d has come by %.1f s, and begun no round when the job ends at %.1f s",
                     item->node, (double)came_ms / 1000, (double)over_ms / 1000);
    }
}

/* Launchers that took part, and to which nothing happened, end with success. */
static void check_work_is_done(void) {
    for (int k = 0; k < elastic_plan()->nodes; k++) {
        const sim_exit *x = &sim_seen.exits[k];
        if (is_spared(k) && last_start(k) && (x->status || x->code) && !had_ended_well(k))
            sim_fail("work", "launcher %d ends with code %d %s, but nothing keeps the job from its work", k, x->code,
                     x->error);
    }
    if (!sim_seen.start_count)
        sim_fail("work", "nobody has begun a round");
    check_newcomers();
}

void sim_check_kept(int node, const sim_worker *w) {
    const sim_plan *p = elastic_plan();
    const sim_agent *agent = sim_cluster_agent(node);
    for (int i = 0; i < p->n; i++) {
        const sim_item *item = &p->items[i];
        if (item->kind < SIM_FREEZE && item->node == agent->machine && item->local == w->local)
            return;
        if (item->kind == SIM_STOPS && item->for_ms > p->grace_ms) /* peers may wait that long for the stopped worker */
            return;
    }
    if (p->elastic && must_succeed() && is_spared(agent->machine))
        sim_fail("kept", "launcher %d ends its worker %d, which has commit %lld of round %d and can go on", node,
                 w->local, (long long)w->made, w->synced_round);
}

void sim_elastic_check_all(void) {
    for (int k = 0; k < sim_cluster_launchers(); k++)
        check_elastic_exit(k);
    if (must_succeed())
        check_work_is_done();
}
