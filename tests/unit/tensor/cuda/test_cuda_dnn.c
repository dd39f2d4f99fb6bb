/* Convolutions of the CUDA device by cuDNN (a fake of it: tests/support/fake_cuda/cudnn.h), beside the cpu's, and what
 * chooses between it and our own kernels; as test_cuda.c. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "cuda_compare.h"
#include "cuda_conv_cases.h"
#include "cuda_dnn_fake.h"
#include "unit/expect.h"

/* Each direction runs by cuDNN, in each type and layout. */
static void cudnn_convolves(void **state) {
    (void)state;
    for (int i = 0; i < CONV_CASES; i++)
        for (int f = 0; f < FLOATS; f++)
            for (int lies = 0; lies < 3; lies++) {
                const long before = dnn_executions();
                compare_conv(&conv_cases[i], floats[f], lies != 1, lies == 1, lies == 2);
                if (dnn_executions() != before + 3)
                    fail_msg("%s of %s: %ld of 3 by cuDNN", conv_cases[i].name, tt_dtype_name(floats[f]),
                             dnn_executions() - before);
            }
}

static void other_kinds_are_convolved_by_it(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const long before = dnn_executions();
    tt_tensor *line = mixed(S(2, 3, 11), 7, TT_F32), *taps = mixed(S(4, 3, 3), 10, TT_F32);
    expect_close("conv1d", TT_F32, tt_conv1d(there(line), there(taps), .stride = 2, .padding = 1),
                 tt_conv1d(line, taps, .stride = 2, .padding = 1));
    tt_tensor *x = mixed(S(2, 3, 4, 5), 7, TT_F32), *w = mixed(S(3, 2, 3, 3), 10, TT_F32);
    expect_close("conv_transpose2d", TT_F32, tt_conv_transpose2d(there(x), there(w), .stride = 2, .output_padding = 1),
                 tt_conv_transpose2d(x, w, .stride = 2, .output_padding = 1));
    assert_int_equal(dnn_executions(), before + 2);
}

/* 16-bit floats are added up in f32: 4096 ones would stop at 256 in bf16. */
static void long_sums_are_convolved_exactly(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    for (int f = 0; f < FLOATS; f++) {
        tt_tensor *x = there(tt_ones(S(1, 512, 3, 3), floats[f])), *w = there(tt_ones(S(2, 512, 2, 2), floats[f]));
        assert_true(tt_equal(here(tt_conv2d(x, w)), tt_full(S(1, 2, 2, 2), floats[f], 2048)));
    }
}

/* f32 is not rounded to TF32 on the way. */
static void f32_keeps_its_bits(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_full(S(1, 1, 3, 3), TT_F32, 1 + 0x1p-20), *w = tt_ones(S(1, 1, 1, 1), TT_F32);
    for (int lies = 0; lies < 2; lies++) {
        tt_tensor *far = lies ? tt_to_memory_format(there(x), TT_CHANNELS_LAST) : there(x);
        assert_true(tt_equal(here(tt_conv2d(far, there(w))), x));
    }
}

/* An image that begins at an odd address is asked about anew. */
static void an_image_anywhere_is_convolved(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = mixed(S(4, 3, 5, 7), 7, TT_F16), *w = mixed(S(2, 3, 3, 3), 10, TT_F16);
    for (int at = 0; at < 4; at++)
        expect_close("conv2d", TT_F16, tt_conv2d(tt_narrow(there(x), 0, at, 1), there(w)),
                     tt_conv2d(tt_narrow(x, 0, at, 1), w));
}

static void each_device_has_its_own_dnn(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = mixed(S(1, 3, 5, 7), 7, TT_F32), *w = mixed(S(2, 3, 3, 3), 10, TT_F32);
    tt_tensor *y = tt_conv2d(tt_to_device(x, other_device()), tt_to_device(w, other_device()));
    expect_close("conv2d", TT_F32, y, tt_conv2d(x, w));
}

/* ---- processes that have not used CUDA yet ---- */

static const char *dnn_text;
static char logged[8192];

static void keep_logged(tt_log_level level, const char *line, void *user) {
    size_t n = strlen(logged);
    (void)user;
    if (level == TT_LOG_WARNING)
        snprintf(logged + n, sizeof logged - n, "%s\n", line);
}

static tt_tensor *one_conv(const tt_device *device) {
    tt_tensor *x = tt_to_device(mixed(S(2, 3, 5, 7), 7, TT_F32), device);
    tt_tensor *w = tt_to_device(mixed(S(2, 3, 3, 3), 10, TT_F32), device);
    return tt_conv2d(x, w, .bias = tt_to_device(mixed(S(2), 4, TT_F32), device));
}

static bool it_convolves(void) {
    TT_AUTO_SCOPE;
    tt_set_log(keep_logged, NULL);
    tt_tensor *y = one_conv(TT_CUDA(0));
    return y && difference(y, one_conv(TT_CPU)) <= 2e-6;
}

