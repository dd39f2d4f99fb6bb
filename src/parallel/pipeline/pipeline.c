/* Makes pipelines, and begins their steps: all ranks agree on a step before it begins. */
#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "comm/group.h"
#include "nn/module.h"
#include "parallel/pipeline/pipeline_own.h"
#include "reducer/text_agreement.h"
#include "tensor/core/tensor.h"
#include "tensor/shape/copy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What errors of calls inside tt_pipeline_new() name instead of a file. */
static const char maker[] = "tt_pipeline_new";

const char *tt_pipeline_schedule_name(tt_pipeline_schedule schedule) { return tt__schedule_name(schedule); }

int64_t tt_pipeline_part_count(tt_module *model) { return model ? tt__chain_length(model) : 0; }

/* ---- what all ranks must give alike ---- */

static tt_status no_memory_for_pipe(void) { return tt__fail(TT_ERR_MEMORY, "%s: no memory", maker); }

static char *split_text(const tt_pipeline_new_args *a, int64_t chunks) {
    char *text = NULL;
    if (!a->split)
        return asprintf(&text, a->split_count ? "a .split_count of %" PRId64 " without a .split" : "no split by hand",
                        a->split_count) < 0
                   ? NULL
                   : text;
    /* the split may have more entries; they are wrong, and are not read */
    int64_t stages = tt_get_world_size(a->group) * chunks;
    int64_t count = a->split_count < stages ? a->split_count : stages;
    size_t size = 80 + (size_t)(count > 0 ? count : 0) * 24, used;
    if (!(text = malloc(size)))
        return NULL;
    used = (size_t)snprintf(text, size, "a split into");
    for (int64_t s = 0; s < count; s++)
        used += (size_t)snprintf(text + used, size - used, " %" PRId64, a->split[s]);
    if (a->split_count != stages)
        snprintf(text + used, size - used, " (%" PRId64 " numbers)", a->split_count);
    return text;
}

enum { OPTION_TEXTS = 11 };

/* The options as texts; NULL for those that there was no memory for. */
static void describe_pipe_options(const tt_pipeline_new_args *a, int64_t chunks, char **texts) {
    int n = 0, made = 0;
    made |= asprintf(&texts[n++], "schedule %s", tt__schedule_name(a->schedule)) < 0;
    made |= asprintf(&texts[n++], "%" PRId64 " micro-batches", a->micro_batches) < 0;
    made |= asprintf(&texts[n++], "%" PRId64 " stages a rank", chunks) < 0;
    texts[n++] = split_text(a, chunks);
    made |= asprintf(&texts[n++], "a loss that is a %s", a->loss_is_sum ? "sum" : "mean") < 0;
    made |= asprintf(&texts[n++], a->recompute ? "recomputing" : "no recomputing") < 0;
    made |= asprintf(&texts[n++], "seed %" PRIu64, a->seed) < 0;
    made |= asprintf(&texts[n++], "a model of %" PRId64 " parts", tt_pipeline_part_count(a->model)) < 0;
    made |= asprintf(&texts[n++], a->data_group ? "a data group" : "no data group") < 0;
    made |= asprintf(&texts[n++], "buckets of %zu bytes", a->bucket_cap_bytes) < 0;
    made |= asprintf(&texts[n++], a->own_weights ? ".own_weights" : "no .own_weights") < 0;
    if (made)
        for (int i = 0; i < n; i++)
            texts[i] = NULL;
}

static tt_status describe_model_tensors(const char *what, const tt_named_tensors *list, char **texts) {
    for (int64_t i = 0; i < list->count; i++)
        if (asprintf(&texts[i], "%s %" PRId64 " \"%s\" %s%s", what, i, list->names[i], TT__DESCRIBE(list->tensors[i]),
                     *what == 'p' && !tt_requires_grad(list->tensors[i]) ? " without gradient" : "") < 0) {
            texts[i] = NULL;
            return no_memory_for_pipe();
        }
    return TT_OK;
}

/* The beginning of texts whose difference gets a hint. */
static const char values_of[] = "the values";

/* The texts that ranks compare. Replicas compare all but the values. */
typedef struct pipe_texts {
    char **all;
    size_t count, without_values;
} pipe_texts;

