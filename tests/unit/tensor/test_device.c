/* A device that is not the host. Its memory and kernels stand in tests/support/far_device.c and far_kernels.c; no file
 * of src/ knows of it, and all that a model's training needs runs on it through tt__device_register() alone. Whoever
 * followed a pointer into its memory would die here. */
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

#include "support/far_device.h"
#include "support/ranks.h"
#include "tensor/core/tensor.h"
#include "unit/expect.h"

#define S(...) TT_SHAPE(__VA_ARGS__)

enum { STEPS = 30, BATCH = 32 };

static tt_tensor *numbers(int64_t rows, int64_t columns) {
    tt_tensor *x = tt_arange(rows * columns);
    return tt_view(tt_to(x, TT_F32), S(rows, columns));
}

static tt_tensor *far_ones(int64_t rows, int64_t columns) {
    return tt_to_device(tt_ones(S(rows, columns), TT_F32), far_device());
}

static bool is_on_host(const tt_tensor *x) { return tt__device_is_host(tt_tensor_device(x)); }

/* ---- moving ---- */

static void values_come_back(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = numbers(3, 4), *far = tt_to_device(x, far_device());
    assert_string_equal(tt_device_name(tt_tensor_device(far)), "far");
    assert_ptr_equal(tt_to_device(far, far_device()), far);
    assert_true(tt_equal(tt_to_device(far, tt_device_get("cpu")), x));
    assert_true(tt_equal(far, x)); /* compared on the host */
    tt_tensor *turned = tt_transpose(far, 0, 1), *there = tt_to_device(tt_transpose(x, 0, 1), far_device());
    assert_true(tt_equal(turned, tt_transpose(x, 0, 1)) && tt_equal(there, turned));
    assert_int_equal(tt_tensor_stride(there, 0), 1); /* in the order of memory that x has */
    assert_true(tt_equal(tt_contiguous(turned), tt_contiguous(tt_transpose(x, 0, 1))));
    double value = 0;
    assert_int_equal(tt_item(tt_narrow(tt_narrow(far, 0, 2, 1), 1, 1, 1), &value), TT_OK);
    assert_true(value == 9);
    assert_int_equal(tt_copy(tt_narrow(far, 1, 0, 2), tt_zeros(S(3, 2), TT_F32)), TT_OK);
    assert_int_equal(tt_item(tt_narrow(tt_narrow(far, 0, 2, 1), 1, 1, 1), &value), TT_OK);
    assert_true(value == 0);
}

static void pointers_and_texts(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    char text[64];
    tt_tensor *far = far_ones(2, 3);
    assert_null(tt_tensor_data(far));
    expect_error(TT_ERR_UNSUPPORTED,
                 "tt_tensor_data: f32 (2, 3) lies on the device \"far\", which pointers don't reach");
    assert_null(tt_tensor_f32(far));
    expect_error(TT_ERR_UNSUPPORTED, "tt_tensor_f32");
    assert_string_equal(tt_tensor_describe(far, text, sizeof text), "f32 (2, 3)");
    assert_int_equal(tt_tensor_numel(far), 6);
    assert_true(tt_is_contiguous(far));
}

/* ---- training ---- */

typedef struct training {
    const tt_device *device;
    tt_module *model;
    tt_optimizer *sgd;
    double loss[STEPS];
} training;

static void training_begin(training *t, const tt_device *device) {
    t->device = device;
    tt_manual_seed(1);
    t->model = tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, 64), tt_nn_relu(), tt_nn_linear(64, 10));
    assert_int_equal(tt_module_to_device(t->model, device), TT_OK);
    t->sgd = tt_sgd(tt_module_parameters(t->model), 0.1, .momentum = 0.9, .weight_decay = 1e-4);
    assert_non_null(t->sgd);
}

static void training_end(training *t) {
    tt_optimizer_free(t->sgd);
    tt_module_free(t->model);
}

/* Steps `from` to `to` of an epoch. */
static void train(training *t, int from, int to) {
    tt_dataset *digits = tt_digits(STEPS * BATCH, 3);
    assert_int_equal(tt_dataset_normalize(digits, 0.1307, 0.3081), TT_OK);
    tt_loader *loader = tt_loader_new(digits, BATCH, tt_in_order());
    tt_batch b;
    for (int step = 0; step < to && tt_loader_next(loader, &b) > 0; step++) {
        TT_AUTO_SCOPE;
        if (step < from)
            continue;
        tt_tensor *x = tt_to_device(b.x, t->device), *y = tt_to_device(b.y, t->device);
        tt_tensor *loss = tt_cross_entropy(tt_module_forward(t->model, x), y);
        tt_optimizer_zero_grad(t->sgd);
        assert_int_equal(tt_backward(loss), TT_OK);
        assert_int_equal(tt_item(loss, &t->loss[step]), TT_OK);
        assert_int_equal(tt_optimizer_step(t->sgd), TT_OK);
    }
    tt_loader_free(loader);
    tt_dataset_free(digits);
}

