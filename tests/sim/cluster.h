/* The launchers of a job, in one world: set up, disturbed as the plan says, and waited for. */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "sim/plan.h"
#include "sim/world.h"

/* Run the case in this process, and end it with a verdict. */
_Noreturn void sim_cluster_run(const sim_plan *plan, bool trace);

const sim_plan *sim_cluster_plan(void);

/* How many launchers there are: one for each node, and perhaps one with the number of another, or such as were started
 * again. */
int sim_cluster_launchers(void);
const sim_agent *sim_cluster_agent(int node);

/* The node has come so far: what is to happen from then on will. */
void sim_cluster_reached(int node, sim_moment moment, int attempt);

/* Has something happened because of which the launcher may be lost to others, or others to it? */
bool sim_cluster_disturbed(int node);
/* The same of this launcher alone, whatever happens to node 0's. */
bool sim_cluster_disturbed_itself(int node);
/* When the last thing happened that the plan says. */
int64_t sim_cluster_quiet_since_ns(void);

#endif
