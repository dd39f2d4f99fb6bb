/* Modules whose parameters are spread over the ranks beside tt_ddp(), in the same processes: the same bits. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <cmocka.h>

#include "dist/parallel/zero_models.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

static const int worlds[] = {1, 2, 3, 4};

/* ---- models, and a pass of each */

typedef struct model_kind {
    const char *name;
    tt_module *(*make)(void);
    tt_tensor *(*loss)(tt_module *m); /* on data drawn from the default generator */
    int64_t units;                    /* found without .units */
} model_kind;

static tt_module *make_mlp(void) {
    return tt_nn_sequential(tt_nn_linear(13, 37), tt_nn_relu(), tt_nn_linear(37, 37), tt_nn_tanh(),
                            tt_nn_linear(37, 29), tt_nn_relu(), tt_nn_linear(29, 5));
}

static tt_tensor *mlp_loss(tt_module *m) {
    tt_tensor *x = tt_randn(TT_SHAPE(6, 13), NULL), *y = tt_randn(TT_SHAPE(6, 5), NULL);
    return tt_mse_loss(tt_module_forward(m, x), y);
}

static tt_module *make_conv(void) {
    return tt_nn_sequential(tt_nn_conv2d(1, 4, 3), tt_nn_batch_norm2d(4), tt_nn_relu(), tt_nn_conv2d(4, 6, 3),
                            tt_nn_batch_norm2d(6), tt_nn_relu(), tt_nn_flatten(), tt_nn_linear(6 * 16, 7));
}

static tt_tensor *conv_loss(tt_module *m) {
    tt_tensor *x = tt_randn(TT_SHAPE(4, 1, 8, 8), NULL), *y = tt_randn(TT_SHAPE(4, 7), NULL);
    return tt_mse_loss(tt_module_forward(m, x), y);
}

enum { GPT_VOCAB = 11, GPT_LENGTH = 8 };

static tt_module *make_gpt(void) { return tt_model_gpt(GPT_VOCAB, GPT_LENGTH, 16, 3, 2); }

static tt_tensor *gpt_loss(tt_module *m) {
    tt_tensor *ids = tt_randint(0, GPT_VOCAB, TT_SHAPE(2, GPT_LENGTH + 1), NULL);
    tt_tensor *x = tt_contiguous(tt_narrow(ids, 1, 0, GPT_LENGTH)), *y = tt_narrow(ids, 1, 1, GPT_LENGTH);
    tt_tensor *logits = tt_module_forward(m, x);
    return tt_cross_entropy(tt_reshape(logits, TT_SHAPE(2 * GPT_LENGTH, GPT_VOCAB)),
                            tt_reshape(tt_contiguous(y), TT_SHAPE(2 * GPT_LENGTH)));
}

static tt_module *make_branches(void) { return zero_branches(); }

static tt_tensor *branches_loss(tt_module *m) {
    tt_tensor *x = tt_randn(TT_SHAPE(ZERO_BATCH, ZERO_IN), NULL), *y = tt_randn(TT_SHAPE(ZERO_BATCH, ZERO_OUT), NULL);
    return tt_mse_loss(tt_module_forward(m, x), y);
}

static const model_kind mlp = {"mlp", make_mlp, mlp_loss, 4}, conv = {"conv", make_conv, conv_loss, 5},
                        gpt = {"gpt", make_gpt, gpt_loss, 3}, branches = {"branches", make_branches, branches_loss, 0};

/* ---- both together */

typedef struct shard_case {
    const model_kind *kind;
    tt_zero_make_fn make;
    bool keep;
    int passes; /* a step */
    bool vary;  /* ranks use other parameters of one unit */
} shard_case;

static zero_side shard_side(tt_group *group, const shard_case *c, bool sharded) {
    tt_manual_seed(3);
    zero_side s = {.model = c->kind->make()};
    s.ddp = sharded ? tt_fully_shard(s.model, group, .keep_after_forward = c->keep) : tt_ddp(s.model, group);
    CHECK(s.ddp);
    s.optimizer = sharded ? tt_zero_optimizer(s.ddp, c->make, NULL) : c->make(tt_module_parameters(s.ddp), NULL);
    CHECK(s.optimizer);
    return s;
}

