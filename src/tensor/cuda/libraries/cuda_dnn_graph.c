#include "tensor/cuda/libraries/cuda_dnn_graph.h"

#include "base/hash.h"

#include <string.h>

/* ---- a convolution ---- */

static int dnn_tensor(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph, int64_t name, const int64_t d[4],
                      int64_t alignment, tt__dnn_object *tensor) {
    const int64_t contiguous[4] = {d[1] * d[2] * d[3], d[2] * d[3], d[3], 1};
    const int64_t channels_last[4] = {d[1] * d[2] * d[3], 1, d[3] * d[1], d[1]};
    const tt__dnn_attribute all[] = {
        {TT__DNN_TENSOR_TYPE, TT__DNN_AS_DATA_TYPE, 1, &tt__dnn_types[key->dtype]},
        {TT__DNN_TENSOR_DIMS, TT__DNN_AS_INT64, 4, d},
        {TT__DNN_TENSOR_STRIDES, TT__DNN_AS_INT64, 4, key->channels_last ? channels_last : contiguous},
        {TT__DNN_TENSOR_NAME, TT__DNN_AS_INT64, 1, &name},
        {TT__DNN_TENSOR_ALIGNMENT, TT__DNN_AS_INT64, 1, &alignment}};
    return tt__dnn_part(use, graph, TT__DNN_TENSOR, sizeof all / sizeof *all, all, tensor);
}

static int dnn_window(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph, tt__dnn_object *convolution) {
    const int compute = key->dtype == TT_F64 ? TT__DNN_DOUBLE : TT__DNN_FLOAT, mode = TT__DNN_CROSS_CORRELATION;
    const int64_t dims = 2;
    const tt__dnn_attribute all[] = {{TT__DNN_CONV_COMPUTE, TT__DNN_AS_DATA_TYPE, 1, &compute},
                                     {TT__DNN_CONV_MODE, TT__DNN_AS_CONV_MODE, 1, &mode},
                                     {TT__DNN_CONV_DIMS, TT__DNN_AS_INT64, 1, &dims},
                                     {TT__DNN_CONV_PRE_PADDINGS, TT__DNN_AS_INT64, 2, key->padding},
                                     {TT__DNN_CONV_POST_PADDINGS, TT__DNN_AS_INT64, 2, key->padding},
                                     {TT__DNN_CONV_DILATIONS, TT__DNN_AS_INT64, 2, key->dilation},
                                     {TT__DNN_CONV_STRIDES, TT__DNN_AS_INT64, 2, key->stride}};
    return tt__dnn_part(use, graph, TT__DNN_CONVOLUTION, sizeof all / sizeof *all, all, convolution);
}

/* The attributes of the three operations, each with the same meaning. */
static const struct {
    int kind, x, y, w, convolution, alpha, beta;
} dnn_operations[] = {[TT__DNN_MAKES_Y] = {TT__DNN_OP_FORWARD, TT__DNN_FORWARD_X, TT__DNN_FORWARD_Y, TT__DNN_FORWARD_W,
                                           TT__DNN_FORWARD_CONV, TT__DNN_FORWARD_ALPHA, TT__DNN_FORWARD_BETA},
                      [TT__DNN_MAKES_DX] = {TT__DNN_OP_BACKWARD_DATA, TT__DNN_DATA_DX, TT__DNN_DATA_DY, TT__DNN_DATA_W,
                                            TT__DNN_DATA_CONV, TT__DNN_DATA_ALPHA, TT__DNN_DATA_BETA},
                      [TT__DNN_MAKES_DW] = {TT__DNN_OP_BACKWARD_WEIGHT, TT__DNN_WEIGHT_X, TT__DNN_WEIGHT_DY,
                                            TT__DNN_WEIGHT_DW, TT__DNN_WEIGHT_CONV, TT__DNN_WEIGHT_ALPHA,
                                            TT__DNN_WEIGHT_BETA}};

/* alpha and beta have the type that is computed in. */
static int dnn_operation(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph, const tt__dnn_object part[4],
                         tt__dnn_object *operation) {
    const int direction = (int)key->direction, wide = key->dtype == TT_F64;
    const int type = wide ? TT__DNN_AS_DOUBLE : TT__DNN_AS_FLOAT;
    const double one = 1, zero = 0;
    const float one_f32 = 1, zero_f32 = 0;
    const tt__dnn_attribute all[] = {{dnn_operations[direction].x, TT__DNN_AS_DESCRIPTOR, 1, &part[0]},
                                     {dnn_operations[direction].y, TT__DNN_AS_DESCRIPTOR, 1, &part[1]},
                                     {dnn_operations[direction].w, TT__DNN_AS_DESCRIPTOR, 1, &part[2]},
                                     {dnn_operations[direction].convolution, TT__DNN_AS_DESCRIPTOR, 1, &part[3]},
                                     {dnn_operations[direction].alpha, type, 1, wide ? (const void *)&one : &one_f32},
                                     {dnn_operations[direction].beta, type, 1, wide ? (const void *)&zero : &zero_f32}};
    return tt__dnn_part(use, graph, dnn_operations[direction].kind, sizeof all / sizeof *all, all, operation);
}

