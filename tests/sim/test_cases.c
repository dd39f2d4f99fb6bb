/* Cases written down: what the simulation has found once, or what its seeds should not be left to meet by luck. */
#include "sim/case.h"
#include "sim/plant.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

typedef struct written {
    const char *what;
    int nodes, max_restarts;
    sim_item items[4];
} written;

/* Where members come and go. */
typedef struct changing {
    written as;
    int min_nodes, max_nodes;
    int64_t work_ms;
} changing;

static const written cases[] = {
    {"nothing goes wrong", 3, 0, {{.kind = SIM_KINDS}}},
    {"a worker fails, and all are started again",
     3,
     1,
     {{.kind = SIM_FAILS, .node = 1, .at_ms = 500, .value = SIGSEGV}, {.kind = SIM_KINDS}}},
    /* The other nodes were not told. */
    {"a keeper is killed, and a worker elsewhere waits for the lost ones",
     2,
     0,
     {{.kind = SIM_KILL_KEEPER, .node = 1, .from = SIM_FROM_START, .at_ms = 300},
      {.kind = SIM_REACTS, .node = 0, .value = SIM_HANGS},
      {.kind = SIM_KINDS}}},
    {"a keeper is killed, and a worker elsewhere succeeds without the lost ones",
     2,
     0,
     {{.kind = SIM_KILL_KEEPER, .node = 1, .from = SIM_FROM_START, .at_ms = 300},
      {.kind = SIM_REACTS, .node = 0, .value = SIM_SUCCEEDS},
      {.kind = SIM_KINDS}}},
    {"a machine dies, and workers elsewhere wait for ever",
     3,
     2,
     {{.kind = SIM_KILL_MACHINE, .node = 1, .from = SIM_FROM_START, .at_ms = 300},
      {.kind = SIM_REACTS, .node = 0, .value = SIM_IGNORES},
      {.kind = SIM_REACTS, .node = 2, .value = SIM_HANGS},
      {.kind = SIM_KINDS}}},
    {"node 0's machine dies between two attempts",
     3,
     2,
     {{.kind = SIM_FAILS, .node = 1, .at_ms = 500, .value = SIGSEGV},
      {.kind = SIM_KILL_MACHINE, .node = 0, .from = SIM_FROM_GONE},
      {.kind = SIM_KINDS}}},
    {"a launcher is told to end between two attempts",
     3,
     2,
     {{.kind = SIM_FAILS, .node = 1, .at_ms = 500, .value = SIGSEGV},
      {.kind = SIM_SIGNAL, .node = 2, .from = SIM_FROM_GONE, .value = SIGTERM},
      {.kind = SIM_KINDS}}},
    {"a program is missing on one node",
     3,
     2,
     {{.kind = SIM_NOT_EXECUTABLE, .node = 1, .value = ENOENT}, {.kind = SIM_KINDS}}},
    /* The failure was taken for an end that the launcher had asked for. */
    {"a program is missing on one node, and another node's machine dies",
     3,
     0,
     {{.kind = SIM_NOT_EXECUTABLE, .node = 1, .value = ENOENT},
      {.kind = SIM_KILL_MACHINE, .node = 2, .from = SIM_FROM_START, .at_ms = 300},
      {.kind = SIM_KINDS}}},
    /* Only its own node went by what the report says. */
    {"a worker ends long after it has reported its failure, and after another that failed later",
     3,
     0,
     {{.kind = SIM_FAILS, .node = 1, .at_ms = 300, .for_ms = 1500, .value = 20 << 8},
      {.kind = SIM_FAILS, .node = 2, .at_ms = 1500, .value = 43 << 8},
      {.kind = SIM_REACTS, .node = 1, .value = SIM_HANGS},
      {.kind = SIM_KINDS}}},
    {"the same, and it is told to end before it does",
     3,
     0,
     {{.kind = SIM_FAILS, .node = 1, .at_ms = 300, .for_ms = 9000, .value = 20 << 8},
      {.kind = SIM_FAILS, .node = 2, .at_ms = 1500, .value = 43 << 8},
      {.kind = SIM_REACTS, .node = 1, .value = SIM_HANGS},
      {.kind = SIM_KINDS}}},
    /* A crash that came long before was taken for one at the same time. */
    {"the same, and the other one is killed",
     3,
     0,
     {{.kind = SIM_FAILS, .node = 1, .at_ms = 300, .for_ms = 2500, .value = 20 << 8},
      {.kind = SIM_FAILS, .node = 2, .at_ms = 1500, .value = SIGKILL},
      {.kind = SIM_REACTS, .node = 1, .value = SIM_HANGS},
      {.kind = SIM_KINDS}}},
    /* As where a program is missing. */
    {"a worker has reported its failure, and is then told to end because a machine dies",
     3,
     0,
     {{.kind = SIM_FAILS, .node = 1, .at_ms = 300, .for_ms = 15000, .value = 20 << 8},
      {.kind = SIM_REACTS, .node = 1, .value = SIM_HANGS},
      {.kind = SIM_KILL_MACHINE, .node = 2, .from = SIM_FROM_START, .at_ms = 300},
      {.kind = SIM_KINDS}}},
    /* Its launcher waited for ever for those that it could not hear. */
    {"node 0's own connection to the store is reset",
     2,
     0,
     {{.kind = SIM_CUT, .node = 0, .from = SIM_FROM_START, .at_ms = 1373}, {.kind = SIM_KINDS}}},
    {"a launcher can't start its workers", 3, 0, {{.kind = SIM_CANNOT_START, .node = 2}, {.kind = SIM_KINDS}}},
    {"a node never comes", 3, 0, {{.kind = SIM_ABSENT, .node = 2}, {.kind = SIM_KINDS}}},
};

