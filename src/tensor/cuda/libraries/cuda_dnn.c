#include "tensor/cuda/libraries/cuda_dnn.h"

#include "tensor/cuda/cuda_kernels_layers.h"
#include "tensor/cuda/libraries/cuda_dnn_graph.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

/* ---- cuDNN on one device ---- */

/* cuDNN's state on a device; lives as long as the process. */
typedef struct tt__dnn_device {
    bool usable;          /* false: cuDNN works on other devices only, or not at all */
    pthread_mutex_t lock; /* of plans; while a call is enqueued */
    tt__dnn_plans plans;
} tt__dnn_device;

static pthread_mutex_t dnn_lock = PTHREAD_MUTEX_INITIALIZER; /* of state->dnn */

/* Record the failure that `use` notes, with this status. */
static tt_status dnn_failed(const tt__cuda_state *state, const tt__dnn_use *use, int status) {
    return tt__cuda_host->fail(TT_ERR_SYSTEM,
                               "%s: cuDNN's %s() of %s failed: %s (status %d). TT_CUDA_DNN=own does without it",
                               state->name, use->function, use->object, use->dnn->GetErrorString(status), status);
}

/* Are parts of cuDNN missing or unfit for each other, or doesn't it know this GPU or driver? */
static bool dnn_is_unusable(int status) { return status / 1000 == 1 || status / 1000 == 3; }

/* Let the handle enqueue where this thread does. */
static int dnn_use_stream(tt__dnn_use *use, cudaStream_t stream) {
    if (use->stream == stream)
        return TT__DNN_OK;
    use->object = "a handle";
    use->function = "cudnnSetStream";
    int status = use->dnn->SetStream(use->handle, stream);
    use->stream = status ? NULL : stream;
    return status;
}

static int dnn_handle(tt__dnn_use *use, const tt__cuda_state *state) {
    use->object = "a handle";
    use->function = "cudnnCreate";
    int status = use->dnn->Create(&use->handle);
    if (status)
        return status;
    status = dnn_use_stream(use, state->stream);
    if (status)
        use->dnn->Destroy(use->handle);
    return status;
}

static tt_status begin_dnn(tt__cuda_state *state, const tt__dnn *dnn) {
    tt__dnn_device *device = calloc(1, sizeof *device);
    if (!device)
        return tt__cuda_host->fail(TT_ERR_MEMORY, "%s: no memory for cuDNN's plans", state->name);
    tt__dnn_use *use = &device->plans.use;
    use->dnn = dnn;
    int result = dnn_handle(use, state);
    if (result && (dnn->must || !dnn_is_unusable(result))) {
        tt_status status = dnn_failed(state, use, result);
        free(device);
        return status;
    }
    if (result)
        tt__cuda_host->log(TT_LOG_WARNING,
                           "%s: Tutti's own kernels convolve and attend, since cuDNN's %s() failed: %s (status %d)",
                           state->name, use->function, dnn->GetErrorString(result), result);
    device->usable = !result;
    pthread_mutex_init(&device->lock, NULL);
    state->dnn = device;
    return TT_OK;
}

/* Lock the device's cuDNN, which the first call begins, and unlock it. TT_ERR_UNSUPPORTED, without a recorded error: it
 * is not used. */
static tt_status dnn_device_lock(tt__cuda_state *state, tt__dnn_device **device) {
    const tt__dnn *dnn;
    tt_status status = tt__dnn_find(&dnn);
    if (!status)
        status = tt__cuda_enter(state);
    if (status || !dnn)
        return status ? status : TT_ERR_UNSUPPORTED;
    pthread_mutex_lock(&dnn_lock);
    status = state->dnn ? TT_OK : begin_dnn(state, dnn);
    pthread_mutex_unlock(&dnn_lock);
    if (status || !state->dnn->usable)
        return status ? status : TT_ERR_UNSUPPORTED;
    *device = state->dnn;
    pthread_mutex_lock(&(*device)->lock);
    return TT_OK;
}

static void dnn_device_unlock(tt__dnn_device *device) { pthread_mutex_unlock(&device->lock); }

/* ---- running a plan ---- */

