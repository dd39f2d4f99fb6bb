/* Random numbers that depend on nothing but their seed. */
#ifndef SIM_RANDOM_H
#define SIM_RANDOM_H

#include <stdbool.h>
#include <stdint.h>

typedef struct sim_random {
    uint64_t state;
} sim_random;

/* splitmix64. */
static inline uint64_t sim_next(sim_random *random) {
    uint64_t z = random->state += UINT64_C(0x9E3779B97F4A7C15);
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

/* A stream of its own for each thing that draws, so that one drawing less changes nothing elsewhere. */
static inline sim_random sim_stream(uint64_t seed, uint64_t what, uint64_t which) {
    sim_random random = {seed ^ what * UINT64_C(0xD6E8FEB86659FD93)};
    random.state = sim_next(&random) ^ which * UINT64_C(0xA0761D6478BD642F);
    sim_next(&random);
    return random;
}

/* From 0 to n - 1. */
static inline int64_t sim_below(sim_random *random, int64_t n) {
    return n > 0 ? (int64_t)(sim_next(random) % (uint64_t)n) : 0;
}

static inline int64_t sim_between(sim_random *random, int64_t low, int64_t high) {
    return low + sim_below(random, high - low + 1);
}

static inline bool sim_chance(sim_random *random, int percent) { return sim_below(random, 100) < percent; }

#endif
