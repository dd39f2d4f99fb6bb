/* DataParallel beside the module in one thread. */
#include <math.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <sys/wait.h>

#include <cmocka.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void expect_near(const tt_tensor *got, const tt_tensor *want, double tolerance) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    double apart = 0;
    assert_non_null(got);
    assert_non_null(want);
    assert_int_equal(tt_tensor_numel(got), tt_tensor_numel(want));
    tt_tensor *off = tt_sub(tt_to((tt_tensor *)(uintptr_t)got, TT_F64), tt_to((tt_tensor *)(uintptr_t)want, TT_F64));
    if (tt_tensor_numel(got))
        assert_int_equal(tt_item(tt_max(tt_abs(off)), &apart), TT_OK);
    if (apart > tolerance)
        fprintf(stderr, "%g apart\n", apart);
    assert_true(apart <= tolerance);
}

/* Equal gradients, and none where there are none. */
static void expect_gradients(tt_module *got, tt_module *want, double tolerance) {
    const tt_named_tensors *a = tt_module_parameters(got), *b = tt_module_parameters(want);
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++) {
        assert_int_equal(!tt_grad(a->tensors[i]), !tt_grad(b->tensors[i]));
        if (tt_grad(a->tensors[i]))
            expect_near(tt_grad(a->tensors[i]), tt_grad(b->tensors[i]), tolerance);
    }
}

static void expect_state(tt_module *got, tt_module *want, double tolerance) {
    const tt_named_tensors *a = tt_module_state_dict(got), *b = tt_module_state_dict(want);
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++)
        expect_near(a->tensors[i], b->tensors[i], tolerance);
}

/* ---- the same result as one device's */

static tt_module *convnet(void) {
    tt_manual_seed(1);
    return tt_nn_sequential(tt_nn_conv2d(1, 8, 3), tt_nn_relu(), tt_nn_conv2d(8, 16, 3, .stride = 2), tt_nn_relu(),
                            tt_nn_flatten(), tt_nn_linear(16 * 25, 10));
}

static tt_module *language_model(void) {
    tt_manual_seed(1);
    return tt_model_gpt(11, 8, 16, 2, 2);
}

static tt_tensor *pictures(int64_t n) { return tt_randn(TT_SHAPE(n, 1, 13, 13), NULL); }
static tt_tensor *texts(int64_t n) { return tt_randint(0, 11, TT_SHAPE(n, 8), NULL); }
static tt_tensor *digits_of(int64_t n) { return tt_randint(0, 10, TT_SHAPE(n), NULL); }

static tt_tensor *loss_of(tt_module *model, tt_tensor *x, tt_tensor *y) {
    tt_tensor *out = tt_module_forward(model, x);
    return tt_cross_entropy(tt_reshape(out, TT_SHAPE(-1, tt_tensor_size(out, -1))), tt_reshape(y, TT_SHAPE(-1)));
}

typedef struct kind {
    tt_module *(*make)(void);
    tt_tensor *(*x)(int64_t n), *(*y)(int64_t n);
} kind;

static const kind kinds[] = {{convnet, pictures, digits_of}, {language_model, texts, texts}};