/* Enqueue a plan, with n pointers by name; those to values are read at once. */
static int dnn_execute(tt__dnn_use *use, const tt__dnn_plan *plan, int n, const int64_t *names, void *const *pointers,
                       void *workspace) {
    const tt__dnn_attribute all[] = {{TT__DNN_PACK_NAMES, TT__DNN_AS_INT64, n, names},
                                     {TT__DNN_PACK_POINTERS, TT__DNN_AS_POINTER, n, pointers},
                                     {TT__DNN_PACK_WORKSPACE, TT__DNN_AS_POINTER, 1, &workspace}};
    tt__dnn_object pack;
    int status = tt__dnn_make(use, TT__DNN_PACK, 3, all, &pack);
    if (!status) {
        status = use->dnn->BackendExecute(use->handle, plan->plan, pack);
        use->function = "cudnnBackendExecute";
        use->object = "a plan";
    }
    tt__dnn_end(use, pack);
    return status;
}

/* Return what that result means. TT_ERR_UNSUPPORTED, without a recorded error: the plan is refused from now on. */
static tt_status dnn_executed(const tt__cuda_state *state, const tt__dnn_use *use, tt__dnn_plan *plan, int result) {
    plan->refused = result / 1000 == TT__DNN_NOT_SUPPORTED / 1000;
    return !result ? TT_OK : plan->refused ? TT_ERR_UNSUPPORTED : dnn_failed(state, use, result);
}

/* ---- convolutions. With channels last, weights are (K,R,S,C/groups) ---- */

static int64_t dnn_taps(const tt__dnn_call *call) { return call->w_dim[2] * call->w_dim[3]; }

static bool dnn_turns_weight(const tt__dnn_call *call) {
    return call->channels_last && call->w_dim[1] > 1 && dnn_taps(call) > 1;
}

/* Copy w to `last`, where its channels are last, or back. */
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
    int result = dnn_use_stream(use, tt__cuda_stream(state));
    if (!result)
        result = dnn_execute(use, plan, 3, names, pointers, workspace);
    status = dnn_executed(state, use, plan, result);
    return !status && turned && makes_w ? dnn_turn_weight(state, call, w, true) : status;
}

/* Enqueue a convolution. Its memory is given back at once, for work that is enqueued later. */
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
        return dnn_failed(state, &plans->use, result);
    tt_status status = plan->refused ? TT_ERR_UNSUPPORTED : dnn_run_plan(state, &plans->use, plan, call);
    if (plan->refused)
        dnn_tell_refused(state, call);
    return status;
}

tt_status tt__dnn_convolve(tt__cuda_state *state, const tt__dnn_call *call) {
    tt__dnn_device *device;
    tt_status status = dnn_device_lock(state, &device);
    if (status)
        return status;
    status = dnn_convolve_with(state, &device->plans, call);
    dnn_device_unlock(device);
    return status;
}

/* ---- attention by fused kernels, which take 16-bit floats. They leave log(sum of exp(s)) of each row. In our stats it
 * stands for the maximum, beside a sum of 1: p = exp(s - log(sum)) / 1. ---- */

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
    return dnn_execute(use, plan, n, names, pointers, room->workspace);
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
    int result = dnn_use_stream(use, stream);
    if (!result)
        result = dnn_execute_attention(use, plan, call, room);
    status = dnn_executed(state, use, plan, result);
    return status || call->backward ? status
                                    : tt__cuda_check(tt__cuda_attention_stats(stream, call->stats, room->sums, n),
                                                     "the kernel \"attention_stats\" of %s", state->name);
}

/* Enqueue attention. Memory as in dnn_run_plan(). */
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
        return dnn_failed(state, &plans->use, result);
    tt_status status = plan->refused ? TT_ERR_UNSUPPORTED : dnn_run_attention(state, &plans->use, plan, call);
    if (plan->refused)
        dnn_tell_not_attended(state, call);
    return status;
}

tt_status tt__dnn_attend(tt__cuda_state *state, const tt__dnn_attention *call) {
    tt__dnn_device *device;
    tt_status status = dnn_device_lock(state, &device);
    if (status)
        return status;
    status = dnn_attend_with(state, &device->plans, call);
    dnn_device_unlock(device);
    return status;
}
