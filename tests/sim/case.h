/* Judges one case in a process of its own, and shrinks a case that fails to the items that matter. */
#ifndef SIM_CASE_H
#define SIM_CASE_H

#include "sim/plan.h"
#include "sim/verdict.h"

#include <stdbool.h>

/* How a drawn case is cut down. Zeroed: not at all. */
typedef struct sim_cut {
    uint32_t without; /* a bit for each item of the plan that is left out */
    int nodes, workers;
    int restarts; /* 1 + how many */
    bool plain;   /* a fast network without loss, equal clocks, no secret */
} sim_cut;

/* As an option of the program: "without:5,nodes:2,workers:1,restarts:1,plain:1". */
void sim_cut_text(const sim_cut *cut, char *text, size_t size);
bool sim_cut_parse(sim_cut *cut, const char *text);

void sim_cut_apply(sim_plan *plan, const sim_cut *cut);

/* Run the case in a process that this one starts, which has one thread. */
void sim_case_judge(const sim_plan *plan, bool trace, sim_verdict *verdict);

/* Find a smaller cut of the seed's case for which the same check fails. Judges at most `most` cases. */
void sim_case_shrink(uint64_t seed, int max_nodes, const char *check, int most, sim_cut *cut);

#endif