static const changing changing_cases[] = {
    {{"members come and go",
      4,
      0,
      {{.kind = SIM_LATE, .node = 2, .at_ms = 6000},
       {.kind = SIM_SIGNAL, .node = 1, .from = SIM_FROM_START, .at_ms = 3000, .value = SIGTERM},
       {.kind = SIM_KILL_LAUNCHER, .node = 3, .from = SIM_FROM_START, .attempt = 1, .at_ms = 500, .value = 2000},
       {.kind = SIM_KINDS}}},
     1,
     4,
     15000},
    {{"who serves the store is killed, and started again",
      3,
      0,
      {{.kind = SIM_KILL_LAUNCHER, .node = 0, .from = SIM_FROM_START, .at_ms = 700, .value = 3000},
       {.kind = SIM_KINDS}}},
     2,
     3,
     5000},
    /* It waited for ever for what it alone could order. */
    {{"node 0's own connection is reset, where members get numbers as they come",
      2,
      1,
      {{.kind = SIM_CUT, .node = 0, .from = SIM_FROM_START, .at_ms = 1000}, {.kind = SIM_KINDS}}},
     2,
     2,
     10000},
    /* All had said so, and waited for ever for each other. */
    {{"not enough nodes are left",
      2,
      1,
      {{.kind = SIM_KILL_MACHINE, .node = 1, .from = SIM_FROM_START, .at_ms = 300}, {.kind = SIM_KINDS}}},
     2,
     2,
     10000},
    /* The job ended, though it was short of nothing. */
    {{"a keeper is killed, and a spare is there",
      3,
      1,
      {{.kind = SIM_KILL_KEEPER, .node = 1, .from = SIM_FROM_START, .at_ms = 300}, {.kind = SIM_KINDS}}},
     2,
     2,
     10000},
    /* It was told nothing of what it had missed. */
    {{"a machine is paused for long, and needed when it is back",
      4,
      1,
      {{.kind = SIM_PAUSE, .node = 1, .from = SIM_FROM_START, .at_ms = 77, .for_ms = 19000},
       {.kind = SIM_SIGNAL, .node = 3, .from = SIM_FROM_START, .attempt = 1, .at_ms = 3913, .value = SIGINT},
       {.kind = SIM_KINDS}}},
     3,
     4,
     11000},
    /* It had that number twice. */
    {{"a node of an earlier job with another coordinator comes late",
      2,
      1,
      {{.kind = SIM_FAILS, .node = 1, .at_ms = 300, .value = SIGSEGV},
       {.kind = SIM_KILL_LAUNCHER, .node = 0, .from = SIM_FROM_START, .attempt = 1, .at_ms = 300, .value = 500},
       {.kind = SIM_PAUSE, .node = 1, .from = SIM_FROM_START, .attempt = 1, .at_ms = 290, .for_ms = 15000},
       {.kind = SIM_KINDS}}},
     1,
     2,
     40000},
};

