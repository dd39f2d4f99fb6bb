/* Pipelines against one process that runs the same micro-batches one after the other: the same bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

#include "support/ranks.h"

#include "base/build.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* ---- models and data ---- */

static tt_module *make_mlp(void) {
    return tt_nn_sequential(tt_nn_linear(6, 16), tt_nn_relu(), tt_nn_linear(16, 16), tt_nn_tanh(),
                            tt_nn_sequential(tt_nn_linear(16, 12), tt_nn_relu()), tt_nn_linear(12, 5));
}

static tt_module *make_conv(void) {
    return tt_nn_sequential(tt_nn_conv2d(3, 8, 3, .padding = 1, .no_bias = true), tt_nn_batch_norm2d(8), tt_nn_relu(),
                            tt_nn_conv2d(8, 8, 3, .padding = 1), tt_nn_batch_norm2d(8), tt_nn_relu(), tt_nn_flatten(),
                            tt_nn_linear(8 * 36, 5));
}

static tt_module *make_dropping(void) {
    return tt_nn_sequential(tt_nn_linear(6, 32), tt_nn_dropout(0.3), tt_nn_relu(), tt_nn_linear(32, 32),
                            tt_nn_dropout(0.5), tt_nn_linear(32, 5));
}

static tt_module *make_gpt(void) { return tt_model_gpt(11, 6, 16, 4, 2); }

static tt_module *make_resnet(void) { return tt_model_resnet18(5, .small_input = true); }

static tt_tensor *vectors(int64_t n) { return tt_randn(TT_SHAPE(n, 6), NULL); }
static tt_tensor *images(int64_t n) { return tt_randn(TT_SHAPE(n, 3, 6, 6), NULL); }
static tt_tensor *tokens(int64_t n) { return tt_randint(0, 11, TT_SHAPE(n, 6), NULL); }
static tt_tensor *classes(int64_t n) { return tt_randint(0, 5, TT_SHAPE(n), NULL); }

static tt_tensor *next_tokens(tt_tensor *y, tt_tensor *target, void *user) {
    (void)user;
    int64_t rows = tt_tensor_numel(target);
    return tt_cross_entropy(tt_view(y, TT_SHAPE(rows, 11)), tt_reshape(target, TT_SHAPE(rows)));
}

typedef struct kind {
    const char *name;
    tt_module *(*make)(void);
    tt_tensor *(*x)(int64_t n);
    tt_tensor *(*target)(int64_t n);
    tt_pipeline_loss loss;
} kind;

static const kind mlp = {"mlp", make_mlp, vectors, classes, NULL};
static const kind conv = {"conv", make_conv, images, classes, NULL};
static const kind dropping = {"dropping", make_dropping, vectors, classes, NULL};
static const kind gpt = {"gpt", make_gpt, tokens, tokens, next_tokens};
static const kind resnet = {"resnet", make_resnet, images, classes, NULL};

/* ---- one process ---- */

static tt_tensor *loss_of(const kind *k, tt_tensor *y, tt_tensor *target) {
    return k->loss ? k->loss(y, target, NULL) : tt_cross_entropy(y, target);
}

/* As a program without a pipeline would: each micro-batch's loss scaled by its share. */
static double step_unsplit(const kind *k, tt_module *model, tt_tensor *x, tt_tensor *target, int64_t micros) {
    int64_t n = tt_tensor_size(x, 0), at = 0;
    double sum = 0, value;
    for (int64_t m = 0; m < micros; m++) {
        TT_AUTO_SCOPE;
        int64_t size = n / micros + (m < n % micros);
        double share = (double)size / (double)n;
        tt_tensor *loss =
            loss_of(k, tt_module_forward(model, tt_narrow(x, 0, at, size)), tt_narrow(target, 0, at, size));
        CHECK_OK(tt_item(loss, &value));
        sum += share * value;
        CHECK_OK(tt_backward(micros > 1 ? tt_scale(loss, share) : loss));
        at += size;
    }
    return sum;
}

/* ---- comparing ---- */

static bool same_bits(const tt_tensor *a, const tt_tensor *b) {
    size_t bytes = (size_t)tt_tensor_numel(a) * tt_dtype_size(tt_tensor_dtype(a));
    return tt_tensor_numel(a) == tt_tensor_numel(b) && memcmp(tt_tensor_data(a), tt_tensor_data(b), bytes) == 0;
}

