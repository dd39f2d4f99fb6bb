/* SyncBatchNorm: against a BatchNorm that sees the whole batch, against finite differences, and where ranks differ or
 * die. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

#include "support/ranks.h"

#define COUNT(array) (sizeof(array) / sizeof *(array))

enum { C = 5, MOST_RANKS = 4 };

/* ---- beside one process with the whole batch */

typedef struct shapes {
    const char *what;
    int64_t sizes[MOST_RANKS]; /* examples of each rank */
    tt_shape rest;             /* dimensions behind the channels */
    bool no_affine, no_running_stats, channels_last;
    tt_dtype dtype;
    double tolerance;
} shapes;

static const shapes all_shapes[] = {
    {"rows", {4, 4, 4, 4}, {0}, false, false, false, TT_F32, 2e-6},
    {"rows, uneven", {1, 6, 3, 2}, {0}, false, false, false, TT_F32, 2e-6},
    {"a rank without examples", {3, 0, 2, 0}, {0}, false, false, false, TT_F32, 2e-6},
    {"rank 0 without examples", {0, 2, 1, 4}, {0}, false, false, false, TT_F32, 2e-6},
    {"sequences", {2, 1, 3, 1}, {1, {7}}, false, false, false, TT_F32, 2e-6},
    {"images", {2, 3, 1, 2}, {2, {4, 3}}, false, false, false, TT_F32, 2e-6},
    {"images, channels last", {2, 3, 1, 2}, {2, {4, 3}}, false, false, true, TT_F32, 2e-6},
    {"without weight and bias", {2, 3, 1, 2}, {2, {2, 2}}, true, false, false, TT_F32, 2e-6},
    {"without running statistics", {2, 3, 1, 2}, {2, {2, 2}}, false, true, false, TT_F32, 2e-6},
    {"no examples at all", {0}, {2, {3, 2}}, false, false, false, TT_F32, 2e-6},
    {"f64", {5, 1, 2, 3}, {2, {3, 3}}, false, false, false, TT_F64, 1e-13},
};

static tt_shape batch_shape(const shapes *s, int64_t examples) {
    tt_shape shape = {.ndim = 2 + s->rest.ndim, .dim = {examples, C}};
    for (int d = 0; d < s->rest.ndim; d++)
        shape.dim[2 + d] = s->rest.dim[d];
    return shape;
}

/* Means far from zero beside their deviations, so that differences of sums would show. */
static tt_tensor *draw(tt_shape shape, tt_dtype dtype, double mean) {
    return tt_to(tt_add_scalar(tt_to(tt_randn(shape, NULL), TT_F64), mean), dtype);
}

static void expect_near(const tt_tensor *got, tt_tensor *want, double tolerance) {
    double apart = 0;
    CHECK(got && want && tt_tensor_numel(got) == tt_tensor_numel(want));
    if (tt_tensor_numel(got) == 0)
        return;
    tt_tensor *off = tt_sub(tt_to((tt_tensor *)(uintptr_t)got, TT_F64), tt_to(want, TT_F64));
    CHECK_OK(tt_item(tt_max(tt_abs(off)), &apart));
    if (apart > tolerance)
        fprintf(stderr, "%g apart\n", apart);
    CHECK(apart <= tolerance);
}

static tt_module *make_norm(const shapes *s) {
    return s->rest.ndim < 2 ? tt_nn_batch_norm1d(C, .no_affine = s->no_affine, .no_running_stats = s->no_running_stats,
                                                 .dtype = s->dtype, .momentum = 0.3)
                            : tt_nn_batch_norm2d(C, .no_affine = s->no_affine, .no_running_stats = s->no_running_stats,
                                                 .dtype = s->dtype, .momentum = 0.3);
}

/* Weights that are no ones, alike on all ranks. */
static void set_weights(tt_module *m) {
    const tt_named_tensors *p = tt_module_parameters(m);
    for (int64_t i = 0; i < p->count; i++) {
        TT_NO_GRAD;
        CHECK_OK(tt_copy(p->tensors[i], draw(TT_SHAPE(C), tt_tensor_dtype(p->tensors[i]), 1)));
    }
}

