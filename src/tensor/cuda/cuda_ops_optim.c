/* Steps of optimizers: sgd.cu. */
#include "tensor/cuda/cuda_ops.h"

static tt_status cuda_sgd(tt_tensor *p, const tt_tensor *g, tt_tensor *buf, const struct tt__sgd_step *s) {
    const tt__cuda_sgd step = {.p = p->data,
                               .g = g->data,
                               .buf = buf ? buf->data : NULL,
                               .n = p->numel,
                               .lr = s->lr,
                               .momentum = s->momentum,
                               .dampening = s->dampening,
                               .weight_decay = s->weight_decay,
                               .nesterov = s->nesterov,
                               .fresh = s->fresh};
    TT__CUDA_ENQUEUE(p, "sgd", tt__cuda_sgd_run(stream, p->dtype, &step));
}

void tt__cuda_optim_ops(tt__cuda_tables *t) { t->floats.sgd = cuda_sgd; }
