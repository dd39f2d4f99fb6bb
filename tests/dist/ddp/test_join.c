/* Ranks with different numbers of batches, against a replay of all ranks' steps in one process without a wrapper. */
#include <math.h>
#include <string.h>
#include <tutti/tutti.h>

#include "support/ranks.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { IN = 6, HIDDEN = 8, OUT = 3, FULL = 8 };

/* How often each rank steps, in each of two epochs. */
static const int steps_of[4][2] = {{3, 5}, {6, 2}, {5, 5}, {1, 4}};

typedef struct setting {
    bool divide_by_present, by_examples, norm, step_along;
    int parts; /* passes a step */
    tt_dtype dtype;
} setting;

static tt_module *make_model(const setting *s) {
    tt_manual_seed(3);
    tt_module *m = s->norm ? tt_nn_sequential(tt_nn_linear(IN, HIDDEN), tt_nn_batch_norm1d(HIDDEN), tt_nn_tanh(),
                                              tt_nn_linear(HIDDEN, OUT))
                           : tt_nn_sequential(tt_nn_linear(IN, HIDDEN), tt_nn_tanh(), tt_nn_linear(HIDDEN, OUT));
    CHECK(m);
    if (s->dtype)
        CHECK_OK(tt_module_to(m, s->dtype));
    return m;
}

/* Examples of a batch: each rank's own number, less in its last step. */
static int64_t batch_of(const setting *s, int rank, int epoch, int step) {
    return s->by_examples && step + 1 == steps_of[rank][epoch] ? FULL - 2 - rank : FULL;
}

static tt_status one_pass(const setting *s, tt_module *m, int rank, int epoch, int step, int part, double weight) {
    TT_AUTO_SCOPE;
    int64_t n = batch_of(s, rank, epoch, step);
    tt_manual_seed((uint64_t)(1000 * rank + 100 * epoch + 10 * step + part));
    tt_tensor *x = tt_randn(TT_SHAPE(n, IN), NULL), *y = tt_randn(TT_SHAPE(n, OUT), NULL);
    if (s->dtype)
        x = tt_to(x, s->dtype), y = tt_to(y, s->dtype);
    tt_tensor *loss = tt_mse_loss(tt_module_forward(m, x), y);
    return tt_backward(tt_scale(loss, weight));
}

/* ---- the replay ---- */

static double weight_of(const setting *s, int world, int rank, int epoch, int step) {
    double examples = 0, present = 0;
    for (int r = 0; r < world; r++)
        if (step < steps_of[r][epoch]) {
            examples += (double)batch_of(s, r, epoch, step);
            present++;
        }
    if (s->by_examples)
        return (double)batch_of(s, rank, epoch, step) / examples;
    return 1 / (s->divide_by_present ? present : world);
}

static void copy_buffers(tt_module *to, tt_module *from) {
    const tt_named_tensors *a = tt_module_buffers(to), *b = tt_module_buffers(from);
    for (int64_t i = 0; i < a->count; i++)
        CHECK_OK(tt_copy(a->tensors[i], b->tensors[i]));
}

static void replay_step(const setting *s, tt_module *m, tt_module *newest, int world, int epoch, int step) {
    tt_module *start = make_model(s);
    bool first = true;
    copy_buffers(start, newest);
    for (int rank = 0; rank < world; rank++) {
        if (step >= steps_of[rank][epoch])
            continue;
        copy_buffers(m, start);
        for (int part = 0; part < s->parts; part++)
            CHECK_OK(one_pass(s, m, rank, epoch, step, part, weight_of(s, world, rank, epoch, step)));
        if (first)
            copy_buffers(newest, m);
        first = false;
    }
    tt_module_free(start);
}

static tt_module *replay(const setting *s, int world) {
    tt_module *m = make_model(s), *newest = make_model(s);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(m), 0.1, .momentum = s->step_along ? 0.9 : 0);
    for (int epoch = 0; epoch < 2; epoch++)
        for (int step = 0; step < 6; step++) {
            tt_optimizer_zero_grad(sgd);
            replay_step(s, m, newest, world, epoch, step);
            CHECK_OK(tt_optimizer_step(sgd));
        }
    copy_buffers(m, newest);
    tt_module_free(newest);
    tt_optimizer_free(sgd);
    return m;
}

/* ---- the same by ranks ---- */

static tt_status update(void *sgd) {
    tt_status status = tt_optimizer_step(sgd);
    tt_optimizer_zero_grad(sgd);
    return status;
}