static tt_tensor *sum_of_ranks(tt_group *group, tt_tensor *x) {
    tt_tensor *sum = tt_clone(tt_detach(x));
    CHECK_OK(tt_tensor_all_reduce(group, sum, TT_SUM));
    return sum;
}

static void compare_shapes(tt_group *group, int rank, const shapes *s) {
    TT_AUTO_SCOPE;
    int64_t before = 0, examples = 0;
    for (int r = 0; r < tt_get_world_size(group); r++) {
        before += r < rank ? s->sizes[r] : 0;
        examples += s->sizes[r];
    }
    tt_manual_seed(11);
    tt_module *whole = make_norm(s), *part = make_norm(s);
    set_weights(whole);
    CHECK_OK(tt_module_load_state_dict(part, tt_module_state_dict(whole)));
    CHECK(tt_convert_sync_batchnorm(part, group) == part && !strcmp(tt_module_class_name(part), "SyncBatchNorm"));
    for (int step = 0; step < 2; step++) {
        tt_tensor *x = draw(batch_shape(s, examples), s->dtype, 10), *g = draw(batch_shape(s, examples), s->dtype, 0);
        if (s->channels_last)
            x = tt_to_memory_format(x, TT_CHANNELS_LAST);
        tt_tensor *all = tt_requires_grad_(tt_clone(x), true);
        tt_tensor *mine = tt_requires_grad_(tt_clone(tt_narrow(x, 0, before, s->sizes[rank])), true);
        tt_tensor *y = tt_module_forward(whole, all), *own = tt_module_forward(part, mine);
        CHECK(y && own);
        expect_near(own, tt_narrow(y, 0, before, s->sizes[rank]), s->tolerance);
        CHECK_OK(tt_backward(y, .gradient = g));
        CHECK_OK(tt_backward(own, .gradient = tt_contiguous(tt_narrow(g, 0, before, s->sizes[rank]))));
        expect_near(tt_grad(mine), tt_narrow(tt_grad(all), 0, before, s->sizes[rank]), s->tolerance);
        for (int64_t i = 0; i < tt_module_parameters(whole)->count; i++)
            expect_near(sum_of_ranks(group, tt_grad(tt_module_parameters(part)->tensors[i])),
                        tt_grad(tt_module_parameters(whole)->tensors[i]), 20 * s->tolerance);
    }
    for (int64_t i = 0; i < tt_module_buffers(whole)->count; i++)
        expect_near(tt_module_buffers(part)->tensors[i], tt_module_buffers(whole)->tensors[i], s->tolerance);
    tt_module_free(whole);
    tt_module_free(part);
}

static void compare_all(tt_group *group, int rank, void *user) {
    (void)user;
    for (size_t i = 0; i < COUNT(all_shapes); i++) {
        if (tt_get_world_size(group) == 1 && all_shapes[i].sizes[0] < 2 && all_shapes[i].rest.ndim == 0)
            continue;
        if (rank == 0)
            printf("%d ranks: %s\n", tt_get_world_size(group), all_shapes[i].what);
        compare_shapes(group, rank, &all_shapes[i]);
    }
}

static void ranks_normalise_as_one_process_does(void **state) {
    (void)state;
    for (int world = 1; world <= MOST_RANKS; world++)
        if (world_is_tried(world))
            assert_int_equal(run_ranks(world, compare_all, NULL), 0);
}

/* ---- finite differences */

/* The sum over all ranks of y's elements, each with a weight. */
static double weighted_sum(tt_group *group, tt_module *m, tt_tensor *x, tt_tensor *g) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    double sum;
    CHECK_OK(tt_item(tt_sum(tt_mul(tt_module_forward(m, x), g)), &sum));
    CHECK_OK(tt_all_reduce(group, &sum, 1, TT_F64, TT_SUM));
    return sum;
}