/* Are this rank's tensors those of the same names in the other model? */
static void check_same(const tt_named_tensors *mine, const tt_named_tensors *others, bool gradients) {
    CHECK(mine && others);
    for (int64_t i = 0; i < mine->count; i++) {
        const tt_tensor *a = mine->tensors[i], *b = tt_named_tensors_find(others, mine->names[i]);
        CHECK(b && a != b);
        if (gradients && (!tt_grad(a) || !tt_grad(b) || !same_bits(tt_grad(a), tt_grad(b))))
            fprintf(stderr, "gradient of \"%s\" differs\n", mine->names[i]);
        if (!same_bits(a, b))
            fprintf(stderr, "\"%s\" differs\n", mine->names[i]);
        CHECK(!gradients || (tt_grad(a) && tt_grad(b) && same_bits(tt_grad(a), tt_grad(b))));
        CHECK(same_bits(a, b));
    }
}

typedef struct trial {
    const kind *kind;
    tt_pipeline_schedule schedule;
    int64_t chunks, micros, examples;
    bool recompute, measured;
    uint64_t seed;
    const int64_t *split;
    int64_t split_count;
} trial;

static void train_both(const trial *t, tt_pipeline *pipe, tt_module *split, tt_module *whole, tt_group *group) {
    bool last = tt_get_rank(group) == tt_get_world_size(group) - 1, first = tt_get_rank(group) == 0;
    tt_module *mine = tt_pipeline_module(pipe);
    bool trains = tt_module_parameters(mine)->count > 0; /* a stage may be an activation alone */
    tt_optimizer *a = trains ? tt_sgd(tt_module_parameters(mine), 0.05) : NULL;
    tt_optimizer *b = tt_sgd(tt_module_parameters(whole), 0.05);
    CHECK(b && (a || !trains));
    for (int step = 0; step < 3; step++) {
        TT_AUTO_SCOPE;
        double loss = -1, expected;
        int64_t n = t->examples + step; /* another batch size each time */
        tt_manual_seed(100 + (uint64_t)step);
        tt_tensor *x = t->kind->x(n), *target = t->kind->target(n);
        CHECK(x && target);
        if (a)
            tt_optimizer_zero_grad(a);
        tt_optimizer_zero_grad(b);
        expected = step_unsplit(t->kind, whole, x, target, t->micros);
        CHECK_OK(tt_pipeline_step(pipe, first ? x : NULL, last ? target : NULL, .loss = &loss));
        CHECK(!last || loss == expected);
        CHECK(last || loss == -1);
        check_same(tt_module_parameters(mine), tt_module_parameters(whole), true);
        check_same(tt_module_buffers(mine), tt_module_buffers(whole), false);
        CHECK(!a || !tt_optimizer_step(a));
        CHECK_OK(tt_optimizer_step(b));
    }
    CHECK_OK(tt_pipeline_gather(pipe));
    check_same(tt_module_state_dict(split), tt_module_state_dict(whole), false);
    tt_optimizer_free(a);
    tt_optimizer_free(b);
}

/* Some models' outputs are thousands. */
static bool differ_in_rounding(double a, double b) { return fabs(a - b) <= 1e-5 * fmax(1, fabs(b)); }

static void check_evaluation(const trial *t, tt_pipeline *pipe, tt_module *whole, tt_group *group) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    bool last = tt_get_rank(group) == tt_get_world_size(group) - 1;
    double loss = -1;
    tt_tensor *y = NULL, *x, *target;
    for (int64_t n = 1; n <= t->examples; n += t->examples - 1) { /* fewer examples than micro-batches, too */
        tt_manual_seed(9);
        x = t->kind->x(n), target = t->kind->target(n);
        CHECK_OK(tt_pipeline_evaluate(pipe, x, target, .loss = &loss, .y = &y));
        if (!last)
            continue;
        tt_tensor *expected = tt_module_forward(whole, x);
        CHECK(y && expected && tt_tensor_numel(y) == tt_tensor_numel(expected));
        for (int64_t i = 0; i < tt_tensor_numel(y); i++) /* other batches may be summed in another order */
            CHECK(differ_in_rounding(tt_tensor_f32(y)[i], tt_tensor_f32(expected)[i]));
        double whole_loss;
        CHECK_OK(tt_item(loss_of(t->kind, expected, target), &whole_loss));
        CHECK(differ_in_rounding(loss, whole_loss));
    }
}

