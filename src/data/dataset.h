/* The inside of data sets and samplers, for the loader. */
#ifndef TT_DATA_DATASET_H
#define TT_DATA_DATASET_H

#include <tutti/data.h>

struct tt_dataset {
    tt_tensor *inputs;      /* (N, ...) held, contiguous */
    tt_tensor *targets;     /* (N, ...) held, contiguous, or NULL */
    const tt_dataset *base; /* of a subset; its normalisation counts unless the subset has its own */
    bool normalized;
    double mean, std;
};

/* table[v] := what the loader makes of the u8 value v. */
void tt__dataset_table(const tt_dataset *dataset, float table[256]);

/* How many examples the sampler chooses from. */
int64_t tt__sampler_dataset_size(const tt_sampler *sampler);

#endif