static void differ_finitely(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    const double step = 1e-5;
    tt_manual_seed(100 + (uint64_t)rank);
    tt_module *m = tt_nn_sync_batch_norm(group, C, .dtype = TT_F64);
    tt_shape shape = TT_SHAPE(2 + rank, C, 2);
    tt_tensor *x = tt_requires_grad_(tt_to(tt_randn(shape, NULL), TT_F64), true);
    tt_tensor *g = tt_to(tt_randn(shape, NULL), TT_F64);
    CHECK_OK(tt_backward(tt_module_forward(m, x), .gradient = g));
    const double *grad = tt_tensor_data(tt_grad(x));
    for (int of = 0; of < tt_get_world_size(group); of++)
        for (int i = 0; i < 2 * C * 2; i++) {
            tt_tensor *moved = tt_clone(tt_detach(x));
            double *at = (double *)tt_tensor_data(moved) + i;
            *at += of == rank ? step : 0;
            double up = weighted_sum(group, m, moved, g);
            *at -= of == rank ? 2 * step : 0;
            double down = weighted_sum(group, m, moved, g);
            CHECK(of != rank || fabs((up - down) / (2 * step) - grad[i]) < 1e-7);
        }
    tt_module_free(m);
}

static void gradients_are_those_of_finite_differences(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, differ_finitely, NULL), 0);
}

/* ---- conversion */

static tt_status count_calls(tt_module *m, tt_tensor *const *in, int64_t n, tt_tensor **out, int64_t k, void *user) {
    (void)m, (void)in, (void)n, (void)out, (void)k;
    ++*(int *)user;
    return TT_OK;
}

static void convert(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    int calls = 0;
    tt_manual_seed(3);
    tt_module *model = tt_model_resnet18(10), *plain = tt_nn_linear(3, 3), *norm = tt_nn_batch_norm1d(3);
    const tt_named_tensors *state = tt_module_state_dict(model);
    tt_module *bn1 = tt_module_child(model, "bn1");
    tt_tensor *weight = tt_named_tensors_find(state, "layer2.0.bn1.weight");
    int64_t entries = state->count;
    CHECK_OK(tt_module_register_forward_hook(NULL, bn1, count_calls, &calls));
    CHECK(tt_convert_sync_batchnorm(model, group) == model && tt_module_child(model, "bn1") == bn1);
    CHECK(tt_convert_sync_batchnorm(plain, group) == plain && tt_convert_sync_batchnorm(norm, group) == norm);
    state = tt_module_state_dict(model);
    CHECK(state->count == entries && tt_named_tensors_find(state, "layer2.0.bn1.weight") == weight);
    int found = 0;
    const tt_named_modules *tree = tt_module_named_modules(model);
    for (int64_t i = 0; i < tree->count; i++) {
        CHECK(strncmp(tt_module_class_name(tree->modules[i]), "BatchNorm", 9));
        found += !strcmp(tt_module_class_name(tree->modules[i]), "SyncBatchNorm");
    }
    CHECK(found == 20);
    tt_tensor *x = tt_randn(TT_SHAPE(2, 3, 32, 32), NULL);
    CHECK(tt_module_forward(model, x) && calls == 1);
    CHECK(tt_convert_sync_batchnorm(model, group) == model && tt_module_forward(model, x)); /* another group */
    tt_module_eval(model);
    if (rank == 0) /* alone: nothing is sent */
        CHECK(tt_module_forward(model, x) && calls == 3);
    CHECK_OK(tt_module_to(norm, TT_BF16));
    tt_tensor *narrow =
        tt_module_forward(norm, tt_requires_grad_(tt_to(tt_randn(TT_SHAPE(4, 3), NULL), TT_BF16), true));
    CHECK(narrow && tt_tensor_dtype(narrow) == TT_BF16);
    CHECK_OK(tt_backward(narrow, .gradient = tt_ones(TT_SHAPE(4, 3), TT_BF16)));
    tt_module_free(model);
    tt_module_free(plain);
    tt_module_free(norm);
}

