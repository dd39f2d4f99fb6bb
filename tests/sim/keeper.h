/* Virtual keepers and workers: what stands in for src/elastic/keeper.c and all below it. */
#ifndef SIM_KEEPER_H
#define SIM_KEEPER_H

#include "sim/plan.h"
#include "sim/world.h"

#include <sys/types.h>

void sim_keepers_begin(const sim_plan *plan, sim_agent *agents);

/* The launcher is dead: the keeper kills all. SIGKILL to the keeper: the kernel does. */
void sim_keeper_orphaned(int node);
void sim_keeper_killed(int node);
void sim_keeper_machine_gone(int node);
void sim_keeper_paused(int node, int64_t until_ns);

/* By the pid that the launcher knows. */
void sim_keeper_kill_pid(pid_t pid);
void sim_keeper_wait(pid_t pid);

/* How many processes of the job are alive on the node, and of which attempt. */
int sim_keeper_alive(int node, int *attempt);

/* How many workers of the attempt have succeeded, on all nodes. */
int sim_keeper_succeeded(int attempt);

#endif