static void train_both(const kind *k, int replicas) {
    tt_module *plain = k->make(), *model = k->make(), *wrapped = tt_data_parallel(model, .replicas = replicas);
    tt_optimizer *a = tt_sgd(tt_module_parameters(plain), 0.05, .momentum = 0.9);
    tt_optimizer *b = tt_sgd(tt_module_parameters(wrapped), 0.05, .momentum = 0.9);
    for (int step = 0; step < 8; step++) {
        TT_AUTO_SCOPE;
        double want, got;
        tt_manual_seed(100 + (uint64_t)step);
        int64_t n = 1 + step; /* also fewer than replicas */
        tt_tensor *x = k->x(n), *y = k->y(n);
        tt_optimizer_zero_grad(a);
        tt_optimizer_zero_grad(b);
        for (int pass = 0; pass < 1 + step % 2; pass++) { /* gradients that are added to */
            tt_tensor *loss = loss_of(plain, x, y), *parallel = loss_of(wrapped, x, y);
            assert_int_equal(tt_item(loss, &want), TT_OK);
            assert_int_equal(tt_item(parallel, &got), TT_OK);
            assert_true(fabs(got - want) < 1e-6);
            assert_int_equal(tt_backward(loss), TT_OK);
            assert_int_equal(tt_backward(parallel), TT_OK);
        }
        expect_gradients(wrapped, plain, 2e-6);
        assert_int_equal(tt_optimizer_step(a), TT_OK);
        assert_int_equal(tt_optimizer_step(b), TT_OK);
    }
    expect_state(wrapped, plain, 1e-6);
    tt_optimizer_free(a);
    tt_optimizer_free(b);
    tt_module_free(plain);
    tt_module_free(wrapped);
}

static void replicas_train_as_one_does(void **state) {
    (void)state;
    for (size_t k = 0; k < COUNT(kinds); k++)
        for (int replicas = 1; replicas <= 4; replicas++)
            train_both(&kinds[k], replicas);
}

/* ---- names */

static void names_begin_with_module(void **state) {
    (void)state;
    tt_module *model = convnet(), *plain = convnet(), *wrapped = tt_data_parallel(model, .replicas = 2);
    assert_string_equal(tt_module_class_name(wrapped), "DataParallel");
    assert_string_equal(tt_module_state_dict(wrapped)->names[0], "module.0.weight");
    assert_string_equal(tt_module_parameters(wrapped)->names[1], "module.0.bias");
    assert_ptr_equal(tt_module_child(wrapped, "module"), model);
    tt_module_eval(wrapped);
    assert_false(tt_module_training(model));
    assert_int_equal(tt_module_load_state_dict(plain, tt_module_state_dict(wrapped)), TT_OK);
    expect_state(wrapped, plain, 0);
    tt_module_free(model); /* belongs to the wrapper: an error, and nothing else */
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    tt_module_free(wrapped);
    tt_module_free(plain);
}

/* ---- several inputs and results */

/* (x, factor, ids) -> (x W * factor, the sum of all as a scalar, ids). */
static tt_status many_forward(tt_module *self, tt_tensor *const *in, int64_t in_count, tt_tensor **out,
                              int64_t out_count) {
    if (in_count != 3 || out_count != 3)
        return TT_ERR_INVALID;
    out[0] = tt_mul(tt_module_forward(tt_module_child(self, "linear"), in[0]), in[1]);
    out[1] = tt_sum(out[0]);
    out[2] = in[2];
    return out[1] ? TT_OK : tt_last_status();
}

static tt_module *many_module(void) {
    static const tt_module_class cls =
        TT_MODULE_CLASS(.name = "Many", .forward_many = many_forward, .inputs = 3, .outputs = 3);
    tt_manual_seed(2);
    tt_module *m = tt_module_new(&cls, NULL);
    assert_int_equal(tt_module_add_module(m, "linear", tt_nn_linear(3, 4)), TT_OK);
    assert_int_equal(tt_module_add_module(m, "idle", tt_nn_linear(3, 4)), TT_OK);
    return m;
}

