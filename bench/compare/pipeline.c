/* tutti-bench pipeline: a training step on several ranks, one stage or more each, beside one process that runs the same
 * micro-batches of the whole model, turn and turn about. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/machine/clock.h"
#include "base/text/format.h"
#include "base/text/parse.h"
#include "cli/bench/bench.h"
#include "compare/compare.h"

#include <tutti/tutti.h>

enum { MOST_ROUNDS = 1000, MOST_STAGES = 64, TOKENS = 128, WORDS = 65, MOST_SIDE = 1024 };

/* A model, and batches for it. */
typedef struct pipe_model {
    const char *name;
    tt_module *(*make)(void);
    tt_tensor *(*inputs)(int64_t examples, int64_t side);
    tt_tensor *(*targets)(int64_t examples);
    tt_pipeline_loss loss; /* NULL: cross_entropy */
    tt_optimizer *(*optimizer)(const tt_named_tensors *parameters);
} pipe_model;

typedef struct pipe_options {
    const pipe_model *model;
    tt_pipeline_schedule schedule;
    int64_t world, chunks, micros, size, rounds, side;
    int64_t split[MOST_STAGES], split_count;
    bool recompute, no_pin;
    const char *trace;
} pipe_options;

typedef struct pipe_trial {
    const pipe_options *o;
    tt_group *world;
    tt_module *split, *whole; /* whole: on rank 0 alone */
    tt_pipeline *pipe;
    tt_optimizer *split_optimizer, *whole_optimizer; /* NULL: nothing is trained here */
    tt_tensor *x, *y;
    bool same_bits;
    double *pipeline_ms, *alone_ms, *ratio, *idle, *simulated; /* (rounds) */
} pipe_trial;

/* ---- models ---- */

static tt_module *pipe_gpt(void) { return tt_model_gpt(WORDS, TOKENS, 256, 4, 4); }
static tt_module *pipe_resnet(void) { return tt_model_resnet18(10); }
static tt_module *pipe_mlp(void) {
    return tt_nn_sequential(tt_nn_linear(64, 256), tt_nn_relu(), tt_nn_linear(256, 256), tt_nn_relu(),
                            tt_nn_linear(256, 256), tt_nn_relu(), tt_nn_linear(256, 10));
}

static tt_tensor *pipe_tokens(int64_t examples, int64_t side) {
    (void)side;
    return tt_randint(0, WORDS, TT_SHAPE(examples, TOKENS), NULL);
}
static tt_tensor *pipe_next_tokens(int64_t examples) { return pipe_tokens(examples, 0); }
static tt_tensor *pipe_images(int64_t examples, int64_t side) {
    return tt_randn(TT_SHAPE(examples, 3, side, side), NULL);
}
static tt_tensor *pipe_vectors(int64_t examples, int64_t side) {
    (void)side;
    return tt_randn(TT_SHAPE(examples, 64), NULL);
}
static tt_tensor *pipe_classes(int64_t examples) { return tt_randint(0, 10, TT_SHAPE(examples), NULL); }

static tt_tensor *pipe_token_loss(tt_tensor *y, tt_tensor *target, void *user) {
    (void)user;
    int64_t rows = tt_tensor_numel(target);
    return tt_cross_entropy(tt_view(y, TT_SHAPE(rows, WORDS)), tt_reshape(target, TT_SHAPE(rows)));
}

static tt_optimizer *pipe_adamw(const tt_named_tensors *parameters) { return tt_adamw(parameters, 3e-4, 0.01); }
static tt_optimizer *pipe_sgd(const tt_named_tensors *parameters) { return tt_sgd(parameters, 1e-2, .momentum = 0.9); }

static const pipe_model pipe_models[] = {{"gpt", pipe_gpt, pipe_tokens, pipe_next_tokens, pipe_token_loss, pipe_adamw},
                                         {"resnet18", pipe_resnet, pipe_images, pipe_classes, NULL, pipe_sgd},
                                         {"mlp", pipe_mlp, pipe_vectors, pipe_classes, NULL, pipe_sgd},
                                         {0}};

/* ---- flags ---- */

