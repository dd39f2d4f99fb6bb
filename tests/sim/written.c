#include "sim/written.h"

#include <errno.h>
#include <signal.h>

typedef struct written {
    const char *what;
    int nodes, max_restarts;
    sim_item items[4];
} written;

/* A case with a fixed set of nodes, whose workers survive the loss of others. */
typedef struct surviving {
    written as;
    int64_t skew_ms;
    int workers; /* on each node */
} surviving;

/* A case in which nodes come and go. */
typedef struct changing {
    written as;
    int min_nodes, max_nodes;
    int64_t work_ms;
    int survivors; /* 0: none survives others' loss; -1: workers do; above 0: at least so many times */
} changing;

static const written cases[] = {
    {"nothing goes wrong", 3, 0, {{.kind = SIM_KINDS}}},
    {"a worker fails, and all are started again",
     3,
     1,
     {{.kind = SIM_FAILS, .node = 1, .at_ms = 500, .value = SIGSEGV}, {.kind = SIM_KINDS}}},
    /* The bug: the other nodes were not told of the loss. */
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
    /* The bug: the failure was taken for an end that the launcher had asked for. */
    {"a program is missing on one node, and another node's machine dies",
     3,
     0,
     {{.kind = SIM_NOT_EXECUTABLE, .node = 1, .value = ENOENT},
      {.kind = SIM_KILL_MACHINE, .node = 2, .from = SIM_FROM_START, .at_ms = 300},
      {.kind = SIM_KINDS}}},
    /* The bug: only the worker's own node used the time in its report. */
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
    /* The bug: a crash long before was taken for one at the same time. */
    {"the same, and the other one is killed",
     3,
     0,
     {{.kind = SIM_FAILS, .node = 1, .at_ms = 300, .for_ms = 2500, .value = 20 << 8},
      {.kind = SIM_FAILS, .node = 2, .at_ms = 1500, .value = SIGKILL},
      {.kind = SIM_REACTS, .node = 1, .value = SIM_HANGS},
      {.kind = SIM_KINDS}}},
    /* The same bug as where a program is missing. */
    {"a worker has reported its failure, and is then told to end because a machine dies",
     3,
     0,
     {{.kind = SIM_FAILS, .node = 1, .at_ms = 300, .for_ms = 15000, .value = 20 << 8},
      {.kind = SIM_REACTS, .node = 1, .value = SIM_HANGS},
      {.kind = SIM_KILL_MACHINE, .node = 2, .from = SIM_FROM_START, .at_ms = 300},
      {.kind = SIM_KINDS}}},
    /* The bug: node 0's launcher waited for ever for launchers that it could not hear. */
    {"node 0's own connection to the store is reset",
     2,
     0,
     {{.kind = SIM_CUT, .node = 0, .from = SIM_FROM_START, .at_ms = 1373}, {.kind = SIM_KINDS}}},
    {"a launcher can't start its workers", 3, 0, {{.kind = SIM_CANNOT_START, .node = 2}, {.kind = SIM_KINDS}}},
    {"a node never comes", 3, 0, {{.kind = SIM_ABSENT, .node = 2}, {.kind = SIM_KINDS}}},
};