/* Gradients of the inputs, too: of a leaf, of what an operator made, and of a factor that all replicas share. */
static void tensors_are_cut_shared_and_joined(void **state) {
    (void)state;
    tt_module *plain = many_module(), *wrapped = tt_data_parallel(many_module(), .replicas = 3);
    for (int n = 1; n <= 7; n += 2) {
        TT_AUTO_SCOPE;
        tt_manual_seed(9);
        tt_tensor *x = tt_randn(TT_SHAPE(n, 3), NULL), *ids = tt_randint(0, 9, TT_SHAPE(n), NULL);
        tt_tensor *leaf[2], *factor[2], *out[2][3];
        tt_module *models[] = {plain, wrapped};
        for (int i = 0; i < 2; i++) {
            leaf[i] = tt_requires_grad_(tt_clone(x), true);
            factor[i] = tt_requires_grad_(tt_full(TT_SCALAR, TT_F32, 1.5), true);
            tt_tensor *made = n == 3 ? leaf[i] : tt_tanh(leaf[i]);
            assert_int_equal(tt_module_forward_many(models[i], TT_TENSORS(made, factor[i], ids), out[i], 3), TT_OK);
            tt_tensor *loss = tt_add(tt_sum(tt_mul(out[i][0], out[i][0])), tt_scale(tt_sum(out[i][1]), 2));
            if (n == 5) /* one result without a gradient */
                loss = tt_sum(out[i][1]);
            assert_int_equal(tt_backward(loss), TT_OK);
        }
        expect_near(out[1][0], out[0][0], 1e-6);
        expect_near(tt_sum(out[1][1]), out[0][1], 1e-5);
        assert_int_equal(tt_tensor_dim(out[1][1]), 1);
        assert_true(tt_equal(out[1][2], ids) && !tt_requires_grad(out[1][2]));
        expect_near(tt_grad(leaf[1]), tt_grad(leaf[0]), 1e-5);
        expect_near(tt_grad(factor[1]), tt_grad(factor[0]), 2e-5);
        expect_gradients(wrapped, plain, 2e-5);
        assert_null(tt_grad(tt_module_parameters(wrapped)->tensors[2])); /* idle's */
    }
    tt_module_free(plain);
    tt_module_free(wrapped);
}

static void parts_alone(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *parts[4], *x = tt_requires_grad_(tt_rand(TT_SHAPE(5, 2), NULL), true);
    assert_int_equal(tt_parallel_scatter(x, 4, parts), 3); /* as torch.chunk(): 2, 2, 1 */
    assert_int_equal(tt_tensor_size(parts[0], 0), 2);
    assert_int_equal(tt_tensor_size(parts[2], 0), 1);
    assert_null(parts[3]);
    assert_true(tt_equal(tt_parallel_gather(parts, 3), tt_detach(x)));
    tt_tensor *sums[] = {tt_sum(parts[0]), tt_sum(parts[1]), tt_sum(parts[2])};
    assert_int_equal(tt_tensor_size(tt_parallel_gather(sums, 3), 0), 3);
    assert_int_equal(tt_backward(tt_sum(tt_parallel_gather(sums, 3))), TT_OK);
    assert_true(tt_equal(tt_grad(x), tt_ones(TT_SHAPE(5, 2), TT_F32)));
    assert_int_equal(tt_parallel_scatter(sums[0], 2, parts), -1);
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    assert_int_equal(tt_parallel_scatter(x, 0, parts), -1);
    assert_int_equal(tt_parallel_scatter(NULL, 2, parts), -1);
    assert_null(tt_parallel_gather(parts, 0));
}

/* ---- what a forward changes and draws */

static void running_statistics_are_replica_0s(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *plain = tt_nn_batch_norm1d(3), *wrapped = tt_data_parallel(tt_nn_batch_norm1d(3), .replicas = 2);
    tt_tensor *x = tt_randn(TT_SHAPE(7, 3), NULL);
    tt_tensor *y = tt_module_forward(wrapped, x), *first = tt_module_forward(plain, tt_narrow(x, 0, 0, 4));
    expect_near(tt_narrow(y, 0, 0, 4), first, 0);
    expect_state(wrapped, plain, 0);
    tt_module_eval(plain);
    tt_module_eval(wrapped);
    TT_NO_GRAD;
    y = tt_module_forward(wrapped, x);
    expect_near(y, tt_module_forward(plain, x), 0);
    assert_false(tt_requires_grad(y));
    expect_state(wrapped, plain, 0);
    tt_module_free(plain);
    tt_module_free(wrapped);
}