static void train_unevenly(tt_group *group, int rank, void *user) {
    const setting *s = user;
    tt_module *m = make_model(s), *ddp = tt_ddp(m, group);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.1, .momentum = s->step_along ? 0.9 : 0);
    tt_join *join = tt_join_new(ddp, .divide_by_present = s->divide_by_present, .examples = s->by_examples ? FULL : 0,
                                .after_step = s->step_along ? update : NULL, .user = sgd);
    CHECK(join);
    for (int epoch = 0; epoch < 2; epoch++) {
        tt_optimizer_zero_grad(sgd);
        for (int step = 0; step < steps_of[rank][epoch]; step++) {
            if (s->by_examples)
                CHECK_OK(tt_join_set_examples(join, batch_of(s, rank, epoch, step)));
            for (int part = 0; part < s->parts; part++) {
                CHECK_OK(tt_ddp_set_sync(ddp, part + 1 == s->parts));
                CHECK_OK(one_pass(s, ddp, rank, epoch, step, part, 1));
            }
            CHECK_OK(update(sgd));
            CHECK(tt_join_steps(join) == step + 1);
        }
        CHECK_OK(tt_join_wait(join));
        CHECK(tt_join_steps(join) == 0);
    }
    tt_module *expected = replay(s, tt_get_world_size(group));
    const tt_named_tensors *lists[][2] = {{tt_module_parameters(m), tt_module_parameters(expected)},
                                          {tt_module_buffers(m), tt_module_buffers(expected)}};
    double tolerance = s->dtype == TT_BF16 ? 0.05 : s->dtype == TT_F64 ? 1e-12 : 2e-6;
    for (int l = 0; l < 2; l++)
        for (int64_t i = 0; i < lists[l][0]->count; i++) {
            TT_AUTO_SCOPE;
            tt_tensor *a = tt_to(lists[l][0]->tensors[i], TT_F64), *b = tt_to(lists[l][1]->tensors[i], TT_F64);
            const double *x = tt_tensor_data(a), *y = tt_tensor_data(b);
            for (int64_t k = 0; k < tt_tensor_numel(a); k++)
                if (!(fabs(x[k] - y[k]) <= tolerance)) {
                    fprintf(stderr, "%s[%lld]: %g, replayed %g\n", lists[l][0]->names[i], (long long)k, x[k], y[k]);
                    CHECK(!"as replayed");
                }
        }
    tt_join_free(join);
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(m);
    tt_module_free(expected);
}

static void ranks_with_fewer_batches_take_part(void **state) {
    (void)state;
    setting settings[] = {
        {.parts = 1},
        {.parts = 1, .norm = true},
        {.parts = 1, .step_along = true, .norm = true},
        {.parts = 1, .step_along = true, .divide_by_present = true},
        {.parts = 1, .step_along = true, .by_examples = true},
        {.parts = 1, .step_along = true, .by_examples = true, .dtype = TT_F64},
        {.parts = 1, .step_along = true, .by_examples = true, .dtype = TT_BF16},
        {.parts = 2, .step_along = true, .norm = true},
    };
    for (size_t i = 0; i < COUNT(settings); i++)
        for (int world = 1; world <= 4; world++)
            assert_int_equal(run_ranks(world, train_unevenly, &settings[i]), 0);
}

/* ---- accumulated gradients that are left when the data end ---- */

static void leave_gradients(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *m = tt_nn_linear(1, 1, .no_bias = true), *ddp = tt_ddp(m, group);
    tt_join *join = tt_join_new(ddp);
    tt_tensor *w = tt_module_parameters(m)->tensors[0];
    CHECK(join);
    for (int pass = 0; pass < (rank ? 2 : 1); pass++) {
        TT_AUTO_SCOPE;
        CHECK_OK(tt_ddp_set_sync(ddp, pass == 1));
        CHECK_OK(tt_backward(tt_sum(tt_module_forward(ddp, tt_full(TT_SHAPE(1, 1), TT_F32, pass + 1)))));
    }
    CHECK_OK(tt_ddp_set_sync(ddp, true));
    CHECK_OK(tt_join_wait(join));
    CHECK(tt_tensor_f32(tt_grad(w))[0] == (1 + 3) / 2.0F); /* rank 0's pass without averaging counts */
    tt_join_free(join);
    tt_module_free(ddp);
    tt_module_free(m);
}

