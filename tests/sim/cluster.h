/* The launchers of a job, in one world: set up, disturbed as the plan says, and waited for. */
#ifndef SIM_CLUSTER_H
#define SIM_CLUSTER_H

#include "sim/plan.h"
#include "sim/world.h"

/* Run the case in this process, and end it with a verdict. */
_Noreturn void sim_cluster_run(const sim_plan *plan, bool trace);

const sim_plan *sim_cluster_plan(void);

/* The number of launchers: one for each node, perhaps one with the number of another, and those that were started
 * again. */
int sim_cluster_launchers(void);
const sim_agent *sim_cluster_agent(int node);

/* The node has reached this moment: schedule the plan's items that are counted from it. */
void sim_cluster_reached(int node, sim_moment moment, int attempt);

/* Has anything happened, to this launcher or node 0's, by which launchers may be lost to each other? */
bool sim_cluster_disturbed(int node);
/* Has anything of this kind happened to this launcher itself? */
bool sim_cluster_disturbed_itself(int node);
/* When the last item of the plan happened. */
int64_t sim_cluster_quiet_since_ns(void);

#endif
