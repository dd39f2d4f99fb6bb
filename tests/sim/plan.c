#include "sim/plan.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>

enum { PLAN_STREAM = 1, ELASTIC_STREAM = 7, MISSING_STREAM = 10 };

void sim_plan_calm(sim_plan *plan, uint64_t seed, int nodes) {
    *plan = (sim_plan){.seed = seed,
                       .nodes = nodes,
                       .min_nodes = nodes,
                       .max_nodes = nodes,
                       .workers = 1,
                       .heartbeat_ms = 10000,
                       .join_ms = 30000,
                       .settle_ms = 2000,
                       .grace_ms = 3000,
                       .work_ms = 2000,
                       .delay_us = 200};
}

/* ---- drawing */

static const int fatal_signals[] = {SIGKILL, SIGSEGV, SIGABRT, SIGBUS};

static sim_item *add_item(sim_plan *plan, sim_kind kind, sim_random *r) {
    sim_item *item = &plan->items[plan->n < SIM_MOST_ITEMS ? plan->n++ : SIM_MOST_ITEMS - 1];
    *item = (sim_item){.kind = kind,
                       .node = (int)sim_below(r, plan->nodes),
                       .local = (int)sim_below(r, plan->workers),
                       .attempt = (int)sim_below(r, plan->max_restarts + 1)};
    return item;
}

static void draw_failure(sim_plan *plan, sim_random *r, int attempt, int64_t at_ms) {
    sim_item *item = add_item(plan, SIM_FAILS, r);
    item->attempt = attempt;
    item->at_ms = at_ms;
    item->for_ms = sim_chance(r, 15) ? sim_between(r, 100, 4000) : 0;
    item->value = sim_chance(r, 50) ? fatal_signals[sim_below(r, 4)] : (int)sim_between(r, 1, 120) << 8;
}

/* Let an attempt fail: one worker, or several at nearly one time. */
static void draw_failures(sim_plan *plan, sim_random *r, int attempt) {
    int64_t at_ms = sim_between(r, 0, plan->work_ms);
    draw_failure(plan, r, attempt, at_ms);
    for (int more = sim_chance(r, 40) ? (int)sim_between(r, 1, 3) : 0; more > 0; more--)
        draw_failure(plan, r, attempt, at_ms + sim_between(r, 0, 150));
    for (int odd = sim_chance(r, 40) ? (int)sim_between(r, 1, 3) : 0; odd > 0; odd--) {
        sim_item *item = add_item(plan, SIM_REACTS, r);
        item->attempt = attempt;
        item->value = (int)sim_between(r, SIM_BREAKS, SIM_SUCCEEDS);
    }
    if (sim_chance(r, 10)) {
        sim_item *item = add_item(plan, SIM_LEAVES, r);
        item->attempt = attempt;
        item->for_ms = sim_between(r, 10, 8000);
    }
}

/* Draw when the item happens: at a time of the world, or soon after a moment at which much happens. */
static void draw_moment(const sim_plan *plan, sim_random *r, sim_item *item) {
    item->from = (sim_moment)sim_below(r, 4);
    if (item->from == SIM_FROM_BEGINNING)
        item->at_ms = sim_between(r, 0, 2 * plan->work_ms * (plan->max_restarts + 1) + 2000);
    else if (item->from == SIM_FROM_REQUEST)
        item->at_ms = sim_between(r, 1, sim_chance(r, 30) ? 30 : 1000);
    else if (item->from == SIM_FROM_START)
        item->at_ms = sim_between(r, 0, sim_chance(r, 50) ? 300 : plan->work_ms + 500);
    else
        item->at_ms = sim_between(r, 0, 600);
}

static void draw_gentle(sim_plan *plan, sim_random *r) {
    static const sim_kind kinds[] = {SIM_FREEZE, SIM_PAUSE, SIM_PARTITION};
    sim_item *item = add_item(plan, kinds[sim_below(r, 3)], r);
    draw_moment(plan, r, item);
    item->for_ms = sim_between(r, 10, plan->heartbeat_ms / 10);
}

static void draw_harsh(sim_plan *plan, sim_random *r) {
    sim_kind kind = (sim_kind)sim_between(r, SIM_FREEZE, SIM_CANNOT_START);
    if (kind == SIM_LATE || ((kind == SIM_ABSENT || kind == SIM_CANNOT_START) && !sim_chance(r, 25)))
        kind = sim_chance(r, 50) ? SIM_KILL_LAUNCHER : SIM_KILL_MACHINE;
    sim_item *item = add_item(plan, kind, r);
    if (kind < SIM_LATE)
        draw_moment(plan, r, item);
    if (kind == SIM_FREEZE || kind == SIM_PAUSE || kind == SIM_PARTITION)
        item->for_ms = sim_between(r, 2 * plan->heartbeat_ms, 4 * plan->heartbeat_ms);
    if (kind == SIM_SIGNAL)
        item->value = sim_chance(r, 50) ? SIGTERM : SIGINT;
}

