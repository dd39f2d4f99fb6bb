/* An optimizer that steps inside the backward pass of a wrapper. */
#ifndef TT_PARALLEL_DDP_STEP_H
#define TT_PARALLEL_DDP_STEP_H

#include "optim/optimizer.h"
#include "parallel/ddp_state.h"

struct tt__ddp_stepper {
    tt_optimizer *optimizer;
    bool zero_grad;
    int64_t count;    /* parameters of the optimizer */
    int64_t *slot_of; /* by their number; -1: the wrapper doesn't average it */
    int64_t *list;    /* room for the numbers of those that are stepped together */
};

/* The optimizer's parameter of this number. */
const tt__optim_param *tt__ddp_stepped_param(const tt_optimizer *optimizer, int64_t number);

/* The averages of a bucket of wrapper `user` are there: step its parameters. */
tt_status tt__ddp_step_bucket(void *user, size_t bucket);

/* NULL is allowed. */
void tt__ddp_stepper_free(tt__ddp_stepper *stepper);

#endif
