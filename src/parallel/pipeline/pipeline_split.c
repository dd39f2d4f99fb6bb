/* Cuts a model into stages: by hand, by the measured cost of its parts, or evenly. */
#include "base/error.h"
#include "base/machine/clock.h"
#include "nn/module.h"
#include "parallel/pipeline/pipeline_own.h"
#include "reducer/text_agreement.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- by hand ---- */

static tt_status split_by_hand(const tt_pipeline_new_args *args, int64_t parts, int64_t stages, int64_t *first_part) {
    int64_t sum = 0;
    if (!args->split || args->split_count != stages)
        return tt__fail(TT_ERR_INVALID,
                        "tt_pipeline_new: .split: expected the parts of each of the %" PRId64 " stages, got %" PRId64
                        " numbers%s",
                        stages, args->split_count, args->split ? "" : " at NULL");
    for (int64_t s = 0; s < stages; s++) {
        if (args->split[s] < 1 || args->split[s] > parts)
            return tt__fail(TT_ERR_INVALID,
                            "tt_pipeline_new: .split: stage %" PRId64 " has %" PRId64 " parts: expected 1 to %" PRId64
                            ", of which the model is a chain",
                            s, args->split[s], parts);
        first_part[s] = sum;
        sum += args->split[s];
    }
    first_part[stages] = sum;
    if (sum != parts)
        return tt__fail(TT_ERR_INVALID,
                        "tt_pipeline_new: .split: the stages have %" PRId64 " parts, the model %" PRId64, sum, parts);
    return TT_OK;
}

/* ---- by cost ---- */

/* best[s][p]: the cost of the most expensive of s stages of the first p parts, cut best; from[s][p]: where the last of
 * these stages begins. */
tt_status tt__split_by_cost(const double *costs, int64_t parts, int64_t stages, int64_t *first_part) {
    size_t width = (size_t)parts + 1;
    double *best = calloc(width * ((size_t)stages + 1), sizeof *best), *sum = calloc(width, sizeof *sum);
    int64_t *from = calloc(width * ((size_t)stages + 1), sizeof *from);
    tt_status status =
        best && sum && from ? TT_OK : tt__fail(TT_ERR_MEMORY, "no memory to split %" PRId64 " parts", parts);
    for (int64_t p = 0; p < parts && !status; p++)
        sum[p + 1] = sum[p] + costs[p];
    for (int64_t p = 1; p <= parts && !status; p++)
        best[width + (size_t)p] = sum[p];
    for (int64_t s = 2; s <= stages && !status; s++)
        for (int64_t p = s; p <= parts; p++) {
            size_t at = (size_t)s * width + (size_t)p;
            best[at] = -1;
            for (int64_t q = s - 1; q < p; q++) {
                double before = best[(size_t)(s - 1) * width + (size_t)q], last = sum[p] - sum[q];
                double worst = before > last ? before : last;
                if (best[at] < 0 || worst < best[at]) {
                    best[at] = worst;
                    from[at] = q;
                }
            }
        }
    first_part[stages] = parts;
    for (int64_t s = stages; s > 0 && !status; s--)
        first_part[s - 1] = from[(size_t)s * width + (size_t)first_part[s]];
    free(best);
    free(sum);
    free(from);
    return status;
}

/* The cost of a step: each rank runs its stages for every micro-batch, and waits while the first goes to the last stage
 * and back. */
static double cost_of_split(const double *costs, const int64_t *first_part, const tt__split_sizes *sizes) {
    double worst_rank = 0, worst_stage = 0;
    for (int64_t r = 0; r < sizes->ranks; r++) {
        double rank = 0;
        for (int64_t s = r; s < sizes->stages; s += sizes->ranks) {
            double stage = 0;
            for (int64_t p = first_part[s]; p < first_part[s + 1]; p++)
                stage += costs[p];
            rank += stage;
            worst_stage = stage > worst_stage ? stage : worst_stage;
        }
        worst_rank = rank > worst_rank ? rank : worst_rank;
    }
    return (double)sizes->micros * worst_rank + (double)(sizes->ranks - 1) * worst_stage;
}