static tt_tensor *drop_out(tt_module *wrapped, uint64_t seed) {
    tt_manual_seed(seed);
    return tt_module_forward(wrapped, tt_ones(TT_SHAPE(2, 512), TT_F32));
}

static void replicas_draw_for_themselves(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *wrapped = tt_data_parallel(tt_nn_dropout(0.5), .replicas = 2);
    tt_tensor *a = drop_out(wrapped, 1), *next = tt_module_forward(wrapped, tt_ones(TT_SHAPE(2, 512), TT_F32));
    tt_tensor *after = tt_rand(TT_SHAPE(4), NULL);
    assert_true(tt_equal(a, drop_out(wrapped, 1))); /* the seed says all */
    assert_false(tt_equal(a, drop_out(wrapped, 2)));
    assert_false(tt_equal(a, next));
    assert_false(tt_equal(tt_contiguous(tt_narrow(a, 0, 0, 1)), tt_contiguous(tt_narrow(a, 0, 1, 1))));
    /* The caller's generator has drawn what replica 0 did. */
    tt_manual_seed(1);
    tt_module *plain = tt_nn_dropout(0.5);
    tt_tensor *rows = tt_ones(TT_SHAPE(1, 512), TT_F32);
    assert_true(tt_equal(tt_module_forward(plain, rows), tt_contiguous(tt_narrow(a, 0, 0, 1))));
    assert_non_null(tt_module_forward(plain, rows));
    assert_true(tt_equal(after, tt_rand(TT_SHAPE(4), NULL)));
    tt_module_free(plain);
    tt_module_free(wrapped);
}

/* The same bits twice, whichever thread is faster. */
static void the_same_batch_gives_the_same_bits(void **state) {
    (void)state;
    tt_module *wrapped = tt_data_parallel(convnet(), .replicas = 3);
    const tt_named_tensors *p = tt_module_parameters(wrapped);
    TT_AUTO_SCOPE;
    tt_tensor *first[16];
    for (int round = 0; round < 4; round++) {
        tt_manual_seed(4);
        tt_tensor *x = pictures(9), *y = digits_of(9);
        for (int64_t i = 0; i < p->count; i++)
            tt_zero_grad(p->tensors[i]);
        assert_int_equal(tt_backward(loss_of(wrapped, x, y)), TT_OK);
        for (int64_t i = 0; i < p->count; i++)
            if (round)
                assert_true(tt_equal(tt_grad(p->tensors[i]), first[i]));
            else
                first[i] = tt_clone(tt_grad(p->tensors[i]));
    }
    tt_module_free(wrapped);
}

/* ---- passes of other kinds */

static tt_tensor *block_forward(tt_module *self, tt_tensor *x) {
    return tt_module_recompute(tt_module_child(self, "inner"), tt_tanh(x));
}

static tt_module *recomputing(void) {
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Block", .forward = block_forward);
    tt_manual_seed(3);
    tt_module *m = tt_module_new(&cls, NULL);
    assert_int_equal(tt_module_add_module(m, "inner", tt_nn_sequential(tt_nn_linear(6, 6), tt_nn_tanh())), TT_OK);
    return m;
}

static tt_status count_hook(tt_tensor *x, void *user) {
    (void)x;
    ++*(int *)user;
    return TT_OK;
}

