/* What must hold in every case whose members come and go. */
#ifndef SIM_CHECKS_ELASTIC_H
#define SIM_CHECKS_ELASTIC_H

#include "sim/history.h"

/* While it runs: as those of checks.h. */
void sim_elastic_check_alone(int node);
void sim_elastic_check_start(const sim_start *start);

/* When all launchers must have ended: so long after the last thing that happened. */
/* Since when nothing has happened, and no worker has been stopped that nobody misses. */
int64_t sim_survivors_quiet_since_ns(void);
int64_t sim_elastic_deadline_ns(void);

/* At the end. */
void sim_elastic_check_all(void);

#endif
