/* Loaders whose batches are in pinned memory, on the fake of CUDA: copies run beside the host, and memory is not filled
 * again before its copy has been made. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>
#include <sys/wait.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include "base/build.h"
#include "cuda_compare.h"
#include "unit/expect.h"

enum { EXAMPLES = 96, WIDTH = 50, BATCH = 4, BATCHES = EXAMPLES / BATCH };

static tt_dataset *numbered(void) {
    tt_tensor *x = tt_keep(tt_view(tt_to(tt_arange((int64_t)EXAMPLES * WIDTH), TT_F32), S(EXAMPLES, WIDTH)));
    return tt_tensor_dataset(x, tt_keep(tt_arange(EXAMPLES)));
}

/* Twice each example, so that the collated has other memory than the examples. */
static tt_status twice(void *user, const tt_examples *examples, tt_tensor **x, tt_tensor **y) {
    (void)user;
    *x = tt_scale(tt_from_data(examples->x, S(examples->n, WIDTH), TT_F32), 2);
    *y = tt_keep(tt_from_data(examples->y, S(examples->n), TT_I64));
    return *x && *y ? TT_OK : tt_last_status();
}

/* Give the device's stream so much to do that all copies of an epoch wait behind it. */
static void keep_busy(void) {
    tt_tensor *x = there(numbers(160, 160, TT_F32));
    for (int i = 0; i < 4; i++)
        x = tt_matmul(x, x);
}

/* Copy an epoch's batches to the device without waiting, and look at them afterwards. */
static void expect_epoch(tt_loader *loader, double factor) {
    TT_AUTO_SCOPE;
    tt_tensor *x[BATCHES], *y[BATCHES];
    tt_batch b;
    int n = 0;
    keep_busy();
    for (; tt_loader_next(loader, &b) > 0; n++) {
        x[n] = there(b.x);
        y[n] = there(b.y);
    }
    assert_int_equal(n, BATCHES);
    for (int i = 0; i < n; i++) {
        const float *px = tt_tensor_f32(here(x[i]));
        const int64_t *py = tt_tensor_i64(here(y[i]));
        assert_true(px && py);
        for (int k = 0; k < BATCH * WIDTH; k++)
            assert_true(px[k] == factor * (i * BATCH * WIDTH + k));
        for (int k = 0; k < BATCH; k++)
            assert_int_equal(py[k], i * BATCH + k);
    }
}

static void memory_is_not_filled_before_its_copy(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_dataset *set = numbered();
    for (int workers = 0; workers < 3; workers++)
        for (int collates = 0; collates < 2; collates++) {
            tt_loader *loader = tt_loader_new(set, BATCH, tt_in_order(), .workers = workers,
                                              .collate = collates ? twice : NULL, .pin_memory = TT_CUDA(0));
            assert_non_null(loader);
            unsigned long pageable = cuda_is_real ? 0 : fake_count("fake_cuda_pageable");
            for (int epoch = 0; epoch < 3; epoch++)
                expect_epoch(loader, collates ? 2 : 1);
            if (!cuda_is_real) /* keep_busy() alone copies from other memory */
                assert_int_equal(fake_count("fake_cuda_pageable") - pageable, 3);
            tt_loader_free(loader);
        }
    tt_dataset_free(set);
}

/* The host goes on with as many copies under way as there are buffers, and then waits for one of them. */
static void copies_run_beside_the_host(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    only_on_the_fake();
    tt_dataset *set = numbered();
    tt_loader *loader = tt_loader_new(set, BATCH, tt_in_order(), .pin_memory = TT_CUDA(0));
    tt_batch b;
    unsigned long waits = fake_count("fake_cuda_waits");
    keep_busy();
    for (int i = 0; i < 4; i++) {
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_non_null(there(b.x));
    }
    assert_int_equal(fake_count("fake_cuda_waits"), waits);
    tt_loader_free(loader);
    tt_dataset_free(set);
}

/* The loss is all that a step waits for. */
static void a_step_waits_for_its_loss_alone(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    only_on_the_fake();
    tt_dataset *set = numbered();
    tt_loader *loader = tt_loader_new(set, BATCH, tt_in_order(), .workers = 1, .pin_memory = TT_CUDA(0));
    tt_module *model = tt_nn_linear(WIDTH, EXAMPLES);
    assert_int_equal(tt_module_to_device(model, TT_CUDA(0)), TT_OK);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.01);
    tt_batch b;
    double loss;
    unsigned long waits = fake_count("fake_cuda_waits"), pageable = fake_count("fake_cuda_pageable");
    while (tt_loader_next(loader, &b) > 0) {
        TT_AUTO_SCOPE;
        tt_tensor *l = tt_cross_entropy(tt_module_forward(model, there(b.x)), there(b.y));
        tt_optimizer_zero_grad(sgd);
        if (tt_backward(l) || tt_optimizer_step(sgd) || tt_item(l, &loss))
            fail_msg("%s", tt_last_error());
    }
    assert_int_equal(fake_count("fake_cuda_waits") - waits, BATCHES);
    assert_int_equal(fake_count("fake_cuda_pageable") - pageable, 0);
    tt_optimizer_free(sgd);
    tt_module_free(model);
    tt_loader_free(loader);
    tt_dataset_free(set);
}

