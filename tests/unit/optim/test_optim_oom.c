/* Memory of optimizers, schedulers, averages, clipping: it runs out everywhere once, and a steady step takes none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

#include "unit/alloc_fail.h"

/* What trains a model. */
typedef struct training {
    tt_module *model;
    tt_optimizer *optimizer;
    tt_lr_scheduler *scheduler;
    tt_ema *ema;
} training;

typedef tt_optimizer *(*maker)(const tt_named_tensors *params);
static tt_optimizer *rmsprop(const tt_named_tensors *params) {
    return tt_rmsprop(params, 0.1, .momentum = 0.9, .centered = true);
}
static tt_optimizer *adagrad(const tt_named_tensors *params) {
    return tt_adagrad(params, 0.1, .initial_accumulator_value = 0.5);
}
static tt_optimizer *adadelta(const tt_named_tensors *params) { return tt_adadelta(params, 1); }
static tt_optimizer *lamb(const tt_named_tensors *params) { return tt_lamb(params, 0.1, 0.01); }
static tt_optimizer *sgd(const tt_named_tensors *params) {
    return tt_sgd(params, 0.1, .momentum = 0.9, .dampening = 0.5);
}
static const maker makers[] = {rmsprop, adagrad, adadelta, lamb, sgd};
enum { MAKERS = sizeof makers / sizeof makers[0] };

static double constant(int64_t epoch, int64_t group, void *user) {
    (void)epoch;
    (void)group;
    (void)user;
    return 1;
}

static tt_lr_scheduler *schedule(tt_optimizer *o) {
    tt_lr_scheduler *two[] = {tt_linear_lr(o, 0.5, 1, 2), tt_multi_step_lr(o, ((int64_t[]){3, 9}), 2)};
    tt_lr_scheduler *first = tt_sequential_lr(two, 2, ((int64_t[]){4}));
    tt_lr_scheduler *cycle = tt_one_cycle_lr(o, 1, 99, .no_cycle_momentum = true);
    tt_lr_scheduler *all[] = {first, tt_lambda_lr(o, constant, NULL), cycle};
    return tt_chained_scheduler(all, 3);
}

static tt_status begin(training *t, maker make) {
    *t = (training){.model = tt_nn_sequential(tt_nn_linear(6, 5), tt_nn_relu(), tt_nn_linear(5, 3))};
    if (t->model)
        t->optimizer = make(tt_module_parameters(t->model));
    if (t->optimizer)
        t->scheduler = schedule(t->optimizer);
    if (t->scheduler)
        t->ema = tt_ema_new(tt_module_parameters(t->model), 0.9);
    return t->ema ? TT_OK : tt_last_status();
}

static void end(training *t) {
    tt_ema_free(t->ema);
    tt_lr_scheduler_free(t->scheduler);
    tt_optimizer_free(t->optimizer);
    tt_module_free(t->model);
}

static tt_status gradients(training *t) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(t->optimizer);
    return tt_backward(tt_sum(tt_module_forward(t->model, tt_ones(TT_SHAPE(4, 6), TT_F32))));
}

static tt_status step(training *t) {
    double norm = 0;
    const tt_named_tensors *params = tt_module_parameters(t->model);
    tt_status status = params ? gradients(t) : tt_last_status();
    if (!status)
        status = tt_clip_grad_norm_(params, 0.5, .total_norm = &norm);
    if (!status)
        status = tt_clip_grad_value_(params, 0.1);
    if (!status)
        status = tt_optimizer_step(t->optimizer);
    if (!status)
        status = tt_lr_scheduler_step(t->scheduler);
    return status ? status : tt_ema_update(t->ema);
}

static tt_status reload(training *t) {
    tt_status status = tt_optimizer_load_state_dict(t->optimizer, tt_optimizer_state_dict(t->optimizer));
    if (!status)
        status = tt_lr_scheduler_load_state_dict(t->scheduler, tt_lr_scheduler_state_dict(t->scheduler));
    if (!status)
        status = tt_ema_load_state_dict(t->ema, tt_ema_state_dict(t->ema));
    if (!status)
        status = tt_ema_store(t->ema);
    if (!status)
        status = tt_ema_copy_to(t->ema);
    return status ? status : tt_ema_restore(t->ema);
}

/* Everything once; TT_OK or the first error. */
static tt_status program(void *make) {
    training t;
    tt_status status = begin(&t, *(maker *)make);
    for (int i = 0; i < 2 && !status; i++)
        status = step(&t);
    if (!status)
        status = reload(&t);
    end(&t);
    return status;
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    for (int i = 0; i < MAKERS; i++) {
        maker make = makers[i];
        assert_in_range(alloc_fail_each(program, &make, ALLOC_ENDS), 50, 1000); /* there was something to fail */
    }
}

/* ---- a step that failed ---- */

static void assert_same(const tt_named_tensors *a, const tt_named_tensors *b) {
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++)
        assert_true(tt_equal(a->tensors[i], b->tensors[i]));
}

/* The first step, which makes state, fails in its nth allocation and is called again: it does what it would have done
 * at once. False: it didn't fail. */
static bool first_step_fails(maker make, long n) {
    training whole, torn;
    tt_manual_seed(1);
    assert_int_equal(begin(&whole, make), TT_OK);
    tt_manual_seed(1);
    assert_int_equal(begin(&torn, make), TT_OK);
    assert_int_equal(gradients(&whole), TT_OK);
    assert_int_equal(gradients(&torn), TT_OK);
    tt__pool_trim();
    alloc_fail_nth(n);
    const bool failed = tt_optimizer_step(torn.optimizer) != TT_OK;
    assert_true(alloc_fail_end() == failed);
    if (failed)
        assert_int_equal(tt_optimizer_step(torn.optimizer), TT_OK);
    assert_int_equal(tt_optimizer_step(whole.optimizer), TT_OK);
    assert_same(tt_module_parameters(whole.model), tt_module_parameters(torn.model));
    assert_same(tt_optimizer_state_dict(whole.optimizer), tt_optimizer_state_dict(torn.optimizer));
    tt_clear_error();
    end(&whole);
    end(&torn);
    return failed;
}

static void a_step_that_failed_can_be_called_again(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    for (int i = 0; i < MAKERS; i++) {
        long n = 1;
        while (first_step_fails(makers[i], n))
            n++;
        assert_true(n > 4);
    }
}

/* ---- a steady step ---- */

static void a_steady_step_allocates_nothing(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    for (int i = 0; i < MAKERS; i++) {
        training t;
        assert_int_equal(begin(&t, makers[i]), TT_OK);
        for (int s = 0; s < 2; s++)
            assert_int_equal(step(&t), TT_OK);
        long before = alloc_count_own;
        for (int s = 0; s < 10; s++)
            assert_int_equal(step(&t), TT_OK);
        assert_int_equal(alloc_count_own, before);
        end(&t);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_step_that_failed_can_be_called_again),
        cmocka_unit_test(a_steady_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
