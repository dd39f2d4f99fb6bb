#include "sim/cluster.h"

#include "launch/job.h"
#include "sim/checks.h"
#include "sim/descriptors.h"
#include "sim/history.h"
#include "sim/keeper.h"
#include "sim/network.h"
#include "sim/trainer.h"
#include "sim/verdict.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CLUSTER_STREAM = 4, CLOCK_STREAM = 5, START_STREAM = 6, PORT = 29400 };

static struct {
    const sim_plan *plan;
    sim_agent *agents; /* (launchers) one for each node, perhaps a twin, and those that were started again */
    bool *disturbed;   /* (launchers) */
    bool *happened;    /* (items) */
    int *current;      /* (nodes) each machine's agent */
    int launchers;
    int outside; /* launchers that are still to be started */
    int up;      /* launchers that run */
    int64_t quiet_since_ns;
    const sim_item *twin; /* NULL: there is none */
    sim_task *outsider;
} cluster;

const sim_plan *sim_cluster_plan(void) { return cluster.plan; }
int sim_cluster_launchers(void) { return cluster.launchers; }
const sim_agent *sim_cluster_agent(int node) { return &cluster.agents[node]; }
bool sim_cluster_disturbed(int node) { return cluster.disturbed[node] || cluster.disturbed[0]; }
bool sim_cluster_disturbed_itself(int node) { return cluster.disturbed[node]; }
int64_t sim_cluster_quiet_since_ns(void) { return cluster.quiet_since_ns; }

/* ---- launchers */

/* The number that the launcher was given. */
static int number_of(int node) { return node < cluster.plan->nodes ? node : cluster.twin->node; }

static tt__job job_of(const sim_plan *plan, int node) {
    static char file[] = "/bin/worker", *argv[] = {file, NULL};
    tt__job job = {.file = file,
                   .argv = argv,
                   .workers = plan->workers,
                   .min_nodes = plan->min_nodes,
                   .max_nodes = plan->max_nodes,
                   .number = plan->elastic ? -1 : node,
                   .serves = plan->elastic ? -1 : 0,
                   .last_call_ms = plan->last_call_ms,
                   .rejoin_ms = plan->rejoin_ms,
                   .master_addr = "host-0",
                   .bind_addr = "host-0",
                   .master_port = PORT,
                   .has_secret = plan->secret,
                   .secret_fd = -1,
                   .role = "default",
                   .signal_names = "SIGTERM,SIGINT",
                   .run_id = "simulated",
                   .rdzv_backend = "static",
                   .max_restarts = plan->max_restarts,
                   .settle_ms = plan->settle_ms,
                   .grace_ms = plan->grace_ms,
                   .join_ms = plan->join_ms,
                   .heartbeat_ms = plan->heartbeat_ms,
                   .health = -1};
    sigemptyset(&job.signals);
    sigaddset(&job.signals, SIGTERM);
    sigaddset(&job.signals, SIGINT);
    return job;
}

static const sim_item *item_of_node(sim_kind kind, int node) {
    for (int i = 0; i < cluster.plan->n; i++)
        if (cluster.plan->items[i].kind == kind && cluster.plan->items[i].node == node)
            return &cluster.plan->items[i];
    return NULL;
}

static void leave_world(sim_agent *agent, sim_agent_state state) {
    agent->state = state;
    cluster.up--;
    sim_wake(cluster.outsider);
}

static void *agent_main(void *arg) {
    sim_agent *agent = arg;
    tt__job job = job_of(cluster.plan, cluster.plan->elastic ? agent->machine : number_of(agent->node));
    int code = 1;
    tt_status status = TT_OK;
    if (item_of_node(SIM_CANNOT_START, agent->machine))
        tt__job_tell_problem(&job, "there is no /bin/worker");
    else
        status = tt__job_run(&job, &code);
    sim_note_exit(agent->node, status, status ? 1 : code);
    for (int k = 0; k < cluster.plan->nodes && status && !cluster.plan->elastic; k++) /* these are the cause */
        cluster.disturbed[agent->node] = cluster.disturbed[agent->node] || cluster.disturbed[k];
    leave_world(agent, SIM_ENDED);
    return NULL;
}