static void an_mlp_trains_to_the_cpus_losses(void **state) {
    (void)state;
    training here, far;
    training_begin(&here, tt_device_get("cpu"));
    training_begin(&far, far_device());
    train(&here, 0, STEPS);
    train(&far, 0, STEPS);
    for (int step = 0; step < STEPS; step++)
        if (!(fabs(here.loss[step] - far.loss[step]) <= 1e-5))
            fail_msg("step %d: loss %.9g on the cpu, %.9g far", step, here.loss[step], far.loss[step]);
    assert_true(far.loss[STEPS - 1] < 0.5 * far.loss[0]);
    const tt_named_tensors *p = tt_module_parameters(far.model);
    for (int64_t i = 0; i < p->count; i++)
        assert_false(is_on_host(p->tensors[i]) || is_on_host(tt_grad(p->tensors[i])));
    training_end(&here);
    training_end(&far);
}

/* Half of the steps, a file, the other half by others: the losses of an undisturbed run. */
static void checkpoints_are_written_and_read(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-device-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    close(fd);
    training whole, first, second;
    training_begin(&whole, far_device());
    train(&whole, 0, STEPS);
    training_begin(&first, far_device());
    train(&first, 0, STEPS / 2);
    assert_int_equal(tt_checkpoint_save(path, first.model, first.sgd, NULL), TT_OK);
    training_begin(&second, far_device());
    assert_int_equal(tt_checkpoint_load(path, second.model, second.sgd, NULL), TT_OK);
    train(&second, STEPS / 2, STEPS);
    for (int step = STEPS / 2; step < STEPS; step++)
        assert_true(second.loss[step] == whole.loss[step]);
    training_end(&second);

    training here; /* and a model on the host reads it, and is moved back */
    training_begin(&here, tt_device_get("cpu"));
    assert_int_equal(tt_checkpoint_load(path, here.model, here.sgd, NULL), TT_OK);
    const tt_named_tensors *a = tt_module_state_dict(here.model), *b = tt_module_state_dict(first.model);
    for (int64_t i = 0; i < a->count; i++)
        assert_true(is_on_host(a->tensors[i]) && tt_equal(a->tensors[i], b->tensors[i]));
    tt_optimizer_free(here.sgd);
    here.sgd = NULL;
    assert_int_equal(tt_module_to_device(here.model, far_device()), TT_OK);
    assert_int_equal(tt_module_to_device(here.model, tt_device_get("cpu")), TT_OK);
    a = tt_module_state_dict(here.model);
    for (int64_t i = 0; i < a->count; i++)
        assert_true(is_on_host(a->tensors[i]) && tt_equal(a->tensors[i], b->tensors[i]));
    training_end(&here);
    training_end(&first);
    training_end(&whole);
    unlink(path);
}

/* ---- what it can't ---- */

/* The expression's one error: an operator without a kernel names itself once, what it lacks, and the device. */
static void expect_no_kernel(const tt_tensor *got, const char *text) {
    assert_null(got);
    assert_string_equal(tt_last_error(), text);
    assert_int_equal(tt_backward(NULL), TT_ERR_UNSUPPORTED);
    expect_error(TT_ERR_UNSUPPORTED, text);
}

static void other_operators_are_errors(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = far_ones(2, 3), *d = tt_to_device(tt_ones(S(2, 3), TT_F64), far_device());
    expect_no_kernel(tt_mul(x, x), "tt_mul: the device \"far\" has no kernel \"mul\" for f32");
    expect_no_kernel(tt_add(x, x), "tt_add: the device \"far\" has no kernel \"add\" for f32");
    expect_no_kernel(tt_scale(x, 2), "tt_scale: the device \"far\" has no kernel \"scale\" for f32");
    expect_no_kernel(tt_mse_loss(x, x), "tt_mse_loss: the device \"far\" has no kernel \"mse_loss\" for f32");
    expect_no_kernel(tt_log_softmax(x, 1), "tt_log_softmax: the device \"far\" has no kernel \"log_softmax\" for f32");
    expect_no_kernel(tt_argmax(x, 1), "tt_argmax: the device \"far\" has no kernel \"argmax\" for f32");
    expect_no_kernel(tt_relu(d), "tt_relu: the device \"far\" has no kernel \"relu\" for f64");
    expect_no_kernel(tt_to(x, TT_F64), "tt_to: the device \"far\" has no kernel \"convert\" for f64");
    assert_int_equal(tt_uniform_(x, 0, 1, NULL), TT_OK); /* drawn on the host */
}

