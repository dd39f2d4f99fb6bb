/* DataParallel beside the module in one thread. */
#include <math.h>
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

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replicas_train_as_one_does),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