/* Move boundary `s`, perhaps together with the next one, to where the step costs least. Returns whether it moved. */
static bool move_boundary(const double *costs, int64_t *first_part, const tt__split_sizes *sizes, int64_t s) {
    double least = cost_of_split(costs, first_part, sizes);
    int64_t begin = first_part[s], best = begin, next = first_part[s + 1], best_next = next;
    bool has_next = s + 1 < sizes->stages;
    for (int64_t at = first_part[s - 1] + 1; at < first_part[has_next ? s + 2 : s + 1]; at++)
        for (int64_t after = has_next ? at + 1 : next; after < (has_next ? first_part[s + 2] : next + 1); after++) {
            if (at >= after)
                continue;
            first_part[s] = at;
            first_part[s + 1] = after;
            double cost = cost_of_split(costs, first_part, sizes);
            if (cost < least * (1 - 1e-9)) {
                least = cost;
                best = at;
                best_next = after;
            }
        }
    first_part[s] = best;
    first_part[s + 1] = best_next;
    return best != begin || best_next != next;
}

tt_status tt__split_by_schedule(const double *costs, const tt__split_sizes *sizes, int64_t *first_part) {
    TT__TRY(tt__split_by_cost(costs, sizes->parts, sizes->stages, first_part));
    for (bool moved = sizes->stages > sizes->ranks; moved;) { /* with one stage a rank the split is optimal already */
        moved = false;
        for (int64_t s = 1; s < sizes->stages; s++)
            moved = move_boundary(costs, first_part, sizes, s) || moved;
    }
    return TT_OK;
}

enum { MEASUREMENTS = 5 };

/* Run part `part` forward and backward on x; *y is its result without history, in the open scope. */
static tt_status run_part(tt_module *model, int64_t part, tt_tensor *x, tt_tensor **y, double *ms) {
    tt_tensor *in = tt_detach(x);
    bool floats = in && (tt_tensor_dtype(in) == TT_F32 || tt_tensor_dtype(in) == TT_F64);
    if (!in || (part && floats && !tt_requires_grad_(in, true)))
        return tt_last_status();
    int64_t begin = tt__now_ns();
    tt_tensor *out = tt__chain_forward(model, part, in);
    if (!out)
        return tt_last_status() ? tt_last_status() : TT_ERR_INVALID;
    if (tt_requires_grad(out))
        TT__TRY(tt_backward(out, .gradient = tt_ones_like(out)));
    *ms = (double)(tt__now_ns() - begin) * 1e-6;
    *y = tt_detach(out);
    return *y ? TT_OK : tt_last_status();
}

static tt_status measure_once(tt_module *model, tt_tensor *sample, int64_t parts, double *costs, bool first) {
    TT_AUTO_SCOPE;
    tt_tensor *x = sample;
    for (int64_t p = 0; p < parts; p++) {
        double ms = 0;
        tt_status status = run_part(model, p, x, &x, &ms);
        if (status)
            return tt__fail_prefix("tt_pipeline_new: measuring part %" PRId64 " of the model", p);
        costs[p] = first || ms < costs[p] ? ms : costs[p];
    }
    return TT_OK;
}

/* Measuring must leave buffers, gradients and the generator as they were. It sets gradients to none afterwards, so it
 * refuses a model that has some. */
static tt_status check_split_has_no_gradients(const tt_named_tensors *parameters) {
    for (int64_t i = 0; i < parameters->count; i++)
        if (tt_grad(parameters->tensors[i]))
            return tt__fail(TT_ERR_STATE,
                            "tt_pipeline_new: .sample: parameter \"%s\" has a gradient, which measuring would change: "
                            "zero it first",
                            parameters->names[i]);
    return TT_OK;
}