static void start_agent(void *arg) {
    sim_agent *agent = arg;
    cluster.outside--;
    if (agent->machine_dead || item_of_node(SIM_ABSENT, agent->machine)) {
        sim_wake(cluster.outsider);
        return;
    }
    agent->state = SIM_UP;
    cluster.up++;
    sim_trace(agent->node, "is started");
    sim_task_start(agent, agent_main, agent, NULL);
}

/* ---- what happens to them */

static void crash(sim_agent *agent) {
    if (agent->state == SIM_UP)
        leave_world(agent, SIM_CRASHED);
}

/* A supervisor starts the launcher again. */
static void start_again(const sim_agent *dead, int64_t in_ns) {
    int k = cluster.launchers++;
    sim_agent *agent = &cluster.agents[k];
    *agent = *dead;
    agent->node = k;
    agent->state = SIM_OUTSIDE;
    agent->signal_fd = agent->watch_fd = -1;
    agent->requests = agent->generation = 0;
    agent->random = sim_stream(cluster.plan->seed, CLUSTER_STREAM, (uint64_t)k);
    cluster.outside++;
    cluster.current[dead->machine] = k;
    sim_at(sim_now_ns() + in_ns, start_agent, agent);
}

static void kill_machine(sim_agent *agent) {
    for (int k = 0; k < cluster.launchers; k++)
        cluster.agents[k].machine_dead = cluster.agents[k].machine_dead || cluster.agents[k].machine == agent->machine;
    crash(agent);
    sim_network_machine_gone(agent->node);
    sim_keeper_machine_gone(agent->node);
}

static void freeze(sim_agent *agent, int64_t until_ns) {
    if (until_ns > agent->frozen_until_ns)
        agent->frozen_until_ns = until_ns;
}

static bool has_no_workers(int node) {
    int attempt;
    return !sim_keeper_alive(node, &attempt);
}

static void disturb(sim_agent *agent, const sim_item *item, int64_t until_ns) {
    switch (item->kind) {
    case SIM_PAUSE:
        sim_keeper_paused(agent->node, until_ns);
        sim_network_isolate(agent->machine, until_ns);
        freeze(agent, until_ns);
        break;
    case SIM_FREEZE:
        freeze(agent, until_ns);
        break;
    case SIM_PARTITION:
        sim_network_isolate(agent->machine, until_ns);
        break;
    case SIM_SIGNAL:
        /* While a launcher waits for other nodes, before its first workers or after its last, a signal ends this
         * wait. */
        cluster.disturbed[agent->node] |= has_no_workers(agent->node);
        if (agent->state == SIM_UP && sim_fd_signal(agent->signal_fd, item->value))
            sim_note_signal_sent(agent->node);
        break;
    case SIM_KILL_LAUNCHER:
        crash(agent);
        sim_network_process_gone(agent->node);
        sim_keeper_orphaned(agent->node);
        if (item->value)
            start_again(agent, item->value * SIM_MS);
        break;
    case SIM_KILL_KEEPER:
        sim_keeper_killed(agent->node);
        break;
    case SIM_KILL_MACHINE:
        kill_machine(agent);
        break;
    default:
        sim_network_cut(agent->node);
    }
}

static void happen(void *arg) {
    const sim_item *item = arg;
    sim_agent *agent = &cluster.agents[cluster.current[item->node]];
    int64_t until_ns = sim_now_ns() + (item->kind == SIM_KILL_LAUNCHER ? item->value : item->for_ms) * SIM_MS;
    bool *happened = &cluster.happened[item - cluster.plan->items];
    if (*happened || (agent->state != SIM_UP && item->kind != SIM_KILL_MACHINE))
        return;
    *happened = true;
    sim_trace(agent->node, "FAULT: item %d of the plan", (int)(item - cluster.plan->items));
    if (sim_item_is_harsh(cluster.plan, item))
        cluster.disturbed[agent->node] = true;
    cluster.quiet_since_ns = until_ns > cluster.quiet_since_ns ? until_ns : cluster.quiet_since_ns;
    disturb(agent, item, until_ns);
}

/* Is the item counted from this moment of this machine? */
static bool happens_from(const sim_item *item, int machine, sim_moment from) {
    return item->node == machine && item->from == from && item->kind >= SIM_FREEZE && item->kind <= SIM_CUT;
}

