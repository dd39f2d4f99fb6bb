/* Kernels that reduce dimensions, and look through tensors: cuda_reduce.cu, cuda_within.cu. */
#include "tensor/cuda/ops/cuda_ops.h"

#include <string.h>

/* y's dimensions in which it does not repeat. */
static tt_tensor unrepeated(const tt_tensor *y) { return tt__cuda_dims_of(y, y, false); }

static tt_status cuda_sum(tt_tensor *y, const tt_tensor *x, double factor) {
    const tt_tensor to = unrepeated(y), from = tt__cuda_dims_of(x, y, false), terms = tt__cuda_dims_of(x, y, true);
    tt__cuda_sum sum = {
        .outer = TT__CUDA_WALK(&to, &from), .inner = TT__CUDA_WALK(&terms), .factor = factor, .parts = 1};
    sum.parts = tt__cuda_sum_parts(sum.outer.n, sum.inner.n);
    tt__cuda_state *state = tt__cuda_of(y);
    tt_status status = tt__cuda_enter(state);
    if (!status && sum.parts > 1) {
        sum.scratch = tt__cuda_scratch(state, (size_t)(sum.outer.n * sum.parts) * sizeof *sum.scratch);
        status = sum.scratch ? TT_OK : tt__cuda_host->last_status();
    }
    if (!status)
        status = tt__cuda_done(tt__cuda_sum_run(tt__cuda_stream(state), y->dtype, &sum), y, "sum");
    tt__cuda_scratch_free(state, sum.scratch);
    return status;
}

static tt_status cuda_expect_within(const tt_tensor *x, int64_t low, int64_t high, int64_t but, const char *text) {
    const tt_tensor *const tensors[] = {x};
    const tt__iter it = tt__cuda_host->iter_row_major(1, tensors);
    const tt__walk w = tt__cuda_walk_of(&it, tensors);
    tt__cuda_fault told = {.set = false};
    strncpy(told.text, text, sizeof told.text - 1);
    TT__CUDA_ENQUEUE(x, "expect_within",
                     tt__cuda_expect_within(stream, x->dtype, &w, low, high, but, &told, tt__cuda_of(x)->fault));
}

void tt__cuda_reduce_ops(tt__cuda_tables *t) {
    t->floats.sum = cuda_sum;
    t->integers.expect_within = cuda_expect_within;
}
