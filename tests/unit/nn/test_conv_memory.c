/* Memory and threads of a convolutional network: a steady step allocates nothing, every allocation may fail, threads
 * have primitives of their own, and more kinds of calls than are kept are no problem. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <pthread.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

#include "unit/alloc_fail.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

static tt_module *network(void) {
    return tt_nn_sequential(tt_nn_conv2d(1, 4, 3, .padding = 1), tt_nn_batch_norm2d(4), tt_nn_relu(),
                            tt_nn_max_pool2d(2), tt_nn_conv2d(4, 6, 3, .groups = 2), tt_nn_group_norm(3, 6),
                            tt_nn_avg_pool2d(2, .stride = 1), tt_nn_adaptive_avg_pool2d(2, 2), tt_nn_flatten(),
                            tt_nn_layer_norm(S(24)), tt_nn_rms_norm(S(24)), tt_nn_linear(24, 3));
}

static tt_status network_step(tt_module *model, tt_optimizer *sgd, tt_memory_format format) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_to_memory_format(tt_ones(S(4, 1, 12, 12), TT_F32), format);
    tt_optimizer_zero_grad(sgd);
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(model, x), tt_zeros(S(4), TT_I64));
    tt_tensor *w = tt_requires_grad_(tt_ones(S(1, 2, 3, 3), TT_F32), true);
    tt_tensor *v = tt_requires_grad_(tt_ones(S(2, 12, 3), TT_F32), true);
    loss = tt_add(loss, tt_mean(tt_conv_transpose2d(x, w, .stride = 2)));
    loss = tt_add(loss, tt_mean(tt_conv1d(tt_reshape(x, S(4, 12, 12)), v)));
    tt_status status = tt_backward(loss);
    return status ? status : tt_optimizer_step(sgd);
}

static void a_steady_step_allocates_nothing(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    tt_module *model = network();
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1);
    for (int i = 0; i < 6; i++)
        assert_int_equal(network_step(model, sgd, (tt_memory_format)(i % 2)), TT_OK);
    long before = alloc_count_own;
    for (int i = 0; i < 10; i++)
        assert_int_equal(network_step(model, sgd, (tt_memory_format)(i % 2)), TT_OK);
    assert_int_equal(alloc_count_own - before, 0);
    tt_optimizer_free(sgd);
    tt_module_free(model);
}

static tt_status whole_program(void *arg) {
    (void)arg;
    tt_module *model = network();
    tt_optimizer *sgd = model ? tt_sgd(tt_module_parameters(model), 0.1) : NULL;
    tt_status status = sgd ? TT_OK : tt_last_status();
    for (int i = 0; i < 2 && !status; i++)
        status = network_step(model, sgd, (tt_memory_format)i);
    tt_optimizer_free(sgd);
    tt_module_free(model);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    assert_in_range(alloc_fail_each(whole_program, NULL, ALLOC_ENDS), 50, 2000); /* there was something to fail */
}

/* ---- threads ---- */

enum { THREADS = 3, KINDS = 4 };

/* The sum of everything that calls of several kinds give. */
static double results_of_calls(void) {
    double total = 0, one;
    for (int round = 0; round < 2; round++)
        for (int k = 0; k < KINDS; k++) {
            TT_AUTO_SCOPE;
            tt_tensor *x = tt_requires_grad_(tt_full(S(2, 3, 6 + k, 7), TT_F32, 0.5), true);
            tt_tensor *w = tt_requires_grad_(tt_full(S(4, 3, 3, 3), TT_F32, 0.25), true);
            tt_tensor *y = tt_max_pool2d(tt_conv2d(x, w, .padding = 1), 2);
            if (tt_backward(tt_sum(y)))
                return -1;
            TT_NO_GRAD;
            if (tt_item(tt_add(tt_sum(tt_grad(x)), tt_add(tt_sum(tt_grad(w)), tt_sum(y))), &one))
                return -1;
            total += one;
        }
    return total;
}

static void *thread_of_calls(void *result) {
    *(double *)result = results_of_calls();
    return NULL;
}

static void threads_convolve_at_once(void **state) {
    (void)state;
    double want = results_of_calls(), got[THREADS];
    pthread_t thread[THREADS];
    assert_true(want > 0);
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, thread_of_calls, &got[i]), 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(thread[i], NULL);
        assert_true(got[i] == want);
    }
}

/* Primitives are kept for 512 kinds of calls; the oldest make room. */
static void many_kinds_of_calls(void **state) {
    (void)state;
    tt_tensor *w = tt_ones(S(1, 1, 1, 1), TT_F32);
    for (int round = 0; round < 2; round++)
        for (int n = 1; n <= 520; n++) {
            TT_AUTO_SCOPE;
            double sum;
            assert_int_equal(tt_item(tt_sum(tt_conv2d(tt_ones(S(n, 1, 1, 2), TT_F32), w)), &sum), TT_OK);
            assert_true(sum == 2 * n);
        }
    tt_tensor_free(w);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_steady_step_allocates_nothing),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(threads_convolve_at_once),
        cmocka_unit_test(many_kinds_of_calls),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