static void run_trial(tt_group *group, int rank, void *user) {
    const trial *t = user;
    tt_pipeline *pipe = NULL;
    tt_manual_seed(1);
    tt_module *split = t->kind->make();
    tt_manual_seed(1);
    tt_module *whole = t->kind->make();
    tt_tensor *sample = t->measured && rank == 0 ? tt_keep(t->kind->x(2)) : NULL;
    CHECK(split && whole);
    CHECK_OK(tt_pipeline_new(&pipe, group, split, t->micros, .schedule = t->schedule, .chunks = t->chunks,
                             .split = t->split, .split_count = t->split_count, .sample = sample, .loss = t->kind->loss,
                             .recompute = t->recompute, .seed = t->seed));
    train_both(t, pipe, split, whole, group);
    tt_module_eval(split);
    tt_module_eval(whole);
    check_evaluation(t, pipe, whole, group);
    tt_pipeline_free(pipe);
    tt_tensor_free(sample);
    tt_module_free(split);
    tt_module_free(whole);
}

static void check_trial(int world, trial t) {
    if (run_ranks(world, run_trial, &t))
        fail_msg("%s, %s, %d ranks, %d chunks, %d micro-batches, %d examples%s", t.kind->name,
                 tt_pipeline_schedule_name(t.schedule), world, (int)t.chunks, (int)t.micros, (int)t.examples,
                 t.recompute ? ", recomputing" : "");
}

/* ---- tests ---- */

static void all_schedules_give_one_process_bits(void **state) {
    (void)state;
    for (int world = 1; world <= 3; world++) {
        check_trial(world, (trial){&mlp, TT_PIPELINE_GPIPE, 0, 3, 12, .recompute = false});
        check_trial(world, (trial){&mlp, TT_PIPELINE_1F1B, 0, 4, 10, .recompute = false});
        check_trial(world, (trial){&mlp, TT_PIPELINE_INTERLEAVED_1F1B, 2, 6, 14, .recompute = false});
        check_trial(world, (trial){&mlp, TT_PIPELINE_ZERO_BUBBLE, 0, 5, 11, .recompute = false});
        check_trial(world, (trial){&mlp, TT_PIPELINE_ZERO_BUBBLE, 2, 6, 12, .recompute = false});
    }
    check_trial(2, (trial){&mlp, TT_PIPELINE_GPIPE, 0, 1, 5, .recompute = false});
    check_trial(7, (trial){&mlp, TT_PIPELINE_ZERO_BUBBLE, 0, 9, 20, .recompute = false});
}

static void batch_norm_sees_micro_batches(void **state) {
    (void)state;
    static const int64_t by_hand[] = {5, 3};
    check_trial(2, (trial){&conv, TT_PIPELINE_1F1B, 0, 3, 9, .split = by_hand, .split_count = 2});
    check_trial(2, (trial){&conv, TT_PIPELINE_ZERO_BUBBLE, 2, 4, 9, .recompute = false});
    check_trial(2, (trial){&conv, TT_PIPELINE_ZERO_BUBBLE, 0, 4, 9, .recompute = true});
    check_trial(2, (trial){&conv, TT_PIPELINE_INTERLEAVED_1F1B, 0, 4, 9, .recompute = true, .measured = true});
}

static void models_are_chains(void **state) {
    (void)state;
    check_trial(2, (trial){&gpt, TT_PIPELINE_1F1B, 0, 4, 8, .measured = true});
    check_trial(3, (trial){&gpt, TT_PIPELINE_INTERLEAVED_1F1B, 2, 3, 7, .recompute = false});
    check_trial(2, (trial){&gpt, TT_PIPELINE_ZERO_BUBBLE, 0, 4, 8, .recompute = true});
    if (!TT__TSAN) /* half a minute there, of arithmetic alone */
        check_trial(2, (trial){&resnet, TT_PIPELINE_ZERO_BUBBLE, 0, 2, 4, .recompute = false});
}