static void passes_of_all_kinds(void **state) {
    (void)state;
    tt_module *plain = recomputing(), *wrapped = tt_data_parallel(recomputing(), .replicas = 2);
    const tt_named_tensors *p = tt_module_parameters(wrapped);
    int hooks = 0;
    assert_int_equal(tt_register_post_accumulate_grad_hook(p->tensors[0], count_hook, &hooks), TT_OK);
    {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_randn(TT_SHAPE(5, 6), NULL);
        tt_tensor *a = tt_mean(tt_module_forward(plain, x)), *b = tt_mean(tt_module_forward(wrapped, x));
        for (int i = 0; i < 3; i++) {
            assert_int_equal(tt_backward(a, .retain_graph = i < 2), TT_OK);
            assert_int_equal(tt_backward(b, .retain_graph = i < 2), TT_OK);
            expect_gradients(wrapped, plain, 1e-6);
        }
        assert_int_equal(hooks, 3);
        assert_int_equal(tt_backward(b), TT_ERR_STATE);
        assert_non_null(strstr(tt_last_error(), "is spent"));
    }
    {
        TT_AUTO_SCOPE;
        tt_deferred_backward *later;
        tt_tensor *x = tt_requires_grad_(tt_randn(TT_SHAPE(5, 6), NULL), true), *twin = tt_clone(tt_detach(x));
        assert_non_null(tt_requires_grad_(twin, true));
        tt_tensor *now[] = {x}, *b = tt_mean(tt_module_forward(wrapped, x));
        assert_int_equal(tt_backward(b, .inputs = now, .input_count = 1, .deferred = &later), TT_OK);
        assert_int_equal(hooks, 3);
        assert_int_equal(tt_backward(tt_mean(tt_module_forward(plain, twin))), TT_OK);
        expect_near(tt_grad(x), tt_grad(twin), 1e-6);
        assert_int_equal(tt_backward_deferred(later), TT_OK);
        tt_deferred_backward_free(later);
        assert_int_equal(hooks, 4);
        expect_gradients(wrapped, plain, 1e-6);
    }
    {
        TT_AUTO_SCOPE; /* a result that is never walked, and one that outlives its wrapper */
        assert_non_null(tt_module_forward(wrapped, tt_randn(TT_SHAPE(5, 6), NULL)));
        tt_tensor *x = tt_randn(TT_SHAPE(5, 6), NULL),
                  *y = tt_mean(tt_module_forward(tt_module_child(wrapped, "module"), x));
        assert_int_equal(tt_backward(y), TT_OK);
    }
    tt_module_free(plain);
    tt_module_free(wrapped);
}

static void frozen_parameters_and_bare_modules(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *plain = convnet(), *wrapped = tt_data_parallel(convnet(), .replicas = 2);
    assert_non_null(tt_requires_grad_(tt_module_parameters(plain)->tensors[2], false));
    assert_non_null(tt_requires_grad_(tt_module_parameters(wrapped)->tensors[2], false));
    tt_tensor *x = pictures(4), *y = digits_of(4);
    assert_int_equal(tt_backward(loss_of(plain, x, y)), TT_OK);
    assert_int_equal(tt_backward(loss_of(wrapped, x, y)), TT_OK);
    expect_gradients(wrapped, plain, 1e-6);
    tt_module *bare = tt_data_parallel(tt_nn_relu(), .replicas = 2);
    tt_tensor *in = tt_requires_grad_(tt_randn(TT_SHAPE(3, 2), NULL), true);
    assert_false(tt_requires_grad(tt_module_forward(bare, tt_detach(in))));
    assert_int_equal(tt_backward(tt_sum(tt_module_forward(bare, in))), TT_OK);
    expect_near(tt_grad(in), tt_to(tt_gt(tt_detach(in), tt_zeros(TT_SCALAR, TT_F32)), TT_F32), 0);
    tt_module *same = tt_data_parallel(tt_nn_identity(), .replicas = 2);
    tt_zero_grad(in);
    assert_int_equal(tt_backward(tt_sum(tt_module_forward(same, in))), TT_OK);
    expect_near(tt_grad(in), tt_ones(TT_SHAPE(3, 2), TT_F32), 0);
    assert_int_equal(tt_tensor_size(tt_module_forward(same, tt_ones(TT_SHAPE(0, 2), TT_F32)), 0), 0);
    tt_module_free(bare);
    tt_module_free(same);
    tt_module_free(plain);
    tt_module_free(wrapped);
}