void sim_plan_make_elastic(sim_plan *plan, int min_nodes, int max_nodes) {
    plan->elastic = true;
    plan->min_nodes = min_nodes;
    plan->max_nodes = max_nodes;
    plan->last_call_ms = 1500;
    plan->rejoin_ms = 30000;
}

static void draw_network(sim_plan *plan, sim_random *r) {
    plan->delay_us = sim_chance(r, 70) ? sim_between(r, 30, 1000) : sim_between(r, 1000, 15000);
    plan->lost = sim_chance(r, 50) ? 0 : (int)sim_between(r, 1, sim_chance(r, 20) ? 60 : 10);
    plan->skew_ms = sim_chance(r, 50) ? 0 : sim_between(r, 1, 300);
    plan->secret = sim_chance(r, 25);
}

/* Let a node leave, be killed, frozen or cut off; mostly not the one that serves the store. */
static void draw_change(sim_plan *plan, sim_random *r) {
    static const sim_kind kinds[] = {SIM_FREEZE, SIM_PAUSE,         SIM_PARTITION,     SIM_SIGNAL,
                                     SIM_SIGNAL, SIM_KILL_LAUNCHER, SIM_KILL_LAUNCHER, SIM_KILL_MACHINE,
                                     SIM_CUT,    SIM_KILL_KEEPER};
    sim_item *item = add_item(plan, kinds[sim_below(r, 10)], r);
    if (!item->node && !sim_chance(r, 40))
        item->node = (int)sim_between(r, 1, plan->nodes - 1);
    draw_moment(plan, r, item);
    if (item->from == SIM_FROM_BEGINNING)
        item->at_ms = sim_between(r, 0, 20000);
    if (item->kind == SIM_FREEZE || item->kind == SIM_PAUSE || item->kind == SIM_PARTITION)
        item->for_ms = sim_chance(r, 30) ? sim_between(r, 10, plan->heartbeat_ms / 10)
                                         : sim_between(r, plan->heartbeat_ms, 4 * plan->heartbeat_ms);
    if (item->kind == SIM_SIGNAL)
        item->value = sim_chance(r, 50) ? SIGTERM : SIGINT;
    if (item->kind == SIM_KILL_LAUNCHER && sim_chance(r, 75))
        item->value = (int)sim_between(r, 50, 10000);
}

/* Let workers survive. Some may be stopped. */
static void draw_survivors(sim_plan *plan, sim_random *r) {
    plan->recovers = true;
    plan->stops = sim_chance(r, 50);
    plan->work_ms = sim_between(r, 500, 8000);
    for (int k = sim_chance(r, 40) ? (int)sim_between(r, 1, 2) : 0; k > 0; k--) {
        sim_item *item = add_item(plan, SIM_STOPS, r);
        item->at_ms = sim_chance(r, 25) ? 0 : sim_between(r, 0, plan->work_ms);
        item->for_ms = sim_chance(r, 40)   ? sim_between(r, 10, 1000)
                       : sim_chance(r, 50) ? sim_between(r, 4000, 60000)
                                           : 3600000;
    }
}

static void draw_elastic(sim_plan *plan, uint64_t seed, int max_nodes, sim_random *r) {
    sim_plan_calm(plan, seed, (int)sim_between(r, 2, max_nodes));
    int most = (int)sim_between(r, 2, plan->nodes);
    sim_plan_make_elastic(plan, (int)sim_between(r, 1, most), most);
    plan->workers = (int)sim_between(r, 1, 2);
    plan->max_restarts = (int)sim_between(r, 0, 3);
    plan->heartbeat_ms = sim_between(r, 6000, 15000);
    plan->work_ms = sim_between(r, 500, 15000);
    plan->last_call_ms = sim_between(r, 300, 5000);
    plan->rejoin_ms = sim_between(r, 20000, 60000);
    draw_network(plan, r);
    for (int k = 0; k <= plan->max_restarts; k++)
        if (sim_chance(r, 30))
            draw_failure(plan, r, k, sim_between(r, 0, plan->work_ms));
    for (int k = sim_chance(r, 50) ? (int)sim_between(r, 1, 3) : 0; k > 0; k--) {
        sim_item *item = add_item(plan, SIM_LATE, r);
        item->at_ms = sim_between(r, 1, 20000);
    }
    if (sim_chance(r, 15)) { /* node 0's launcher, which serves the store */
        sim_item *item = add_item(plan, SIM_KILL_LAUNCHER, r);
        *item = (sim_item){.kind = SIM_KILL_LAUNCHER, .from = SIM_FROM_START, .value = (int)sim_between(r, 50, 10000)};
        item->at_ms = sim_between(r, 0, plan->work_ms);
    }
    for (int k = (int)sim_between(r, 0, 4); k > 0; k--)
        draw_change(plan, r);
    if (sim_chance(r, 45))
        draw_survivors(plan, r);
}

