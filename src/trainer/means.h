/* Means over examples under names, and their union over the ranks of a group. */
#ifndef TT_TRAINER_MEANS_H
#define TT_TRAINER_MEANS_H

#include <tutti/trainer.h>

typedef struct tt__mean {
    char *name;
    double sum;   /* of values times examples */
    double rest;  /* what rounding has lost of `sum`; with it, results don't depend on how many ranks share the sum */
    double count; /* of examples */
} tt__mean;

/* Zeroed = empty. */
typedef struct tt__means {
    tt__mean *of; /* sorted by name, after "loss" */
    size_t count, capacity;
    tt_trainer_metric *view; /* what tt__means_view() lent */
    size_t view_capacity;
} tt__means;

/* Add `examples` examples with the mean `value`. Allocates for a new name only. */
tt_status tt__means_add(tt__means *means, const char *name, double value, double examples);

/* Add up all ranks' sums, also under names that only some ranks have. Collective; group NULL: alone. */
tt_status tt__means_reduce(tt__means *means, tt_group *group);

/* Return the means that have examples, borrowed until the next call; NULL and TT_ERR_MEMORY on failure. */
const tt_trainer_metric *tt__means_view(tt__means *means, int64_t *count);

/* Hash a text, to compare it among ranks; at least 0. */
int64_t tt__means_hash(const char *text, size_t size);

/* Return the mean under a name, or NAN; the number of its examples, or 0. */
double tt__means_value(const tt__means *means, const char *name);
double tt__means_examples(const tt__means *means, const char *name);

/* Forget all values, and keep the names. */
void tt__means_clear(tt__means *means);

void tt__means_free(tt__means *means);

#endif