static int dnn_convolution_graph(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph) {
    tt__dnn_object part[4], operation;
    int status = dnn_tensor(use, key, graph, TT__DNN_X, key->x, key->alignment[0], &part[0]);
    if (!status)
        status = dnn_tensor(use, key, graph, TT__DNN_Y, key->y, key->alignment[1], &part[1]);
    if (!status)
        status = dnn_tensor(use, key, graph, TT__DNN_W, key->w, key->alignment[2], &part[2]);
    if (!status)
        status = dnn_window(use, key, graph, &part[3]);
    if (!status)
        status = dnn_operation(use, key, graph, part, &operation);
    return status ? status : tt__dnn_graph_of(use, 1, &operation, graph);
}

/* Describe what the key says. The caller ends the parts, also after a failure. */
/* ---- graphs ---- */

static int dnn_graph_begin(tt__dnn_use *use, const tt__dnn_key *key, tt__dnn_graph *graph) {
    memset(graph, 0, sizeof *graph);
    return key->direction >= TT__DNN_ATTENDS ? tt__dnn_attention_graph(use, key, graph)
                                             : dnn_convolution_graph(use, key, graph);
}

enum { MOST_CONFIGS = 64, MOST_NOTES = 64 };

/* A status of this kind means that cuDNN doesn't take what was described: bad parameters, or not supported. */
static bool dnn_refuses(int status) { return status / 1000 == 2 || status / 1000 == 3; }

/* A plan may use as much memory as a few copies of its tensors, which it may need in other layouts. To add up in one
 * order, backward of attention stores the gradients of all B H T S scores. */
static int64_t dnn_most_workspace(const tt__dnn_key *key) {
    const int64_t *const dims[] = {key->x, key->y, key->w};
    int64_t elements = 0, size = key->dtype == TT_F64 ? 8 : key->dtype == TT_F32 ? 4 : 2;
    if (key->direction >= TT__DNN_ATTENDS)
        return (int64_t)1 << 30;
    for (int i = 0; i < 3; i++)
        elements += dims[i][0] * dims[i][1] * dims[i][2] * dims[i][3];
    return ((int64_t)32 << 20) + 4 * elements * size;
}

/* ---- plans: which engine ---- */

/* What an engine must not do to numbers. On tensor cores f32 would be TF32. */
static uint64_t dnn_unwanted(const tt__dnn_key *key) {
    uint64_t unwanted = 1u << TT__DNN_NOTE_DOWN_CONVERTS | 1u << TT__DNN_NOTE_REDUCED_PRECISION |
                        1u << TT__DNN_NOTE_FFT | 1u << TT__DNN_NOTE_NONDETERMINISTIC | 1u << TT__DNN_NOTE_WINOGRAD;
    return key->dtype == TT_F32 ? unwanted | 1u << TT__DNN_NOTE_TENSOR_CORE : unwanted;
}

/* The notes of a configuration's engine, a bit each. */
static int dnn_notes(tt__dnn_use *use, tt__dnn_object config, uint64_t *notes) {
    static const tt__dnn_attribute its_engine = {TT__DNN_CONFIG_ENGINE, TT__DNN_AS_DESCRIPTOR, 1, NULL};
    static const tt__dnn_attribute its_notes = {TT__DNN_ENGINE_NOTES, TT__DNN_AS_NOTE, MOST_NOTES, NULL};
    tt__dnn_object engine;
    int list[MOST_NOTES];
    int64_t count;
    *notes = 0;
    int status = tt__dnn_create(use, TT__DNN_ENGINE, &engine);
    if (!status)
        status = tt__dnn_get(use, TT__DNN_CONFIG, config, &its_engine, &count, &engine);
    if (!status)
        status = tt__dnn_get(use, TT__DNN_ENGINE, engine, &its_notes, &count, list);
    for (int64_t i = 0; !status && i < count && i < MOST_NOTES; i++)
        *notes |= list[i] >= 0 && list[i] < 64 ? (uint64_t)1 << list[i] : 0;
    tt__dnn_end(use, engine);
    return status;
}

/* Make a plan of a configuration. *made = NULL: it can't be one, or uses too much memory. */
static void dnn_try_plan(tt__dnn_use *use, const tt__dnn_key *key, const tt__dnn_object *config, tt__dnn_object *made,
                         size_t *workspace) {
    const tt__dnn_attribute all[] = {{TT__DNN_PLAN_CONFIG, TT__DNN_AS_DESCRIPTOR, 1, config},
                                     {TT__DNN_PLAN_HANDLE, TT__DNN_AS_HANDLE, 1, &use->handle}};
    static const tt__dnn_attribute its_workspace = {TT__DNN_PLAN_WORKSPACE, TT__DNN_AS_INT64, 1, NULL};
    int64_t count, bytes = 0;
    int status = tt__dnn_make(use, TT__DNN_PLAN, 2, all, made);
    if (!status)
        status = tt__dnn_get(use, TT__DNN_PLAN, *made, &its_workspace, &count, &bytes);
    if (status || bytes < 0 || bytes > dnn_most_workspace(key)) {
        tt__dnn_end(use, *made);
        *made = NULL;
    }
    *workspace = (size_t)bytes;
}