static const tt__flag pipeline_flags[] = {
    TT__VALUE("model", 'm', "NAME",
              "gpt: 4 layers of 256 channels, 128 tokens an example, AdamW (the default); resnet18; mlp",
              .offer = "gpt resnet18 mlp"),
    TT__VALUE("schedule", 'S', "NAME", "zero-bubble (the default), interleaved, 1f1b or gpipe",
              .offer = "zero-bubble interleaved 1f1b gpipe"),
    TT__VALUE("world", 'w', "N", "ranks (default 2)"),
    TT__VALUE("chunks", 'c', "N", "stages a rank (default 2 for interleaved, else 1)"),
    TT__VALUE("micro-batches", 'M', "N", "of a step (default 16)"),
    TT__VALUE("size", 's', "N", "examples of a micro-batch (default 4)"),
    TT__VALUE("split", 'l', "LIST", "parts of each stage, \"3,3\" (default: by measured cost)"),
    TT__VALUE("side", 'i', "N", "width and height of resnet18's images (default 224)"),
    TT__SWITCH("recompute", 'r', "run forwards again in backward instead of keeping activations"),
    TT__VALUE("rounds", 'n', "N", "steps of each, turn and turn about (default 9)"),
    TT__VALUE("trace", 't', "FILE", "write the last step for tutti trace", .offer = TT__OFFER_FILES),
    TT__SWITCH("no-pin", 'p', "let the system move ranks between CPUs"),
    {0}};

static int pipeline_main(int argc, char **argv);

const tt__command tt__compare_pipeline = {
    .name = "pipeline",
    .what = "a pipeline's training step beside one process's",
    .usage = "[FLAGS]",
    .text =
        "Time training steps of a pipeline, and of one process that runs the same micro-batches of the whole model, "
        "turn and turn about. Prints one JSON object a round, and one of medians:\n"
        " {\"bench\":\"pipeline\",\"model\":\"gpt\",\"schedule\":\"zero-bubble\",\"world\":2,\"chunks\":1,\n"
        "  \"micro_batches\":16,\"size\":4,\"pipeline_ms\":..,\"alone_ms\":..,\"ratio\":..,\"idle_share\":..,\n"
        "  \"simulated_idle_share\":..,\"parts\":[3,3],\"same_bits\":true}\n"
        "ratio is the time alone by the pipeline's; simulated_idle_share that of the schedule if each stage took its "
        "measured mean; same_bits whether both models ended with the same parameters.",
    .flags = pipeline_flags,
    .notes = "OMP_NUM_THREADS is 1 a rank unless it is set.",
    .run = pipeline_main,
};

static tt_status parse_pipe_model(pipe_options *o, const char *name) {
    for (o->model = pipe_models; o->model->name; o->model++)
        if (!strcmp(o->model->name, name))
            return TT_OK;
    return tt__fail(TT_ERR_INVALID, "--model: expected gpt, resnet18 or mlp, got \"%s\"", name);
}

