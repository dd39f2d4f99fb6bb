/* Virtual process groups: what stands in for src/comm where src/elastic calls it. A call is done when all ranks have
 * come to it and their machines reach each other; some ranks may have heard so, and others not, when one is lost. */
#ifndef SIM_GROUPS_H
#define SIM_GROUPS_H

#include "sim/trainer.h"

enum { SIM_SILENCE_MS = 3000 }; /* after which a rank is missed that nobody says is dead */

/* What a rank had when its round's group was made. */
typedef struct sim_holding {
    int synced_round;
    int64_t made;
    uint64_t digest;
} sim_holding;

typedef struct sim_ring {
    struct sim_ring *next, *root; /* of all; the round's that this one is a part of, or itself */
    int n, generation, renewals, round;
    sim_worker **workers;        /* (n) NULL: has not come */
    struct sim_member **members; /* (n) likewise */
    sim_holding *had;            /* (n) */
    bool formed;
    int64_t done;   /* calls */
    int call, kind; /* a part: which call of its root's made it, and its color */
} sim_ring;

/* The worker is no more. */
void sim_groups_lose(const sim_worker *w, bool silent);

#endif