/* A seed decides all that happens. */
static bool repeats(void) {
    sim_verdict one, other;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        sim_plan plan;
        sim_plan_draw(&plan, seed, 8);
        sim_case_judge(&plan, false, &one);
        sim_case_judge(&plan, false, &other);
        if (one.digest == other.digest && one.requests == other.requests && one.virtual_ns == other.virtual_ns)
            continue;
        printf("FAIL case %d is another when it is played again\n", (int)seed);
        return false;
    }
    printf("ok   cases are the same when they are played again\n");
    return true;
}

static int log_2(int n) { return n > 1 ? 1 + log_2(n / 2) : 0; }

/* What a launcher asks of the store until its workers are started must hardly grow with the number of launchers: they
 * talk to node 0 alone, which reads what all have written at once. */
static bool asks_little(void) {
    bool good = true;
    for (int n = 4; n <= 256; n *= 4) {
        sim_plan plan;
        sim_verdict v;
        sim_plan_calm(&plan, 1, n);
        sim_case_judge(&plan, false, &v);
        int64_t node_0 = v.first_requests - v.ordinary_first;
        bool is_good =
            !*v.check && v.most_first > 0 && v.most_first <= 12 + 3 * log_2(n) && node_0 <= 20 + 6 * log_2(n);
        printf("%s %d launchers: at most %d requests of each until the first attempt began, %d of node 0's\n",
               is_good ? "ok  " : "FAIL", n, (int)v.most_first, (int)node_0);
        good = good && is_good;
    }
    return good;
}

/* `change`: NULL where the nodes are a fixed set. */
static bool plays(const written *c, const changing *change) {
    sim_plan plan;
    sim_verdict verdict;
    sim_plan_calm(&plan, 1, c->nodes);
    plan.max_restarts = c->max_restarts;
    if (change) {
        plan.work_ms = change->work_ms;
        sim_plan_make_elastic(&plan, change->min_nodes, change->max_nodes);
    }
    while (c->items[plan.n].kind != SIM_KINDS) {
        plan.items[plan.n] = c->items[plan.n];
        plan.n++;
    }
    sim_case_judge(&plan, false, &verdict);
    printf("%s %s%s%s\n", *verdict.check ? "FAIL" : "ok  ", c->what, *verdict.check ? ": " : "", verdict.text);
    return !*verdict.check;
}

/* Whose connection ends is lost long before the heartbeat. */
static bool notices_an_end(void) {
    sim_plan plan;
    sim_verdict verdict;
    sim_plan_calm(&plan, 1, 3);
    plan.work_ms = 30000;
    plan.items[plan.n++] = (sim_item){.kind = SIM_KILL_LAUNCHER, .node = 1, .from = SIM_FROM_START, .at_ms = 300};
    for (int node = 0; node < 3; node++)
        plan.items[plan.n++] = (sim_item){.kind = SIM_REACTS, .node = node, .value = SIM_HANGS};
    sim_case_judge(&plan, false, &verdict);
    bool is_good = !*verdict.check && verdict.virtual_ns / 1000000 < plan.heartbeat_ms * 3 / 4;
    printf("%s a launcher that is killed is missed after %.1f s\n", is_good ? "ok  " : "FAIL",
           (double)verdict.virtual_ns / 1e9);
    return is_good;
}

/* Whatever a launcher is about to ask when it is frozen: thawed it begins no round that the others have left by
 * then. */
static bool begins_nothing_old(void) {
    bool good = true;
    for (int request = 1; request <= 40; request++) {
        sim_plan plan;
        sim_verdict verdict;
        sim_plan_calm(&plan, 1, 2);
        plan.work_ms = 12000;
        sim_plan_make_elastic(&plan, 1, 2);
        plan.items[plan.n++] = (sim_item){.kind = SIM_FREEZE,
                                          .node = 1,
                                          .from = SIM_FROM_REQUEST,
                                          .at_ms = request,
                                          .for_ms = plan.heartbeat_ms + 3000};
        sim_case_judge(&plan, false, &verdict);
        if (*verdict.check)
            printf("FAIL a launcher is frozen at its request %d: %s\n", request, verdict.text);
        good = good && !*verdict.check;
    }
    printf("%s a launcher that was frozen begins no round of before\n", good ? "ok  " : "FAIL");
    return good;
}

int main(void) {
    int failed = !repeats() + !asks_little() + !notices_an_end() + !begins_nothing_old();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        failed += !plays(&cases[i], NULL);
    for (size_t i = 0; i < sizeof changing_cases / sizeof *changing_cases; i++)
        failed += !plays(&changing_cases[i].as, &changing_cases[i]);
    return failed != 0;
}
