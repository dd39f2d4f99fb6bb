/* Virtual process groups, which stand in for src/comm where src/elastic calls it. A call is done when all ranks have
 * come to it and their machines reach each other. If a rank is lost, some ranks may have heard that the call is done,
 * and others not. */
#ifndef SIM_GROUPS_H
#define SIM_GROUPS_H

#include "sim/trainer.h"

enum { SIM_SILENCE_MS = 3000 }; /* a silent rank is missed after this time */

/* The state that a rank had when it came to its round. */
typedef struct sim_holding {
    int synced_round;
    int64_t made;
    uint64_t digest;
} sim_holding;

typedef struct sim_ring {
    struct sim_ring *next, *root; /* in the list of all; the ring of the whole round */
    int n, generation, renewals, round;
    sim_worker **workers;        /* (n) NULL: has not come */
    struct sim_member **members; /* (n) NULL: has not come */
    sim_holding *had;            /* (n) */
    bool formed;
    int64_t done;   /* how many calls are done */
    int call, kind; /* of a part of the round: the call that made it, and its color */
} sim_ring;

/* The worker has ended; `silent`: nobody says so. */
void sim_groups_lose(const sim_worker *w, bool silent);

#endif
