/* What must hold in every case in which nodes come and go. */
#ifndef SIM_CHECKS_ELASTIC_H
#define SIM_CHECKS_ELASTIC_H

#include "sim/history.h"

/* As the functions of checks.h with these names. */
void sim_elastic_check_alone(int node);
void sim_elastic_check_start(const sim_start *start);

/* The time by which all launchers must have ended, counted from the last disturbance. */
/* Since when nothing disturbs the job, and no worker is stopped without being missed. */
int64_t sim_survivors_quiet_since_ns(void);
int64_t sim_elastic_deadline_ns(void);

/* Check everything that must hold at the end. */
void sim_elastic_check_all(void);

#endif
