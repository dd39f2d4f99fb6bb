/* What numpy draws, from a generator that stands as its RandomState does: numpy's legacy seeding by a number is that of
 * tt__generator_init(). */
#ifndef TT_PARALLEL_HOOKS_NUMPY_DRAWS_H
#define TT_PARALLEL_HOOKS_NUMPY_DRAWS_H

#include <tutti/tensor.h>

/* RandomState.randint(10^9): 30 bits, again while they are too many. */
static inline uint32_t tt__numpy_randint_billion(tt_generator *g) {
    const uint32_t most = 999999999;
    uint32_t drawn;
    do
        drawn = tt_generator_random(g) & ((1u << 30) - 1);
    while (drawn > most);
    return drawn;
}

#endif