/* Must this rank's values be those of its pipeline? Not if they come from the data group's rank 0. */
static bool values_count(const tt_pipeline_new_args *a) {
    return !a->own_weights && (!a->data_group || tt_get_rank(a->data_group) == 0);
}

static tt_status describe_values(const tt_named_tensors *parameters, char **texts) {
    for (int64_t i = 0; i < parameters->count; i++) {
        uint64_t hash = TT__FNV;
        TT__TRY(tt__hash_values(&hash, parameters->tensors[i]));
        if (asprintf(&texts[i], "%s %016" PRIx64 " of parameter %" PRId64 " \"%s\"", values_of, hash, i,
                     parameters->names[i]) < 0) {
            texts[i] = NULL;
            return no_memory_for_pipe();
        }
    }
    return TT_OK;
}

static tt_status describe_pipe(const tt_pipeline_new_args *a, int64_t chunks, pipe_texts *texts) {
    if (!a->out || !a->model)
        return a->out ? tt__fail_argument("%s: the model is NULL", maker)
                      : tt__fail(TT_ERR_INVALID, "%s: `out` is NULL", maker);
    const tt_named_tensors *parameters = tt_module_parameters(a->model), *buffers = tt_module_buffers(a->model);
    if (!parameters || !buffers)
        return tt_last_status();
    texts->without_values = OPTION_TEXTS + (size_t)parameters->count + (size_t)buffers->count;
    texts->count = texts->without_values + (values_count(a) ? (size_t)parameters->count : 0);
    if (!(texts->all = calloc(texts->count, sizeof *texts->all))) {
        texts->count = 0;
        return no_memory_for_pipe();
    }
    describe_pipe_options(a, chunks, texts->all);
    for (size_t i = 0; i < OPTION_TEXTS; i++)
        if (!texts->all[i])
            return no_memory_for_pipe();
    TT__TRY(describe_model_tensors("parameter", parameters, texts->all + OPTION_TEXTS));
    TT__TRY(describe_model_tensors("buffer", buffers, texts->all + OPTION_TEXTS + parameters->count));
    return values_count(a) ? describe_values(parameters, texts->all + texts->without_values) : TT_OK;
}

/* Compare all texts with the pipeline's other ranks. */
static tt_status compare_pipe(tt_group *group, const pipe_texts *texts) {
    char begin[64];
    tt_status status = tt__agree_on(group, maker, (const char *const *)texts->all, texts->count);
    snprintf(begin, sizeof begin, " has %s ", values_of);
    if (status != TT_ERR_MISMATCH || !strstr(tt_last_error(), begin))
        return status;
    return tt__fail_prefix("expected the same parameters on all ranks: seed their generators alike "
                           "(tt_manual_seed()), load one file, or call tt_pipeline_gather() after an earlier pipeline; "
                           ".own_weights takes from each rank those of its stages");
}

/* Compare options within the pipeline. `ready`: whether this rank has got so far. */
static tt_status agree_on_pipe(const tt_pipeline_new_args *a, int64_t chunks, tt_status ready) {
    pipe_texts texts = {0};
    const tt__joint_call call = tt__joint_call_begin(a->group, maker);
    tt_status status = ready ? ready : describe_pipe(a, chunks, &texts);
    if (!status)
        status = compare_pipe(a->group, &texts);
    status = tt__joint_call_end(&call, status);
    if (a->data_group)
        status = tt__pipeline_agree_with_replicas(a, (const char *const *)texts.all, texts.without_values, status);
    for (size_t i = 0; i < texts.count; i++)
        free(texts.all[i]);
    free(texts.all);
    return status;
}

/* ---- making ---- */

/* A hash over the modules of all parts. */
static uint64_t summarise_parts(tt_module *model) {
    uint64_t hash = TT__FNV;
    int64_t parts = tt__chain_length(model);
    for (int64_t part = 0; part < parts; part++) {
        tt_module *module;
        for (int64_t k = 0; (module = tt__chain_module(model, part, k)); k++)
            hash = tt__fnv_number(hash, (uint64_t)(uintptr_t)module ^ (uint64_t)k);
        hash = tt__fnv_number(hash, (uint64_t)part);
    }
    return hash;
}

