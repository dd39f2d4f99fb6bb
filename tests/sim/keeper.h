/* Virtual keepers and workers, which stand in for src/launch/local/keeper.c and all that it calls. */
#ifndef SIM_KEEPER_H
#define SIM_KEEPER_H

#include "sim/plan.h"
#include "sim/world.h"

void sim_keepers_begin(const sim_plan *plan, sim_agent *agents);

/* The launcher has died: the keeper kills all workers. The keeper was killed: the kernel kills them. */
void sim_keeper_orphaned(int node);
void sim_keeper_killed(int node);
void sim_keeper_machine_gone(int node);
void sim_keeper_paused(int node, int64_t until_ns);

/* A round: an attempt of the job as one coordinator counts them. */
typedef struct sim_round {
    struct sim_round *next;
    int generation, attempt; /* generation: of the store */
    int world, begun, good;  /* workers that have begun, and that have succeeded, on all nodes */
    bool failed;
} sim_round;

/* How many processes of the job are alive on the node, and of which attempt. */
int sim_keeper_alive(int node, int *attempt);
/* The round in which the node's workers are, or last were; NULL: none. */
const sim_round *sim_keeper_round(int node);

/* ---- rounds.c */

/* How many workers of the attempt have succeeded, on all nodes. */
int sim_keeper_succeeded(int attempt);

/* Find the round, or make it. */
sim_round *sim_round_of(int generation, int attempt, int world);

/* What a worker tells the store at its beginning; at its end. Messages may be on their way for a while. */
struct sim_conn;
void sim_worker_counts_itself(struct sim_conn *conn);
void sim_worker_says_goodbye(struct sim_conn *conn);

#endif