static double shard_pass(const shard_case *c, tt_module *m, uint64_t data) {
    TT_AUTO_SCOPE;
    tt_manual_seed(data);
    tt_tensor *loss = c->kind->loss(m);
    double value = 0;
    CHECK_OK(tt_item(loss, &value));
    CHECK_OK(tt_backward(loss));
    return value;
}

static void expect_same_wholes(zero_side *plain, zero_side *sharded) {
    CHECK_OK(tt_fully_shard_gather(sharded->ddp, TT_ALL_RANKS));
    zero_expect_same(tt_module_state_dict(plain->model), tt_module_state_dict(sharded->model));
    CHECK_OK(tt_fully_shard_scatter(sharded->ddp));
}

static void step_both(const shard_case *c, zero_side *a, zero_side *b, int step, int rank) {
    tt_optimizer_zero_grad(a->optimizer);
    tt_optimizer_zero_grad(b->optimizer);
    for (int i = 0; i < c->passes; i++) {
        const int pass = step * c->passes + i;
        zero_heads = c->vary ? (unsigned)(pass * 7 + rank * 3 + pass / 4) % 4 : ZERO_LEFT | ZERO_RIGHT;
        double plain = shard_pass(c, a->ddp, (uint64_t)(pass * 8 + rank));
        CHECK(plain == shard_pass(c, b->ddp, (uint64_t)(pass * 8 + rank)));
    }
    CHECK_OK(tt_optimizer_step(a->optimizer));
    CHECK_OK(tt_optimizer_step(b->optimizer));
}

static const shard_case shard_cases[] = {
    {&mlp, zero_make_sgd, false, 1, false},     {&mlp, zero_make_adam, true, 1, false},
    {&conv, zero_make_adamw, false, 1, false},  {&gpt, zero_make_adamw, false, 1, false},
    {&branches, zero_make_sgd, false, 1, true}, {&branches, zero_make_groups, false, 1, false},
};

static void compare_sharded(tt_group *group, int rank, void *user) {
    (void)user;
    for (size_t i = 0; i < COUNT(shard_cases); i++) {
        const shard_case *c = &shard_cases[i];
        zero_side a = shard_side(group, c, false), b = shard_side(group, c, true);
        CHECK(tt_fully_shard_unit_count(b.ddp) == c->kind->units);
        for (int step = 0; step < 6; step++) {
            step_both(c, &a, &b, step, rank);
            if (step % 3 == 2)
                expect_same_wholes(&a, &b);
        }
        CHECK_OK(tt_zero_consolidate(b.optimizer, TT_ALL_RANKS));
        zero_expect_same(tt_optimizer_state_dict(a.optimizer), tt_optimizer_state_dict(b.optimizer));
        zero_end_side(&a);
        zero_end_side(&b);
    }
}

static void parameters_have_ddps_bits(void **state) {
    (void)state;
    for (size_t i = 0; i < COUNT(worlds); i++)
        if (world_is_tried(worlds[i]))
            assert_int_equal(run_ranks(worlds[i], compare_sharded, NULL), 0);
}

static void parameters_have_ddps_bits_over_tcp(void **state) {
    (void)state;
    setenv("TT_TRANSPORT", "tcp", 1);
    int bad = run_ranks(3, compare_sharded, NULL);
    unsetenv("TT_TRANSPORT");
    assert_int_equal(bad, 0);
}

/* ---- who may use what when */

static bool is_away(const tt_tensor *x, const char *name) {
    return !tt_tensor_data(x) && tt_last_status() == TT_ERR_STATE && strstr(tt_last_error(), name);
}

