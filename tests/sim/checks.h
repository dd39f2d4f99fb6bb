/* What must hold in every case. */
#ifndef SIM_CHECKS_H
#define SIM_CHECKS_H

#include "sim/history.h"
#include "sim/trainer.h"

/* While it runs: no process of another attempt is alive where this one begins, ... */
void sim_check_alone(int node, int attempt);
/* ... and a launcher that begins an attempt does so in order. */
void sim_check_start(const sim_start *start);

/* A launcher ends a worker that survives others' loss. */
void sim_check_kept(int node, const sim_worker *w);

/* When all launchers must have ended. */
int64_t sim_check_deadline_ns(void);
/* It has passed: fail, and say who has not. */
_Noreturn void sim_check_ended(void);

/* At the end. */
void sim_check_all(void);

/* A launcher notes in the store of attempt `attempt` that a rank has ended. */
void sim_check_note(int node, int rank, int attempt);

#endif
