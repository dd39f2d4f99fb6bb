/* Attention by cuDNN's fused kernels, which take 16-bit floats. They leave log(sum of exp(s)) of each row. In our stats
 * it stands for the maximum, beside a sum of 1: p = exp(s - log(sum)) / 1. */
#include "tensor/cuda/cuda_kernels_attention.h"
#include "tensor/cuda/libraries/cuda_dnn.h"
#include "tensor/cuda/libraries/cuda_dnn_run.h"

#include <math.h>
#include <stdatomic.h>

/* Earlier ones have errors that NVIDIA's cudnn-frontend works around, and need not add up in one order on Blackwell. */
enum { OLDEST_DNN = 91800 };

/* Memory for one call. */
typedef struct dnn_room {
    void *workspace;
    float *sums, *means; /* (B,H,T) each, in one piece; means: backward */
} dnn_room;

static int64_t dnn_rows(const tt__dnn_attention *call) { return call->heads.B * call->heads.H * call->heads.T; }

static tt__dnn_key dnn_attention_key(const tt__dnn_attention *call) {
    return (tt__dnn_key){.direction = call->backward ? TT__DNN_ATTENDS_BACK : TT__DNN_ATTENDS,
                         .dtype = call->dtype,
                         .heads = call->heads};
}

/* ---- running ---- */

static int dnn_execute_attention(tt__dnn_use *use, const tt__dnn_plan *plan, const tt__dnn_attention *call,
                                 const dnn_room *room) {
    enum { MOST = TT__DNN_MATRICES + 5 };
    float scale = call->scale, hidden = -INFINITY, one = 1;
    int64_t names[MOST] = {TT__DNN_SUMS, TT__DNN_SCALE};
    void *pointers[MOST] = {room->sums, &scale};
    int n = 2, matrices = call->backward ? TT__DNN_MATRICES : TT__DNN_MATRICES_FORWARD;
    for (int m = 0; m < matrices; m++) {
        names[n] = TT__DNN_MATRIX + m;
        pointers[n++] = call->matrix[m];
    }
    if (call->heads.causal) {
        names[n] = TT__DNN_HIDDEN;
        pointers[n++] = &hidden;
    }
    if (call->backward) {
        names[n] = TT__DNN_MEANS;
        pointers[n++] = room->means;
        names[n] = TT__DNN_ONE;
        pointers[n++] = &one;
    }
    return tt__dnn_execute(use, plan, n, names, pointers, room->workspace);
}

static tt_status dnn_enqueue_attention(tt__cuda_state *state, tt__dnn_use *use, tt__dnn_plan *plan,
                                       const tt__dnn_attention *call, const dnn_room *room) {
    cudaStream_t stream = tt__cuda_stream(state);
    const int64_t n = dnn_rows(call);
    tt_status status = TT_OK;
    if (call->backward)
        status = tt__cuda_check(tt__cuda_attention_log_sums(stream, room->sums, call->stats, n),
                                "the kernel \"attention_log_sums\" of %s", state->name);
    if (status)
        return status;
    int result = tt__dnn_use_stream(use, stream);
    if (!result)
        result = dnn_execute_attention(use, plan, call, room);
    status = tt__dnn_executed(state, use, plan, result);
    return status || call->backward ? status
                                    : tt__cuda_check(tt__cuda_attention_stats(stream, call->stats, room->sums, n),
                                                     "the kernel \"attention_stats\" of %s", state->name);
}

/* What is taken here is free for what is enqueued later. */
static tt_status dnn_run_attention(tt__cuda_state *state, tt__dnn_use *use, tt__dnn_plan *plan,
                                   const tt__dnn_attention *call) {
    const size_t numbers = (size_t)(dnn_rows(call) + 3) / 4 * 4; /* of 16 bytes */
    dnn_room room = {.workspace = plan->workspace ? tt__cuda_scratch(state, plan->workspace) : NULL};
    if (plan->workspace && !room.workspace)
        return tt__cuda_host->last_status();
    room.sums = tt__cuda_scratch(state, (call->backward ? 2 : 1) * numbers * sizeof(float));
    room.means = room.sums && call->backward ? room.sums + numbers : NULL;
    tt_status status = room.sums ? dnn_enqueue_attention(state, use, plan, call, &room) : tt__cuda_host->last_status();
    tt__cuda_scratch_free(state, room.sums);
    tt__cuda_scratch_free(state, room.workspace);
    return status;
}

/* ---- what it takes ---- */

/* Its kernels read 16 bytes at a time. */
static bool dnn_takes_matrix(const void *p, const int64_t step[3]) {
    for (int d = 0; d < 3; d++)
        if (step[d] <= 0 || step[d] % 8)
            return false;
    return (uintptr_t)p % 16 == 0;
}

static bool dnn_takes(const tt__dnn_attention *call) {
    if (call->heads.D % 8 || call->heads.Dv % 8)
        return false;
    for (int m = 0; m < (call->backward ? TT__DNN_MATRICES : TT__DNN_MATRICES_FORWARD); m++)
        if (!dnn_takes_matrix(call->matrix[m], call->heads.step[m]))
            return false;
    return true;
}

/* Log the first 16-bit attention that cuDNN doesn't take. */
static void dnn_tell_not_attended(const tt__cuda_state *state, const tt__dnn_attention *call) {
    static atomic_flag told = ATOMIC_FLAG_INIT;
    const tt__dnn_heads *h = &call->heads;
    if (!atomic_flag_test_and_set(&told))
        tt__cuda_host->log(TT_LOG_WARNING,
                           "%s: cuDNN has no plan that may be used for %s of attention in %s, q (%lld,%lld,%lld,%lld), "
                           "v (%lld,%lld,%lld,%lld): Tutti's own kernels make it, and what else cuDNN doesn't take",
                           state->name, call->backward ? "the gradients" : "a result",
                           tt__cuda_host->dtype_name(call->dtype), (long long)h->B, (long long)h->H, (long long)h->T,
                           (long long)h->D, (long long)h->B, (long long)h->H, (long long)h->S, (long long)h->Dv);
}

static tt_status dnn_attend_with(tt__cuda_state *state, tt__dnn_plans *plans, const tt__dnn_attention *call) {
    const tt__dnn_key key = dnn_attention_key(call);
    tt__dnn_plan *plan;
    if (plans->use.dnn->GetVersion() < OLDEST_DNN || !dnn_takes(call)) {
        dnn_tell_not_attended(state, call);
        return TT_ERR_UNSUPPORTED;
    }
    int result = tt__dnn_plan_for(plans, &key, &plan);
    if (result)
        return tt__dnn_fail(state, &plans->use, result);
    tt_status status = plan->refused ? TT_ERR_UNSUPPORTED : dnn_run_attention(state, &plans->use, plan, call);
    if (plan->refused)
        dnn_tell_not_attended(state, call);
    return status;
}

tt_status tt__dnn_attend(tt__cuda_state *state, const tt__dnn_attention *call) {
    tt__dnn_device *device;
    tt_status status = tt__dnn_lock(state, &device);
    if (status)
        return status;
    status = dnn_attend_with(state, &device->plans, call);
    tt__dnn_unlock(device);
    return status;
}