/* The trainer asks for it where the model lies on a device. */
static tt_tensor *trainer_loss(tt_trainer *t, const tt_batch *b, void *user) {
    (void)user;
    return tt_cross_entropy(tt_module_forward(tt_trainer_model(t), there(b->x)), there(b->y));
}

static void the_trainer_pins_its_batches(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    only_on_the_fake();
    tt_dataset *set = numbered();
    tt_loader *loader = tt_loader_new(set, BATCH, tt_in_order(), .workers = 1);
    tt_module *model = tt_nn_linear(WIDTH, EXAMPLES);
    assert_int_equal(tt_module_to_device(model, TT_CUDA(0)), TT_OK);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.01);
    unsigned long pageable = fake_count("fake_cuda_pageable");
    if (tt_trainer_run(model, sgd, loader, trainer_loss, .epochs = 2))
        fail_msg("%s", tt_last_error());
    assert_int_equal(fake_count("fake_cuda_pageable") - pageable, 0);
    tt_optimizer_free(sgd);
    tt_module_free(model);
    tt_loader_free(loader);
    tt_dataset_free(set);
}

/* ---- what a program may do besides ---- */

/* A batch that is changed after its copy has begun: the copy has the numbers from before. */
static void changes_wait_for_the_copy(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_dataset *set = numbered();
    tt_loader *loader = tt_loader_new(set, BATCH, tt_in_order(), .pin_memory = TT_CUDA(0));
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    tt_tensor *before = tt_clone(b.x);
    keep_busy();
    tt_tensor *first = there(b.x);
    assert_non_null(tt_fill_(b.x, -1));
    keep_busy();
    tt_tensor *second = there(b.x);
    tt_tensor_f32(b.x)[0] = 7;
    assert_true(tt_equal(here(first), before));
    assert_true(tt_equal(here(second), tt_full(S(BATCH, WIDTH), TT_F32, -1)));
    tt_loader_free(loader);
    tt_dataset_free(set);
}

/* A loader that is left, or freed, right behind a copy; a batch that is kept longer; copies of parts, and to others. */
static void loaders_end_early(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_dataset *set = numbered();
    tt_batch b;
    tt_tensor *copies[6];
    for (int i = 0; i < 6; i++) {
        tt_loader *loader = tt_loader_new(set, BATCH, tt_in_order(), .workers = i % 2, .pin_memory = TT_CUDA(0));
        keep_busy();
        assert_int_equal(tt_loader_next(loader, &b), 1);
        tt_loader_restart(loader);
        assert_int_equal(tt_loader_next(loader, &b), 1);
        tt_tensor *kept = tt_keep(b.x);
        copies[i] = there(tt_narrow(kept, 0, 1, 2));
        tt_loader_free(loader);
        assert_true(tt_equal(kept, here(tt_to_device(kept, other_device()))));
        tt_tensor_free(kept); /* while the copy waits behind keep_busy() */
    }
    for (int i = 0; i < 6; i++)
        assert_true(tt_tensor_f32(here(copies[i]))[0] == WIDTH);
    tt_dataset_free(set);
}

/* What is kept goes back when the program asks for it. */
static void an_empty_cache_unpins(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    only_on_the_fake();
    assert_int_equal(tt_device_empty_cache(TT_CUDA(0)), TT_OK);
    assert_int_equal(fake_count("fake_pinned_ranges"), 0);
    tt_dataset *set = numbered();
    tt_loader *loader = tt_loader_new(set, BATCH, tt_in_order(), .pin_memory = TT_CUDA(0));
    assert_int_equal(fake_count("fake_pinned_ranges"), 2); /* x and y */
    tt_loader_free(loader);
    assert_int_equal(fake_count("fake_pinned_ranges"), 2);
    loader = tt_loader_new(set, BATCH, tt_in_order(), .pin_memory = TT_CUDA(0));
    assert_int_equal(fake_count("fake_pinned_ranges"), 2);
    tt_loader_free(loader);
    assert_int_equal(tt_device_empty_cache(TT_CUDA(0)), TT_OK);
    assert_int_equal(fake_count("fake_pinned_ranges"), 0);
    tt_dataset_free(set);
}

