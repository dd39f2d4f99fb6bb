#include "tensor/cuda/libraries/cuda_dnn.h"

#include "tensor/cuda/libraries/cuda_dnn_run.h"

#include <stdatomic.h>

/* ---- weights of images with channels last: (K,R,S,C/groups) ---- */

static int64_t dnn_taps(const tt__dnn_call *call) { return call->w_dim[2] * call->w_dim[3]; }

static bool dnn_turns_weight(const tt__dnn_call *call) {
    return call->channels_last && call->w_dim[1] > 1 && dnn_taps(call) > 1;
}

/* Copy w to where its channels are last, or back. */
static tt_status dnn_turn_weight(tt__cuda_state *state, const tt__dnn_call *call, void *last, bool back) {
    const int64_t K = call->w_dim[0], C = call->w_dim[1], T = dnn_taps(call);
    tt__walk walk = {.n = K * C * T, .ndim = 3, .dim = {C, T, K}};
    const int its = back, ours = !back;
    walk.p[its] = last;
    walk.p[ours] = call->w;
    walk.step[its][0] = walk.step[ours][1] = 1;
    walk.step[its][1] = C;
    walk.step[ours][0] = T;
    walk.step[its][2] = walk.step[ours][2] = C * T;
    return tt__cuda_check(tt__cuda_convert(tt__cuda_stream(state), call->dtype, call->dtype, &walk),
                          "the kernel \"convert\" of %s for %s", state->name, tt__cuda_host->dtype_name(call->dtype));
}

/* ---- running ---- */

/* The largest power of two, up to 16, that an address is a multiple of: what engines ask for. */
static int64_t dnn_alignment(const void *p) {
    uintptr_t low = (uintptr_t)p & (~(uintptr_t)p + 1);
    return low == 0 || low > 16 ? 16 : (int64_t)low;
}

static tt__dnn_key dnn_key_of(const tt__dnn_call *call) {
    tt__dnn_key key = {.direction = call->direction,
                       .dtype = call->dtype,
                       .channels_last = call->channels_last,
                       .alignment = {dnn_alignment(call->x), dnn_alignment(call->y),
                                     dnn_turns_weight(call) ? 16 : dnn_alignment(call->w)}};
    for (int d = 0; d < 4; d++) {
        key.x[d] = call->x_dim[d];
        key.y[d] = call->y_dim[d];
        key.w[d] = call->w_dim[d];
    }
    for (int d = 0; d < 2; d++) {
        key.stride[d] = call->window.stride[d];
        key.padding[d] = call->window.padding[d];
        key.dilation[d] = call->window.dilation[d];
    }
    return key;
}

static tt_status dnn_enqueue(tt__cuda_state *state, tt__dnn_use *use, tt__dnn_plan *plan, const tt__dnn_call *call,
                             void *w, void *workspace) {
    const bool turned = w != call->w, makes_w = call->direction == TT__DNN_MAKES_DW;
    static const int64_t names[] = {TT__DNN_X, TT__DNN_Y, TT__DNN_W};
    void *const pointers[] = {call->x, call->y, w};
    tt_status status = turned && !makes_w ? dnn_turn_weight(state, call, w, false) : TT_OK;
    if (status)
        return status;
    int result = tt__dnn_use_stream(use, tt__cuda_stream(state));
    if (!result)
        result = tt__dnn_execute(use, plan, 3, names, pointers, workspace);
    status = tt__dnn_executed(state, use, plan, result);
    return !status && turned && makes_w ? dnn_turn_weight(state, call, w, true) : status;
}

/* What is taken here is free for what is enqueued later. */
static tt_status dnn_run_plan(tt__cuda_state *state, tt__dnn_use *use, tt__dnn_plan *plan, const tt__dnn_call *call) {
    const size_t weights = (size_t)(call->w_dim[0] * call->w_dim[1] * dnn_taps(call));
    const bool turns = dnn_turns_weight(call);
    void *workspace = plan->workspace ? tt__cuda_scratch(state, plan->workspace) : NULL;
    if (plan->workspace && !workspace)
        return tt__cuda_host->last_status();
    void *w = turns ? tt__cuda_scratch(state, weights * (call->dtype == TT_F64 ? 8 : 4)) : call->w;
    tt_status status = w ? dnn_enqueue(state, use, plan, call, w, workspace) : tt__cuda_host->last_status();
    tt__cuda_scratch_free(state, turns ? w : NULL);
    tt__cuda_scratch_free(state, workspace);
    return status;
}

/* Log the first convolution that cuDNN doesn't take. */
static void dnn_tell_refused(const tt__cuda_state *state, const tt__dnn_call *call) {
    static const char *const made[] = {"a result", "an input's gradient", "a weight's gradient"};
    static atomic_flag told = ATOMIC_FLAG_INIT;
    const int64_t *x = call->x_dim, *w = call->w_dim;
    if (!atomic_flag_test_and_set(&told))
        tt__cuda_host->log(
            TT_LOG_WARNING,
            "%s: cuDNN has no plan that may be used for %s of a convolution in %s, x (%lld,%lld,%lld,%lld), "
            "w (%lld,%lld,%lld,%lld): Tutti's own kernels make it, and what else cuDNN doesn't take",
            state->name, made[call->direction], tt__cuda_host->dtype_name(call->dtype), (long long)x[0],
            (long long)x[1], (long long)x[2], (long long)x[3], (long long)w[0], (long long)w[1], (long long)w[2],
            (long long)w[3]);
}

static tt_status dnn_convolve_with(tt__cuda_state *state, tt__dnn_plans *plans, const tt__dnn_call *call) {
    const tt__dnn_key key = dnn_key_of(call);
    tt__dnn_plan *plan;
    int result = tt__dnn_plan_for(plans, &key, &plan);
    if (result)
        return tt__dnn_fail(state, &plans->use, result);
    tt_status status = plan->refused ? TT_ERR_UNSUPPORTED : dnn_run_plan(state, &plans->use, plan, call);
    if (plan->refused)
        dnn_tell_refused(state, call);
    return status;
}

tt_status tt__dnn_convolve(tt__cuda_state *state, const tt__dnn_call *call) {
    tt__dnn_device *device;
    tt_status status = tt__dnn_lock(state, &device);
    if (status)
        return status;
    status = dnn_convolve_with(state, &device->plans, call);
    tt__dnn_unlock(device);
    return status;
}