static void a_tree_is_converted_in_place(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, convert, NULL), 0);
}

/* ---- under DDP */

enum { FEATURES = 6, STEPS = 15 };

static tt_module *make_model(void) {
    tt_manual_seed(5);
    return tt_nn_sequential(tt_nn_linear(FEATURES, 8), tt_nn_batch_norm1d(8), tt_nn_relu(), tt_nn_linear(8, 8),
                            tt_nn_batch_norm1d(8), tt_nn_tanh(), tt_nn_linear(8, 3));
}

/* Each rank's loss is the mean over its examples, and the job's the mean over ranks. */
static void train_beside_one_process(tt_group *group, int rank, void *user) {
    size_t cap = *(size_t *)user;
    int world = tt_get_world_size(group);
    tt_module *model = make_model(), *whole = make_model();
    tt_module *ddp = tt_ddp(tt_convert_sync_batchnorm(model, group), group, .bucket_cap_bytes = cap);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.05, .momentum = 0.9);
    tt_optimizer *twin = tt_sgd(tt_module_parameters(whole), 0.05, .momentum = 0.9);
    for (int step = 0; step < STEPS; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *x[MOST_RANKS], *y[MOST_RANKS], *loss = NULL;
        int64_t at = 0;
        tt_manual_seed(1000 + (uint64_t)step);
        for (int r = 0; r < world; r++) {
            int64_t size = 1 + (step + 2 * r) % 4;
            x[r] = tt_randn(TT_SHAPE(size, FEATURES), NULL);
            y[r] = tt_randn(TT_SHAPE(size, 3), NULL);
        }
        tt_optimizer_zero_grad(sgd);
        tt_optimizer_zero_grad(twin);
        CHECK_OK(tt_backward(tt_mse_loss(tt_module_forward(ddp, x[rank]), y[rank])));
        tt_tensor *out = tt_module_forward(whole, tt_cat(x, world, 0));
        for (int r = 0; r < world; at += tt_tensor_size(x[r++], 0)) {
            tt_tensor *one = tt_mse_loss(tt_narrow(out, 0, at, tt_tensor_size(x[r], 0)), y[r]);
            loss = loss ? tt_add(loss, one) : one;
        }
        CHECK_OK(tt_backward(tt_scale(loss, 1.0 / world)));
        CHECK(!tt_optimizer_step(sgd) && !tt_optimizer_step(twin));
    }
    const tt_named_tensors *got = tt_module_state_dict(ddp), *want = tt_module_state_dict(whole);
    for (int64_t i = 0; i < got->count; i++) {
        TT_AUTO_SCOPE;
        expect_near(got->tensors[i], want->tensors[i], 5e-6);
    }
    tt_optimizer_free(sgd);
    tt_optimizer_free(twin);
    tt_module_free(ddp);
    tt_module_free(model);
    tt_module_free(whole);
}

static void under_ddp_ranks_train_as_one_process_does(void **state) {
    (void)state;
    static size_t caps[] = {0, 1};
    for (size_t i = 0; i < COUNT(caps); i++)
        for (int world = 2; world <= 3; world++)
            assert_int_equal(run_ranks(world, train_beside_one_process, &caps[i]), 0);
}

/* ---- collectives of two kinds at a time */

static tt_tensor *heads_forward(tt_module *self, tt_tensor *x) {
    const unsigned *heads = tt_module_user(self);
    tt_tensor *trunk = tt_module_forward(tt_module_child(self, "trunk"), x), *y = tt_narrow(trunk, 1, 0, 2);
    if (*heads & 1)
        y = tt_add(y, tt_module_forward(tt_module_child(self, "left"), trunk));
    if (*heads & 2)
        y = tt_add(y, tt_module_forward(tt_module_child(self, "right"), trunk));
    return y;
}

