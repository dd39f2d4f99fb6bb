/* Schedulers: what wrong arguments and states say, and that a failure changes nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/optim.h>

#include "unit/expect.h"

#define NOT_A_NUMBER __builtin_nan("")

static const char *const names[] = {"a", "b"};

static tt_optimizer *sgd_of(tt_tensor *x) { return tt_sgd(TT_NAMED_TENSORS(1, names, &x), 0.5); }

static double lr_of(tt_optimizer *o) {
    double lr = -1;
    assert_int_equal(tt_optimizer_get_option(o, 0, "lr", &lr), TT_OK);
    return lr;
}

#define REFUSE(scheduler, text)               \
    do {                                      \
        assert_null(scheduler);               \
        expect_error(TT_ERR_INVALID, (text)); \
        assert_true(lr_of(sgd) == 0.5);       \
    } while (0)

static double no_number(int64_t epoch, int64_t group, void *user) {
    (void)group;
    return epoch < *(int64_t *)user ? 1 : NOT_A_NUMBER;
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_optimizer *sgd = sgd_of(tt_ones(TT_SHAPE(2), TT_F32));
    REFUSE(tt_step_lr(sgd, 0), "tt_step_lr: expected a whole step_size of at least 1, got 0");
    REFUSE(tt_step_lr(sgd, 1, .gamma = -1), "tt_step_lr: expected a finite gamma above 0, got -1");
    REFUSE(tt_multi_step_lr(sgd, ((int64_t[]){3, 2}), 2), "rising milestones of at least 1, got 2 at place 1");
    REFUSE(tt_multi_step_lr(sgd, ((int64_t[]){0}), 1), "rising milestones of at least 1, got 0 at place 0");
    REFUSE(tt_multi_step_lr(sgd, NULL, 1), "expected a list of milestones, got NULL");
    REFUSE(tt_exponential_lr(sgd, 0), "tt_exponential_lr: expected a finite gamma above 0, got 0");
    REFUSE(tt_constant_lr(sgd, 0, 5), "tt_constant_lr: expected a first factor above 0 and of at most 1, got 0");
    REFUSE(tt_linear_lr(sgd, 0.5, 1.5, 5), "tt_linear_lr: expected an end_factor between 0 and 1, got 1.5");
    REFUSE(tt_linear_lr(sgd, 0.5, 1, 0), "expected a whole total_iters of at least 1, got 0");
    REFUSE(tt_cosine_annealing_lr(sgd, 0), "expected a whole T_max of at least 1, got 0");
    REFUSE(tt_cosine_annealing_lr(sgd, 5, .eta_min = -1), "expected a finite eta_min of at least 0, got -1");
    REFUSE(tt_cosine_annealing_warm_restarts(sgd, 0), "expected a whole T_0 of at least 1, got 0");
    REFUSE(tt_cosine_annealing_warm_restarts(sgd, 2, .T_mult = -1), "expected a whole T_mult of at least 1, got -1");
    REFUSE(tt_one_cycle_lr(sgd, 1, 0), "tt_one_cycle_lr: expected a whole total_steps of at least 1, got 0");
    REFUSE(tt_one_cycle_lr(sgd, 1, 5, .pct_start = 1.5), "expected pct_start of at most 1, got 1.5");
    REFUSE(tt_one_cycle_lr(sgd, 1, 5, .max_momentum = 1), "expected momenta below 1, got 0.85 and 1");
    REFUSE(tt_one_cycle_lr(sgd, 1, 5, .div_factor = -1), "expected a finite div_factor above 0, got -1");
    REFUSE(tt_lambda_lr(sgd, NULL, NULL), "tt_lambda_lr: the function is NULL");
    REFUSE(tt_lambda_lr(sgd, no_number, &(int64_t){0}), "expected a finite lr of group 0 in epoch 0, got nan");
    REFUSE(tt_reduce_lr_on_plateau(sgd, -1), "expected a finite patience of at least 0, got -1");
    REFUSE(tt_reduce_lr_on_plateau(sgd, 1, .factor = 1), "expected a factor below 1, got 1");
    REFUSE(tt_step_lr(NULL, 1), "tt_step_lr: the optimizer is NULL");
    tt_optimizer_free(sgd);
}

static void momentum_is_cycled_where_there_is_some(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_ones(TT_SHAPE(2), TT_F32);
    tt_optimizer *adagrad = tt_adagrad(TT_NAMED_TENSORS(1, names, &x), 0.5);
    assert_null(tt_one_cycle_lr(adagrad, 1, 5));
    expect_error(TT_ERR_INVALID, "tt_adagrad has neither momentum nor beta1 to cycle: ask for .no_cycle_momentum");
    tt_lr_scheduler *s = tt_one_cycle_lr(adagrad, 1, 5, .no_cycle_momentum = true);
    for (int i = 0; i < 5; i++)
        assert_int_equal(tt_lr_scheduler_step(s), TT_OK);
    assert_int_equal(tt_lr_scheduler_step(s), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "tt_one_cycle_lr: expected at most 5 steps, as total_steps says");
    tt_lr_scheduler_free(s);
    tt_optimizer_free(adagrad);
}

static void wrong_parts_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_optimizer *sgd = sgd_of(tt_ones(TT_SHAPE(2), TT_F32)), *other = sgd_of(tt_ones(TT_SHAPE(2), TT_F32));
    tt_lr_scheduler *of_others[] = {tt_step_lr(sgd, 3), tt_step_lr(other, 3)};
    REFUSE(tt_chained_scheduler(of_others, 2), "expected schedulers of one optimizer, got another one at place 1");
    tt_lr_scheduler *with_metric[] = {tt_step_lr(sgd, 3), tt_reduce_lr_on_plateau(sgd, 3)};
    REFUSE(tt_sequential_lr(with_metric, 2, ((int64_t[]){2})), "scheduler 1 is a tt_reduce_lr_on_plateau");
    tt_lr_scheduler *one = tt_step_lr(sgd, 3), *twice[] = {one, one};
    REFUSE(tt_chained_scheduler(twice, 2), "scheduler 1 comes twice");
    tt_lr_scheduler *failed[] = {tt_step_lr(sgd, 3), tt_step_lr(sgd, 0)};
    REFUSE(tt_chained_scheduler(failed, 2), "expected a whole step_size"); /* the first error stays */
    tt_lr_scheduler *two[] = {tt_step_lr(sgd, 3), tt_step_lr(sgd, 4)};
    REFUSE(tt_sequential_lr(two, 2, ((int64_t[]){0})), "tt_sequential_lr: expected rising milestones");
    REFUSE(tt_chained_scheduler(NULL, 0), "tt_chained_scheduler: expected a list of 1 to 64 schedulers, got NULL of 0");
    tt_optimizer_free(sgd);
    tt_optimizer_free(other);
}