/* With .seed, draws are those of a pipeline of one rank, also where forwards are run again. */
static void train_dropping(tt_group *group, int rank, void *user) {
    const trial *t = user;
    tt_pipeline *pipe = NULL, *alone = NULL;
    tt_group *own = NULL;
    bool last = rank == tt_get_world_size(group) - 1;
    CHECK_OK(tt_group_split(&own, group, rank, 0));
    tt_manual_seed(1);
    tt_module *split = make_dropping();
    tt_manual_seed(1);
    tt_module *whole = make_dropping();
    CHECK_OK(tt_pipeline_new(&pipe, group, split, t->micros, .schedule = t->schedule, .recompute = t->recompute,
                             .seed = t->seed));
    CHECK_OK(tt_pipeline_new(&alone, own, whole, t->micros, .schedule = TT_PIPELINE_GPIPE, .seed = t->seed));
    double loss, before = 0;
    for (int step = 0; step < 3; step++) {
        TT_AUTO_SCOPE;
        double expected;
        tt_manual_seed(3);
        tt_tensor *x = vectors(t->examples), *target = classes(t->examples);
        uint32_t draw = (tt_manual_seed(4), tt_generator_random(tt_default_generator()));
        tt_manual_seed(4);
        CHECK_OK(tt_pipeline_step(pipe, x, target, .loss = &loss));
        CHECK(tt_generator_random(tt_default_generator()) == draw); /* left as it was */
        CHECK_OK(tt_pipeline_step(alone, x, target, .loss = &expected));
        CHECK(!last || (loss == expected && loss != before)); /* other draws each step */
        before = loss;
        check_same(tt_module_parameters(tt_pipeline_module(pipe)), tt_module_parameters(whole), true);
    }
    tt_pipeline_free(pipe);
    tt_pipeline_free(alone);
    tt_destroy_process_group(own);
    tt_module_free(split);
    tt_module_free(whole);
}

static void draws_belong_to_parts_not_ranks(void **state) {
    (void)state;
    trial plain = {&dropping, TT_PIPELINE_ZERO_BUBBLE, 0, 4, 12, .seed = 5}, again = plain;
    again.recompute = true;
    assert_int_equal(run_ranks(2, train_dropping, &plain), 0);
    assert_int_equal(run_ranks(3, train_dropping, &again), 0);
}

/* ---- pipelines beside each other: data parallelism over each stage ---- */

/* Ranks 0 and 1 are one pipeline, 2 and 3 the other; 0 and 2 run the first stages. The gradients are the mean of two
 * processes', each on its half of the data. */
static void train_replicas(tt_group *group, int rank, void *user) {
    const trial *t = user;
    tt_pipeline *pipe = NULL;
    tt_group *own = NULL, *data = NULL;
    CHECK_OK(tt_group_split(&own, group, rank / 2, 0));
    CHECK_OK(tt_group_split(&data, group, rank % 2, 0));
    tt_manual_seed(rank < 2 ? 1 : 2); /* replicas take the first one's parameters */
    tt_module *split = t->kind->make(), *whole[2];
    for (int i = 0; i < 2; i++) {
        tt_manual_seed(1);
        whole[i] = t->kind->make();
    }
    CHECK_OK(tt_pipeline_new(&pipe, own, split, t->micros, .schedule = t->schedule, .chunks = t->chunks,
                             .recompute = t->recompute, .loss = t->kind->loss, .data_group = data,
                             .bucket_cap_bytes = 512));
    const tt_named_tensors *mine = tt_module_parameters(tt_pipeline_module(pipe));
    for (int step = 0; step < 3; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x[2], *target[2];
        for (int i = 0; i < 2; i++) {
            tt_manual_seed(10 + (uint64_t)i + 2 * (uint64_t)step);
            x[i] = t->kind->x(t->examples), target[i] = t->kind->target(t->examples);
            for (int64_t k = 0; k < tt_module_parameters(whole[i])->count; k++)
                tt_zero_grad(tt_module_parameters(whole[i])->tensors[k]);
            step_unsplit(t->kind, whole[i], x[i], target[i], t->micros);
        }
        for (int64_t k = 0; k < mine->count; k++)
            tt_zero_grad(mine->tensors[k]);
        CHECK_OK(tt_pipeline_step(pipe, x[rank / 2], target[rank / 2]));
        for (int64_t k = 0; k < mine->count; k++) {
            const float *got = tt_tensor_f32(tt_grad(mine->tensors[k])), *of[2];
            for (int i = 0; i < 2; i++)
                of[i] = tt_tensor_f32(tt_grad(tt_named_tensors_find(tt_module_parameters(whole[i]), mine->names[k])));
            for (int64_t e = 0; e < tt_tensor_numel(mine->tensors[k]); e++)
                CHECK(got[e] == (of[0][e] + of[1][e]) / 2);
        }
    }
    tt_pipeline_free(pipe);
    tt_destroy_process_group(own);
    tt_destroy_process_group(data);
    tt_module_free(split);
    tt_module_free(whole[0]);
    tt_module_free(whole[1]);
}