static tt_status parse_schedule(pipe_options *o, const char *name) {
    static const char *const names[] = {[TT_PIPELINE_1F1B] = "1f1b",
                                        [TT_PIPELINE_GPIPE] = "gpipe",
                                        [TT_PIPELINE_INTERLEAVED_1F1B] = "interleaved",
                                        [TT_PIPELINE_ZERO_BUBBLE] = "zero-bubble"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (!strcmp(names[i], name)) {
            o->schedule = (tt_pipeline_schedule)i;
            return TT_OK;
        }
    return tt__fail(TT_ERR_INVALID, "--schedule: expected zero-bubble, interleaved, 1f1b or gpipe, got \"%s\"", name);
}

static tt_status parse_split(pipe_options *o, const char *list) {
    char text[400], *rest = text;
    snprintf(text, sizeof text, "%s", list);
    for (char *word; (word = strsep(&rest, ","));) {
        if (o->split_count == MOST_STAGES)
            return tt__fail(TT_ERR_INVALID, "--split: expected at most %d stages, got \"%s\"", MOST_STAGES, list);
        TT__TRY(tt__parse_i64("--split", word, 1, 1000000, &o->split[o->split_count++]));
    }
    return TT_OK;
}

static tt_status parse_pipe_flag(pipe_options *o, int letter) {
    switch (letter) {
    case 'm':
        return parse_pipe_model(o, optarg);
    case 'S':
        return parse_schedule(o, optarg);
    case 'w':
        return tt__parse_i64("--world", optarg, 1, MOST_STAGES, &o->world);
    case 'c':
        return tt__parse_i64("--chunks", optarg, 1, MOST_STAGES, &o->chunks);
    case 'M':
        return tt__parse_i64("--micro-batches", optarg, 1, 1 << 20, &o->micros);
    case 's':
        return tt__parse_i64("--size", optarg, 1, 1 << 20, &o->size);
    case 'l':
        return parse_split(o, optarg);
    case 'i':
        return tt__parse_i64("--side", optarg, 8, MOST_SIDE, &o->side);
    case 'n':
        return tt__parse_i64("--rounds", optarg, 1, MOST_ROUNDS, &o->rounds);
    case 'r':
        o->recompute = true;
        break;
    case 't':
        o->trace = optarg;
        return tt__cli_check_ending("--trace", optarg, ".json");
    default:
        o->no_pin = true;
    }
    return TT_OK;
}

/* Returns -1 to go on, else the exit code. */
static int pipeline_parse(pipe_options *o, int argc, char **argv) {
    *o = (pipe_options){.model = pipe_models,
                        .schedule = TT_PIPELINE_ZERO_BUBBLE,
                        .world = 2,
                        .micros = 16,
                        .size = 4,
                        .rounds = 9,
                        .side = 224};
    for (int c; (c = tt__cli_next_flag(&tt__compare_pipeline, argc, argv, NULL)) != -1;) {
        if (c == 'h' || c == '?')
            return c == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (parse_pipe_flag(o, c))
            return tt__cli_usage_error("pipeline", "%s", tt_last_error());
    }
    if (!o->chunks)
        o->chunks = o->schedule == TT_PIPELINE_INTERLEAVED_1F1B ? 2 : 1;
    return -1;
}

/* ---- measuring ---- */

static tt_optimizer *optimizer_of(const pipe_trial *t, tt_module *module) {
    const tt_named_tensors *all = tt_module_parameters(module);
    return all && all->count ? t->o->model->optimizer(all) : NULL;
}

static tt_status make_pipe_models(pipe_trial *t) {
    bool first = tt_get_rank(t->world) == 0;
    tt_manual_seed(0);
    t->split = t->o->model->make();
    tt_manual_seed(0);
    t->whole = first ? t->o->model->make() : NULL;
    tt_manual_seed(1);
    t->x = t->o->model->inputs(t->o->micros * t->o->size, t->o->side);
    t->y = t->o->model->targets(t->o->micros * t->o->size);
    return t->split && t->x && t->y && (t->whole || !first) ? TT_OK : tt_last_status();
}

static tt_status make_pipeline(pipe_trial *t) {
    const pipe_options *o = t->o;
    tt_tensor *sample = o->split_count ? NULL : tt_narrow(t->x, 0, 0, o->size);
    tt_status status =
        tt_pipeline_new(&t->pipe, t->world, t->split, o->micros, .schedule = o->schedule, .chunks = o->chunks,
                        .split = o->split_count ? o->split : NULL, .split_count = o->split_count, .sample = sample,
                        .loss = o->model->loss, .recompute = o->recompute);
    tt_tensor_free(sample);
    TT__TRY(status);
    t->split_optimizer = optimizer_of(t, tt_pipeline_module(t->pipe));
    t->whole_optimizer = t->whole ? optimizer_of(t, t->whole) : NULL;
    size_t rounds = (size_t)o->rounds;
    t->pipeline_ms = calloc(rounds * 5, sizeof(double));
    if (!t->pipeline_ms)
        return tt__fail(TT_ERR_MEMORY, "no memory for %zu rounds", rounds);
    t->alone_ms = t->pipeline_ms + rounds;
    t->ratio = t->alone_ms + rounds;
    t->idle = t->ratio + rounds;
    t->simulated = t->idle + rounds;
    return TT_OK;
}

static tt_status pipe_step(pipe_trial *t) {
    TT_AUTO_SCOPE;
    if (t->split_optimizer)
        tt_optimizer_zero_grad(t->split_optimizer);
    TT__TRY(tt_pipeline_step(t->pipe, t->x, t->y));
    return t->split_optimizer ? tt_optimizer_step(t->split_optimizer) : TT_OK;
}

static tt_status pipe_alone_step(pipe_trial *t) {
    const pipe_options *o = t->o;
    tt_optimizer_zero_grad(t->whole_optimizer);
    for (int64_t m = 0; m < o->micros; m++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_narrow(t->x, 0, m * o->size, o->size), *y = tt_narrow(t->y, 0, m * o->size, o->size);
        tt_tensor *out = tt_module_forward(t->whole, x);
        tt_tensor *loss = o->model->loss ? o->model->loss(out, y, NULL) : tt_cross_entropy(out, y);
        double share = (double)o->size / (double)(o->size * o->micros);
        TT__TRY(tt_backward(share < 1 ? tt_scale(loss, share) : loss));
    }
    return tt_optimizer_step(t->whole_optimizer);
}

/* Time `step` between two barriers, so that the slowest rank counts. */
static tt_status timed_pipe_step(pipe_trial *t, tt_status (*step)(pipe_trial *t), double *ms) {
    TT__TRY(tt_barrier(t->world));
    int64_t start = tt__now_ns();
    if (step)
        TT__TRY(step(t));
    TT__TRY(tt_barrier(t->world));
    *ms = (double)(tt__now_ns() - start) * 1e-6;
    return TT_OK;
}

static void print_pipe_result(const pipe_trial *t, int64_t round, const double values[5]) {
    const pipe_options *o = t->o;
    printf("{\"bench\":\"pipeline\",\"model\":\"%s\",\"schedule\":\"%s\",\"world\":%d,\"chunks\":%lld,"
           "\"micro_batches\":%lld,\"size\":%lld,",
           o->model->name, tt_pipeline_schedule_name(o->schedule), tt_get_world_size(t->world), (long long)o->chunks,
           (long long)o->micros, (long long)o->size);
    if (round >= 0)
        printf("\"round\":%lld,", (long long)round);
    tt__print(stdout,
              "\"pipeline_ms\":%.3f,\"alone_ms\":%.3f,\"ratio\":%.4f,\"idle_share\":%.4f,\"simulated_idle_share\":%.4f",
              values[0], values[1], values[2], values[3], values[4]);
    if (round < 0) {
        printf(",\"parts\":[");
        for (int64_t s = 0; s < tt_pipeline_stage_count(t->pipe); s++)
            printf("%s%lld", s ? "," : "", (long long)tt_pipeline_stage_parts(t->pipe, s));
        printf("],\"same_bits\":%s", t->same_bits ? "true" : "false");
    }
    printf("}\n");
}

static tt_status pipe_round(pipe_trial *t, int64_t round) {
    double values[5];
    tt_pipeline_times times;
    TT__TRY(timed_pipe_step(t, pipe_step, &values[0]));
    TT__TRY(tt_pipeline_get_times(t->pipe, &times));
    TT__TRY(timed_pipe_step(t, t->whole ? pipe_alone_step : NULL, &values[1]));
    if (round < 0)
        return TT_OK;
    values[2] = values[1] / values[0];
    values[3] = times.idle_share;
    values[4] = times.simulated_idle_share;
    double *const lists[] = {t->pipeline_ms, t->alone_ms, t->ratio, t->idle, t->simulated};
    for (int i = 0; i < 5; i++)
        lists[i][round] = values[i];
    if (t->whole)
        print_pipe_result(t, round, values);
    return TT_OK;
}

static void compare_pipe_models(pipe_trial *t) {
    const tt_named_tensors *a = tt_module_state_dict(t->split), *b = tt_module_state_dict(t->whole);
    t->same_bits = a && b && a->count == b->count;
    for (int64_t i = 0; t->same_bits && i < a->count; i++)
        t->same_bits = !memcmp(tt_tensor_data(a->tensors[i]), tt_tensor_data(b->tensors[i]),
                               (size_t)tt_tensor_numel(a->tensors[i]) * tt_dtype_size(tt_tensor_dtype(a->tensors[i])));
}

static tt_status run_pipe_trial(pipe_trial *t) {
    const pipe_options *o = t->o;
    TT__TRY(tt_init_process_group(&t->world));
    if (!o->no_pin)
        tt__bench_pin_to(tt_get_rank(t->world), tt_get_world_size(t->world));
    TT__TRY(make_pipe_models(t));
    TT__TRY(make_pipeline(t));
    for (int64_t round = -2; round < o->rounds; round++) /* two steps warm up */
        TT__TRY(pipe_round(t, round));
    if (o->trace)
        TT__TRY(tt_pipeline_write_trace(t->pipe, o->trace));
    TT__TRY(tt_pipeline_gather(t->pipe));
    if (!t->whole)
        return TT_OK;
    compare_pipe_models(t);
    double medians[5], *const lists[] = {t->pipeline_ms, t->alone_ms, t->ratio, t->idle, t->simulated};
    for (int i = 0; i < 5; i++) {
        tt__bench_sort(lists[i], (size_t)o->rounds);
        medians[i] = lists[i][o->rounds / 2];
    }
    print_pipe_result(t, -1, medians);
    return TT_OK;
}

static void end_pipe_trial(pipe_trial *t) {
    tt_optimizer_free(t->split_optimizer);
    tt_optimizer_free(t->whole_optimizer);
    tt_pipeline_free(t->pipe);
    tt_module_free(t->split);
    tt_module_free(t->whole);
    tt_tensor_free(t->x);
    tt_tensor_free(t->y);
    tt_destroy_process_group(t->world);
    free(t->pipeline_ms);
}

static int pipeline_main(int argc, char **argv) {
    pipe_options o;
    int code = pipeline_parse(&o, argc, argv);
    if (code >= 0)
        return code;
    if (!tt__bench_is_rank()) {
        setenv("OMP_NUM_THREADS", "1", 0);
        return tt__spawn_ranks((int)o.world, NULL, argc, argv);
    }
    pipe_trial t = {.o = &o};
    tt_status status = run_pipe_trial(&t);
    if (status)
        tt_report();
    end_pipe_trial(&t);
    return status ? TT__EXIT_FAILED : TT__EXIT_OK;
}
