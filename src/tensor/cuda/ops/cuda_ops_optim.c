/* Steps of optimizers (cuda_optim.cu, cuda_optim_rows.cu), and looking through gradients (cuda_grad.cu). */
#include "tensor/cuda/cuda_kernels_optim.h"
#include "tensor/cuda/ops/cuda_ops.h"

#include <string.h>

static tt__cuda_step cuda_step_of(const tt__update *u) {
    tt__cuda_step step = {.update = *u};
    memcpy(step.option, u->option, sizeof step.option);
    memcpy(step.state, u->state, sizeof step.state);
    memcpy(step.fresh, u->fresh, sizeof step.fresh);
    return step;
}

/* A rule that the device lacks is not recorded as an error. */
static tt_status step_done(cudaError_t error, const tt_tensor *p, const char *kernel) {
    return error == cudaErrorNotSupported ? TT_ERR_UNSUPPORTED : tt__cuda_done(error, p, kernel);
}

static tt_status cuda_lamb(const tt_tensor *p, const tt__cuda_step *step) {
    tt__cuda_state *state = tt__cuda_of(p);
    double *scratch = tt__cuda_scratch(state, (size_t)tt__cuda_lamb_scratch(step->update.n) * sizeof *scratch);
    if (!scratch)
        return tt__cuda_host->last_status();
    tt_status status = tt__cuda_done(tt__cuda_lamb_run(tt__cuda_stream(state), p->dtype, step, scratch), p, "step");
    tt__cuda_scratch_free(state, scratch);
    return status;
}

static tt_status cuda_step(tt_tensor *p, tt__optim_rule rule, const tt__update *u) {
    const tt__cuda_step step = cuda_step_of(u);
    tt_status status = tt__cuda_enter(tt__cuda_of(p));
    if (status || !u->n)
        return status;
    if (rule == TT__RULE_LAMB)
        return cuda_lamb(p, &step);
    return step_done(tt__cuda_step_run(tt__cuda_stream(tt__cuda_of(p)), p->dtype, rule, &step), p, "step");
}

static tt_status cuda_step_rows(tt_tensor *p, tt__optim_rule rule, const tt__update *u, const tt_tensor *rows) {
    const tt__cuda_row_step step = {
        .step = cuda_step_of(u), .row = rows->data, .n = rows->numel, .columns = p->shape.dim[1]};
    tt_status status = tt__cuda_enter(tt__cuda_of(p));
    if (status)
        return status;
    return step_done(tt__cuda_row_step_run(tt__cuda_stream(tt__cuda_of(p)), p->dtype, rule, &step), p, "step_rows");
}

/* ---- gradients */

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

void tt__cuda_optim_ops(tt__cuda_tables *t) {
    t->floats.step = cuda_step;
    t->floats.step_rows = cuda_step_rows;
    t->floats.grad_measure = cuda_grad_measure;
    t->floats.grad_unscale = cuda_grad_unscale;
}