static void autocast_is_the_callers(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *plain = convnet(), *wrapped = tt_data_parallel(convnet(), .replicas = 2);
    tt_tensor *x = pictures(6);
    TT_AUTOCAST(TT_BF16);
    tt_tensor *want = tt_module_forward(plain, x), *got = tt_module_forward(wrapped, x);
    assert_int_equal(tt_tensor_dtype(got), TT_BF16);
    expect_near(got, want, 1e-2);
    tt_module_free(plain);
    tt_module_free(wrapped);
}

/* A module that multiplies by a tensor that is none of its own. */
static tt_tensor *borrowing_forward(tt_module *self, tt_tensor *x) {
    tt_tensor *const *factor = tt_module_user(self);
    return tt_mul(x, *factor);
}

static void leaves_from_elsewhere_get_the_same_sum(void **state) {
    (void)state;
    static const tt_module_class cls = TT_MODULE_CLASS(.name = "Borrowing", .forward = borrowing_forward);
    TT_AUTO_SCOPE;
    tt_tensor *factor = NULL, *first = NULL;
    int hooks = 0;
    tt_manual_seed(8);
    tt_module *inner = tt_nn_sequential(tt_nn_linear(16, 16), tt_module_new(&cls, &factor));
    tt_module *wrapped = tt_data_parallel(inner, .replicas = 4);
    tt_tensor *x = tt_randn(TT_SHAPE(12, 16), NULL), *values = tt_randn(TT_SHAPE(16), NULL);
    for (int round = 0; round < 20; round++) {
        tt_tensor *whole = factor = tt_requires_grad_(tt_clone(values), true);
        assert_int_equal(tt_backward(tt_sum(tt_module_forward(inner, x))), TT_OK);
        factor = tt_requires_grad_(tt_clone(values), true);
        assert_int_equal(tt_register_post_accumulate_grad_hook(factor, count_hook, &hooks), TT_OK);
        assert_int_equal(tt_backward(tt_sum(tt_module_forward(wrapped, x))), TT_OK);
        expect_near(tt_grad(factor), tt_grad(whole), 1e-5);
        first = first ? first : tt_grad(factor);
        assert_true(tt_equal(tt_grad(factor), first));
    }
    assert_int_equal(hooks, 20);
    factor = tt_scale(tt_requires_grad_(values, true), 2);
    assert_null(tt_module_forward(wrapped, x));
    assert_int_equal(tt_last_status(), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_last_error(), "a result of tt_scale that was recorded before its forward"));
    tt_module_free(wrapped);
}

static tt_tensor *hiding_forward(tt_module *self, tt_tensor *x) {
    return tt_module_recompute(tt_module_child(self, "inner"), x);
}

/* Other replicas' passes leave the gradient alone while a hook looks at it. */
static tt_status watching_hook(tt_tensor *x, void *user) {
    TT_AUTO_SCOPE;
    tt_tensor *before = tt_clone(tt_grad(x));
    for (int i = 0; i < 50; i++)
        sched_yield();
    if (!tt_equal(tt_grad(x), before))
        return tt_fail(TT_ERR_STATE, "the gradient has changed under its hook");
    return count_hook(x, user);
}