static void accumulated_gradients_are_given(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, leave_gradients, NULL), 0);
}

/* Data that end between the passes of a step, with buffers, of which the others' forwards take the newest. */
static void end_inside_a_step(tt_group *group, int rank, void *user) {
    (void)user;
    setting s = {.norm = true};
    tt_module *m = make_model(&s), *ddp = tt_ddp(m, group);
    tt_join *join = tt_join_new(ddp);
    CHECK(join);
    for (int pass = 0; pass < (rank ? 8 : 3); pass++) {
        CHECK_OK(tt_ddp_set_sync(ddp, pass % 2));
        CHECK_OK(one_pass(&s, ddp, rank, 0, pass, 0, 1));
    }
    CHECK_OK(tt_join_wait(join));
    tt_join_free(join);
    tt_module_free(ddp);
    tt_module_free(m);
}

static void data_may_end_inside_a_step(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, end_inside_a_step, NULL), 0);
}

/* ---- the most examples that can be told, in every type ---- */

static void tell_most(tt_group *group, int rank, void *user) {
    setting s = {.dtype = *(tt_dtype *)user};
    tt_module *m = make_model(&s), *ddp = tt_ddp(m, group);
    tt_join *join = tt_join_new(ddp, .examples = 1 << 20);
    CHECK(join);
    for (int step = 0; step < (rank ? 1 : 3); step++)
        CHECK_OK(one_pass(&s, ddp, rank, 0, step, 0, 1));
    CHECK(tt_join_steps(join) == (rank ? 1 : 3));
    CHECK_OK(tt_join_wait(join));
    tt_join_free(join);
    tt_module_free(ddp);
    tt_module_free(m);
}

static void many_examples_can_be_told(void **state) {
    (void)state;
    tt_dtype dtypes[] = {TT_F32, TT_F64, TT_F16, TT_BF16};
    for (size_t i = 0; i < COUNT(dtypes); i++)
        assert_int_equal(run_ranks(2, tell_most, &dtypes[i]), 0);
}

/* ---- an error where a rank has no more data ---- */

static void end_early(tt_group *group, int rank, void *user) {
    (void)user;
    setting s = {.parts = 1};
    tt_module *m = make_model(&s), *ddp = tt_ddp(m, group);
    tt_join *join = tt_join_new(ddp, .end_early = true);
    CHECK(join);
    tt_status status = TT_OK;
    for (int step = 0; step < (rank == 1 ? 2 : 5) && !status; step++) {
        status = one_pass(&s, ddp, rank, 0, 0, 0, 1);
        CHECK(step < 2 ? status == TT_OK : status == TT_ERR_STATE);
    }
    if (rank == 1)
        CHECK((status = tt_join_wait(join)) == TT_ERR_STATE);
    CHECK_TEXT("rank 1 has no more data after 2 steps, when 2 of 3 ranks had");
    CHECK_OK(tt_barrier(group)); /* which goes on */
    tt_join_free(join);
    CHECK_OK(one_pass(&s, ddp, rank, 0, 0, 0, 1));
    tt_module_free(ddp);
    tt_module_free(m);
}

static void the_first_end_may_be_an_error(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, end_early, NULL), 0);
}

/* ---- mistakes ---- */

static tt_status refuse(void *user) {
    (void)user;
    return tt_fail(TT_ERR_UNSUPPORTED, "not today");
}

static tt_optimizer *make_sgd(const tt_named_tensors *slices, void *user) {
    (void)user;
    return tt_sgd(slices, 0.1);
}

