/* The CUDA device on a fake of CUDA (tests/support/fake_cuda), beside the cpu: its sources are those that nvcc compiles
 * for GPUs. Streams run late now and then, and memory holds garbage until something is written to it, so what is not in
 * order gives other numbers. TT_CUDA_REAL=1: on the GPU that is there, with the library as it is installed; what needs
 * the fake's settings is left out (tools/device_check.sh). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <math.h>
#include <pthread.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "base/build.h"
#include "cuda_compare.h"
#include "tensor/core/tensor.h"
#include "unit/expect.h"

/* ---- processes that have not used CUDA yet ---- */

/* In a child: ask for a device in an environment, and expect an error. */
static void expect_in_child(const char *variable, const char *value, const char *name, const char *text) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv(variable, value, 1);
        bool refused = !tt_device_get(name) && strstr(tt_last_error(), text);
        if (!refused)
            fprintf(stderr, "expected \"%s\", got \"%s\"\n", text, tt_last_error());
        _exit(refused ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* In a child with a list of devices: is device `index` the machine's `number`? */
static void expect_device_in_child(const char *list, int index, char number) {
    char expected[] = "Fake GPU ?";
    int status = -1;
    expected[strlen(expected) - 1] = number;
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv("CUDA_VISIBLE_DEVICES", list, 1);
        const tt_device_properties *properties = tt_device_properties_of(TT_CUDA(index));
        bool is_right = properties && !strcmp(properties->name, expected);
        if (!is_right)
            fprintf(stderr, "%s: expected \"%s\", got \"%s\" (%s)\n", list, expected,
                    properties ? properties->name : "nothing", tt_last_error());
        _exit(is_right ? 0 : 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

static void what_is_missing_is_named(void **state) {
    (void)state;
    only_on_the_fake();
    expect_in_child("FAKE_CUDA_DRIVER", "11080", "cuda:0",
                    "tt_device_get: the NVIDIA driver is too old or missing: it is "
                    "one for CUDA 11.8, and this build needs one for CUDA 13.0");
    expect_in_child("FAKE_CUDA_DEVICES", "0", "cuda", "there is no device cuda:0: CUDA has 0");
    expect_in_child("CUDA_VISIBLE_DEVICES", "1", "cuda:1",
                    "there is no device cuda:1: CUDA has 1 (CUDA_VISIBLE_DEVICES=1)");
    expect_in_child("FAKE_CUDA_FAIL", "1", "cuda:0", "tt_device_get: counting CUDA devices failed: ");
    expect_in_child("FAKE_CUDA_FAIL", "6", "cuda:0", "bytes of pinned memory for cuda:0 failed: ");
}

/* Of each list, the devices that a process sees; device i of the fake is "Fake GPU i". */
static void a_list_chooses_devices(void **state) {
    static const struct {
        const char *list, *seen;
    } lists[] = {{"1,0", "10"},
                 {"0,-1,1", "0"},
                 {" 1", "1"},
                 {"1st", "1"},
                 {"0,0", ""},
                 {"", ""},
                 {"2", ""},
                 {"GPU-01122334-4556-6778-899a-abbccddeef00,GPU-001", "10"},
                 {"GPU-0", ""}, /* both begin so */
                 {"GPU-01,1", "1"},
                 {"0,GPU-01", "0"},
                 {"GPU-01,GPU-011", ""},
                 {"MIG-01122334-4556-6778-899a-abbccddeef00", "1"}};
    char name[] = "cuda:0", said[128];
    (void)state;
    only_on_the_fake();
    for (size_t l = 0; l < sizeof lists / sizeof *lists; l++) {
        for (size_t i = 0; i < strlen(lists[l].seen); i++)
            expect_device_in_child(lists[l].list, (int)i, lists[l].seen[i]);
        name[5] = (char)('0' + strlen(lists[l].seen));
        snprintf(said, sizeof said, "CUDA has %zu (CUDA_VISIBLE_DEVICES=%s)", strlen(lists[l].seen), lists[l].list);
        expect_in_child("CUDA_VISIBLE_DEVICES", lists[l].list, name, said);
    }
}

static void what_is_no_library_is_named(void **state) {
    (void)state;
    only_on_the_fake();
    char folder[] = "/tmp/tutti-cuda-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/libtutti-cuda.so", folder);
    FILE *empty = fopen(path, "w");
    assert_non_null(empty);
    fclose(empty);
    expect_in_child("TT_BACKEND_PATH", folder, "cuda:0", "tt_device_get: CUDA devices can't be loaded: ");
    unlink(path);
    rmdir(folder);
}

static void *get_device(void *arg) {
    (void)arg;
    return (void *)(uintptr_t)(tt_device_get("cuda:0") != NULL);
}

/* As under `ulimit -s 96`. */
static void a_small_stack_is_enough(void **state) {
    (void)state;
    only_on_the_fake();
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        pthread_attr_t small;
        pthread_t thread;
        void *found = NULL;
        pthread_attr_init(&small);
        pthread_attr_setstacksize(&small, 96 << 10);
        _exit(pthread_create(&thread, &small, get_device, NULL) || pthread_join(thread, &found) || !found);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* ---- devices ---- */

static void devices_are_counted_and_named(void **state) {
    (void)state;
    only_on_the_fake();
    assert_int_equal(tt_device_count(TT_DEVICE_CUDA), 2);
    assert_int_equal(tt_device_count(TT_DEVICE_CPU), 1);
    assert_int_equal(tt_device_count((tt_device_type)7), 0);
    const tt_device *first = TT_CUDA(0), *second = tt_device_get("cuda:1");
    assert_non_null(first);
    assert_ptr_equal(first, tt_device_get("cuda"));
    assert_ptr_equal(first, tt_device_get("cuda:0"));
    assert_string_equal(tt_device_name(second), "cuda:1");
    assert_null(TT_CUDA(2));
    expect_error(TT_ERR_NOT_FOUND, "tt_device_of: there is no device cuda:2: CUDA has 2");
    assert_null(TT_CUDA(-1));
    expect_error(TT_ERR_NOT_FOUND, "got 1 and -1");
    assert_null(tt_device_get("cuda:x"));
    expect_error(TT_ERR_INVALID, "tt_device_get: ");
    assert_null(tt_device_get("gpu"));
    expect_error(TT_ERR_NOT_FOUND,
                 "expected one of cpu, reference, cuda:0, cuda:1, or \"cuda:0\" and so on, got \"gpu\"");
    assert_int_equal(tt_device_synchronize(first), TT_OK);
    assert_int_equal(tt_device_synchronize(TT_CPU), TT_OK);
    assert_int_equal(tt_device_synchronize(NULL), TT_ERR_INVALID);
    tt_clear_error();
}

/* ---- moving and converting ---- */

static void values_come_back(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++) {
        tt_tensor *x = tt_to(tt_view(tt_arange(24), S(2, 3, 4)), (tt_dtype)dtype);
        tt_tensor *turned = tt_transpose(x, 0, 2);
        assert_true(tt_equal(here(there(x)), x));
        assert_true(tt_equal(here(tt_contiguous(tt_transpose(there(x), 0, 2))), turned));
        assert_true(tt_equal(here(tt_narrow(there(turned), 1, 1, 2)), tt_narrow(turned, 1, 1, 2)));
        assert_true(tt_equal(here(tt_to_device(there(x), other_device())), x));
    }
}

static void conversions_are_the_cpus(void **state) {
    (void)state;
    static const double values[] = {0,    -0.0, 1,     -1,    0.5,      -1.5,      2.5, 300,
                                    -300, 3e10, -3e10, 1e300, INFINITY, -INFINITY, NAN};
    enum { COUNT = sizeof values / sizeof *values };
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_from_data(values, S(COUNT), TT_F64);
    assert_non_null(x);
    for (int from = TT_F32; from <= TT_BOOL; from++)
        for (int to = TT_F32; to <= TT_BOOL; to++) {
            tt_tensor *typed = tt_to(x, (tt_dtype)from), *expected = tt_to(typed, (tt_dtype)to);
            tt_tensor *got = tt_to(there(typed), (tt_dtype)to);
            if (!got || difference(got, expected) > 0)
                fail_msg("%s to %s: %s", tt_dtype_name((tt_dtype)from), tt_dtype_name((tt_dtype)to), tt_last_error());
        }
}

/* ---- operators: values and gradients ---- */

typedef tt_tensor *(*unary)(tt_tensor *x);

static tt_tensor *do_pow(tt_tensor *x) { return tt_pow(x, 3); }
static tt_tensor *do_clamp(tt_tensor *x) { return tt_clamp(x, -1, 0.5); }
static tt_tensor *do_leaky_relu(tt_tensor *x) { return tt_leaky_relu(x, 0.1); }
static tt_tensor *do_gelu(tt_tensor *x) { return tt_gelu(x); }
static tt_tensor *do_gelu_tanh(tt_tensor *x) { return tt_gelu(x, .tanh = true); }
static tt_tensor *do_sum(tt_tensor *x) { return tt_sum(x); }
static tt_tensor *do_mean(tt_tensor *x) { return tt_mean(x); }
static tt_tensor *do_column_sums(tt_tensor *x) { return tt_sum(x, .dim = TT_DIMS(0)); }
static tt_tensor *do_row_sums(tt_tensor *x) { return tt_sum(x, .dim = TT_DIMS(1)); }
static tt_tensor *do_softmax(tt_tensor *x) { return tt_softmax(x, 1); }
static tt_tensor *do_log_softmax(tt_tensor *x) { return tt_log_softmax(x, 0); }
static tt_tensor *do_scale(tt_tensor *x) { return tt_scale(x, 1.5); }
static tt_tensor *do_square(tt_tensor *x) { return tt_mul(x, x); }
static tt_tensor *do_product(tt_tensor *x) { return tt_matmul(x, tt_transpose(x, 0, 1)); }
static tt_tensor *do_turned_product(tt_tensor *x) { return tt_matmul(tt_transpose(x, 0, 1), x); }
static tt_tensor *do_expand(tt_tensor *x) { return tt_sub(tt_narrow(x, 0, 0, 1), x); }

static const struct {
    const char *name;
    unary run;
    bool positive; /* of positive numbers alone */
} operators[] = {
#define UNARY(name, formula, torch, low, ...) {#name, tt_##name, (low) > 0},
#include "autograd/operators.def"
    {"relu", tt_relu, false},
    {"pow", do_pow, false},
    {"clamp", do_clamp, false},
    {"leaky_relu", do_leaky_relu, false},
    {"gelu", do_gelu, false},
    {"gelu_tanh", do_gelu_tanh, false},
    {"sum", do_sum, false},
    {"mean", do_mean, false},
    {"sum over rows", do_column_sums, false},
    {"sum over columns", do_row_sums, false},
    {"softmax", do_softmax, false},
    {"log_softmax", do_log_softmax, false},
    {"scale", do_scale, false},
    {"mul", do_square, false},
    {"matmul", do_product, false},
    {"matmul of a transposed one", do_turned_product, false},
    {"sub, spread", do_expand, false},
};

/* y and dx where the gradient of y is `slope` * y's own numbers. */
static void run_operator(unary run, tt_tensor *x, tt_tensor **y, tt_tensor **dx) {
    tt_requires_grad_(x, true);
    *y = run(x);
    *dx = *y && !tt_backward(tt_sum(*y)) ? tt_grad(x) : NULL;
}

static void operators_are_the_cpus(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof operators / sizeof *operators; i++)
        for (int f = 0; f < FLOATS; f++) {
            TT_AUTO_SCOPE;
            tt_tensor *x = numbers(5, 7, floats[f]), *y, *dx, *far_y, *far_dx;
            x = operators[i].positive ? tt_detach(tt_add_scalar(tt_abs(x), 0.5)) : x;
            tt_tensor *far = tt_detach(there(x));
            run_operator(operators[i].run, x, &y, &dx);
            run_operator(operators[i].run, far, &far_y, &far_dx);
            expect_close(operators[i].name, floats[f], far_y, y);
            expect_close(operators[i].name, floats[f], far_dx, dx);
        }
}

/* Sums of many terms are shared by blocks, and by threads; the same bits each time. */
static void long_sums_are_the_cpus(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const int64_t shape[][2] = {{1, 100000}, {100000, 1}, {3, 40000}, {40000, 3}, {64, 33}, {2, 0}};
    for (size_t i = 0; i < sizeof shape / sizeof *shape; i++)
        for (int dim = 0; dim < 2; dim++) {
            tt_tensor *x = tt_randn(S(shape[i][0], shape[i][1]), NULL), *far = there(x);
            tt_tensor *a = tt_sum(far, .dim = TT_DIMS(dim)), *b = tt_sum(far, .dim = TT_DIMS(dim));
            expect_close("sum", TT_F32, a, tt_sum(x, .dim = TT_DIMS(dim)));
            assert_true(tt_equal(a, b));
        }
}

static void integers_are_the_cpus(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    static const tt_dtype integers[] = {TT_I64, TT_I32, TT_I16, TT_I8, TT_U8};
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++) {
        tt_tensor *a = tt_to(tt_arange(300), integers[i]);
        assert_true(tt_equal(here(tt_argmax(there(tt_view(a, S(3, 100))), 1)), tt_argmax(tt_view(a, S(3, 100)), 1)));
    }
    tt_tensor *x = tt_randn(S(6, 50), NULL);
    tt_tensor_f32(x)[60] = NAN;
    assert_true(tt_equal(here(tt_argmax(there(x), 1)), tt_argmax(x, 1)));
    assert_true(tt_equal(here(tt_argmax(there(x), 0)), tt_argmax(x, 0)));
    tt_tensor *cube = tt_randn(S(4, 5, 6), NULL), *turned = tt_permute(cube, S(2, 0, 1)); /* and of views */
    for (int dim = 0; dim < 3; dim++)
        assert_true(tt_equal(here(tt_argmax(tt_permute(there(cube), S(2, 0, 1)), dim)), tt_argmax(turned, dim)));
}

