/* How the CUDA device makes and keeps cuDNN's plans, and what follows a call that fails: on the fake
 * (tests/support/fake_cuda/cudnn.h); as test_cuda.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <tutti/tutti.h>

#include "cuda_compare.h"
#include "cuda_conv_cases.h"
#include "cuda_dnn_fake.h"
#include "unit/expect.h"

/* A plan, and its engine's configuration; a handle lives beside them. */
enum { OBJECTS_OF_PLAN = 2 };

static char lines[8192];

static void keep_line(tt_log_level level, const char *line, void *user) {
    size_t n = strlen(lines);
    (void)user;
    if (level == TT_LOG_WARNING)
        snprintf(lines + n, sizeof lines - n, "%s\n", line);
}

static void expect_conv(int64_t C, int64_t W, int64_t at, tt_dtype dtype) {
    TT_AUTO_SCOPE;
    tt_tensor *x = mixed(S(2, C, 5, W), 7, dtype), *w = mixed(S(2, C, 3, 3), 10, dtype);
    expect_close("conv2d", dtype, tt_conv2d(tt_narrow(there(x), 0, at, 1), there(w)),
                 tt_conv2d(tt_narrow(x, 0, at, 1), w));
}

static void dnn_plans_are_made_once(void **state) {
    (void)state;
    expect_conv(3, 7, 0, TT_F32);
    expect_conv(3, 8, 0, TT_F32);
    const long graphs = dnn_graphs(), executions = dnn_executions(), objects = dnn_objects();
    for (int i = 0; i < 3; i++) {
        expect_conv(3, 7, 0, TT_F32);
        expect_conv(3, 8, 0, TT_F32);
    }
    assert_int_equal(dnn_executions(), executions + 6);
    assert_int_equal(dnn_graphs(), graphs + 6); /* those of pointers alone */
    assert_int_equal(dnn_objects(), objects);
    expect_conv(3, 7, 1, TT_F32); /* another alignment */
    assert_int_equal(dnn_objects(), objects + OBJECTS_OF_PLAN);
}

/* Everything that a plan depends on is in its key: each of these calls needs a plan of its own. */
static void dnn_plans_are_for_one_case(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const long before = dnn_objects();
    tt_tensor *x = mixed(S(2, 4, 9, 9), 7, TT_F32), *w = mixed(S(4, 4, 3, 3), 10, TT_F32);
    tt_tensor *far = there(x), *far_w = there(w), *half = mixed(S(4, 2, 3, 3), 10, TT_F32);
    expect_close("plain", TT_F32, tt_conv2d(far, far_w), tt_conv2d(x, w));
    expect_close("stride", TT_F32, tt_conv2d(far, far_w, .stride = 2), tt_conv2d(x, w, .stride = 2));
    expect_close("padding", TT_F32, tt_conv2d(far, far_w, .padding = 1), tt_conv2d(x, w, .padding = 1));
    expect_close("dilation", TT_F32, tt_conv2d(far, far_w, .padding = 2, .dilation = 2),
                 tt_conv2d(x, w, .padding = 2, .dilation = 2));
    expect_close("groups", TT_F32, tt_conv2d(far, there(half), .groups = 2), tt_conv2d(x, half, .groups = 2));
    expect_close("layout", TT_F32, tt_conv2d(tt_to_memory_format(far, TT_CHANNELS_LAST), far_w), tt_conv2d(x, w));
    assert_int_equal(dnn_objects(), before + 6 * OBJECTS_OF_PLAN);
}

static void dnn_plans_have_a_bound(void **state) {
    (void)state;
    for (int64_t c = 1; c <= 20; c++)
        for (int64_t w = 3; w <= 22; w++)
            expect_conv(c, w, 0, TT_F16);
    assert_in_range(dnn_objects(), 300, OBJECTS_OF_PLAN * 256 + 1);
}

/* ---- what fails, and what is refused ---- */

/* Forward and both gradients: enough to make their plans and run them. NULL: an error. */
static tt_tensor *conv_with_gradients(const tt_device *device, int64_t W, tt_tensor **dx, tt_tensor **dw) {
    tt_tensor *x = tt_detach(tt_to_device(mixed(S(1, 3, 5, W), 7, TT_F32), device));
    tt_tensor *w = tt_detach(tt_to_device(mixed(S(2, 3, 3, 3), 10, TT_F32), device));
    tt_requires_grad_(x, true);
    tt_requires_grad_(w, true);
    tt_tensor *y = tt_conv2d(tt_to_memory_format(x, TT_CHANNELS_LAST), w);
    tt_tensor *g = y ? tt_to_device(slopes(y), device) : NULL;
    if (!y || tt_backward(tt_sum(tt_mul(y, g))))
        return NULL;
    *dx = tt_grad(x);
    *dw = tt_grad(w);
    return y;
}

