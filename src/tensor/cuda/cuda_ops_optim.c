/* Steps of optimizers: cuda_optim.cu. */
#include "tensor/cuda/cuda_kernels_optim.h"
#include "tensor/cuda/cuda_ops.h"

#include <string.h>

static tt_status cuda_step(tt_tensor *p, tt__rule rule, const tt__update *u) {
    tt__cuda_step step = {.update = *u};
    if (!u->n)
        return TT_OK;
    memcpy(step.option, u->option, sizeof step.option);
    memcpy(step.state, u->state, sizeof step.state);
    memcpy(step.fresh, u->fresh, sizeof step.fresh);
    TT__CUDA_ENQUEUE(p, "step", tt__cuda_step_run(stream, p->dtype, rule, &step));
}

void tt__cuda_optim_ops(tt__cuda_tables *t) { t->floats.step = cuda_step; }