/* Let workers of a fixed set survive. Of the plan's items only failures and late launchers stay. */
static void let_survive(sim_plan *plan, sim_random *r) {
    int n = 0;
    plan->recovers = true;
    plan->stops = sim_chance(r, 50);
    for (int i = 0; i < plan->n; i++)
        if (plan->items[i].kind == SIM_FAILS || plan->items[i].kind == SIM_LATE) {
            plan->items[n] = plan->items[i];
            plan->items[n].for_ms = 0;
            n++;
        }
    plan->n = n;
}

/* Let workers of a fixed set survive, and one or two be missing without a failure: stopped, or ended well before the
 * others. Mostly without restarts. */
static void draw_missing(sim_plan *plan, sim_random *r) {
    let_survive(plan, r);
    plan->max_restarts = sim_chance(r, 60) ? 0 : (int)sim_between(r, 1, 2);
    for (int i = 0; i < plan->n; i++)
        if (plan->items[i].attempt > plan->max_restarts)
            plan->items[i].attempt = plan->max_restarts;
    for (int k = (int)sim_between(r, 1, 2); k > 0; k--) {
        sim_item *item = add_item(plan, sim_chance(r, 50) ? SIM_STOPS : SIM_FAILS, r);
        item->at_ms = sim_chance(r, 25) ? sim_between(r, 0, 100) : sim_between(r, 0, plan->work_ms);
        item->for_ms = item->kind == SIM_STOPS ? (sim_chance(r, 50) ? sim_between(r, 4000, 60000) : 3600000) : 0;
    }
}

void sim_plan_draw(sim_plan *plan, uint64_t seed, int max_nodes) {
    sim_random r = sim_stream(seed, PLAN_STREAM, 0), e = sim_stream(seed, ELASTIC_STREAM, 0);
    if (sim_chance(&e, 40)) {
        draw_elastic(plan, seed, max_nodes, &e);
        return;
    }
    sim_plan_calm(plan, seed, (int)sim_between(&r, max_nodes < 3 ? 2 : 3, max_nodes));
    plan->workers = (int)sim_between(&r, 1, 3);
    bool often = sim_chance(&r, 5);
    plan->max_restarts = often ? (int)sim_between(&r, 8, 16) : sim_chance(&r, 25) ? 0 : (int)sim_between(&r, 1, 4);
    plan->heartbeat_ms = sim_between(&r, 6000, 15000);
    plan->work_ms = sim_between(&r, 200, often ? 400 : 3000);
    draw_network(plan, &r);
    for (int k = 0; k <= plan->max_restarts && often; k++)
        draw_failure(plan, &r, k, sim_between(&r, 0, plan->work_ms));
    for (int k = 0; k <= plan->max_restarts && !often; k++)
        if (sim_chance(&r, k == plan->max_restarts ? 40 : 75))
            draw_failures(plan, &r, k);
    if (sim_chance(&r, 5)) {
        sim_item *item = add_item(plan, SIM_NOT_EXECUTABLE, &r);
        item->value = sim_chance(&r, 50) ? ENOENT : EACCES;
    }
    if (sim_chance(&r, 30)) {
        sim_item *item = add_item(plan, SIM_LATE, &r);
        item->at_ms = sim_between(&r, 1, plan->join_ms / 2);
    }
    if (sim_chance(&r, 5)) {
        sim_item *item = add_item(plan, SIM_TWIN, &r);
        item->node = (int)sim_between(&r, 1, plan->nodes - 1);
        item->at_ms = sim_between(&r, 0, 5000);
    }
    sim_random m = sim_stream(seed, MISSING_STREAM, 0);
    if (plan->max_restarts && !often && sim_chance(&r, 15))
        let_survive(plan, &r);
    else if (!often && sim_chance(&m, 10))
        draw_missing(plan, &m);
    int theme = plan->recovers ? (int)sim_below(&r, 60) : (int)sim_below(&r, 100);
    for (int k = theme < 30 ? (int)sim_between(&r, 1, 3) : 0; k > 0; k--)
        draw_gentle(plan, &r);
    for (int k = theme >= 60 ? (int)sim_between(&r, 1, 2) : 0; k > 0; k--)
        draw_harsh(plan, &r);
}

/* ---- questions */

