/* Virtual keepers and workers: what stands in for src/launch/local/keeper.c and all below it. */
#ifndef SIM_KEEPER_H
#define SIM_KEEPER_H

#include "sim/plan.h"
#include "sim/world.h"

void sim_keepers_begin(const sim_plan *plan, sim_agent *agents);

/* The launcher is dead: the keeper kills all. SIGKILL to the keeper: the kernel does. */
void sim_keeper_orphaned(int node);
void sim_keeper_killed(int node);
void sim_keeper_machine_gone(int node);
void sim_keeper_paused(int node, int64_t until_ns);

/* A round: an attempt of the job as one coordinator counts them. */
typedef struct sim_round {
    struct sim_round *next;
    int generation, attempt; /* of the store */
    int world, begun, good;  /* workers that have begun, and that have succeeded, on all nodes */
    bool failed;
} sim_round;

/* How many processes of the job are alive on the node, and of which attempt. */
int sim_keeper_alive(int node, int *attempt);
/* Of which round the node's workers are, or were last; NULL: of none. */
const sim_round *sim_keeper_round(int node);

/* ---- rounds.c */

/* How many workers of the attempt have succeeded, on all nodes. */
int sim_keeper_succeeded(int attempt);

/* Find the round, or make it. */
sim_round *sim_round_of(int generation, int attempt, int world);

/* What a worker says to the store at its beginning, and at its end, which may be on its way for a while. */
struct sim_conn;
void sim_worker_counts_itself(struct sim_conn *conn);
void sim_worker_says_goodbye(struct sim_conn *conn);

#endif
