/* Vector halving with distance doubling, in the one summation order: the reduce_scatter inside
 * all_reduce_halving_doubling.c and reduce_scatter_halving.c.
 *
 * unit      what the balanced tree joins: p of them, the largest power of two not above N. The first N-p units are
 *           pairs of adjacent ranks, of which the even one acts, after its neighbour gave it all its elements (the
 *           "fold"); the others are single ranks.
 * position  a piece of the vector; there are p. Unit u ends with position bits-reversed(u).
 * level k   units u and u ^ 2^k, which hold sums over adjacent blocks of 2^k units and of the same positions, exchange
 *           halves of them: the one with bit k clear keeps the lower half. Each joins left and right as the tree
 *           does. */
#ifndef TT_COMM_COLLECTIVE_MESSAGE_HALVING_H
#define TT_COMM_COLLECTIVE_MESSAGE_HALVING_H

#include "comm/work.h"

#include <stdbool.h>

typedef struct tt__halving {
    int units, levels, folded; /* p, log2 p, N-p */
    int unit;                  /* of this rank; that of its pair if it gave its elements away */
    bool gives;                /* it is the odd one of a pair */
} tt__halving;

tt__halving tt__halving_of(int rank, int ranks);

/* Return the rank that acts for a unit. */
static inline int tt__unit_rank(const tt__halving *h, int unit) {
    return unit < h->folded ? 2 * unit : unit + h->folded;
}

/* Return the first position, and the number of positions, that a unit holds before level k (k = levels: at the end). */
int tt__halving_first(const tt__halving *h, int unit, int k);
static inline int tt__halving_held(const tt__halving *h, int k) { return h->units >> k; }

/* Return the unit whose position is `position`. */
int tt__halving_unit_of(const tt__halving *h, int position);

#endif
