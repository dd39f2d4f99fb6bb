/* Random numbers of an example: Philox, keyed by a seed, an epoch and the example's number. */
#ifndef TT_DATA_DRAWS_H
#define TT_DATA_DRAWS_H

#include <tutti/transforms.h>

struct tt_draws {
    uint64_t key;
    uint64_t count; /* numbers drawn */
};

tt_draws tt__draws_of(uint64_t seed, int64_t epoch, int64_t index);

/* Return true with probability p. */
bool tt__draws_chance(tt_draws *draws, double p);

/* The epoch in which this thread reads examples: a loader sets it around each batch; 0 else. */
void tt__draws_set_epoch(int64_t epoch);
int64_t tt__draws_epoch(void);

#endif