static void one_adam_step(tt_optimizer *adam, tt_tensor *w) {
    TT_AUTO_SCOPE;
    assert_int_equal(tt_backward(tt_sum(tt_relu(w))), TT_OK);
    assert_int_equal(tt_optimizer_step(adam), TT_ERR_UNSUPPORTED);
    expect_error(TT_ERR_UNSUPPORTED, "tt_optimizer_step: tt_adam has no rule for the device \"far\"");
}

static void other_optimizers_are_errors(void **state) {
    (void)state;
    tt_module *model = tt_nn_linear(3, 2);
    assert_int_equal(tt_module_to_device(model, far_device()), TT_OK);
    tt_optimizer *adam = tt_adam(tt_module_parameters(model), 1e-3);
    one_adam_step(adam, tt_module_parameters(model)->tensors[0]);
    tt_optimizer_free(adam);
    tt_module_free(model);
}

static void operands_lie_on_one_device(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = far_ones(2, 3), *here = tt_ones(S(2, 3), TT_F32), *t = tt_zeros(S(2), TT_I64);
    assert_null(tt_add(x, here));
    expect_error(TT_ERR_INVALID, "tt_add: expected tensors on one device, got f32 (2, 3) on far and f32 (2, 3) on cpu");
    assert_null(tt_linear(here, x, NULL));
    expect_error(TT_ERR_INVALID,
                 "tt_linear: expected tensors on one device, got f32 (2, 3) on cpu and f32 (2, 3) on far");
    assert_null(tt_cross_entropy(x, t));
    expect_error(TT_ERR_INVALID, "got f32 (2, 3) on far and i64 (2) on cpu");
    assert_null(tt_cross_entropy(x, tt_to_device(tt_full(S(2), TT_I64, 3), far_device())));
    expect_error(TT_ERR_INVALID, "expected targets in 0..2, got target[0] = 3");
    tt_tensor *w = tt_requires_grad_(x, true);
    assert_int_equal(tt_backward(tt_relu(w), .gradient = here), TT_ERR_DTYPE);
    expect_error(TT_ERR_DTYPE, "expected a gradient f32 on far");
    assert_int_equal(tt_backward(NULL), TT_ERR_INVALID); /* what the scope still had */
    tt_clear_error();
}

static void data_sets_lie_on_the_host(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    assert_null(tt_tensor_dataset(far_ones(4, 3), tt_zeros(S(4), TT_I64)));
    expect_error(TT_ERR_UNSUPPORTED,
                 "tt_tensor_dataset: expected tensors on the host, got inputs f32 (4, 3) on \"far\"");
    assert_null(tt_tensor_dataset(tt_ones(S(4, 3), TT_F32), far_ones(4, 1)));
    expect_error(TT_ERR_UNSUPPORTED, "targets f32 (4, 1) on \"far\"");
    assert_int_equal(tt_idx_write(far_ones(2, 2), "/nonexistent/far.idx"), TT_ERR_UNSUPPORTED);
    expect_error(TT_ERR_UNSUPPORTED, "on \"far\"");
}

/* ---- memory ---- */

/* A step in which the nth allocation of the device fails: TT_ERR_MEMORY, or success where none was left. */
static tt_status failing_step(tt_module *model, tt_optimizer *sgd, int nth) {
    TT_AUTO_SCOPE;
    far_device_fail_nth(nth);
    tt_tensor *x = far_ones(4, 3), *y = tt_to_device(tt_zeros(S(4), TT_I64), far_device());
    tt_status status = tt_backward(tt_cross_entropy(tt_module_forward(model, x), y));
    if (!status)
        status = tt_optimizer_step(sgd);
    far_device_fail_nth(0);
    tt_optimizer_zero_grad(sgd);
    tt_clear_error();
    return status;
}

static void failing_allocations_are_errors(void **state) {
    (void)state;
    int before = far_device_live_blocks(), failures = 0;
    for (int nth = 1;; nth++, failures++) {
        tt_module *model = tt_nn_sequential(tt_nn_linear(3, 5), tt_nn_relu(), tt_nn_linear(5, 2));
        assert_int_equal(tt_module_to_device(model, far_device()), TT_OK);
        tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.1, .momentum = 0.9);
        tt_status status = failing_step(model, sgd, nth);
        tt_optimizer_free(sgd);
        tt_module_free(model);
        assert_int_equal(far_device_live_blocks(), before);
        if (!status)
            break;
        assert_int_equal(status, TT_ERR_MEMORY);
    }
    assert_true(failures > 10);
    TT_AUTO_SCOPE;
    far_device_fail_nth(1);
    assert_null(far_ones(2, 3));
    expect_error(TT_ERR_MEMORY, "tt_to_device: no memory for f32 (2, 3): far has no 24 bytes");
}