static void use_what_is_away(tt_group *group, int rank, void *user) {
    (void)rank, (void)user;
    static const shard_case c = {&mlp, zero_make_sgd, false, 1, false};
    zero_side s = shard_side(group, &c, true);
    tt_tensor *first = tt_module_parameters(s.model)->tensors[0], *last = tt_module_parameters(s.model)->tensors[6];
    TT_AUTO_SCOPE;
    CHECK(is_away(first, "\"0.weight\""));
    CHECK(!tt_add(first, first) && tt_last_status() == TT_ERR_STATE);
    CHECK_TEXT("\"0.weight\"");
    double value;
    CHECK(tt_item(tt_sum(first), &value) == TT_ERR_STATE);
    tt_tensor *x = tt_ones(TT_SHAPE(1, 13), TT_F32);
    tt_tensor *loss = tt_sum(tt_module_forward(s.ddp, x));
    CHECK(is_away(first, "\"0.weight\""));      /* its place has been taken by another unit, */
    tt_tensor *view = tt_transpose(last, 0, 1); /* and the last unit's by none */
    CHECK(view && tt_tensor_data(view));
    CHECK_OK(tt_backward(loss, .retain_graph = true));
    CHECK_OK(tt_optimizer_step(s.optimizer));
    CHECK(is_away(first, "\"0.weight\"") && is_away(view, "\"6.weight\""));
    CHECK(tt_backward(loss) == TT_ERR_STATE); /* what it saved was changed by the step */
    tt_optimizer_free(s.optimizer);
    tt_module_free(s.ddp);
    CHECK(is_away(first, "\"0.weight\"") && is_away(view, "\"6.weight\""));
    CHECK(tt_backward(loss) == TT_ERR_STATE); /* and now the wrapper is gone */
    tt_module_free(s.model);
}

static void what_is_away_is_an_error_that_names_it(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, use_what_is_away, NULL), 0);
}

/* ---- more ways of training */

static tt_tensor *recomputed_loss(tt_module *m) {
    tt_tensor *x = tt_requires_grad_(tt_randn(TT_SHAPE(6, 13), NULL), true), *y = tt_randn(TT_SHAPE(6, 5), NULL);
    return tt_mse_loss(tt_module_forward(m, x), y);
}

/* Its middle layers are run again in backward. */
static tt_tensor *recomputing_forward(tt_module *self, tt_tensor *x) {
    tt_module *layers = tt_module_child(self, "layers");
    x = tt_relu(tt_module_forward(tt_module_child_at(layers, 0), x));
    for (int64_t i = 1; i < 3; i++)
        x = tt_relu(tt_module_recompute(tt_module_child_at(layers, i), x));
    return tt_module_forward(tt_module_child_at(layers, 3), x);
}

static tt_module *make_recomputing(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Recomputing", .forward = recomputing_forward);
    tt_module *m = tt_module_new(&cls, NULL);
    CHECK_OK(tt_module_add_module(m, "layers",
                                  tt_nn_module_list(tt_nn_linear(13, 21), tt_nn_linear(21, 21),
                                                    tt_nn_sequential(tt_nn_linear(21, 17), tt_nn_tanh()),
                                                    tt_nn_linear(17, 5))));
    return m;
}

/* One layer runs twice in a pass. */
static tt_tensor *looping_forward(tt_module *self, tt_tensor *x) {
    tt_module *layers = tt_module_child(self, "layers");
    x = tt_tanh(tt_module_forward(tt_module_child_at(layers, 0), x));
    for (int i = 0; i < 2; i++)
        for (int64_t k = 1; k < 3; k++)
            x = tt_tanh(tt_module_forward(tt_module_child_at(layers, k), x));
    return tt_module_forward(tt_module_child_at(layers, 3), x);
}

static tt_module *make_looping(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Looping", .forward = looping_forward);
    tt_module *m = tt_module_new(&cls, NULL);
    CHECK_OK(tt_module_add_module(
        m, "layers",
        tt_nn_module_list(tt_nn_linear(13, 21), tt_nn_linear(21, 21), tt_nn_linear(21, 21), tt_nn_linear(21, 5))));
    return m;
}

static const model_kind recomputing = {"recomputing", make_recomputing, recomputed_loss, 4},
                        looping = {"looping", make_looping, mlp_loss, 4};