/* ---- training ---- */

enum { STEPS = TT__TSAN ? 6 : 50, BATCH = 32 };

static tt_module *new_mlp(const tt_device *device) {
    tt_manual_seed(1);
    tt_module *model = tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, 64), tt_nn_relu(), tt_nn_linear(64, 10));
    assert_int_equal(tt_module_to_device(model, device), TT_OK);
    return model;
}

static void train(const tt_device *device, double loss[STEPS]) {
    tt_module *model = new_mlp(device);
    tt_optimizer *sgd =
        tt_sgd(tt_module_parameters(model), 0.1, .momentum = 0.9, .weight_decay = 1e-4, .nesterov = true);
    train_digits(model, sgd, STEPS, BATCH, loss);
}

static void an_mlp_trains_to_the_cpus_losses(void **state) {
    (void)state;
    double near[STEPS], far[STEPS], again[STEPS];
    train(TT_CPU, near);
    train(TT_CUDA(0), far);
    train(other_device(), again);
    expect_losses(STEPS, near, far, again);
    assert_true(far[STEPS - 1] < (TT__TSAN ? 1 : 0.5) * far[0]);
}

/* ---- what it can't ---- */

static void operands_lie_on_one_device(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_ones(S(2, 3), TT_F32);
    assert_null(tt_add(there(x), x));
    expect_error(TT_ERR_INVALID,
                 "tt_add: expected tensors on one device, got f32 (2, 3) on cuda:0 and f32 (2, 3) on cpu");
    if (!cuda_is_real) {
        assert_null(tt_add(there(x), tt_to_device(x, TT_CUDA(1))));
        expect_error(TT_ERR_INVALID, "got f32 (2, 3) on cuda:0 and f32 (2, 3) on cuda:1");
    }
    assert_null(tt_tensor_data(there(x)));
    expect_error(TT_ERR_UNSUPPORTED, "lies on the device \"cuda:0\", which pointers don't reach");
}