static void a_device_of_the_host_pins_nothing(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_dataset *set = numbered();
    tt_loader *loader = tt_loader_new(set, BATCH, tt_in_order(), .pin_memory = TT_CPU);
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_true(tt_tensor_f32(b.x)[1] == 1);
    tt_loader_free(loader);
    tt_dataset_free(set);
}

/* ---- forked children ---- */

/* In the child a batch from before is an error, and the loader makes others; the parent's numbers stay. */
static void children_get_other_memory(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_dataset *set = numbered();
    tt_loader *loader = tt_loader_new(set, BATCH, tt_in_order(), .pin_memory = TT_CUDA(0));
    tt_batch b;
    int status = -1;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    keep_busy();
    tt_tensor *copy = there(b.x);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        bool refused = !tt_tensor_data(b.x) && strstr(tt_last_error(), "which forked children don't have");
        bool right = true;
        for (int i = 1; i < BATCHES; i++)
            right = right && tt_loader_next(loader, &b) == 1 && tt_tensor_f32(b.x)[0] == i * BATCH * WIDTH;
        tt_loader_free(loader);
        _exit(refused && right ? 0 : 1 + refused);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_true(tt_tensor_f32(here(copy))[1] == 1);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_true(tt_tensor_f32(here(there(b.x)))[0] == BATCH * WIDTH);
    tt_loader_free(loader);
    tt_dataset_free(set);
}

/* ---- failing calls ---- */

/* An epoch, some of whose calls may fail: right numbers, or an error. Nothing stays pinned. */
static int epoch_with_failures(int number) {
    char text[16];
    double sum = 0, total = 0;
    snprintf(text, sizeof text, "%d", number);
    setenv("FAKE_CUDA_FAIL_ONE", text, 1);
    alarm(60);
    const tt_device *device = tt_device_get("cuda:0");
    tt_dataset *set = device ? numbered() : NULL;
    tt_loader *loader = tt_loader_new(set, BATCH, tt_in_order(), .pin_memory = device);
    tt_status status = loader ? TT_OK : tt_last_status();
    tt_batch b = {0};
    for (int i = 0; i < BATCHES && !status; i++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_loader_next(loader, &b) == 1 ? tt_to_device(b.x, device) : NULL;
        status = x ? tt_item(tt_sum(x), &sum) : tt_last_status();
        total += sum;
    }
    const bool told = status && (strstr(tt_last_error(), "CUDA") || strstr(tt_last_error(), "cuda:0"));
    const double right = EXAMPLES * WIDTH * (EXAMPLES * WIDTH - 1.0) / 2;
    tt_loader_free(loader);
    tt_dataset_free(set);
    tt_ignore(device ? tt_device_empty_cache(device) : TT_OK);
    bool well = (status ? told : total == right) && fake_count("fake_pinned_ranges") == 0;
    if (!well)
        fprintf(stderr, "call %d: sum %g of %g, %s: %s; %lu ranges are left\n", number, total, right,
                tt_status_name(status), tt_last_error(), fake_count("fake_pinned_ranges"));
    return !well ? 1 : fake_count("fake_cuda_failures") ? 0 : 2;
}

static void every_call_may_fail(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    only_on_the_fake();
    const int step = TT__TSAN ? 37 : getenv("TT_SANITIZED") ? 7 : 1; /* a process takes a sanitizer a second */
    int status = 0, number = 0;
    while (status == 0 && number < 1000) {
        fflush(NULL);
        pid_t child = fork();
        if (child == 0)
            _exit(epoch_with_failures(number + 1));
        assert_int_equal(waitpid(child, &status, 0), child);
        number += step;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 2 || number < BATCHES * 4)
        fail_msg("call %d: the child's status is %#x", number, (unsigned)status);
}

int main(void) {
    if (!cuda_choose())
        return 77;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call_may_fail), /* first: this process has not used CUDA yet */
        cmocka_unit_test(memory_is_not_filled_before_its_copy),
        cmocka_unit_test(copies_run_beside_the_host),
        cmocka_unit_test(a_step_waits_for_its_loss_alone),
        cmocka_unit_test(the_trainer_pins_its_batches),
        cmocka_unit_test(changes_wait_for_the_copy),
        cmocka_unit_test(loaders_end_early),
        cmocka_unit_test(an_empty_cache_unpins),
        cmocka_unit_test(a_device_of_the_host_pins_nothing),
        cmocka_unit_test(children_get_other_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