/* Ranks leave out other heads, so the buckets' averages begin at other times than the norms' sums on each rank. */
static void leave_out_heads(tt_group *group, int rank, void *user) {
    (void)user;
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Heads", .forward = heads_forward);
    unsigned heads = 0;
    tt_manual_seed(7);
    tt_module *model = tt_module_new(&cls, &heads);
    tt_module *trunk = tt_nn_sequential(tt_nn_linear(FEATURES, 8), tt_nn_batch_norm1d(8), tt_nn_tanh(),
                                        tt_nn_linear(8, 8), tt_nn_batch_norm1d(8));
    CHECK_OK(tt_module_add_module(model, "trunk", trunk));
    CHECK_OK(tt_module_add_module(model, "left", tt_nn_linear(8, 2)));
    CHECK_OK(tt_module_add_module(model, "right", tt_nn_linear(8, 2)));
    tt_module *ddp = tt_ddp(tt_convert_sync_batchnorm(model, group), group, .bucket_cap_bytes = 1);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(ddp), 0.05);
    for (int step = 0; step < 60; step++) {
        TT_AUTO_SCOPE;
        heads = (unsigned)(step * 7 + rank * 3) % 4;
        tt_optimizer_zero_grad(sgd);
        tt_tensor *x = tt_randn(TT_SHAPE(1 + (step + rank) % 3, FEATURES), NULL);
        CHECK_OK(tt_backward(tt_sum(tt_module_forward(ddp, x))));
        CHECK_OK(tt_optimizer_step(sgd));
    }
    const tt_named_tensors *state = tt_module_state_dict(ddp);
    for (int64_t i = 0; i < state->count; i++) {
        TT_AUTO_SCOPE;
        TT_NO_GRAD;
        tt_tensor *of_rank_0 = tt_clone(state->tensors[i]);
        CHECK_OK(tt_tensor_broadcast(group, of_rank_0, 0));
        CHECK(tt_equal(of_rank_0, state->tensors[i]));
    }
    tt_optimizer_free(sgd);
    tt_module_free(ddp);
    tt_module_free(model);
}

static void norms_and_averages_need_no_common_order(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, leave_out_heads, NULL), 0);
    assert_int_equal(run_ranks(3, leave_out_heads, NULL), 0);
}

/* ---- bad input */

static void make_others(tt_group *group, int rank, void *user) {
    (void)user;
    tt_module *m = tt_nn_sequential(tt_nn_linear(4, 8 + rank), tt_nn_batch_norm1d(8 + rank));
    CHECK(!tt_convert_sync_batchnorm(m, group) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 has batch norm \"1\" of 9 features");
    CHECK_TEXT("rank 0 has batch norm \"1\" of 8 features");
    CHECK(!strcmp(tt_module_class_name(tt_module_child(m, "1")), "BatchNorm1d"));
    CHECK(!tt_nn_sync_batch_norm(group, 4, .eps = rank ? 1e-3 : 0) && tt_last_status() == TT_ERR_MISMATCH);
    CHECK_TEXT("eps 0.001");
    CHECK(!tt_convert_sync_batchnorm(NULL, group) && !tt_convert_sync_batchnorm(m, NULL));
    CHECK_TEXT("`group` is NULL");
    CHECK(!tt_nn_sync_batch_norm(NULL, 4) && !tt_nn_sync_batch_norm(group, 0));
    tt_module_free(m);
}

/* Refused on rank 0 alone: rank 1 learns that at once. */
static void refuse_alone(tt_group *group, int rank, void *user) {
    (void)user;
    tt_status wanted = rank ? TT_ERR_MISMATCH : TT_ERR_INVALID;
    CHECK(!tt_nn_sync_batch_norm(group, rank ? 64 : 0) && tt_last_status() == wanted);
    if (rank)
        CHECK_TEXT("of 64 features");
    CHECK_TEXT(rank ? "rank 0 has a call that it refuses" : "num_features");
    tt_module *m = rank ? tt_nn_batch_norm1d(4) : NULL;
    CHECK(!tt_convert_sync_batchnorm(m, group) && (!rank || tt_last_status() == TT_ERR_MISMATCH));
    tt_module_free(m);
    m = tt_nn_sync_batch_norm(group, 4); /* the group lives on */
    CHECK(m);
    tt_module_free(m);
}