static bool it_convolves_without(void) { return it_convolves() && dnn_executions() == 0 && !*logged; }
static bool it_convolves_with(void) { return it_convolves() && dnn_executions() == 1 && !*logged; }
static bool it_says(void) { return !one_conv(TT_CUDA(0)) && strstr(tt_last_error(), dnn_text); }

static bool it_must_be_there(void) {
    setenv("TT_CUDA_DNN", "cudnn", 1);
    return it_says();
}

static bool it_fails_or_convolves(void) {
    TT_AUTO_SCOPE;
    const tt_device *device = TT_CUDA(0);
    tt_tensor *y = device ? one_conv(device) : NULL, *near = y ? here(y) : NULL;
    return near ? difference(near, one_conv(TT_CPU)) <= 2e-6 : tt_last_status() != TT_OK;
}

/* The first convolution begins the library; where that fails, the next one tries again. */
static bool it_begins_dnn_later(void) {
    static const char *const functions[] = {"cudnnCreate", "cudnnSetStream"};
    char text[128];
    for (int i = 0; i < 2; i++) {
        let_dnn_fail(functions[i], 0, 4000);
        snprintf(text, sizeof text,
                 "cuda:0: cuDNN's %s() of a handle failed: CUDNN_STATUS_INTERNAL_ERROR (status 4000)", functions[i]);
        dnn_text = text;
        if (!it_says() || dnn_objects() != 0)
            return false;
    }
    let_dnn_fail(NULL, 0, 0);
    return it_convolves_with();
}

/* Where it doesn't know the GPU, our own kernels run, and the log says why, once. */
static bool it_knows_no_gpu(void) {
    let_dnn_fail("cudnnCreate", 0, 3007);
    bool good = it_convolves();
    good = it_convolves() && good && dnn_executions() == 0 && dnn_calls("cudnnCreate") == 1;
    const char *line = strstr(logged, "cuda:0: Tutti's own kernels convolve and attend, since cuDNN's cudnnCreate()");
    return good && line && !strstr(line + 1, "cuda:0:");
}

static bool it_must_know_the_gpu(void) {
    let_dnn_fail("cudnnCreate", 0, 3007);
    dnn_text = "cuda:0: cuDNN's cudnnCreate() of a handle failed: CUDNN_STATUS_NOT_SUPPORTED (status 3007)";
    return it_says();
}

static void the_environment_chooses_dnn(void **state) {
    (void)state;
    expect_child_with("TT_CUDA_DNN", "", it_convolves_with);
    expect_child_with("TT_CUDA_DNN", "own", it_convolves_without);
    expect_child_with("TT_CUDA_DNN", "cudnn", it_convolves_with);
    dnn_text = "TT_CUDA_DNN: expected \"own\" or \"cudnn\", got \"mkl\"";
    expect_child_with("TT_CUDA_DNN", "mkl", it_says);
    expect_child_with("TT_CUDA_DNN", "", it_begins_dnn_later);
    expect_child_with("TT_CUDA_DNN", "", it_knows_no_gpu);
    expect_child_with("TT_CUDA_DNN", "cudnn", it_must_know_the_gpu);
}

/* CUDA's own calls, from number n on. */
static void failures_of_cuda_are_told_by_dnn(void **state) {
    (void)state;
    for (int n = 1; n <= 30; n++) {
        char number[8];
        snprintf(number, sizeof number, "%d", n);
        expect_child_with("FAKE_CUDA_FAIL", number, it_fails_or_convolves);
    }
}

/* libcudnn.so.9 without libcudnn_graph.so.9, and one that lacks an entry point. */
static void an_incomplete_cudnn_is_passed_over(void **state) {
    static const char *const texts[][2] = {
        {"alone", "cuDNN is incomplete: expected libcudnn_graph.so.9 beside"},
        {"old", "/old/libcudnn.so.9 has no cudnnBackendExecute(). Expected cuDNN 9"}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        char folder[4200];
        snprintf(folder, sizeof folder, "%s/%s", getenv("TT_CUDA_PATH"), texts[i][0]);
        dnn_text = texts[i][1];
        expect_child_with("TT_CUDA_PATH", folder, it_convolves_without);
        expect_child_with("TT_CUDA_PATH", folder, it_must_be_there);
    }
}

int main(void) {
    if (!cuda_choose() || cuda_is_real)
        return 77;
    find_fake_dnn();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_environment_chooses_dnn), /* before this process has used CUDA */
        cmocka_unit_test(failures_of_cuda_are_told_by_dnn),
        cmocka_unit_test(an_incomplete_cudnn_is_passed_over),
        cmocka_unit_test(cudnn_convolves),
        cmocka_unit_test(other_kinds_are_convolved_by_it),
        cmocka_unit_test(long_sums_are_convolved_exactly),
        cmocka_unit_test(f32_keeps_its_bits),
        cmocka_unit_test(an_image_anywhere_is_convolved),
        cmocka_unit_test(each_device_has_its_own_dnn),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