static void replicas_average_once_a_step(void **state) {
    (void)state;
    trial trials[] = {{&mlp, TT_PIPELINE_1F1B, 0, 4, 8, .recompute = false},
                      {&mlp, TT_PIPELINE_INTERLEAVED_1F1B, 2, 4, 8, .recompute = false},
                      {&gpt, TT_PIPELINE_ZERO_BUBBLE, 0, 4, 8, .recompute = false},
                      {&mlp, TT_PIPELINE_ZERO_BUBBLE, 2, 4, 8, .recompute = true}};
    for (size_t i = 0; i < COUNT(trials); i++)
        if (run_ranks(4, train_replicas, &trials[i]))
            fail_msg("replicas of trial %d", (int)i);
}

/* ---- tied weights, frozen parameters, the trace ---- */

static void tied_in_one_stage(tt_group *group, int rank, void *user) {
    (void)user;
    tt_pipeline *pipe = NULL;
    tt_module *model = tt_model_gpt2(11, 6, 8, 1, 1);
    const int64_t split[] = {3};
    tt_group *own = NULL;
    CHECK_OK(tt_group_split(&own, group, rank, 0));
    CHECK_OK(tt_pipeline_new(&pipe, own, model, 2, .split = split, .split_count = 1, .loss = next_tokens));
    CHECK(tt_module_state_dict(tt_pipeline_module(pipe))->count == tt_module_state_dict(model)->count);
    CHECK(tt_module_parameters(tt_pipeline_module(pipe))->count == tt_module_parameters(model)->count);
    tt_pipeline_free(pipe);
    tt_destroy_process_group(own);
    tt_module_free(model);
}

static void first_stage_frozen(tt_group *group, int rank, void *user) {
    TT_AUTO_SCOPE;
    tt_pipeline *pipe = NULL;
    tt_pipeline_times times;
    const char *path = user;
    char text[256] = "";
    tt_manual_seed(1);
    tt_module *model = make_mlp();
    CHECK_OK(tt_module_requires_grad_(tt_module_child_at(model, 0), false));
    CHECK_OK(tt_pipeline_new(&pipe, group, model, 4, .schedule = TT_PIPELINE_ZERO_BUBBLE,
                             .split = (const int64_t[]){2, 5}, .split_count = 2));
    CHECK(!tt_requires_grad(tt_module_parameters(model)->tensors[0])); /* as it was */
    CHECK(tt_pipeline_stage_count(pipe) == 2 && tt_pipeline_stage_parts(pipe, 1) == 5);
    CHECK(tt_pipeline_stage_parts(pipe, 2) == -1);
    for (int step = 0; step < 2; step++)
        CHECK_OK(tt_pipeline_step(pipe, vectors(8), classes(8)));
    CHECK(!tt_grad(tt_module_parameters(model)->tensors[0]));
    CHECK(rank == 0 || tt_grad(tt_named_tensors_find(tt_module_parameters(model), "2.weight")));
    CHECK_OK(tt_pipeline_get_times(pipe, &times));
    CHECK(times.step_ms > 0 && times.rank_busy_ms > 0 && times.rank_busy_ms <= times.step_ms);
    CHECK(times.idle_share >= 0 && times.idle_share < 1 && times.simulated_idle_share >= 0 &&
          times.simulated_idle_share < 1);
    CHECK_OK(tt_pipeline_write_trace(pipe, path));
    if (rank == 0) {
        FILE *in = fopen(path, "r");
        CHECK(in && fread(text, 1, sizeof text - 1, in) > 0);
        CHECK(strstr(text, "{\"traceEvents\":["));
        fclose(in);
    }
    tt_pipeline_free(pipe);
    tt_module_free(model);
}

static void what_else_stages_are(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-pipeline-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    assert_int_equal(run_ranks(2, tied_in_one_stage, NULL), 0);
    assert_int_equal(run_ranks(2, first_stage_frozen, path), 0);
    unlink(path);
}

/* ---- without shared memory ---- */

static int by_messages(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS, .transport = "tcp"));
    run_trial(group, rank, arg);
    tt_destroy_process_group(group);
    return 0;
}

static void tcp_gives_the_same_bits(void **state) {
    (void)state;
    trial t = {&conv, TT_PIPELINE_ZERO_BUBBLE, 0, 4, 9, .recompute = false},
          g = {&gpt, TT_PIPELINE_1F1B, 0, 6, 12, .seed = 0};
    with_ranks(2, by_messages, &t);
    with_ranks(3, by_messages, &g);
}

/* ---- a heap that has no room for slots ---- */

