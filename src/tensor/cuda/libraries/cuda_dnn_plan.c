/* cuDNN's plans: chosen among its configurations, and kept by key. */
#include "tensor/cuda/libraries/cuda_dnn_graph.h"

#include "base/hash.h"

#include <string.h>

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

/* ---- which engine ---- */

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

/* ---- choosing ---- */

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
    int status = tt__dnn_graph_begin(use, &plan->key, &graph);
    bool described = !status;
    for (int i = 0; i < 2 && !status && !plan->plan; i++)
        status = dnn_ask(use, graph.graph, modes[i], plan);
    tt__dnn_graph_end(use, &graph);
    plan->refused = !plan->plan;
    return !described && dnn_refuses(status) ? TT__DNN_OK : status;
}

/* ---- finding ---- */

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