/* A leaf that a recomputed part uses without listing it: the sum is right, in whatever order. */
static void leaves_that_recomputing_hides_get_the_same_sum(void **state) {
    (void)state;
    static const tt_module_class borrowing = TT_MODULE_CLASS(.name = "Borrowing", .forward = borrowing_forward);
    static const tt_module_class hiding = TT_MODULE_CLASS(.name = "Hiding", .forward = hiding_forward);
    TT_AUTO_SCOPE;
    tt_tensor *factor = NULL;
    int hooks = 0;
    tt_manual_seed(8);
    tt_module *inner = tt_nn_sequential(tt_nn_linear(16, 16), tt_module_new(&borrowing, &factor));
    tt_module *hides = tt_module_new(&hiding, NULL);
    assert_int_equal(tt_module_add_module(hides, "inner", inner), TT_OK);
    tt_module *wrapped = tt_data_parallel(hides, .replicas = 4);
    tt_tensor *x = tt_randn(TT_SHAPE(12, 16), NULL), *values = tt_randn(TT_SHAPE(16), NULL);
    for (int round = 0; round < 20; round++) {
        tt_tensor *whole = factor = tt_requires_grad_(tt_clone(values), true);
        assert_int_equal(tt_backward(tt_sum(tt_module_forward(hides, x))), TT_OK);
        factor = tt_requires_grad_(tt_clone(values), true);
        assert_int_equal(tt_register_post_accumulate_grad_hook(factor, watching_hook, &hooks), TT_OK);
        assert_int_equal(tt_backward(tt_sum(tt_module_forward(wrapped, x))), TT_OK);
        expect_near(tt_grad(factor), tt_grad(whole), 1e-5);
        assert_int_equal(hooks, 4 * (round + 1)); /* one a replica, each with what came so far */
    }
    tt_module_free(wrapped);
}

/* ---- failures */

/* Replica `*user` fails. */
static tt_tensor *failing_forward(tt_module *self, tt_tensor *x) {
    const int *failing = tt_module_user(self);
    return tt_data_parallel_replica() == *failing ? tt_matmul(x, tt_ones(TT_SHAPE(99, 2), TT_F32)) : tt_scale(x, 2);
}

static tt_status backward_fails(tt_node *node) {
    return tt_data_parallel_replica() == 1 ? tt_fail(TT_ERR_FORMAT, "no slope")
                                           : tt_node_give(node, 0, tt_node_grad(node, 0));
}

static tt_status forward_passes_on(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    (void)node;
    out[0] = tt_scale(in[0], 1);
    return out[0] ? TT_OK : tt_last_status();
}

static tt_tensor *bad_backward_forward(tt_module *self, tt_tensor *x) {
    static const tt_function bad = {
        .size = sizeof bad, .name = "bad", .forward = forward_passes_on, .backward = backward_fails};
    return tt_apply(&bad, NULL, tt_module_forward(tt_module_child(self, "linear"), x));
}

/* Rows of as many numbers as the replica's number says. */
static tt_tensor *uneven_forward(tt_module *self, tt_tensor *x) {
    (void)self;
    return tt_narrow(x, 1, 0, 1 + tt_data_parallel_replica());
}

static void a_replica_that_fails_is_named(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    int failing = 1;
    static const tt_module_class failing_class = TT_MODULE_CLASS(.name = "Failing", .forward = failing_forward);
    static const tt_module_class uneven_class = TT_MODULE_CLASS(.name = "Uneven", .forward = uneven_forward);
    static const tt_module_class bad_class = TT_MODULE_CLASS(.name = "Bad", .forward = bad_backward_forward);
    tt_module *m = tt_data_parallel(tt_module_new(&failing_class, &failing), .replicas = 3);
    tt_tensor *x = tt_ones(TT_SHAPE(6, 4), TT_F32);
    for (failing = 0; failing < 3; failing++) {
        char expected[80];
        snprintf(expected, sizeof expected, "tt_data_parallel: replica %d of 3: tt_matmul", failing);
        assert_null(tt_module_forward(m, x));
        assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
        assert_non_null(strstr(tt_last_error(), expected));
    }
    assert_int_equal(tt_backward(NULL), TT_ERR_SHAPE); /* the scope's first error */
    failing = -1;
    assert_non_null(tt_module_forward(m, x));
    tt_module_free(m);

    m = tt_data_parallel(tt_module_new(&uneven_class, NULL), .replicas = 2);
    assert_null(tt_module_forward(m, x));
    assert_non_null(strstr(tt_last_error(), "got f32 (3, 1) of replica 0 and f32 (3, 2) of replica 1"));
    tt_module_free(m);

    tt_module *bad = tt_module_new(&bad_class, NULL);
    assert_int_equal(tt_module_add_module(bad, "linear", tt_nn_linear(4, 2)), TT_OK);
    m = tt_data_parallel(bad, .replicas = 2);
    assert_int_equal(tt_backward(tt_sum(tt_module_forward(m, x))), TT_ERR_FORMAT);
    assert_non_null(strstr(tt_last_error(), "tt_data_parallel: replica 1 of 2: no slope"));
    tt_module_free(m);

    m = tt_data_parallel(many_module(), .replicas = 2);
    tt_tensor *out[3], *ids = tt_zeros(TT_SHAPE(5), TT_I64);
    assert_int_equal(
        tt_module_forward_many(m, TT_TENSORS(tt_ones(TT_SHAPE(4, 3), TT_F32), tt_ones(TT_SCALAR, TT_F32), ids), out, 3),
        TT_ERR_SHAPE);
    assert_non_null(
        strstr(tt_last_error(), "one size in dimension 0, in which they are cut, got f32 (4, 3) and i64 (5)"));
    tt_module_free(m);
}