static tt_status copy_buffers(const tt_named_tensors *buffers, tt_tensor **copies, bool back) {
    TT_NO_GRAD;
    for (int64_t i = 0; i < buffers->count; i++) {
        if (back)
            TT__TRY(tt_copy(buffers->tensors[i], copies[i]));
        else if (!(copies[i] = tt_clone(buffers->tensors[i])))
            return tt_last_status();
    }
    return TT_OK;
}

static tt_status measure_parts(tt_module *model, tt_tensor *sample, int64_t parts, double *costs) {
    TT_AUTO_SCOPE;
    const tt_named_tensors *parameters = tt_module_parameters(model), *buffers = tt_module_buffers(model);
    if (!parameters || !buffers)
        return tt_last_status();
    TT__TRY(check_split_has_no_gradients(parameters));
    tt_tensor **copies = calloc((size_t)buffers->count + 1, sizeof *copies);
    if (!copies)
        return tt__fail(TT_ERR_MEMORY, "no memory for a list of buffers");
    tt_generator draws = *tt_default_generator();
    tt_status status = copy_buffers(buffers, copies, false);
    for (int i = 0; i < MEASUREMENTS && !status; i++)
        /* the first allocates memory that later ones use again */
        status = measure_once(model, sample, parts, costs, i < 2);
    for (int64_t i = 0; i < parameters->count; i++)
        tt_zero_grad(parameters->tensors[i]);
    *tt_default_generator() = draws;
    if (!status)
        status = copy_buffers(buffers, copies, true);
    free(copies);
    return status;
}

/* Take x from rank 0, and among replicas from the first pipeline, so that all have the same stages. */
static tt_status take_first_pipelines(const tt_pipeline_new_args *args, void *x, int64_t count, tt_dtype dtype) {
    if (args->data_group && tt_get_rank(args->group) == 0)
        TT__TRY(tt_broadcast_with(
            TT_ARGS(tt_broadcast_args, args->data_group, x, count, dtype, 0, .file = "tt_pipeline_new")));
    return tt_broadcast_with(TT_ARGS(tt_broadcast_args, args->group, x, count, dtype, 0, .file = "tt_pipeline_new"));
}

/* Does this rank measure, for all? */
static bool measures_for_all(const tt_pipeline_new_args *args) {
    return tt_get_rank(args->group) == 0 && (!args->data_group || tt_get_rank(args->data_group) == 0);
}

/* Rank 0 measures; all learn the result, or that there is none. */
static tt_status split_measured(const tt_pipeline_new_args *args, int64_t parts, int64_t stages, int64_t *first_part) {
    const tt__split_sizes sizes = {parts, stages, tt_get_world_size(args->group), args->micro_batches};
    const bool measures = measures_for_all(args);
    double *costs = calloc((size_t)parts + 1, sizeof *costs);
    if (!costs) {
        tt__fail(TT_ERR_MEMORY, "no memory for the costs of %" PRId64 " parts", parts);
        tt__abort_with_error(args->group);
        tt__abort_with_error(args->data_group);
        return TT_ERR_MEMORY;
    }
    tt_status status = measures ? measure_parts(args->model, args->sample, parts, costs) : TT_OK;
    costs[parts] = status;
    tt_status sent = take_first_pipelines(args, costs, parts + 1, TT_F64);
    if (!status)
        status = sent;
    if (!status && costs[parts] != 0)
        status = tt__fail((tt_status)costs[parts], "tt_pipeline_new: rank 0 could not measure the model's parts");
    if (!status)
        status = tt__split_by_schedule(costs, &sizes, first_part);
    free(costs);
    return status;
}

tt_status tt__pipeline_split(const tt_pipeline_new_args *args, int64_t parts, int64_t stages, int64_t *first_part) {
    if (args->split || args->split_count)
        return split_by_hand(args, parts, stages, first_part);
    int32_t has_sample = args->sample != NULL;
    TT__TRY(take_first_pipelines(args, &has_sample, 1, TT_I32));
    if (has_sample)
        return split_measured(args, parts, stages, first_part);
    for (int64_t s = 0; s <= stages; s++)
        first_part[s] = s * parts / stages;
    return TT_OK;
}
