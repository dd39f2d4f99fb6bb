/* Cases written down: those that the simulation once found, and those that should not depend on lucky seeds. */
#ifndef SIM_WRITTEN_H
#define SIM_WRITTEN_H

#include "sim/plan.h"

int sim_written_count(void);

/* Make the plan of the i-th case. *least_kept := the least number of times that a rank must survive. Returns what the
 * case is about. */
const char *sim_written_draw(sim_plan *plan, int i, int64_t *least_kept);

#endif