/* ---- plans: chosen among cuDNN's configurations ---- */

/* Move the first of the configurations that may be used from the list to the plan. */
static int dnn_take_first(tt__dnn_use *use, tt__dnn_object *configs, int64_t count, tt__dnn_plan *plan) {
    for (int64_t i = 0; i < count && !plan->plan; i++) {
        uint64_t notes;
        int status = dnn_notes(use, configs[i], &notes);
        if (status)
            return status;
        if (notes & dnn_unwanted(&plan->key))
            continue;
        dnn_try_plan(use, &plan->key, &configs[i], &plan->plan, &plan->workspace);
        if (plan->plan) {
            plan->config = configs[i];
            configs[i] = NULL;
        }
    }
    return TT__DNN_OK;
}

static int dnn_take_of(tt__dnn_use *use, tt__dnn_object heuristics, tt__dnn_plan *plan) {
    tt__dnn_object configs[MOST_CONFIGS] = {NULL};
    tt__dnn_attribute results = {TT__DNN_HEUR_RESULTS, TT__DNN_AS_DESCRIPTOR, 0, NULL};
    int64_t count = 0, given = 0;
    int status = tt__dnn_get(use, TT__DNN_HEURISTICS, heuristics, &results, &count, NULL);
    results.count = count = count < MOST_CONFIGS ? count : MOST_CONFIGS;
    for (int64_t i = 0; i < count && !status; i++)
        status = tt__dnn_create(use, TT__DNN_CONFIG, &configs[i]);
    if (!status && count > 0)
        status = tt__dnn_get(use, TT__DNN_HEURISTICS, heuristics, &results, &given, configs);
    if (!status)
        status = dnn_take_first(use, configs, given < count ? given : count, plan);
    for (int64_t i = 0; i < count; i++)
        tt__dnn_end(use, configs[i]);
    return status;
}

static int dnn_ask(tt__dnn_use *use, tt__dnn_object graph, int mode, tt__dnn_plan *plan) {
    const tt__dnn_attribute all[] = {{TT__DNN_HEUR_GRAPH, TT__DNN_AS_DESCRIPTOR, 1, &graph},
                                     {TT__DNN_HEUR_MODE, TT__DNN_AS_HEUR_MODE, 1, &mode}};
    tt__dnn_object heuristics;
    int status = tt__dnn_make(use, TT__DNN_HEURISTICS, 2, all, &heuristics);
    if (!status)
        status = dnn_take_of(use, heuristics, plan);
    tt__dnn_end(use, heuristics);
    return dnn_refuses(status) ? TT__DNN_OK : status;
}

static void dnn_plan_end(const tt__dnn_use *use, tt__dnn_plan *plan) {
    tt__dnn_end(use, plan->plan);
    tt__dnn_end(use, plan->config);
    memset(plan, 0, sizeof *plan);
}

/* Choose a plan; none is no error. */
static int dnn_plan_begin(tt__dnn_use *use, tt__dnn_plan *plan) {
    static const int modes[] = {TT__DNN_HEUR_A, TT__DNN_HEUR_FALLBACK};
    tt__dnn_graph graph;
    int status = dnn_graph_begin(use, &plan->key, &graph);
    bool described = !status;
    for (int i = 0; i < 2 && !status && !plan->plan; i++)
        status = dnn_ask(use, graph.graph, modes[i], plan);
    tt__dnn_graph_end(use, &graph);
    plan->refused = !plan->plan;
    return !described && dnn_refuses(status) ? TT__DNN_OK : status;
}

/* ---- plans: kept by key ---- */

static size_t dnn_row_of(const tt__dnn_key *key) {
    return (size_t)(tt__fnv_numbers(TT__FNV, key, sizeof *key) >> 32) % TT__DNN_ROWS;
}

int tt__dnn_plan_for(tt__dnn_plans *plans, const tt__dnn_key *key, tt__dnn_plan **plan) {
    tt__dnn_plan *row = plans->plan[dnn_row_of(key)], *oldest = row;
    plans->calls++;
    for (tt__dnn_plan *p = row; p < row + TT__DNN_PLANS_IN_ROW; p++) {
        if (p->used && !memcmp(&p->key, key, sizeof *key)) {
            p->used = plans->calls;
            *plan = p;
            return TT__DNN_OK;
        }
        oldest = p->used < oldest->used ? p : oldest;
    }
    dnn_plan_end(&plans->use, oldest);
    oldest->key = *key;
    int status = dnn_plan_begin(&plans->use, oldest);
    if (status) {
        dnn_plan_end(&plans->use, oldest);
        return status;
    }
    oldest->used = plans->calls;
    *plan = oldest;
    return TT__DNN_OK;
}
