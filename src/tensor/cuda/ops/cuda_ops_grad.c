/* Looking through gradients: cuda_grad.cu. */
#include "tensor/cuda/cuda_kernels_grad.h"
#include "tensor/cuda/ops/cuda_ops.h"

static tt_status cuda_grad_measure(const tt_tensor *x, double p, tt_tensor *total) {
    tt__cuda_state *state = tt__cuda_of(x);
    tt__cuda_measure m = {
        .x = x->data, .n = x->numel, .parts = tt__cuda_sum_parts(1, x->numel), .p = p, .total = total->data};
    if (!m.n)
        return TT_OK;
    m.scratch = tt__cuda_scratch(state, (size_t)m.parts * sizeof *m.scratch);
    if (!m.scratch)
        return tt__cuda_host->last_status();
    tt_status status = tt__cuda_done(tt__cuda_grad_measure(tt__cuda_stream(state), x->dtype, &m), x, "grad_measure");
    tt__cuda_scratch_free(state, m.scratch);
    return status;
}

static tt_status cuda_grad_unscale(tt_tensor *x, double factor, tt_tensor *found) {
    if (!x->numel)
        return TT_OK;
    TT__CUDA_ENQUEUE(x, "grad_unscale",
                     tt__cuda_grad_unscale(stream, x->dtype, x->data, x->numel, factor, found->data));
}

void tt__cuda_grad_ops(tt__cuda_tables *t) {
    t->floats.grad_measure = cuda_grad_measure;
    t->floats.grad_unscale = cuda_grad_unscale;
}