bool sim_item_is_harsh(const sim_plan *plan, const sim_item *item) {
    if (item->kind == SIM_FREEZE || item->kind == SIM_PAUSE || item->kind == SIM_PARTITION)
        return item->for_ms > plan->heartbeat_ms / 10;
    return item->kind > SIM_SIGNAL && item->kind != SIM_LATE;
}

bool sim_plan_is_slow(const sim_plan *plan) {
    enum { RESENT_MS = 300, REQUESTS = 3, OWN_NEWS = 3 };
    int64_t there_and_back_us = 2 * plan->delay_us + 2 * plan->lost * RESENT_MS;
    int64_t all_us = plan->nodes * (plan->workers + OWN_NEWS) * REQUESTS * there_and_back_us;
    return all_us / 1000 > plan->heartbeat_ms / 3;
}

bool sim_plan_has(const sim_plan *plan, sim_kind kind) {
    for (int i = 0; i < plan->n; i++)
        if (plan->items[i].kind == kind)
            return true;
    return false;
}

bool sim_plan_misses_some(const sim_plan *plan) {
    for (int i = 0; i < plan->n; i++)
        if (plan->items[i].kind == SIM_STOPS || (plan->items[i].kind == SIM_FAILS && !plan->items[i].value))
            return true;
    return false;
}

/* ---- text */

static const char *const kind_texts[SIM_KINDS] = {
    [SIM_FAILS] = "worker fails",
    [SIM_NOT_EXECUTABLE] = "worker can't be executed",
    [SIM_REACTS] = "worker reacts",
    [SIM_STOPS] = "worker is stopped",
    [SIM_LEAVES] = "worker leaves a process",
    [SIM_FREEZE] = "launcher is frozen",
    [SIM_PAUSE] = "machine is paused",
    [SIM_PARTITION] = "machine is cut off",
    [SIM_SIGNAL] = "launcher gets a signal",
    [SIM_KILL_LAUNCHER] = "launcher is killed",
    [SIM_KILL_KEEPER] = "keeper is killed",
    [SIM_KILL_MACHINE] = "machine dies",
    [SIM_CUT] = "connection is reset",
    [SIM_LATE] = "launcher is late",
    [SIM_ABSENT] = "launcher never starts",
    [SIM_CANNOT_START] = "launcher can't start its workers",
    [SIM_TWIN] = "launcher has a twin",
};
static const char *const reaction_texts[] = {"by its report", "by an end of its own", "not, until SIGTERM",
                                             "not, not even to SIGTERM", "not, and succeeds"};

static void print_item(int i, const sim_item *item) {
    printf("  %2d  node %d: %s", i, item->node, kind_texts[item->kind]);
    if (item->kind <= SIM_LEAVES)
        printf(", number %d of attempt %d", item->local, item->attempt);
    if (item->kind == SIM_REACTS)
        printf(", %s", reaction_texts[item->value]);
    else if (item->kind == SIM_FAILS && item->value & 0x7f)
        printf(", signal %d", item->value & 0x7f);
    else if (item->kind == SIM_FAILS)
        printf(", exit code %d", item->value >> 8);
    else if (item->value)
        printf(", %d", item->value);
    if (item->from == SIM_FROM_REQUEST)
        printf(", at its request %lld", (long long)item->at_ms);
    else if (item->kind == SIM_FAILS || item->kind == SIM_STOPS || item->kind > SIM_LEAVES)
        printf(", at %lld ms", (long long)item->at_ms);
    if (item->from == SIM_FROM_START || item->from == SIM_FROM_GONE)
        printf(" from %s of attempt %d", item->from == SIM_FROM_START ? "the start" : "the end", item->attempt);
    if (item->for_ms)
        printf(", for %lld ms", (long long)item->for_ms);
    printf("\n");
}

void sim_plan_print(const sim_plan *plan) {
    printf(
        "case %llu: %d nodes of %d, max_restarts %d, heartbeat %lld ms, work %lld ms, delay %lld us, lost %d of 1000, "
        "skew %lld ms%s",
        (unsigned long long)plan->seed, plan->nodes, plan->workers, plan->max_restarts, (long long)plan->heartbeat_ms,
        (long long)plan->work_ms, (long long)plan->delay_us, plan->lost, (long long)plan->skew_ms,
        plan->secret ? ", a secret" : "");
    if (plan->recovers)
        printf(", workers that survive%s", plan->stops ? " and stop together" : "");
    if (plan->elastic)
        printf(", --nnodes=%d:%d, last call %lld ms, rejoin %lld ms", plan->min_nodes, plan->max_nodes,
               (long long)plan->last_call_ms, (long long)plan->rejoin_ms);
    printf("\n");
    for (int i = 0; i < plan->n; i++)
        print_item(i, &plan->items[i]);
    if (!plan->n)
        printf("      nothing goes wrong\n");
}
