/* Cases written down: what the simulation has found once, or what its seeds should not be left to meet by luck. */
#ifndef SIM_WRITTEN_H
#define SIM_WRITTEN_H

#include "sim/plan.h"

int sim_written_count(void);

/* Make the plan of the i-th. *least_kept := how often, at least, a rank survives. Returns what it is about. */
const char *sim_written_draw(sim_plan *plan, int i, int64_t *least_kept);

#endif
