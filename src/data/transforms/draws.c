#include "data/transforms/draws.h"

#include "base/philox.h"

static _Thread_local int64_t reading_epoch;

void tt__draws_set_epoch(int64_t epoch) { reading_epoch = epoch; }

int64_t tt__draws_epoch(void) { return reading_epoch; }

static uint64_t philox64(uint64_t key, uint64_t counter) {
    uint32_t word[4];
    tt__philox(key, counter, word);
    return (uint64_t)word[1] << 32 | word[0];
}

/* Each step's key is a number of the step before, so that no two of (seed, epoch, index) share a stream. */
tt_draws tt__draws_of(uint64_t seed, int64_t epoch, int64_t index) {
    return (tt_draws){.key = philox64(philox64(seed, (uint64_t)epoch), (uint64_t)index)};
}

double tt_draws_uniform(tt_draws *draws, double low, double high) {
    if (!draws)
        return 0;
    double share = (double)(philox64(draws->key, draws->count++) >> 11) * 0x1p-53;
    return low + (high - low) * share;
}

/* The product's upper half is even up to n / 2^64. */
int64_t tt_draws_integer(tt_draws *draws, int64_t n) {
    if (!draws || n < 1)
        return 0;
    unsigned __int128 product = (unsigned __int128)philox64(draws->key, draws->count++) * (uint64_t)n;
    return (int64_t)(product >> 64);
}

bool tt__draws_chance(tt_draws *draws, double p) { return tt_draws_uniform(draws, 0, 1) < p; }
