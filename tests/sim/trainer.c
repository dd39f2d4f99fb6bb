/* The program of ranks that survive: one epoch, in which the model must see each example once. */
#include "sim/trainer.h"

#include "base/error.h"
#include "sim/cluster.h"
#include "sim/groups.h"
#include "sim/history.h"
#include "sim/verdict.h"

#include <string.h>

enum { TIMEOUT_MS = 20000, STEP_MS = 100, ASKING_STEPS = 3 };

int sim_examples(const sim_plan *plan) {
    return (int)(1 + (plan->min_nodes + plan->max_nodes) * plan->workers * (plan->work_ms / STEP_MS) / 2);
}

int64_t sim_plan_epoch_ms(const sim_plan *plan) {
    return (sim_examples(plan) / (plan->min_nodes * plan->workers) + 1) * (int64_t)(2 * STEP_MS);
}

static uint64_t digest_of(const sim_model *model) {
    uint64_t digest = UINT64_C(14695981039346656037) ^ (uint64_t)model->position ^ (uint64_t)model->steps << 32;
    for (int i = 0; i < sim_examples(sim_cluster_plan()); i++)
        digest = (digest ^ model->seen[i]) * UINT64_C(1099511628211);
    return digest;
}

/* ---- what must hold */

/* The state that all ranks of the round should have now: the newest that any of them had. NULL: a new job's. */
static const sim_holding *newest_of(const sim_ring *ring) {
    const sim_holding *newest = NULL;
    for (int i = 0; i < ring->n; i++) {
        const sim_holding *had = &ring->had[i];
        if (had->synced_round >= 0 && (!newest || had->synced_round > newest->synced_round ||
                                       (had->synced_round == newest->synced_round && had->made > newest->made)))
            newest = had;
    }
    return newest;
}

static void check_restored(sim_worker *w, const tt_elastic *e) {
    const sim_holding *newest = newest_of(w->ring);
    int64_t commits = tt_elastic_commits(e), expected = newest ? newest->made : 0;
    if (commits != expected || w->model.steps != commits)
        sim_fail("commits", "rank %d of round %d goes on from commit %lld, after %lld steps; expected commit %lld",
                 w->place.rank, w->place.round, (long long)commits, (long long)w->model.steps, (long long)expected);
    if (newest && digest_of(&w->model) != newest->digest)
        sim_fail("state", "rank %d of round %d goes on from another state than the one with commit %lld of round %d",
                 w->place.rank, w->place.round, (long long)expected, newest->synced_round);
    w->synced_round = w->place.round;
    w->made = commits;
    w->digest = digest_of(&w->model);
    sim_trace(w->agent.node, "worker %d goes on as rank %d of %d in round %d, from commit %lld", w->local,
              w->place.rank, w->place.world, w->place.round, (long long)commits);
}

static void check_epoch(const sim_worker *w) {
    for (int i = 0; i < sim_examples(sim_cluster_plan()); i++)
        if (w->model.seen[i] != 1)
            sim_fail("examples", "rank %d has trained the model that has seen example %d %d times", w->place.rank, i,
                     w->model.seen[i]);
}

/* ---- training */

typedef struct sim_share {
    int64_t commits, position, example;
} sim_share;

static void check_shares(const sim_worker *w, const sim_share *own, const sim_share *all, int world) {
    for (int r = 0; r < world; r++)
        if (all[r].commits != own->commits || all[r].position != own->position)
            sim_fail("commits", "in round %d rank %d is at commit %lld and example %lld, rank %d at %lld and %lld",
                     w->place.round, w->place.rank, (long long)own->commits, (long long)own->position, r,
                     (long long)all[r].commits, (long long)all[r].position);
}

static void work_for_a_while(sim_worker *w, int64_t ms) {
    int64_t until = sim_now_ns() + sim_below(&w->agent.random, ms * SIM_MS);
    while (sim_now_ns() < until)
        sim_wait(until);
}

static tt_status train_step(sim_worker *w, tt_elastic *e, int *stop) {
    enum { MOST_RANKS = 64 };
    sim_share all[MOST_RANKS], own = {tt_elastic_commits(e), w->model.position, w->model.position + w->place.rank};
    int world = tt_get_world_size(tt_elastic_group(e));
    if (world > MOST_RANKS)
        sim_fail("simulator", "%d ranks that survive", world);
    work_for_a_while(w, STEP_MS);
    TT__TRY(tt_all_gather(tt_elastic_group(e), &own, all, sizeof own / 8, TT_I64));
    check_shares(w, &own, all, world);
    for (int r = 0; r < world; r++)
        if (all[r].example < sim_examples(sim_cluster_plan()))
            w->model.seen[all[r].example]++;
    w->model.position += world;
    w->model.steps++;
    work_for_a_while(w, 5);
    TT__TRY(tt_elastic_commit(e));
    w->made = tt_elastic_commits(e);
    w->digest = digest_of(&w->model);
    return w->model.steps % ASKING_STEPS ? TT_OK : tt_elastic_should_stop(e, stop);
}

static tt_status train_epoch(sim_worker *w, tt_elastic *e, int *stop) {
    while (w->model.position < sim_examples(sim_cluster_plan()) && !*stop)
        TT__TRY(train_step(w, e, stop));
    if (!*stop)
        check_epoch(w);
    return TT_OK;
}

int sim_worker_program(sim_worker *w) {
    const sim_plan *plan = sim_cluster_plan();
    tt_elastic *e;
    int stop = 0;
    work_for_a_while(w, 50);
    if (tt_elastic_new(&e, .timeout_ms = TIMEOUT_MS, .round_wait_ms = SIM_ROUND_WAIT_MS,
                       .stop_on_signals = plan->stops)) {
        tt__error_file_write(tt_last_error(), true);
        return 1;
    }
    tt_status status = tt_elastic_add(e, "position", &w->model.position, sizeof w->model.position);
    if (!status)
        status = tt_elastic_add(e, "steps", &w->model.steps, sizeof w->model.steps);
    if (!status)
        status = tt_elastic_add(e, "seen", w->model.seen, (size_t)sim_examples(plan));
    for (bool done = false; !status && !done;) {
        status = tt_elastic_restore(e);
        if (status)
            break;
        check_restored(w, e);
        done = !train_epoch(w, e, &stop);
    }
    if (!status)
        sim_trace(w->agent.node, "worker %d ends its training%s", w->local, stop ? ", as it was asked to" : "");
    tt_elastic_free(e);
    return status ? 1 : stop ? 128 + stop : 0;
}