static void memory_that_is_out_is_told(void **state) {
    (void)state;
    only_on_the_fake();
    TT_AUTO_SCOPE;
    {
        TT_AUTO_SCOPE;
        assert_non_null(there(tt_ones(S(64, 1 << 20), TT_U8))); /* all that there is, in one piece */
    }
    tt_tensor *held = there(tt_ones(S(1 << 20), TT_F32));
    assert_null(there(tt_ones(S(64, 1 << 20), TT_U8)));
    expect_error(TT_ERR_MEMORY,
                 "tt_to_device: no memory for u8 (64, 1048576): cuda:0 is out of memory: 67108864 bytes were "
                 "asked for; of its 64 MiB this process has 4 MiB in 1 tensors (64 MiB at most until now) and ");
    assert_true(tt_equal(here(tt_add(held, held)), tt_full(S(1 << 20), TT_F32, 2))); /* and it goes on */
}

static void a_forked_child_is_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    assert_non_null(there(tt_ones(S(2), TT_F32)));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0)
        _exit(!there(tt_ones(S(2), TT_F32)) && strstr(tt_last_error(), "had used CUDA before fork()") ? 0 : 1);
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_missing_is_named), /* before this process has used CUDA */
        cmocka_unit_test(a_list_chooses_devices),     cmocka_unit_test(what_is_no_library_is_named),
        cmocka_unit_test(a_small_stack_is_enough),    cmocka_unit_test(devices_are_counted_and_named),
        cmocka_unit_test(values_come_back),           cmocka_unit_test(conversions_are_the_cpus),
        cmocka_unit_test(operators_are_the_cpus),     cmocka_unit_test(long_sums_are_the_cpus),
        cmocka_unit_test(integers_are_the_cpus),      cmocka_unit_test(an_mlp_trains_to_the_cpus_losses),
        cmocka_unit_test(operands_lie_on_one_device), cmocka_unit_test(memory_that_is_out_is_told),
        cmocka_unit_test(a_forked_child_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