void sim_note_request(sim_agent *agent) {
    bool first = !sim_seen.start_count, ordinary = agent->node != 0;
    agent->requests++;
    sim_result->requests++;
    sim_result->first_requests += first;
    sim_result->ordinary += ordinary;
    sim_result->ordinary_first += first && ordinary;
    if (first && ordinary && agent->requests > sim_result->most_first)
        sim_result->most_first = agent->requests;
    for (int i = 0; i < cluster.plan->n; i++) {
        const sim_item *item = &cluster.plan->items[i];
        if (happens_from(item, agent->machine, SIM_FROM_REQUEST) && item->at_ms == agent->requests)
            happen((void *)(uintptr_t)item);
    }
}

void sim_cluster_reached(int node, sim_moment moment, int attempt) {
    for (int i = 0; i < cluster.plan->n; i++) {
        const sim_item *item = &cluster.plan->items[i];
        if (happens_from(item, cluster.agents[node].machine, moment) && item->attempt == attempt)
            sim_at(sim_now_ns() + item->at_ms * SIM_MS, happen, (void *)(uintptr_t)item);
    }
}

/* ---- a case */

static void set_out(void) {
    const sim_plan *plan = cluster.plan;
    for (int k = 0; k < sim_cluster_launchers(); k++) {
        sim_random clocks = sim_stream(plan->seed, CLOCK_STREAM, (uint64_t)k),
                   starts = sim_stream(plan->seed, START_STREAM, (uint64_t)k);
        const sim_item *late = k < plan->nodes ? item_of_node(SIM_LATE, k) : cluster.twin;
        int64_t begin_ns = sim_below(&starts, 500 * SIM_MS) + (late ? late->at_ms * SIM_MS : 0);
        cluster.agents[k] =
            (sim_agent){.node = k,
                        .machine = k,
                        .signal_fd = -1,
                        .watch_fd = -1,
                        .monotonic_ns = sim_between(&clocks, 1000, 1000000) * SIM_MS,
                        .realtime_ns = plan->skew_ms ? sim_between(&clocks, 0, plan->skew_ms * SIM_MS) : 0,
                        .random = sim_stream(plan->seed, CLUSTER_STREAM, (uint64_t)k)};
        cluster.quiet_since_ns = begin_ns > cluster.quiet_since_ns ? begin_ns : cluster.quiet_since_ns;
        if (k < plan->nodes)
            cluster.current[k] = k;
        cluster.disturbed[k] = sim_plan_is_slow(plan) || item_of_node(SIM_ABSENT, k) ||
                               item_of_node(SIM_CANNOT_START, k) || item_of_node(SIM_TWIN, k);
        sim_at(begin_ns, start_agent, &cluster.agents[k]);
    }
    for (int i = 0; i < plan->n; i++)
        if (happens_from(&plan->items[i], plan->items[i].node, SIM_FROM_BEGINNING))
            sim_at(plan->items[i].at_ms * SIM_MS, happen, (void *)(uintptr_t)&plan->items[i]);
}

void sim_cluster_run(const sim_plan *plan, bool trace) {
    size_t n = (size_t)sim_plan_launchers(plan);
    sim_world_begin(trace);
    sim_history_begin((int)n);
    cluster.plan = plan;
    cluster.agents = sim_memory(calloc(n, sizeof *cluster.agents));
    cluster.disturbed = sim_memory(calloc(n, sizeof *cluster.disturbed));
    cluster.current = sim_memory(calloc(n, sizeof *cluster.current));
    cluster.happened = sim_memory(calloc(SIM_MOST_ITEMS, sizeof *cluster.happened));
    for (int i = 0; i < plan->n; i++)
        if (plan->items[i].kind == SIM_TWIN && plan->items[i].node)
            cluster.twin = &plan->items[i];
    cluster.outside = cluster.launchers = plan->nodes + (cluster.twin != NULL);
    cluster.outsider = sim_task_now();
    if (plan->secret)
        setenv("TT_SECRET", "a secret of thirty-two characters", 1);
    else
        unsetenv("TT_SECRET");
    unsetenv("TT_SECRET_FILE");
    unsetenv("TT_SECRET_FD");
    sim_network_begin(plan, cluster.agents);
    sim_keepers_begin(plan, cluster.agents);
    sim_trainers_begin(plan);
    set_out();
    while (cluster.outside || cluster.up) {
        sim_wait(sim_check_deadline_ns());
        if ((cluster.outside || cluster.up) && sim_now_ns() >= sim_check_deadline_ns())
            sim_check_ended();
    }
    sim_check_all();
    sim_pass();
}
