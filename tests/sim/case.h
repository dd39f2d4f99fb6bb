/* One case in a process of its own, and what is left of it when everything is taken away that does not matter. */
#ifndef SIM_CASE_H
#define SIM_CASE_H

#include "sim/plan.h"
#include "sim/verdict.h"

#include <stdbool.h>

/* What is left of a drawn case. Zeroed: all of it. */
typedef struct sim_cut {
    uint32_t without; /* a bit for each item that does not happen */
    int nodes, workers;
    int restarts; /* 1 + how many */
    bool plain;   /* the network and the clocks are as they should be */
} sim_cut;

/* As an option of the program: "without:5,nodes:2,workers:1,restarts:1,plain:1". */
void sim_cut_text(const sim_cut *cut, char *text, size_t size);
bool sim_cut_parse(sim_cut *cut, const char *text);

void sim_cut_apply(sim_plan *plan, const sim_cut *cut);

/* Run the case in a process that this one starts, which has one thread. */
void sim_case_judge(const sim_plan *plan, bool trace, sim_verdict *verdict);

/* Find a smaller case of the seed for which the same check fails; judges at most so many. */
void sim_case_shrink(uint64_t seed, int max_nodes, const char *check, int most, sim_cut *cut);

#endif