static void wrong_wrappings_are_refused(void **state) {
    (void)state;
    assert_null(tt_data_parallel(NULL));
    assert_null(tt_data_parallel(tt_nn_relu(), .replicas = -1));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_null(tt_data_parallel(tt_nn_relu(), .replicas = 5000));
    assert_null(tt_data_parallel(tt_data_parallel(tt_nn_relu(), .replicas = 2)));
    assert_int_equal(tt_last_status(), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_last_error(), "has a DataParallel inside"));
    tt_module *child = tt_nn_relu(), *parent = tt_nn_sequential(child);
    assert_null(tt_data_parallel(child, .replicas = 2));
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    tt_module_free(parent);
    assert_int_equal(tt_data_parallel_replica(), 0);
}

/* ---- processes */

/* A forked child has none of the threads: it computes one replica after the other. */
static void a_forked_child_goes_on(void **state) {
    (void)state;
    int code = 1;
    tt_module *wrapped = tt_data_parallel(tt_nn_linear(3, 2), .replicas = 3);
    tt_tensor *x = tt_keep(tt_ones(TT_SHAPE(5, 3), TT_F32)), *y = tt_keep(tt_module_forward(wrapped, x));
    pid_t child = fork();
    if (child == 0) {
        int scope = tt_scope_begin();
        tt_tensor *again = tt_module_forward(wrapped, x);
        bool equal = again && tt_equal(tt_detach(again), tt_detach(y)) && !tt_backward(tt_sum(again));
        tt_scope_end(scope);
        tt_module_free(wrapped);
        _exit(equal ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &code, 0), child);
    assert_int_equal(code, 0);
    tt_tensor_free(y);
    tt_tensor_free(x);
    tt_module_free(wrapped);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_forked_child_goes_on), /* first: a sanitizer forks no process with threads at work */
        cmocka_unit_test(replicas_train_as_one_does),
        cmocka_unit_test(names_begin_with_module),
        cmocka_unit_test(tensors_are_cut_shared_and_joined),
        cmocka_unit_test(parts_alone),
        cmocka_unit_test(running_statistics_are_replica_0s),
        cmocka_unit_test(replicas_draw_for_themselves),
        cmocka_unit_test(the_same_batch_gives_the_same_bits),
        cmocka_unit_test(passes_of_all_kinds),
        cmocka_unit_test(frozen_parameters_and_bare_modules),
        cmocka_unit_test(autocast_is_the_callers),
        cmocka_unit_test(leaves_from_elsewhere_get_the_same_sum),
        cmocka_unit_test(leaves_that_recomputing_hides_get_the_same_sum),
        cmocka_unit_test(a_replica_that_fails_is_named),
        cmocka_unit_test(wrong_wrappings_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