static void wrong_steps_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    double lr = 0;
    int64_t epochs = 2;
    tt_optimizer *sgd = sgd_of(tt_ones(TT_SHAPE(2), TT_F32));
    tt_lr_scheduler *plateau = tt_reduce_lr_on_plateau(sgd, 1), *lambda = tt_lambda_lr(sgd, no_number, &epochs);
    assert_int_equal(tt_lr_scheduler_step(plateau), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_reduce_lr_on_plateau needs a metric: call tt_lr_scheduler_step_metric()");
    assert_int_equal(tt_lr_scheduler_step_metric(lambda, 1), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "tt_lambda_lr takes no metric: call tt_lr_scheduler_step()");
    assert_int_equal(tt_lr_scheduler_step(lambda), TT_OK);
    assert_int_equal(tt_lr_scheduler_step(lambda), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a finite lr of group 0 in epoch 2, got nan");
    assert_true(lr_of(sgd) == 0.5 && tt_lr_scheduler_last_epoch(lambda) == 1);
    assert_int_equal(tt_lr_scheduler_last_lr(lambda, 1, &lr), TT_ERR_NOT_FOUND);
    expect_error(TT_ERR_NOT_FOUND, "expected a group below 1, got 1");
    assert_int_equal(tt_lr_scheduler_step(NULL), TT_ERR_INVALID);
    assert_int_equal(tt_lr_scheduler_step_metric(NULL, 1), TT_ERR_INVALID);
    assert_int_equal(tt_lr_scheduler_last_lr(NULL, 0, &lr), TT_ERR_INVALID);
    assert_null(tt_lr_scheduler_state_dict(NULL));
    assert_int_equal(tt_lr_scheduler_last_epoch(NULL), 0);
    tt_lr_scheduler_free(NULL);
    tt_lr_scheduler_free(plateau);
    tt_lr_scheduler_free(lambda);
    tt_optimizer_free(sgd);
}

/* ---- state ---- */

/* Loading the scheduler's own entries with number i replaced fails, and changes nothing. */
static void refuse_state(tt_lr_scheduler *s, const char *name, tt_tensor *x, tt_status status, const char *text) {
    TT_AUTO_SCOPE;
    const tt_named_tensors *dict = tt_lr_scheduler_state_dict(s);
    tt_tensor *mine[32], *before[32];
    const char *entries[32];
    int64_t n = dict->count;
    for (int64_t i = 0; i < n; i++) {
        entries[i] = dict->names[i];
        before[i] = tt_clone(dict->tensors[i]);
        mine[i] = strcmp(name, dict->names[i]) ? before[i] : x;
    }
    assert_int_equal(tt_lr_scheduler_load_state_dict(s, TT_NAMED_TENSORS(n, entries, mine)), status);
    expect_error(status, text);
    dict = tt_lr_scheduler_state_dict(s);
    for (int64_t i = 0; i < n; i++)
        assert_true(tt_equal(before[i], dict->tensors[i]));
}

static void wrong_states_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_optimizer *sgd = sgd_of(tt_ones(TT_SHAPE(2), TT_F32));
    tt_lr_scheduler *parts[] = {tt_step_lr(sgd, 3), tt_exponential_lr(sgd, 0.5)};
    tt_lr_scheduler *s = tt_chained_scheduler(parts, 2), *other = tt_step_lr(sgd, 3);
    tt_tensor *zero = tt_zeros(TT_SCALAR, TT_F64), *f32 = tt_ones(TT_SCALAR, TT_F32),
              *two = tt_ones(TT_SHAPE(2), TT_F64);
    refuse_state(s, "_schedulers.0.step_size", zero, TT_ERR_INVALID, "whole step_size of at least 1, got 0");
    refuse_state(s, "_schedulers.1.gamma", f32, TT_ERR_DTYPE, "\"_schedulers.1.gamma\": expected f64, got f32");
    refuse_state(s, "base_lrs", two, TT_ERR_SHAPE, "\"base_lrs\": expected 1 elements, got f64 (2)");
    refuse_state(s, "last_epoch", tt_full(TT_SCALAR, TT_I64, -2), TT_ERR_INVALID, "expected an epoch, got -2");
    assert_int_equal(tt_lr_scheduler_load_state_dict(s, tt_lr_scheduler_state_dict(other)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected the 12 entries of a tt_chained_scheduler of 1 groups, got 5");
    assert_int_equal(tt_lr_scheduler_load_state_dict(NULL, tt_lr_scheduler_state_dict(other)), TT_ERR_INVALID);
    assert_int_equal(tt_lr_scheduler_load_state_dict(s, NULL), TT_ERR_INVALID);
    tt_clear_error();
    tt_lr_scheduler_free(s);
    tt_lr_scheduler_free(other);
    tt_optimizer_free(sgd);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(wrong_arguments_are_refused), cmocka_unit_test(momentum_is_cycled_where_there_is_some),
        cmocka_unit_test(wrong_parts_are_refused),     cmocka_unit_test(wrong_steps_are_refused),
        cmocka_unit_test(wrong_states_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