/* What stage 2 of ZeRO has taken can't be divided again. */
static void join_beside_slices(tt_group *group, int rank, void *user) {
    (void)rank;
    (void)user;
    setting s = {.parts = 1};
    tt_module *m = make_model(&s), *ddp = tt_ddp(m, group);
    tt_optimizer *zero = tt_zero_optimizer(ddp, make_sgd, NULL, .stage = 2);
    CHECK(zero && !tt_join_new(ddp, .divide_by_present = true) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("need stage 1");
    tt_join *join = tt_join_new(ddp);
    CHECK(join);
    tt_join_free(join);
    tt_optimizer_free(zero);
    CHECK((join = tt_join_new(ddp, .examples = 8)));
    CHECK(!tt_zero_optimizer(ddp, make_sgd, NULL, .stage = 2) && tt_last_status() == TT_ERR_UNSUPPORTED);
    CHECK_TEXT("use stage 1");
    tt_join_free(join);
    tt_module_free(ddp);
    tt_module_free(m);
}

static void misuse_join(tt_group *group, int rank, void *user) {
    (void)user;
    setting s = {.parts = 1};
    tt_module *m = make_model(&s), *ddp = tt_ddp(m, group);
    CHECK(!tt_join_new(NULL) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_join_new(m) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("another module");
    CHECK(!tt_join_new(ddp, .examples = -1) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_join_new(ddp, .examples = 8, .divide_by_present = true) && tt_last_status() == TT_ERR_INVALID);
    CHECK(!tt_join_new(ddp, .examples = 8 + rank) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has .examples = 9");
    tt_join *join = tt_join_new(ddp, .after_step = refuse);
    CHECK(join && !tt_join_new(ddp) && tt_last_status() == TT_ERR_STATE);
    CHECK(tt_join_set_examples(join, 3) == TT_ERR_STATE && tt_join_set_examples(NULL, 3) == TT_ERR_INVALID);
    CHECK(tt_join_wait(NULL) == TT_ERR_INVALID && tt_join_steps(NULL) == 0);
    if (rank == 0)
        CHECK_OK(one_pass(&s, ddp, rank, 0, 0, 0, 1));
    else {
        CHECK(tt_join_wait(join) == TT_ERR_UNSUPPORTED);
        CHECK_TEXT("tt_join_wait: .after_step: not today");
    }
    tt_join_free(join);
    CHECK((join = tt_join_new(ddp, .examples = 8)));
    CHECK(tt_join_set_examples(join, 0) == TT_ERR_INVALID);
    tt_module_free(ddp);
    CHECK(tt_join_wait(join) == TT_ERR_STATE);
    CHECK_TEXT("freed");
    tt_join_free(join);
    tt_join_free(NULL);
    tt_module_free(m);
}

static void mistakes_in_joining_are_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, misuse_join, NULL), 0);
    assert_int_equal(run_ranks(2, join_beside_slices, NULL), 0);
}

/* A step that fails without a text of its own is an error all the same. */
static tt_status fail_silently(void *user) {
    (void)user;
    return TT_ERR_IO;
}

static void join_with_failing_step(tt_group *group, int rank, void *user) {
    setting s = {.parts = 1};
    tt_module *m = make_model(&s), *ddp = tt_ddp(m, group);
    tt_join *join = tt_join_new(ddp, .before_step = fail_silently);
    (void)rank;
    (void)user;
    CHECK(join);
    CHECK(tt_join_wait(join) == TT_ERR_IO);
    CHECK_TEXT("tt_join_wait: .before_step: ");
    tt_join_free(join);
    tt_module_free(ddp);
    tt_module_free(m);
}

static void a_failing_step_is_an_error(void **state) {
    (void)state;
    assert_int_equal(run_ranks(1, join_with_failing_step, NULL), 0);
}

/* ---- a rank that dies while others wait for its steps ---- */

static void die_while_joined(tt_group *group, int rank, void *user) {
    setting s = {.parts = 1, .norm = *(bool *)user};
    tt_module *m = make_model(&s), *ddp = tt_ddp(m, group);
    tt_join *join = tt_join_new(ddp);
    tt_status status = TT_OK;
    for (int step = 0; step < (rank == 2 ? 3 : 1) && !status; step++) {
        if (rank == 2 && step == 2)
            _exit(0);
        status = one_pass(&s, ddp, rank, 0, 0, 0, 1);
    }
    status = tt_join_wait(join);
    CHECK(status == TT_ERR_PEER);
    CHECK_TEXT("tt_join_wait");
    CHECK_TEXT("rank 2");
    tt_join_free(join);
    tt_module_free(ddp);
    tt_module_free(m);
}

static void a_rank_that_dies_ends_the_wait(void **state) {
    (void)state;
    bool norm[] = {false, true};
    assert_int_equal(run_ranks(3, die_while_joined, &norm[0]), 0);
    assert_int_equal(run_ranks(3, die_while_joined, &norm[1]), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_fewer_batches_take_part), cmocka_unit_test(accumulated_gradients_are_given),
        cmocka_unit_test(data_may_end_inside_a_step),         cmocka_unit_test(many_examples_can_be_told),
        cmocka_unit_test(the_first_end_may_be_an_error),      cmocka_unit_test(mistakes_in_joining_are_named),
        cmocka_unit_test(a_rank_that_dies_ends_the_wait),     cmocka_unit_test(a_failing_step_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
