/* An optimizer that steps inside the backward pass of a wrapper.
 *
 * When the averages of a bucket are there, the reducer tells the wrapper, which steps the bucket's parameters.
 * Meanwhile the optimizer has a stepper, and tt_optimizer_step() refuses it. */
#ifndef TT_PARALLEL_DDP_STEP_H
#define TT_PARALLEL_DDP_STEP_H

#include "optim/optimizer.h"
#include "parallel/ddp/ddp_state.h"

struct tt__ddp_stepper {
    tt_optimizer *optimizer;
    bool zero_grad;
    int64_t count;    /* of the optimizer's parameters, numbered through its groups */
    int64_t *slot_of; /* (count): the wrapper's slot; -1: the wrapper doesn't average it */
    int64_t *list;    /* (count): room for the numbers of parameters that are stepped together */
};

/* The optimizer's parameter of this number. */
const tt__optim_param *tt__ddp_stepped_param(const tt_optimizer *optimizer, int64_t number);

/* The reducer's bucket_ended, with the wrapper as user: the bucket's averages are there: step its parameters. */
tt_status tt__ddp_step_bucket(void *user, size_t bucket);

/* Free it, not the optimizer. NULL is allowed. */
void tt__ddp_stepper_free(tt__ddp_stepper *stepper);

#endif