static int in_small_heap(tt_store *store, int rank, int world, void *arg) {
    const trial *t = arg;
    tt_group *group = NULL;
    tt_pipeline *pipe = NULL;
    void *rest = NULL;
    CHECK(!setenv("TT_SYMMETRIC_HEAP", "4M", 1));
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS));
    CHECK(tt_group_alloc(&rest, group, 64 << 20) == TT_ERR_MEMORY); /* that is all there is */
    run_trial(group, rank, arg);

    /* A micro-batch of activations is 1 MiB: the first step's messages show that slots would help. */
    tt_manual_seed(1);
    tt_module *wide = tt_nn_sequential(tt_nn_linear(6, 4096), tt_nn_relu(), tt_nn_linear(4096, 5));
    CHECK_OK(tt_pipeline_new(&pipe, group, wide, t->micros, .split = (const int64_t[]){2, 1}, .split_count = 2));
    for (int step = 0; step < 3; step++) {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_pipeline_step(pipe, vectors(64 * t->micros), classes(64 * t->micros)));
    }
    tt_pipeline_free(pipe);
    tt_module_free(wide);
    tt_destroy_process_group(group);
    return 0;
}

static void messages_go_where_slots_have_no_room(void **state) {
    (void)state;
    trial t = {&mlp, TT_PIPELINE_ZERO_BUBBLE, 0, 4, 9, .recompute = false};
    with_ranks(2, in_small_heap, &t);
}

/* ---- what a program may do around a step, and say in a class ---- */

static void train_under_no_grad(tt_group *group, int rank, void *user) {
    (void)rank, (void)user;
    TT_AUTO_SCOPE;
    tt_pipeline *pipe = NULL;
    tt_manual_seed(1);
    tt_module *model = make_mlp();
    CHECK_OK(tt_pipeline_new(&pipe, group, model, 4));
    tt_tensor *x = vectors(8), *target = classes(8);
    {
        TT_NO_GRAD;
        CHECK_OK(tt_pipeline_step(pipe, x, target));
        CHECK(!tt_requires_grad(tt_scale(tt_module_parameters(model)->tensors[0], 2))); /* as it was */
    }
    const tt_named_tensors *mine = tt_module_parameters(tt_pipeline_module(pipe));
    for (int64_t i = 0; i < mine->count; i++)
        CHECK(tt_grad(mine->tensors[i]));
    tt_pipeline_free(pipe);
    tt_module_free(model);
}

static void a_step_trains_under_no_grad(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, train_under_no_grad, NULL), 0);
}

static tt_tensor *odd_forward(tt_module *self, tt_tensor *x) {
    (void)self;
    return tt_scale(x, 2);
}

static int64_t odd_part_count(tt_module *self) {
    (void)self;
    return 0;
}

static tt_tensor *odd_forward_part(tt_module *self, int64_t part, tt_tensor *x) {
    (void)self, (void)part, (void)x;
    return NULL;
}

static tt_module *odd_part_module(tt_module *self, int64_t part, int64_t k) {
    (void)self, (void)part, (void)k;
    return NULL;
}

static void a_class_is_a_chain_or_not(void **state) {
    (void)state;
    static const tt_module_class count_alone =
        TT_MODULE_CLASS(.name = "CountAlone", .forward = odd_forward, .part_count = odd_part_count);
    static const tt_module_class no_parts =
        TT_MODULE_CLASS(.name = "NoParts", .forward = odd_forward, .part_count = odd_part_count,
                        .forward_part = odd_forward_part, .part_module = odd_part_module);
    assert_null(tt_module_new(&count_alone, NULL));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "class CountAlone: expected .part_count, .forward_part and .part_module"));
    tt_module *whole = tt_nn_sequential(tt_nn_linear(4, 4), tt_module_new(&no_parts, NULL), tt_nn_linear(4, 4));
    assert_int_equal(tt_pipeline_part_count(whole), 3);
    tt_module_free(whole);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_schedules_give_one_process_bits),
        cmocka_unit_test(batch_norm_sees_micro_batches),
        cmocka_unit_test(models_are_chains),
        cmocka_unit_test(draws_belong_to_parts_not_ranks),
        cmocka_unit_test(replicas_average_once_a_step),
        cmocka_unit_test(what_else_stages_are),
        cmocka_unit_test(tcp_gives_the_same_bits),
        cmocka_unit_test(messages_go_where_slots_have_no_room),
        cmocka_unit_test(a_step_trains_under_no_grad),
        cmocka_unit_test(a_class_is_a_chain_or_not),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