static tt_tensor *pipe_mean_loss(tt_tensor *y, tt_tensor *target, void *user) {
    (void)user;
    return tt_cross_entropy(y, target);
}

static tt_tensor *pipe_sum_loss(tt_tensor *y, tt_tensor *target, void *user) {
    (void)user;
    return tt_cross_entropy(y, target, .reduction = TT_REDUCTION_SUM);
}

static tt_status check_parts_suffice(const tt_pipeline *pipe, int64_t parts) {
    if (parts >= pipe->stages)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID,
                    "%s: the model is a chain of %" PRId64 " part%s, too few for %" PRId64
                    " stages (%d ranks with %" PRId64 " each)",
                    maker, parts, parts == 1 ? "" : "s", pipe->stages, pipe->ranks, pipe->chunks);
}

/* How many micro-batches may be between two ranks at once. */
static int64_t slots_needed(const tt_pipeline *pipe) {
    int64_t most = 2 * pipe->ranks + 2;
    return pipe->micros < most ? pipe->micros : most;
}

static tt_status plan_pipe(tt_pipeline *pipe, const tt_pipeline_new_args *a) {
    int64_t parts = tt_pipeline_part_count(a->model);
    tt_status status = tt__schedule_make(&pipe->train, pipe->kind, pipe->ranks, pipe->chunks, pipe->micros);
    if (!status)
        status = tt__schedule_make_forward(&pipe->forward, pipe->ranks, pipe->chunks, pipe->micros);
    if (status)
        return tt__fail_prefix("%s", maker);
    pipe->stages = pipe->ranks * pipe->chunks;
    tt__channels_set_slots(&pipe->channels, slots_needed(pipe));
    TT__TRY(check_parts_suffice(pipe, parts));
    pipe->first_part = calloc((size_t)pipe->stages + 1, sizeof *pipe->first_part);
    pipe->ran = calloc((size_t)pipe->train.lists[pipe->rank].count + 1, sizeof *pipe->ran);
    if (!pipe->first_part || !pipe->ran)
        return no_memory_for_pipe();
    TT__TRY(tt__pipeline_split(a, parts, pipe->stages, pipe->first_part));
    return tt__stages_check(pipe) ? tt__fail_prefix("%s", maker) : TT_OK;
}

/* Turn this rank's status into one of the whole pipeline. */
static tt_status settle_making(tt_pipeline *pipe, tt_status status) {
    if (status)
        tt__channels_mark_failed(&pipe->channels);
    tt_status settled = tt__channels_settle(&pipe->channels, maker);
    return status ? status : settled;
}

/* Turn this pipeline's status, once it has settled, into one of all its replicas. */
static tt_status settle_with_replicas(const tt_pipeline *pipe, tt_status status) {
    static const char failed[] = "a pipeline that failed: ";
    char text[sizeof failed + TT__ERROR_TEXT_SIZE] = "a pipeline";
    tt__saved_error own;
    if (!pipe->data_group)
        return status;
    tt__error_save(&own);
    if (status)
        snprintf(text, sizeof text, "%s%s", failed, own.text);
    tt_status theirs = tt__agree_on(pipe->data_group, maker, (const char *const[]){text}, 1);
    if (status || !theirs)
        tt__error_restore(&own);
    return status ? status : theirs;
}

static tt_status make_stages(tt_pipeline *pipe, const tt_pipeline_new_args *a) {
    if (!tt__stages_make(pipe, a)) {
        const tt_named_tensors *parameters = tt_module_parameters(pipe->module);
        pipe->channels.device = parameters && parameters->count ? tt_tensor_device(parameters->tensors[0]) : NULL;
        return parameters ? TT_OK : tt_last_status();
    }
    tt__fail_prefix("%s", maker);
    tt__abort_with_error(pipe->data_group); /* stages are wrapped over it */
    return tt_last_status();
}

/* Make the pipeline on all ranks of all replicas, or on none. */
static tt_status build_pipeline(tt_pipeline *pipe, const tt_pipeline_new_args *a, tt_status ready) {
    TT__TRY(settle_making(pipe, agree_on_pipe(a, pipe->chunks, ready)));
    TT__TRY(settle_with_replicas(pipe, settle_making(pipe, plan_pipe(pipe, a))));
    return settle_making(pipe, make_stages(pipe, a));
}