static const surviving surviving_cases[] = {
    /* The bug: if this rank's clock was behind, all but node 0, which had ordered the round, named it as the first. */
    {{"a rank fails as it waits for the round after another's failure",
      3,
      2,
      {{.kind = SIM_FAILS, .node = 2, .at_ms = 500, .value = 20 << 8},
       {.kind = SIM_FAILS, .node = 0, .at_ms = 555, .value = SIGSEGV},
       {.kind = SIM_KINDS}}},
     300,
     1},
    /* The bug: nobody told the others, and they waited for 30 minutes. */
    {{"a rank is stopped for ever, and no restarts are left",
      2,
      0,
      {{.kind = SIM_STOPS, .node = 1, .at_ms = 1000, .for_ms = 3600000}, {.kind = SIM_KINDS}}},
     0,
     1},
    {{"a rank ends well before the others, and no restarts are left",
      2,
      0,
      {{.kind = SIM_FAILS, .node = 1, .at_ms = 1000}, {.kind = SIM_KINDS}}},
     0,
     1},
    {{"a rank of each node is stopped before it has joined",
      2,
      1,
      {{.kind = SIM_STOPS, .node = 0, .for_ms = 3600000},
       {.kind = SIM_STOPS, .node = 1, .for_ms = 3600000},
       {.kind = SIM_KINDS}}},
     0,
     2},
    {{"a rank ends well before the others, in each attempt",
      2,
      1,
      {{.kind = SIM_FAILS, .node = 1, .at_ms = 1000},
       {.kind = SIM_FAILS, .node = 0, .attempt = 1, .at_ms = 500},
       {.kind = SIM_KINDS}}},
     0,
     1},
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
     15000,
     0},
    {{"who serves the store is killed, and started again",
      3,
      0,
      {{.kind = SIM_KILL_LAUNCHER, .node = 0, .from = SIM_FROM_START, .at_ms = 700, .value = 3000},
       {.kind = SIM_KINDS}}},
     2,
     3,
     5000,
     0},
    /* The bug: node 0 waited for ever for a round that only it could order. */
    {{"node 0's own connection is reset, where members get numbers as they come",
      2,
      1,
      {{.kind = SIM_CUT, .node = 0, .from = SIM_FROM_START, .at_ms = 1000}, {.kind = SIM_KINDS}}},
     2,
     2,
     10000,
     0},
    /* The bug: all had announced this, and waited for each other for ever. */
    {{"not enough nodes are left",
      2,
      1,
      {{.kind = SIM_KILL_MACHINE, .node = 1, .from = SIM_FROM_START, .at_ms = 300}, {.kind = SIM_KINDS}}},
     2,
     2,
     10000,
     0},
    /* The bug: the machine was told nothing of what it had missed. */
    {{"a machine is paused for long, and needed when it is back",
      4,
      1,
      {{.kind = SIM_PAUSE, .node = 1, .from = SIM_FROM_START, .at_ms = 77, .for_ms = 19000},
       {.kind = SIM_SIGNAL, .node = 3, .from = SIM_FROM_START, .attempt = 1, .at_ms = 3913, .value = SIGINT},
       {.kind = SIM_KINDS}}},
     3,
     4,
     11000,
     0},
    /* The bug: a round's number occurred twice on that node. */
    {{"a node of an earlier job with another coordinator comes late",
      2,
      1,
      {{.kind = SIM_FAILS, .node = 1, .at_ms = 300, .value = SIGSEGV},
       {.kind = SIM_KILL_LAUNCHER, .node = 0, .from = SIM_FROM_START, .attempt = 1, .at_ms = 300, .value = 500},
       {.kind = SIM_PAUSE, .node = 1, .from = SIM_FROM_START, .attempt = 1, .at_ms = 290, .for_ms = 15000},
       {.kind = SIM_KINDS}}},
     1,
     2,
     40000,
     0},
    /* The bug: the job ended for the waiting node. */
    {{"a keeper is killed, and another node waits for its place",
      3,
      1,
      {{.kind = SIM_KILL_KEEPER, .node = 2, .from = SIM_FROM_START, .at_ms = 300}, {.kind = SIM_KINDS}}},
     2,
     2,
     5000,
     0},
    {{"a rank is killed, and the others go on",
      3,
      1,
      {{.kind = SIM_FAILS, .node = 1, .at_ms = 1500, .value = SIGKILL}, {.kind = SIM_KINDS}}},
     3,
     3,
     3000,
     2},
    {{"a rank is stopped for ever, and the others go on",
      3,
      1,
      {{.kind = SIM_STOPS, .node = 1, .at_ms = 1500, .for_ms = 3600000}, {.kind = SIM_KINDS}}},
     3,
     3,
     3000,
     2},
    {{"a node joins ranks that go on", 3, 0, {{.kind = SIM_LATE, .node = 2, .at_ms = 3000}, {.kind = SIM_KINDS}}},
     2,
     3,
     6000,
     2},
    {{"a node leaves ranks that go on",
      3,
      0,
      {{.kind = SIM_SIGNAL, .node = 1, .from = SIM_FROM_START, .at_ms = 1500, .value = SIGINT}, {.kind = SIM_KINDS}}},
     1,
     3,
     6000,
     2},
    {{"who serves the store is killed and started again, and ranks wait for it",
      3,
      0,
      {{.kind = SIM_KILL_LAUNCHER, .node = 0, .from = SIM_FROM_START, .at_ms = 1500, .value = 3000},
       {.kind = SIM_KINDS}}},
     2,
     3,
     6000,
     2},
    /* The bug: the death was noted for another round, so the other ranks did not hear of it, and were ended. */
    {{"a machine dies before its ranks have joined those that go on",
      3,
      0,
      {{.kind = SIM_LATE, .node = 2, .at_ms = 3000},
       {.kind = SIM_KILL_MACHINE, .node = 2, .from = SIM_FROM_START, .attempt = 1},
       {.kind = SIM_KINDS}}},
     2,
     3,
     6000,
     2},
    /* The bug: the ranks that joined waited only for the stopped one, and were ended. */
    {{"a launcher is killed when its ranks have joined those that go on, of which one is stopped",
      4,
      1,
      {{.kind = SIM_LATE, .node = 3, .at_ms = 3000},
       {.kind = SIM_STOPS, .node = 1, .attempt = 1, .for_ms = 22000},
       {.kind = SIM_KILL_LAUNCHER, .node = 2, .from = SIM_FROM_START, .attempt = 1, .at_ms = 500},
       {.kind = SIM_KINDS}}},
     2,
     4,
     6000,
     2},
    /* The bug: the end of its rank was noted in the store of the next round, for another rank. */
    {{"a launcher is frozen until after the end of the work, and its ranks had ended well",
      3,
      0,
      {{.kind = SIM_FREEZE, .node = 2, .from = SIM_FROM_START, .at_ms = 175, .for_ms = 22000}, {.kind = SIM_KINDS}}},
     2,
     3,
     2700,
     0},
    {{"the same, with ranks that go on",
      3,
      0,
      {{.kind = SIM_FREEZE, .node = 2, .from = SIM_FROM_START, .at_ms = 175, .for_ms = 22000}, {.kind = SIM_KINDS}}},
     2,
     3,
     2700,
     -1},
    /* The bug: the launcher began a round that the others had left. */
    {{"a launcher is frozen as its round begins, and thaws when another does",
      3,
      1,
      {{.kind = SIM_FAILS, .node = 2, .at_ms = 300, .value = SIGSEGV},
       {.kind = SIM_FREEZE, .node = 1, .from = SIM_FROM_GONE, .at_ms = 15, .for_ms = 16000},
       {.kind = SIM_KINDS}}},
     2,
     3,
     15000,
     0},
    /* The bug: the round was begun once more. */
    {{"a node comes as all workers end well",
      3,
      0,
      {{.kind = SIM_LATE, .node = 2, .at_ms = 4500}, {.kind = SIM_KINDS}}},
     2,
     3,
     3000,
     -1},
    /* The bug: equal numbers of commits were taken for the same commits. */
    {{"a node is cut off as a commit is made, and comes back to others of that number",
      3,
      2,
      {{.kind = SIM_PARTITION, .node = 2, .from = SIM_FROM_START, .at_ms = 1782, .for_ms = 20000},
       {.kind = SIM_KILL_MACHINE, .node = 1, .from = SIM_FROM_START, .attempt = 1, .at_ms = 120},
       {.kind = SIM_KINDS}}},
     2,
     3,
     6000,
     1},
    /* The bug: the ranks waited for the dead machine's until their time was over, and were then ended. */
    {{"a machine dies as ranks join, and another node comes before it is missed",
      4,
      0,
      {{.kind = SIM_LATE, .node = 3, .at_ms = 2000},
       {.kind = SIM_KILL_MACHINE, .node = 2, .from = SIM_FROM_START, .at_ms = 5},
       {.kind = SIM_KINDS}}},
     1,
     4,
     6000,
     1},
    {{"a rank is stopped for an hour when it has done its part of the last step, which the job waits for",
      3,
      0,
      {{.kind = SIM_STOPS, .node = 2, .at_ms = 2940, .for_ms = 3600000}, {.kind = SIM_KINDS}}},
     3,
     3,
     3000,
     -1},
};