static void tensors_without_elements_leave_nothing(void **state) {
    (void)state;
    int before = far_device_live_blocks();
    {
        TT_AUTO_SCOPE;
        assert_non_null(far_ones(2, 0));
        assert_int_equal(far_device_live_blocks(), before + 1);
    }
    assert_int_equal(far_device_live_blocks(), before);
}

static void a_module_that_can_not_move_stays(void **state) {
    (void)state;
    int before = far_device_live_blocks();
    tt_module *model = tt_nn_linear(3, 2);
    far_device_fail_nth(2);
    assert_int_equal(tt_module_to_device(model, far_device()), TT_ERR_MEMORY);
    tt_clear_error();
    const tt_named_tensors *p = tt_module_parameters(model);
    assert_true(is_on_host(p->tensors[0]) && is_on_host(p->tensors[1]));
    assert_int_equal(far_device_live_blocks(), before);
    tt_module_free(model);
}

/* ---- registration ---- */

static void half_a_device_is_refused(void **state) {
    (void)state;
    tt_device half = *far_device(), other = half;
    half.name = "half";
    half.to_host = NULL;
    assert_int_equal(tt__device_register(&half), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "the device \"half\" needs all of alloc, free, to_host and from_host");
    assert_int_equal(tt__device_register(&other), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "a device \"far\" is registered already");
    assert_int_equal(tt__device_register(far_device()), TT_OK);
    assert_ptr_equal(tt_device_get("far"), far_device());
    assert_null(tt_device_get("near"));
    expect_error(TT_ERR_NOT_FOUND, "expected one of cpu, reference, far, or \"cuda:0\" and so on, got \"near\"");
}

static void nothing_is_left(void **state) {
    (void)state;
    assert_int_equal(far_device_live_blocks(), 0);
}

/* ---- ranks; before this process has the device ---- */

static void stages_and_wraps(tt_group *group, int rank, void *user) {
    (void)user;
    int scope = tt_scope_begin();
    tt_tensor *x = tt_to_device(tt_full(S(2, 3), TT_F32, rank + 1), far_device()), *here = tt_full(S(2, 3), TT_F32, 3);
    CHECK_OK(tt_tensor_all_reduce(group, x, TT_SUM));
    CHECK(tt_equal(x, here) && !is_on_host(x));
    tt_tensor *all = tt_to_device(tt_zeros(S(4, 3), TT_F32), far_device());
    CHECK_OK(tt_tensor_all_gather(group, x, all));
    CHECK(tt_equal(all, tt_full(S(4, 3), TT_F32, 3)));
    tt_tensor *column = tt_transpose(x, 0, 1); /* neither contiguous nor here */
    CHECK_OK(tt_tensor_broadcast(group, column, 1));
    tt_work *work = NULL;
    CHECK_OK(tt_tensor_all_reduce(group, column, TT_SUM, .work = &work));
    CHECK_OK(tt_work_wait(work));
    CHECK(tt_equal(x, tt_full(S(2, 3), TT_F32, 6)) && !is_on_host(x));
    tt_work_free(work);
    tt_scope_end(scope);
    tt_clear_error();

    tt_module *model = tt_nn_linear(3, 2);
    CHECK_OK(tt_module_to_device(model, far_device()));
    tt_module *ddp = tt_ddp(model, group);
    CHECK(ddp);
    tt_module_free(ddp);
    tt_module_free(model);
    CHECK(far_device_live_blocks() == 0);
}

static void collectives_stage_and_ddp_wraps(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, stages_and_wraps, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(collectives_stage_and_ddp_wraps), /* first: ranks are forked */
        cmocka_unit_test(values_come_back),
        cmocka_unit_test(pointers_and_texts),
        cmocka_unit_test(an_mlp_trains_to_the_cpus_losses),
        cmocka_unit_test(checkpoints_are_written_and_read),
        cmocka_unit_test(other_operators_are_errors),
        cmocka_unit_test(other_optimizers_are_errors),
        cmocka_unit_test(operands_lie_on_one_device),
        cmocka_unit_test(data_sets_lie_on_the_host),
        cmocka_unit_test(failing_allocations_are_errors),
        cmocka_unit_test(tensors_without_elements_leave_nothing),
        cmocka_unit_test(a_module_that_can_not_move_stays),
        cmocka_unit_test(half_a_device_is_refused),
        cmocka_unit_test(nothing_is_left),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