static void end_pipeline(tt_pipeline *pipe) {
    tt__saved_error saved;
    tt__error_save_reason(&saved);
    tt__stages_free(pipe);
    tt__channels_end(&pipe->channels);
    tt__schedule_free(&pipe->train);
    tt__schedule_free(&pipe->forward);
    free(pipe->first_part);
    free(pipe->ran);
    tt__quarantine(pipe, sizeof *pipe, free);
    tt__error_restore_reason(&saved);
}

tt_status tt_pipeline_new_with(const tt_pipeline_new_args *args, size_t size) {
    tt_pipeline_new_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.out)
        *a.out = NULL;
    if (!a.group)
        return tt__fail(TT_ERR_INVALID, "%s: `group` is NULL", maker);
    if (!tt__group_takes(a.group, TT_DEVICE_CPU))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: what goes between stages goes over cpu, of which the back end %s takes no memory: use the "
                        "native engine",
                        maker, tt_get_backend(a.group));
    tt_pipeline *pipe = calloc(1, sizeof *pipe);
    if (!pipe) {
        no_memory_for_pipe();
        tt__abort_with_error(a.group);
        tt__abort_with_error(a.data_group);
        return TT_ERR_MEMORY;
    }
    pipe->group = a.group;
    pipe->data_group = a.data_group;
    pipe->rank = tt_get_rank(a.group);
    pipe->ranks = tt_get_world_size(a.group);
    pipe->model = a.model;
    pipe->micros = a.micro_batches;
    pipe->kind = a.schedule;
    pipe->chunks = a.chunks ? a.chunks : a.schedule == TT_PIPELINE_INTERLEAVED_1F1B ? 2 : 1;
    pipe->parts_summary = a.model ? summarise_parts(a.model) : 0;
    pipe->loss = a.loss ? a.loss : a.loss_is_sum ? pipe_sum_loss : pipe_mean_loss;
    pipe->user = a.user;
    pipe->loss_is_sum = a.loss_is_sum;
    pipe->recompute = a.recompute;
    pipe->seed = a.seed;
    tt_status status = build_pipeline(pipe, &a, tt__channels_init(&pipe->channels, pipe->group, pipe->chunks));
    if (status)
        end_pipeline(pipe);
    else
        *a.out = pipe;
    return status;
}

void tt_pipeline_free(tt_pipeline *pipe) {
    if (pipe && !tt__freed_before("tt_pipeline_free", pipe))
        end_pipeline(pipe);
}

tt_module *tt_pipeline_module(tt_pipeline *pipe) { return pipe ? pipe->module : NULL; }

int64_t tt_pipeline_stage_count(const tt_pipeline *pipe) { return pipe ? pipe->stages : 0; }

int64_t tt_pipeline_stage_parts(const tt_pipeline *pipe, int64_t stage) {
    if (!pipe || stage < 0 || stage >= pipe->stages)
        return -1;
    return pipe->first_part[stage + 1] - pipe->first_part[stage];
}

/* ---- the beginning of a step ---- */

/* A rank's part of the agreement on a step. */
typedef struct step_word {
    int64_t trains, wanted_bytes;
    int64_t stayed;    /* the model still has the parts that the pipeline was made of */
    int64_t x, target; /* examples; -1: none was given */
    int64_t wants_loss;
} step_word;

enum { WORD_NUMBERS = sizeof(step_word) / sizeof(int64_t) };

static int64_t examples_of(const tt_tensor *x) { return x && tt_tensor_dim(x) ? tt_tensor_size(x, 0) : -1; }