enum {
    CASES = sizeof cases / sizeof *cases,
    SURVIVING_CASES = sizeof surviving_cases / sizeof *surviving_cases,
    CHANGING_CASES = sizeof changing_cases / sizeof *changing_cases
};

int sim_written_count(void) { return CASES + SURVIVING_CASES + CHANGING_CASES; }

const char *sim_written_draw(sim_plan *plan, int i, int64_t *least_kept) {
    int k = i - CASES, m = k - SURVIVING_CASES;
    const surviving *survive = k >= 0 && m < 0 ? &surviving_cases[k] : NULL;
    const changing *change = m >= 0 ? &changing_cases[m] : NULL;
    const written *c = survive ? &survive->as : change ? &change->as : &cases[i];
    sim_plan_calm(plan, 1, c->nodes);
    plan->max_restarts = c->max_restarts;
    *least_kept = 0;
    if (survive) {
        plan->recovers = true;
        plan->skew_ms = survive->skew_ms;
        plan->workers = survive->workers;
        *least_kept = c->max_restarts > 0;
    }
    if (change) {
        plan->work_ms = change->work_ms;
        plan->recovers = change->survivors != 0;
        *least_kept = change->survivors;
        sim_plan_make_elastic(plan, change->min_nodes, change->max_nodes);
    }
    while (c->items[plan->n].kind != SIM_KINDS) {
        plan->items[plan->n] = c->items[plan->n];
        plan->n++;
    }
    return c->what;
}
