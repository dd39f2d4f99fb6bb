/* What the tests of the CUDA device have in common: where it comes from, and its results beside the cpu's. After
 * cmocka.h. */
#ifndef TT_TESTS_UNIT_CUDA_COMPARE_H
#define TT_TESTS_UNIT_CUDA_COMPARE_H

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

/* On a GPU, not on the fake. */
static bool cuda_is_real;

static inline void only_on_the_fake(void) {
    if (cuda_is_real)
        skip();
}

/* What the fake has counted since the process began: "fake_cuda_waits", "fake_cuda_launches". It is loaded. */
static inline unsigned long fake_count(const char *name) {
    void *fake = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    unsigned long (*count)(void) = NULL;
    assert_non_null(fake);
    *(void **)&count = dlsym(fake, name);
    assert_non_null(count);
    dlclose(fake);
    return count();
}

/* Another device than the first, where there is one. */
static inline const tt_device *other_device(void) { return TT_CUDA(tt_device_count(TT_DEVICE_CUDA) > 1); }

static inline tt_tensor *there(tt_tensor *x) { return tt_to_device(x, TT_CUDA(0)); }
static inline tt_tensor *here(tt_tensor *x) { return tt_to_device(x, TT_CPU); }

/* Numbers from -2 on, in steps of an eighth: the same in each type of float. */
static inline tt_tensor *numbers(int64_t rows, int64_t columns, tt_dtype dtype) {
    tt_tensor *x = tt_add_scalar(tt_scale(tt_to(tt_arange(rows * columns), TT_F64), 0.125), -2);
    return tt_to(tt_view(x, S(rows, columns)), dtype);
}

/* The largest difference, relative where numbers are above 1; NaN equals NaN. */
static inline double difference(tt_tensor *a, tt_tensor *b) {
    TT_AUTO_SCOPE;
    double most = 0;
    const double *x = tt_tensor_data(tt_contiguous(tt_to(here(a), TT_F64)));
    const double *y = tt_tensor_data(tt_contiguous(tt_to(here(b), TT_F64)));
    assert_true(x && y && tt_tensor_numel(a) == tt_tensor_numel(b));
    for (int64_t i = 0; i < tt_tensor_numel(a); i++) {
        if ((isnan(x[i]) && isnan(y[i])) || x[i] == y[i])
            continue;
        double d = fabs(x[i] - y[i]) / fmax(1, fabs(y[i]));
        most = d <= most ? most : d;
    }
    return most;
}

static inline double tolerance(tt_dtype dtype) {
    return dtype == TT_F64 ? 1e-13 : dtype == TT_F32 ? 2e-6 : dtype == TT_F16 ? 1e-3 : 8e-3;
}

static inline void expect_close(const char *what, tt_dtype dtype, tt_tensor *got, tt_tensor *expected) {
    if (!got || !expected)
        fail_msg("%s of %s: %s", what, tt_dtype_name(dtype), tt_last_error());
    double d = difference(got, expected);
    if (!(d <= tolerance(dtype)))
        fail_msg("%s of %s is %g away from the cpu's", what, tt_dtype_name(dtype), d);
}

static const tt_dtype floats[] = {TT_F32, TT_F64, TT_F16, TT_BF16};
enum { FLOATS = sizeof floats / sizeof *floats };

/* Train on drawn digits, `steps` steps of `batch`; both objects are freed. */
static inline void train_digits(tt_module *model, tt_optimizer *optimizer, int steps, int batch, double *loss) {
    const tt_device *device = tt_tensor_device(tt_module_parameters(model)->tensors[0]);
    tt_dataset *digits = tt_digits((int64_t)steps * batch, 3);
    assert_int_equal(tt_dataset_normalize(digits, 0.1307, 0.3081), TT_OK);
    tt_loader *loader = tt_loader_new(digits, batch, tt_in_order());
    tt_batch b;
    for (int step = 0; tt_loader_next(loader, &b) > 0; step++) {
        TT_AUTO_SCOPE;
        tt_tensor *l = tt_cross_entropy(tt_module_forward(model, tt_to_device(b.x, device)), tt_to_device(b.y, device));
        tt_optimizer_zero_grad(optimizer);
        if (tt_backward(l) || tt_item(l, &loss[step]) || tt_optimizer_step(optimizer))
            fail_msg("step %d: %s", step, tt_last_error());
    }
    tt_loader_free(loader);
    tt_dataset_free(digits);
    tt_optimizer_free(optimizer);
    tt_module_free(model);
}

/* The cpu's losses, those of the device and of another one. */
static inline void expect_losses(int steps, const double *near, const double *far, const double *again) {
    for (int step = 0; step < steps; step++)
        if (!(fabs(near[step] - far[step]) <= 1e-4) || far[step] != again[step])
            fail_msg("step %d: loss %.9g on the cpu, %.9g and %.9g on two devices", step, near[step], far[step],
                     again[step]);
}

/* In a child with a variable: does `body` return true? Before this process uses CUDA. */
static inline void expect_child_with(const char *name, const char *value, bool (*body)(void)) {
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        setenv(name, value, 1);
        bool good = body();
        if (!good)
            fprintf(stderr, "%s=%s: %s\n", name, value, tt_last_error());
        _exit(good ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
}

/* Choose the fake of CUDA (tests/support/fake_cuda), or with TT_CUDA_REAL=1 the library as it is installed; before any
 * call that uses CUDA. False: the test doesn't know where it was built. */
static inline bool cuda_choose(void) {
    const char *build = getenv("TT_BUILD");
    char path[4096];
    cuda_is_real = getenv("TT_CUDA_REAL") != NULL;
    if (cuda_is_real || !build)
        return cuda_is_real;
    snprintf(path, sizeof path, "%s/tests/fake_cuda", build);
    setenv("TT_BACKEND_PATH", path, 1);
    setenv("TT_CUDA_PATH", path, 1); /* the fakes of NVIDIA's libraries, not the toolkit's */
    unsetenv("CUDA_VISIBLE_DEVICES");
    return true;
}

#endif
