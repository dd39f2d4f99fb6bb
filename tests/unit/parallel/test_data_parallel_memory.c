/* DataParallel where memory runs out: each allocation fails once, in whichever thread. */
#include "unit/alloc_fail.h"

#include <tutti/tutti.h>

static tt_status train_once(void *unused) {
    (void)unused;
    TT_AUTO_SCOPE;
    tt_module *model =
        tt_data_parallel(tt_nn_sequential(tt_nn_linear(3, 4), tt_nn_relu(), tt_nn_linear(4, 2)), .replicas = 2);
    tt_tensor *x = tt_ones(TT_SHAPE(4, 3), TT_F32), *y = model ? tt_module_forward(model, x) : NULL;
    tt_status status = tt_backward(tt_sum(y));
    tt_module_free(model);
    return status;
}

static void each_allocation_may_fail(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    assert_true(alloc_fail_each(train_once, NULL, ALLOC_MAY_END) > 40);
}

static void a_steady_step_allocates_nothing(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    tt_module *model =
        tt_data_parallel(tt_nn_sequential(tt_nn_linear(3, 4), tt_nn_relu(), tt_nn_linear(4, 2)), .replicas = 3);
    tt_tensor *x = tt_keep(tt_ones(TT_SHAPE(7, 3), TT_F32));
    long before = 0;
    for (int i = 0; i < 6; i++) {
        TT_AUTO_SCOPE;
        before = alloc_count_own;
        assert_int_equal(tt_backward(tt_sum(tt_module_forward(model, x))), TT_OK);
    }
    assert_int_equal(alloc_count_own - before, 0);
    tt_tensor_free(x);
    tt_module_free(model);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_steady_step_allocates_nothing),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