static const shard_case near_cases[] = {
    {&mlp, zero_make_adamw, false, 3, false}, /* of several passes, which are averaged one by one */
    {&looping, zero_make_sgd, false, 1, false},
    {&recomputing, zero_make_sgd, false, 2, false},
    {&branches, zero_make_sgd, true, 2, true},
};

static void expect_near_wholes(zero_side *a, zero_side *b) {
    CHECK_OK(tt_fully_shard_gather(b->ddp, TT_ALL_RANKS));
    const tt_named_tensors *p = tt_module_parameters(a->model), *q = tt_module_parameters(b->model);
    for (int64_t i = 0; i < p->count; i++)
        for (int64_t k = 0; k < tt_tensor_numel(p->tensors[i]); k++)
            CHECK(fabsf(tt_tensor_f32(p->tensors[i])[k] - tt_tensor_f32(q->tensors[i])[k]) <= 1e-6f);
    CHECK_OK(tt_fully_shard_scatter(b->ddp));
}

/* Between steps: in evaluation mode, without records. */
static void evaluate_both(const shard_case *c, const zero_side *a, const zero_side *b, int step) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    double plain = 0, sharded = 0;
    tt_module_eval(a->ddp);
    tt_module_eval(b->ddp);
    tt_manual_seed((uint64_t)step);
    CHECK_OK(tt_item(c->kind->loss(a->ddp), &plain));
    tt_manual_seed((uint64_t)step);
    CHECK_OK(tt_item(c->kind->loss(b->ddp), &sharded));
    CHECK(fabs(plain - sharded) < 1e-5);
    tt_module_train(a->ddp);
    tt_module_train(b->ddp);
}

static void train_in_other_ways(tt_group *group, int rank, void *user) {
    (void)user;
    for (size_t i = 0; i < COUNT(near_cases); i++) {
        const shard_case *c = &near_cases[i];
        zero_side a = shard_side(group, c, false), b = shard_side(group, c, true);
        for (int step = 0; step < 5; step++) {
            tt_optimizer_zero_grad(a.optimizer);
            tt_optimizer_zero_grad(b.optimizer);
            for (int pass = 0; pass < c->passes; pass++) {
                const int at = step * c->passes + pass;
                zero_heads = c->vary ? (unsigned)(at * 7 + rank * 3) % 4 : ZERO_LEFT | ZERO_RIGHT;
                CHECK_OK(tt_ddp_set_sync(a.ddp, pass + 1 == c->passes));
                shard_pass(c, a.ddp, (uint64_t)(at * 8 + rank));
                shard_pass(c, b.ddp, (uint64_t)(at * 8 + rank));
            }
            double whole = 0, sliced = 0;
            CHECK_OK(tt_clip_grad_norm_(tt_module_parameters(a.ddp), 0.5, .total_norm = &whole));
            CHECK_OK(tt_zero_clip_grad_norm_(b.optimizer, 0.5, .total_norm = &sliced));
            CHECK(sliced > 0 && whole - sliced < 1e-5 * whole && sliced - whole < 1e-5 * whole);
            CHECK_OK(tt_optimizer_step(a.optimizer));
            CHECK_OK(tt_optimizer_step(b.optimizer));
            expect_near_wholes(&a, &b);
            if (!c->vary)
                evaluate_both(c, &a, &b, step);
        }
        zero_end_side(&a);
        zero_end_side(&b);
    }
}

static void accumulated_recomputed_and_repeated_units_train_alike(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, train_in_other_ways, NULL), 0);
    assert_int_equal(run_ranks(3, train_in_other_ways, NULL), 0);
}

/* ---- checkpoints */

static const char file_format[] = "/tmp/test_fully_shard_%d.safetensors";

