/* The inside of data sets and samplers, for the loader. */
#ifndef TT_DATA_DATASET_H
#define TT_DATA_DATASET_H

#include <tutti/data.h>

struct tt_dataset {
    tt_tensor *inputs;      /* (N, ...) held, contiguous */
    tt_tensor *targets;     /* (N, ...) held, contiguous, or NULL */
    const tt_dataset *base; /* of a subset; its normalisation counts unless the subset has its own */
    bool normalized;
    float mean, std;
};

/* The set whose mean and std count for this one: itself, or a set it is a subset of. NULL: inputs are not normalised. */
const tt_dataset *tt__dataset_normalization(const tt_dataset *dataset);

/* How many examples the sampler chooses from. */
int64_t tt__sampler_dataset_size(const tt_sampler *sampler);

#endif