static tt_status check_examples(const tt_pipeline *pipe, const char *who, const step_word *first,
                                const step_word *last) {
    int64_t n = first->x, least = first->trains ? pipe->micros : 1;
    bool needs_target = first->trains || last->wants_loss;
    if (n < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected the batch as `x` on rank 0, got none", who);
    if (needs_target && last->target < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected `target` on rank %d, the last, got none", who, pipe->ranks - 1);
    if (n < least)
        return tt__fail(TT_ERR_INVALID,
                        "%s: the batch has %" PRId64 " examples, fewer than the %" PRId64 " micro-batches", who, n,
                        least);
    if (needs_target && last->target != n)
        return tt__fail(TT_ERR_INVALID, "%s: rank 0 has a batch of %" PRId64 " examples, rank %d a target of %" PRId64,
                        who, n, pipe->ranks - 1, last->target);
    return TT_OK;
}

static tt_status check_parts_stayed(const tt_pipeline *pipe, const char *who, int r, bool stayed) {
    if (stayed)
        return TT_OK;
    return tt__fail(TT_ERR_STATE,
                    "%s: rank %d's model is not the chain of %" PRId64
                    " parts any more that the pipeline was made of: register hooks, add modules and call "
                    "tt_amp_initialize() before tt_pipeline_new()",
                    who, r, pipe->first_part[pipe->stages]);
}

static tt_status check_step_words(const tt_pipeline *pipe, const char *who, const step_word *words, size_t *wanted) {
    *wanted = 0;
    for (int r = 0; r < pipe->ranks; r++) {
        if (words[r].trains != words[0].trains)
            return tt__fail(TT_ERR_MISMATCH, "%s: rank %d %s where rank 0 %s", who, r,
                            words[r].trains ? "trains" : "evaluates", words[0].trains ? "trains" : "evaluates");
        TT__TRY(check_parts_stayed(pipe, who, r, words[r].stayed));
        *wanted = (size_t)words[r].wanted_bytes > *wanted ? (size_t)words[r].wanted_bytes : *wanted;
    }
    return check_examples(pipe, who, &words[0], &words[pipe->ranks - 1]);
}

/* Agree on the step; afterwards all ranks begin it, or none. */
static tt_status begin_pipe_step(tt_pipeline *pipe, const char *who, tt__batch *batch) {
    bool is_last = pipe->rank == pipe->ranks - 1;
    step_word mine = {.trains = batch->train,
                      .wanted_bytes = (int64_t)tt__channels_want(&pipe->channels),
                      .stayed = summarise_parts(pipe->model) == pipe->parts_summary,
                      .x = pipe->rank ? -1 : examples_of(batch->x),
                      .target = is_last ? examples_of(batch->target) : -1,
                      .wants_loss = is_last && batch->wants_loss};
    step_word *all = calloc((size_t)pipe->ranks, sizeof *all);
    if (!all) {
        tt__fail(TT_ERR_MEMORY, "%s: no memory to compare with %d ranks", who, pipe->ranks);
        tt__abort_with_error(pipe->group);
        tt__abort_with_error(pipe->data_group);
        return TT_ERR_MEMORY;
    }
    tt_status status = tt_all_gather_with(
        TT_ARGS(tt_all_gather_args, pipe->group, &mine, all, WORD_NUMBERS, TT_I64, .file = "the beginning of a step"));
    size_t wanted = 0;
    if (!status)
        status = check_step_words(pipe, who, all, &wanted);
    batch->examples = all[0].x;
    free(all);
    return status ? status : tt__channels_grow(&pipe->channels, wanted);
}

static tt_status check_pipe_usable(const tt_pipeline *pipe, const char *who) {
    if (!pipe)
        return tt__fail(TT_ERR_INVALID, "%s: `pipeline` is NULL", who);
    if (pipe->broken)
        return tt__fail(TT_ERR_STATE,
                        "%s: free the pipeline and destroy the group: an earlier step failed on rank %d, %s", who,
                        pipe->channels.failed_rank, pipe->channels.failure);
    return TT_OK;
}

/* Give the wrappers the model's mode, in which DDP decides whether to take buffers. */
static void follow_mode(tt_pipeline *pipe) {
    bool training = tt_module_training(pipe->model);
    for (int64_t c = 0; c < pipe->chunks; c++) {
        tt_module *module = pipe->stage[c].ddp ? pipe->stage[c].ddp : pipe->stage[c].module;
        if (tt_module_training(module) != training)
            (training ? tt_module_train : tt_module_eval)(module);
    }
}

/* Tell the replicas that this pipeline has failed, as they average with it. */
static void tell_replicas(const tt_pipeline *pipe) { tt__abort_with_error(pipe->data_group); }

static tt_status run_pipe_step(tt_pipeline *pipe, const char *who, tt__batch *batch) {
    TT_ENABLE_GRAD; /* also under TT_NO_GRAD; an evaluation records nothing anyway */
    tt_status status = begin_pipe_step(pipe, who, batch);
    if (status)
        return status;
    follow_mode(pipe);
    status = tt__pipeline_run(pipe, batch);
    if (status) {
        pipe->broken = status;
        tt__fail_prefix("%s", who);
        tell_replicas(pipe);
    } else {
        tt__group_note_step(pipe->group);
    }
    return status;
}

tt_status tt_pipeline_step_with(const tt_pipeline_step_args *args, size_t size) {
    static const char who[] = "tt_pipeline_step";
    tt_pipeline_step_args a;
    TT__ARGS_COPY(a, args, size);
    TT__TRY(check_pipe_usable(a.pipeline, who));
    tt__batch batch = {.train = true, .x = a.x, .target = a.target, .wants_loss = true};
    TT__TRY(run_pipe_step(a.pipeline, who, &batch));
    a.pipeline->steps++;
    a.pipeline->has_run = true;
    if (a.loss && a.pipeline->rank == a.pipeline->ranks - 1)
        *a.loss = batch.loss;
    return TT_OK;
}

/* Join the outputs of all micro-batches. */
static tt_status join_outputs(const tt_pipeline *pipe, const tt__batch *batch, tt_tensor **y) {
    int64_t n = 0;
    while (n < pipe->micros && batch->ys[n])
        n++;
    bool before = tt_no_grad_begin();
    *y = tt_cat(batch->ys, n, 0);
    tt_no_grad_end(before);
    return *y ? TT_OK : tt_last_status();
}

tt_status tt_pipeline_evaluate_with(const tt_pipeline_evaluate_args *args, size_t size) {
    static const char who[] = "tt_pipeline_evaluate";
    tt_pipeline_evaluate_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.y)
        *a.y = NULL;
    TT__TRY(check_pipe_usable(a.pipeline, who));
    tt_pipeline *pipe = a.pipeline;
    bool is_last = pipe->rank == pipe->ranks - 1;
    tt__batch batch = {.x = a.x, .target = a.target, .wants_loss = is_last && a.loss, .wants_y = is_last && a.y};
    if (batch.wants_y && !(batch.ys = calloc((size_t)pipe->micros, sizeof(tt_tensor *))))
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for the outputs", who);
    tt_status status = run_pipe_step(pipe, who, &batch);
    if (!status && batch.wants_loss)
        *a.loss = batch.loss;
    if (!status && batch.wants_y)
        status = join_outputs(pipe, &batch, a.y);
    for (int64_t m = 0; batch.ys && m < pipe->micros; m++)
        tt_tensor_free(batch.ys[m]);
    free(batch.ys);
    return status;
}

/* ---- the whole model ---- */

static tt_status broadcast_named(tt_group *group, const tt_named_tensors *list, int root) {
    for (int64_t i = 0; list && i < list->count; i++)
        if (tt_tensor_broadcast_with(
                TT_ARGS(tt_tensor_broadcast_args, group, list->tensors[i], root, .file = "tt_pipeline")))
            return tt__fail_prefix("tt_pipeline_gather: \"%s\"", list->names[i]);
    return list ? TT_OK : tt_last_status();
}

tt_status tt_pipeline_gather(tt_pipeline *pipe) {
    static const char who[] = "tt_pipeline_gather";
    TT__TRY(check_pipe_usable(pipe, who));
    TT_NO_GRAD;
    bool stayed = summarise_parts(pipe->model) == pipe->parts_summary;
    const char *text = stayed ? "the parts that the pipeline was made of" : "other parts";
    TT__TRY(tt__agree_on(pipe->group, who, &text, 1));
    TT__TRY(check_parts_stayed(pipe, who, pipe->rank, stayed));
    for (int64_t s = 0; s < pipe->stages; s++)
        for (int64_t part = pipe->first_part[s]; part < pipe->first_part[s + 1]; part++) {
            tt_module *module;
            for (int64_t k = 0; (module = tt__chain_module(pipe->model, part, k)); k++) {
                TT__TRY(broadcast_named(pipe->group, tt_module_parameters(module), (int)(s % pipe->ranks)));
                TT__TRY(broadcast_named(pipe->group, tt_module_buffers(module), (int)(s % pipe->ranks)));
            }
        }
    return TT_OK;
}