/* What `from` ranks save is loaded by a plain model, and by a sharded one of these ranks. */
static void save_and_load(tt_group *group, int rank, void *user) {
    static const shard_case c = {&gpt, zero_make_adamw, false, 1, false};
    const char *path = user;
    zero_side s = shard_side(group, &c, true), plain = shard_side(group, &c, false);
    for (int i = 0; i < 2; i++)
        step_both(&c, &plain, &s, i, 0);
    CHECK_OK(tt_fully_shard_gather(s.ddp, 0));
    CHECK_OK(tt_zero_consolidate(s.optimizer, 0));
    CHECK(tt_fully_shard_gather(s.ddp, 0) == TT_ERR_STATE);
    CHECK(tt_optimizer_step(s.optimizer) == TT_ERR_STATE);
    if (rank == 0) {
        CHECK_OK(tt_checkpoint_save(path, s.model, s.optimizer, NULL));
        CHECK_OK(tt_checkpoint_load(path, plain.model, plain.optimizer, NULL));
        zero_expect_same(tt_module_state_dict(s.model), tt_module_state_dict(plain.model));
    }
    CHECK_OK(tt_fully_shard_scatter(s.ddp));
    shard_pass(&c, s.ddp, 77); /* something else, that loading undoes */
    CHECK_OK(tt_optimizer_step(s.optimizer));
    CHECK_OK(tt_fully_shard_gather(s.ddp, TT_ALL_RANKS));
    CHECK_OK(tt_checkpoint_load(path, s.model, s.optimizer, NULL));
    CHECK_OK(tt_fully_shard_scatter(s.ddp));
    step_both(&c, &plain, &s, 5, 0);
    expect_same_wholes(&plain, &s);
    /* freed while its parameters are out, it leaves them to the module */
    CHECK_OK(tt_fully_shard_gather(s.ddp, TT_ALL_RANKS));
    tt_module_free(s.ddp);
    zero_expect_same(tt_module_state_dict(plain.model), tt_module_state_dict(s.model));
    CHECK(tt_optimizer_step(s.optimizer) == TT_ERR_STATE);
    tt_optimizer_free(s.optimizer);
    tt_module_free(s.model);
    zero_end_side(&plain);
}

static void checkpoints_are_plain_ones(void **state) {
    (void)state;
    char path[64];
    snprintf(path, sizeof path, file_format, (int)getpid());
    for (int world = 2; world <= 3; world++)
        assert_int_equal(run_ranks(world, save_and_load, path), 0);
    remove(path);
}

/* ---- bad input */

static void expect_no_wrapper(tt_group *group, const tt_fully_shard_args *a, tt_status status, const char *text) {
    tt_fully_shard_args args = *a;
    args.group = group;
    CHECK(!tt_fully_shard_with(&args, offsetof(tt_fully_shard_args, tt_end)));
    CHECK(tt_last_status() == status);
    CHECK_TEXT(text);
}

static void differ(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *m = make_mlp();
    const char *twice[] = {"0", "0"}, *none[] = {"9"}, *idle[] = {"1"}, *some[] = {rank ? "0" : "2"};
    expect_no_wrapper(group, &(tt_fully_shard_args){.module = m, .units = twice, .unit_count = 2}, TT_ERR_INVALID,
                      "share modules");
    expect_no_wrapper(group, &(tt_fully_shard_args){.module = m, .units = none, .unit_count = 1}, TT_ERR_NOT_FOUND,
                      "\"9\"");
    expect_no_wrapper(group, &(tt_fully_shard_args){.module = m, .units = idle, .unit_count = 1}, TT_ERR_INVALID,
                      "no parameters");
    expect_no_wrapper(group, &(tt_fully_shard_args){.module = m, .units = some, .unit_count = 1}, TT_ERR_MISMATCH,
                      "rank 1 has unit 0 \"0\" where rank 0 has unit 0 \"2\"");
    expect_no_wrapper(group, &(tt_fully_shard_args){.module = m, .keep_after_forward = rank == 1}, TT_ERR_MISMATCH,
                      ".keep_after_forward 1");
    expect_no_wrapper(group, &(tt_fully_shard_args){.module = m, .units = none, .unit_count = rank},
                      rank ? TT_ERR_NOT_FOUND : TT_ERR_MISMATCH, rank ? "\"9\"" : "rank 1 has a call that it refuses");
    tt_module *other = tt_nn_sequential(tt_nn_linear(3, 4 + rank));
    expect_no_wrapper(group, &(tt_fully_shard_args){.module = other}, TT_ERR_MISMATCH, "\"0.weight\"");
    tt_module_free(other);
    tt_module *ddp = tt_ddp(m, group);
    expect_no_wrapper(group, &(tt_fully_shard_args){.module = m}, TT_ERR_STATE, "another wrapper");
    tt_module_free(ddp);
    tt_module *good = tt_fully_shard(m, group);
    CHECK(good);
    expect_no_wrapper(group, &(tt_fully_shard_args){.module = m}, TT_ERR_STATE, "another wrapper");
    CHECK(!tt_zero_optimizer(good, zero_make_sgd, NULL, .stage = 2) && tt_last_status() == TT_ERR_INVALID);
    CHECK(tt_fully_shard_gather(m, 0) == TT_ERR_INVALID && tt_fully_shard_gather(good, 7) == TT_ERR_INVALID);
    tt_module_free(good);
    tt_module_free(m);
}