static void layers_that_differ_between_ranks_are_named(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, make_others, NULL), 0);
    assert_int_equal(run_ranks(2, refuse_alone, NULL), 0);
}

static void give_too_little(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_sync_batch_norm(group, 4);
    CHECK(!tt_module_forward(m, tt_ones(TT_SHAPE(rank == 1, 4), TT_F32)) && tt_last_status() == TT_ERR_INVALID);
    CHECK_TEXT("more than one element a channel over all ranks in training; this rank has x f32 (");
    CHECK(!tt_module_forward(m, tt_ones(TT_SHAPE(2, 5), TT_F32)) && tt_last_status() == TT_ERR_SHAPE);
    CHECK_TEXT("expected x (N, 4, ...), got x f32 (2, 5)");
    CHECK(!tt_module_forward(m, tt_ones(TT_SHAPE(4), TT_F32)));
    CHECK_TEXT("at least 2 dimensions");
    CHECK(tt_module_forward(m, tt_ones(TT_SHAPE(1, 4), TT_F32))); /* of three ranks */
    tt_module_free(m);
}

/* One rank's x is of another number of channels: all hear of it, and the layer goes on. */
static void give_other_channels(tt_group *group, int rank, void *user) {
    (void)user;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_sync_batch_norm(group, 4);
    CHECK(!tt_module_forward(m, tt_ones(TT_SHAPE(2, rank == 1 ? 5 : 4), TT_F32)));
    CHECK(tt_last_status() == (rank == 1 ? TT_ERR_SHAPE : TT_ERR_PEER));
    CHECK_TEXT(rank == 1 ? "got x f32 (2, 5)" : "rank 1 could not find the mean of its batch");
    tt_clear_error();
    CHECK(tt_module_forward(m, tt_ones(TT_SHAPE(1, 4), TT_F32)));
    tt_module_free(m);
}

static void channels_that_differ_are_an_error_on_all_ranks(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, give_other_channels, NULL), 0);
}

static void too_few_elements_are_an_error_on_all_ranks(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, give_too_little, NULL), 0);
}

/* ---- a rank that dies */

typedef struct death {
    bool in_backward;
} death;

static void die(tt_group *group, int rank, void *user) {
    const death *d = user;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_sync_batch_norm(group, 4);
    tt_tensor *x = tt_requires_grad_(tt_randn(TT_SHAPE(3, 4), NULL), true);
    CHECK(tt_module_forward(m, x));
    if (rank == 1 && !d->in_backward)
        raise(SIGKILL);
    tt_tensor *y = tt_module_forward(m, x);
    if (rank == 1)
        raise(SIGKILL);
    tt_status status = y ? tt_backward(tt_sum(y)) : tt_last_status();
    CHECK(status == TT_ERR_PEER || status == TT_ERR_ABORTED);
    CHECK_TEXT("rank 1");
    CHECK_TEXT(d->in_backward ? "the backward of a SyncBatchNorm" : "the forward of a SyncBatchNorm");
    tt_module_free(m);
}

static void the_others_learn_who_died(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, die, &(death){false}), 1);
    assert_int_equal(run_ranks(3, die, &(death){true}), 1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_normalise_as_one_process_does),
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(a_tree_is_converted_in_place),
        cmocka_unit_test(under_ddp_ranks_train_as_one_process_does),
        cmocka_unit_test(norms_and_averages_need_no_common_order),
        cmocka_unit_test(layers_that_differ_between_ranks_are_named),
        cmocka_unit_test(too_few_elements_are_an_error_on_all_ranks),
        cmocka_unit_test(channels_that_differ_are_an_error_on_all_ranks),
        cmocka_unit_test(the_others_learn_who_died),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