static bool conv_is_the_cpus(int64_t W) {
    TT_AUTO_SCOPE;
    tt_tensor *dx, *dw, *far_dx, *far_dw, *far = conv_with_gradients(TT_CUDA(0), W, &far_dx, &far_dw);
    if (!far)
        return false;
    tt_tensor *y = conv_with_gradients(TT_CPU, W, &dx, &dw);
    expect_close("y", TT_F32, far, y);
    expect_close("dx", TT_F32, far_dx, dx);
    expect_close("dw", TT_F32, far_dw, dw);
    return true;
}

/* Each call fails once, for convolutions that there are no plans for yet; then all works again, and nothing is left. A
 * plan that can't be made gives way to another. */
static void each_dnn_call_may_fail(void **state) {
    (void)state;
    int failed = 0;
    assert_true(conv_is_the_cpus(8));
    const long handles = 1;
    for (int n = 1;; n++) {
        const int64_t W = 8 + n;
        const long before = dnn_objects(), calls = dnn_calls(NULL);
        const int64_t bytes = bytes_in_use();
        let_dnn_fail(NULL, n, 4000);
        const bool well = conv_is_the_cpus(W);
        const bool all_were_made = dnn_calls(NULL) - calls < n;
        let_dnn_fail(NULL, 0, 0);
        if (!well && (tt_last_status() != TT_ERR_SYSTEM || !strstr(tt_last_error(), "cuda:0: cuDNN's cudnnBackend") ||
                      !strstr(tt_last_error(), "failed: CUDNN_STATUS_INTERNAL_ERROR (status 4000). TT_CUDA_DNN=own")))
            fail_msg("call %d: %s", n, tt_last_error());
        tt_clear_error();
        assert_int_equal(bytes_in_use(), bytes);
        assert_int_equal((dnn_objects() - handles) % OBJECTS_OF_PLAN, 0);
        assert_in_range(dnn_objects(), before - 3 * OBJECTS_OF_PLAN, before + 3 * OBJECTS_OF_PLAN);
        assert_true(conv_is_the_cpus(W));
        failed += !well;
        if (all_were_made)
            break;
    }
    assert_in_range(failed, 100, 300);
}

/* Our own kernels do what cuDNN doesn't take, and the log says so, once. */
static void what_dnn_refuses_is_convolved_all_the_same(void **state) {
    (void)state;
    tt_set_log(keep_line, NULL);
    let_dnn_refuse(1);
    const long before = dnn_executions();
    for (int f = 0; f < FLOATS; f++) {
        expect_conv(4, 30, 0, floats[f]);
        expect_conv(4, 30, 0, floats[f]); /* that is known */
    }
    assert_int_equal(dnn_executions(), before);
    let_dnn_refuse(0);
    const long graphs = dnn_graphs();
    expect_conv(4, 30, 0, TT_F32); /* that is known, too */
    assert_int_equal(dnn_graphs(), graphs);
    assert_int_equal(tt_last_status(), TT_OK); /* a refusal is no error */
    const char *line = strstr(lines, "cuda:0: cuDNN has no plan that may be used for a result of a convolution in f32, "
                                     "x (1,4,5,30), w (2,4,3,3): Tutti's own kernels make it");
    assert_non_null(line);
    assert_null(strstr(line + 1, "cuda:0: cuDNN"));
    tt_set_log(NULL, NULL);
}

static void half_of_all_may_be_refused(void **state) {
    (void)state;
    let_dnn_refuse(2);
    for (int64_t w = 40; w < 48; w++)
        assert_true(conv_is_the_cpus(w));
    let_dnn_refuse(0);
}

/* It finds that it can't only when a description is made, or the plan runs. */
static void late_refusals_are_no_errors(void **state) {
    (void)state;
    static const struct {
        const char *name;
        int status;
    } refusals[] = {{"cudnnBackendFinalize", 2000},     {"cudnnBackendFinalize", 3004},
                    {"cudnnBackendSetAttribute", 3000}, {"cudnnBackendGetAttribute", 3000},
                    {"cudnnBackendExecute", 3000},      {"cudnnBackendExecute", 3012}};
    for (int i = 0; i < (int)(sizeof refusals / sizeof *refusals); i++) {
        let_dnn_fail(refusals[i].name, 0, refusals[i].status);
        assert_true(conv_is_the_cpus(50 + i));
        let_dnn_fail(NULL, 0, 0);
        const long executions = dnn_executions();
        assert_true(conv_is_the_cpus(50 + i)); /* what was refused stays so */
        assert_int_equal(dnn_executions(), executions);
    }
}

int main(void) {
    if (!cuda_choose() || cuda_is_real)
        return 77;
    find_fake_dnn();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(dnn_plans_are_made_once),    cmocka_unit_test(dnn_plans_are_for_one_case),
        cmocka_unit_test(each_dnn_call_may_fail),     cmocka_unit_test(what_dnn_refuses_is_convolved_all_the_same),
        cmocka_unit_test(half_of_all_may_be_refused), cmocka_unit_test(late_refusals_are_no_errors),
        cmocka_unit_test(dnn_plans_have_a_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
