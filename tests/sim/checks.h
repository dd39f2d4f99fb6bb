/* What must hold in every case. */
#ifndef SIM_CHECKS_H
#define SIM_CHECKS_H

#include "sim/history.h"
#include "sim/trainer.h"

/* When an attempt begins on a node: no process of another attempt is alive. */
void sim_check_alone(int node, int attempt);
/* When a launcher begins an attempt: the order of attempts is right. */
void sim_check_start(const sim_start *start);

/* When a launcher ends a worker that survives others' loss: it must have a reason. */
void sim_check_kept(int node, const sim_worker *w);

/* The time by which all launchers must have ended. */
int64_t sim_check_deadline_ns(void);
/* That time has passed: fail, and name the launchers that have not ended. */
_Noreturn void sim_check_ended(void);

/* Check everything that must hold at the end. */
void sim_check_all(void);

/* When a launcher notes in the store of attempt `attempt` that a rank has ended: it must have. */
void sim_check_note(int node, int rank, int attempt);

#endif