static void what_does_not_fit_is_told_on_all_ranks(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, differ, NULL), 0);
}

/* Units that some ranks leave out: an error on each, no hang, no garbage. */
static void leave_a_unit_out(tt_group *group, int rank, void *user) {
    (void)user;
    const char *units[] = {"stem", "left", "right"};
    tt_module *m = zero_branches(), *s = tt_fully_shard(m, group, .units = units, .unit_count = 3);
    CHECK(s);
    zero_heads = rank ? ZERO_LEFT : ZERO_RIGHT;
    tt_group_set_timeout_ms(group, PATIENCE_MS);
    {
        TT_AUTO_SCOPE;
        tt_tensor *loss = branches_loss(s);
        tt_status status = loss ? tt_backward(loss) : tt_last_status();
        CHECK(status == TT_ERR_MISMATCH);
        CHECK_TEXT("averaging unit \"right\"");
    }
    tt_module_free(s);
    tt_module_free(m);
}

static void units_that_some_leave_out_are_an_error(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, leave_a_unit_out, NULL), 0);
}

/* A rank dies amid a step: the other's error names it, and all can be freed. */
static void outlive(tt_group *group, int rank, void *user) {
    const int at = *(int *)user;
    static const shard_case c = {&mlp, zero_make_sgd, false, 1, false};
    zero_side s = shard_side(group, &c, true);
    shard_pass(&c, s.ddp, 1);
    CHECK_OK(tt_optimizer_step(s.optimizer));
    TT_AUTO_SCOPE;
    if (rank == 1 && at == 0)
        _exit(0);
    tt_tensor *loss = mlp_loss(s.ddp);
    if (rank == 1)
        _exit(0);
    tt_status status = loss ? tt_backward(loss) : tt_last_status();
    CHECK(status == TT_ERR_PEER);
    CHECK_TEXT("rank 1");
    CHECK(!mlp_loss(s.ddp) && tt_last_status() == TT_ERR_STATE);
    zero_end_side(&s);
}

static void a_rank_that_dies_is_named(void **state) {
    (void)state;
    for (int at = 0; at < 2; at++)
        assert_int_equal(run_ranks(2, outlive, &at), 0);
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(parameters_have_ddps_bits),
    cmocka_unit_test(parameters_have_ddps_bits_over_tcp),
    cmocka_unit_test(what_is_away_is_an_error_that_names_it),
    cmocka_unit_test(accumulated_recomputed_and_repeated_units_train_alike),
    cmocka_unit_test(checkpoints_are_plain_ones),
    cmocka_unit_test(what_does_not_fit_is_told_on_all_ranks),
    cmocka_unit_test(units_that_some_leave_out_are_an_error),
    cmocka_unit_test(a_rank_that_dies_is_named),
};

int main(void) { return cmocka_run_group_tests(tests, NULL, NULL); }
