/* Master parameters and tt_amp_initialize(): what is of which type, steps beside those of f32, values that a program
 * writes in between, resuming to the bit, and memory that runs out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/dtype.h"
#include "support/drawn.h"
#include "tensor/core/tensor.h"
#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <tutti/amp.h>
#include <tutti/checkpoint.h>
#include <tutti/functional.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define S(...) TT_SHAPE(__VA_ARGS__)

static tt_module *net_make(uint64_t seed) {
    tt_manual_seed(seed);
    return tt_nn_sequential(tt_nn_linear(6, 16), tt_nn_batch_norm1d(16), tt_nn_relu(), tt_nn_linear(16, 3));
}

static tt_tensor *param(tt_module *net, const char *name) {
    return tt_named_tensors_find(tt_module_state_dict(net), name);
}

/* Classes that a net can learn: which of the first three inputs is the largest. */
static double train_step(tt_module *net, tt_optimizer *opt, tt_grad_scaler *scaler, uint64_t seed) {
    TT_AUTO_SCOPE;
    tt_tensor *x = drawn(S(32, 6), seed), *t = tt_argmax(tt_narrow(x, 1, 0, 3), 1), *y = tt_module_forward(net, x);
    if (!y || tt_tensor_dtype(y) != TT_F32)
        fail_msg("expected a result of f32: %s", tt_last_error());
    tt_tensor *loss = tt_cross_entropy(y, t);
    tt_optimizer_zero_grad(opt);
    assert_int_equal(tt_backward(scaler ? tt_grad_scaler_scale(scaler, loss) : loss), TT_OK);
    assert_int_equal(scaler ? tt_grad_scaler_step(scaler, opt) : tt_optimizer_step(opt), TT_OK);
    if (scaler)
        assert_int_equal(tt_grad_scaler_update(scaler), TT_OK);
    double value = NAN;
    assert_int_equal(tt_item(loss, &value), TT_OK);
    return value;
}

/* ---- levels */

static double train_under(tt_opt_level level, tt_dtype dtype) {
    tt_module *net = net_make(1);
    tt_optimizer *adam = tt_adam(tt_module_parameters(net), 0.01);
    tt_grad_scaler *scaler = NULL;
    assert_int_equal(tt_amp_initialize(net, adam, .opt_level = level, .dtype = dtype, .scaler = &scaler), TT_OK);
    assert_int_equal(tt_grad_scaler_is_enabled(scaler), dtype == TT_F16 && level != TT_O0);
    bool narrow = level == TT_O2 || level == TT_O3;
    assert_int_equal(tt_tensor_dtype(param(net, "0.weight")), narrow ? dtype : TT_F32);
    assert_int_equal(tt_tensor_dtype(param(net, "1.weight")), level == TT_O3 ? dtype : TT_F32);
    assert_int_equal(tt_tensor_dtype(param(net, "1.running_mean")), level == TT_O3 ? dtype : TT_F32);
    double loss = 0;
    for (uint64_t i = 0; i < 300; i++)
        loss = i < 280 ? (train_step(net, adam, scaler, i), 0) : loss + train_step(net, adam, scaler, i) / 20;
    tt_grad_scaler_free(scaler);
    tt_optimizer_free(adam);
    tt_module_free(net);
    return loss;
}

static void every_level_learns_as_f32_does(void **state) {
    (void)state;
    const double f32 = train_under(TT_O0, TT_F32);
    assert_true(f32 < 0.25);
    static const tt_opt_level levels[] = {TT_O1, TT_O2, TT_O3};
    for (int i = 0; i < 3; i++)
        for (int f16 = 0; f16 < 2; f16++) {
            double loss = train_under(levels[i], f16 ? TT_F16 : TT_BF16);
            if (!(fabs(loss - f32) < 0.05))
                fail_msg("level %d in %s: loss %g, in f32 %g", levels[i], f16 ? "f16" : "bf16", loss, f32);
        }
}

static void what_cannot_be_is_an_error(void **state) {
    (void)state;
    tt_module *net = net_make(1), *other = net_make(2);
    tt_optimizer *sgd = tt_sgd(tt_module_parameters(net), 0.1);
    assert_int_equal(tt_amp_initialize(NULL, sgd), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "the model is NULL");
    assert_int_equal(tt_amp_initialize(net, sgd, .opt_level = (tt_opt_level)9), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected opt_level TT_O0 to TT_O3, got 9");
    assert_int_equal(tt_amp_initialize(net, sgd, .dtype = TT_F64), TT_ERR_DTYPE);
    expect_error(TT_ERR_DTYPE, "expected dtype TT_F16 or TT_BF16, got f64");
    tt_module *wide = tt_nn_linear(3, 2, .dtype = TT_F64);
    tt_optimizer *wide_sgd = tt_sgd(tt_module_parameters(wide), 0.1);
    assert_int_equal(tt_amp_initialize(wide, wide_sgd, .opt_level = TT_O2), TT_ERR_DTYPE);
    expect_error(TT_ERR_DTYPE, "expected f32 parameters, got \"weight\" of f64");
    tt_optimizer_free(wide_sgd);
    tt_module_free(wide);
    tt_tensor *held = tt__tensor_ref(param(net, "3.weight")); /* as a record would */
    assert_int_equal(tt_amp_initialize(net, sgd, .opt_level = TT_O2), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "still uses f32 (3, 16)");
    tt__tensor_unref(held);
    assert_int_equal(tt_tensor_dtype(param(net, "0.weight")), TT_F32);
    assert_int_equal(tt_amp_initialize(net, sgd), TT_OK);
    assert_int_equal(tt_amp_initialize(net, sgd), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "it was called for this Sequential already");
    assert_int_equal(tt_amp_initialize(other, NULL, .opt_level = TT_O3), TT_OK);
    train_step(net, sgd, NULL, 1);
    tt_optimizer_free(sgd);
    tt_module_free(net);
    tt_module_free(other);
}

/* ---- masters */

/* A parameter of bf16, and its double of f32. */
typedef struct pair {
    tt_tensor *low, *wide;
    tt_optimizer *of_low, *of_wide;
} pair;

static const char *const name = "w";

static pair pair_make(double value) {
    pair p = {tt_requires_grad_(tt_keep(tt_full(S(4), TT_BF16, value)), true),
              tt_requires_grad_(tt_keep(tt_full(S(4), TT_F32, value)), true), NULL, NULL};
    p.of_low = tt_adam(TT_NAMED_TENSORS(1, &name, &p.low), 1e-3);
    p.of_wide = tt_adam(TT_NAMED_TENSORS(1, &name, &p.wide), 1e-3);
    assert_non_null(p.of_low);
    return p;
}

static void pair_free(pair *p) {
    tt_optimizer_free(p->of_low);
    tt_optimizer_free(p->of_wide);
    tt_tensor_free(p->low);
    tt_tensor_free(p->wide);
}

/* The same gradient for both: one that bf16 holds. */
static void pair_step(pair *p, double slope) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(p->of_low);
    tt_optimizer_zero_grad(p->of_wide);
    assert_int_equal(tt_backward(tt_sum(tt_scale(p->low, slope))), TT_OK);
    assert_int_equal(tt_backward(tt_sum(tt_scale(p->wide, slope))), TT_OK);
    assert_int_equal(tt_optimizer_step(p->of_low), TT_OK);
    assert_int_equal(tt_optimizer_step(p->of_wide), TT_OK);
}

static tt_tensor *master_of(pair *p) { return tt_optimizer_master_params(p->of_low)->tensors[0]; }

static void masters_step_as_f32_parameters_do(void **state) {
    (void)state;
    pair p = pair_make(1);
    for (int i = 0; i < 50; i++) {
        pair_step(&p, i % 3 ? 0.5 : -0.25);
        assert_true(tt_equal(master_of(&p), p.wide));
        TT_AUTO_SCOPE;
        assert_true(tt_equal(p.low, tt_detach(tt_to(p.wide, TT_BF16))));
    }
    double first;
    TT_AUTO_SCOPE;
    assert_int_equal(tt_item(tt_max(tt_detach(p.wide)), &first), TT_OK);
    assert_true(first < 1 - 1e-3); /* bf16 alone would have stayed at 1: steps are below half of its last place */
    pair_free(&p);
}

static void what_a_program_writes_counts(void **state) {
    (void)state;
    pair p = pair_make(1);
    pair_step(&p, 0.5);
    uint16_t *low = tt_tensor_data(p.low);
    low[2] = tt__bf16_of_float(3);
    tt_tensor_f32(p.wide)[2] = 3;
    pair_step(&p, 0.5);
    assert_true(tt_equal(master_of(&p), p.wide));
    pair_free(&p);
}

static void gradients_can_be_clipped(void **state) {
    (void)state;
    pair p = pair_make(1);
    tt_grad_scaler *scaler = tt_grad_scaler_new(4);
    TT_AUTO_SCOPE;
    assert_int_equal(tt_backward(tt_grad_scaler_scale(scaler, tt_to(tt_sum(p.low), TT_F32))), TT_OK);
    assert_int_equal(tt_grad_scaler_unscale_(scaler, p.of_low), TT_OK);
    double norm;
    assert_int_equal(tt_clip_grad_norm_(tt_optimizer_master_params(p.of_low), 1, .total_norm = &norm), TT_OK);
    assert_true(norm == 2); /* of four ones */
    assert_true(fabs((double)tt_tensor_f32(tt_grad(master_of(&p)))[0] - 0.5) < 1e-6);
    assert_int_equal(tt_grad_scaler_step(scaler, p.of_low), TT_OK);
    tt_grad_scaler_free(scaler);
    pair_free(&p);
}

/* ---- resuming */

typedef struct run {
    tt_module *net;
    tt_optimizer *adam;
    tt_grad_scaler *scaler;
} run;

static run run_make(uint64_t seed) {
    run r = {.net = net_make(seed)};
    r.adam = tt_adam(tt_module_parameters(r.net), 0.01);
    assert_int_equal(tt_amp_initialize(r.net, r.adam, .opt_level = TT_O2, .dtype = TT_F16, .scaler = &r.scaler), TT_OK);
    return r;
}

static void run_free(run *r) {
    tt_grad_scaler_free(r->scaler);
    tt_optimizer_free(r->adam);
    tt_module_free(r->net);
}

static void assert_same(const tt_named_tensors *a, const tt_named_tensors *b) {
    assert_int_equal(a->count, b->count);
    for (int64_t i = 0; i < a->count; i++)
        if (strcmp(a->names[i], b->names[i]) || !tt_equal(a->tensors[i], b->tensors[i]))
            fail_msg("%s and %s differ", a->names[i], b->names[i]);
}

static void assert_same_runs(const run *a, const run *b) {
    assert_same(tt_module_state_dict(a->net), tt_module_state_dict(b->net));
    assert_same(tt_optimizer_state_dict(a->adam), tt_optimizer_state_dict(b->adam));
    assert_same(tt_grad_scaler_state_dict(a->scaler), tt_grad_scaler_state_dict(b->scaler));
}

static void a_resumed_run_has_the_bits_of_one_that_never_stopped(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-amp-XXXXXX";
    assert_true(mkstemp(path) >= 0);
    run whole = run_make(1), first = run_make(1), second = run_make(9);
    for (uint64_t i = 0; i < 20; i++)
        train_step(whole.net, whole.adam, whole.scaler, i);
    for (uint64_t i = 0; i < 11; i++)
        train_step(first.net, first.adam, first.scaler, i);
    assert_non_null(tt_named_tensors_find(tt_optimizer_state_dict(first.adam), "state.0.master_param"));
    assert_int_equal(tt_checkpoint_save(path, first.net, first.adam, NULL, .scaler = first.scaler), TT_OK);
    assert_int_equal(tt_checkpoint_load(path, second.net, second.adam, NULL, .scaler = second.scaler), TT_OK);
    assert_same_runs(&first, &second);
    for (uint64_t i = 11; i < 20; i++)
        train_step(second.net, second.adam, second.scaler, i);
    assert_same_runs(&whole, &second);
    unlink(path);
    run_free(&whole);
    run_free(&first);
    run_free(&second);
}

static void a_wrong_master_is_refused(void **state) {
    (void)state;
    pair p = pair_make(1);
    pair_step(&p, 0.5);
    TT_AUTO_SCOPE;
    const char *entry = "state.0.master_param";
    tt_tensor *wrong = tt_zeros(S(4), TT_BF16), *short_one = tt_zeros(S(3), TT_F32);
    assert_int_equal(tt_optimizer_load_state_dict(p.of_low, TT_NAMED_TENSORS(1, &entry, &wrong)), TT_ERR_DTYPE);
    expect_error(TT_ERR_DTYPE, "\"state.0.master_param\": expected f32 (4), got bf16 (4)");
    assert_int_equal(tt_optimizer_load_state_dict(p.of_low, TT_NAMED_TENSORS(1, &entry, &short_one)), TT_ERR_SHAPE);
    expect_error(TT_ERR_SHAPE, "expected f32 (4), got f32 (3)");
    assert_int_equal(tt_optimizer_load_state_dict(p.of_wide, TT_NAMED_TENSORS(1, &entry, &p.wide)), TT_ERR_NOT_FOUND);
    expect_error(TT_ERR_NOT_FOUND, "unexpected entry \"state.0.master_param\"");
    pair_free(&p);
}

/* ---- memory */

static tt_status whole_program(void *arg) {
    (void)arg;
    tt_module *net = tt_nn_sequential(tt_nn_linear(3, 2));
    tt_optimizer *sgd = net ? tt_sgd(tt_module_parameters(net), 0.1) : NULL;
    tt_grad_scaler *scaler = NULL;
    tt_status status =
        sgd ? tt_amp_initialize(net, sgd, .opt_level = TT_O2, .dtype = TT_F16, .scaler = &scaler) : TT_ERR_MEMORY;
    int scope = status ? 0 : tt_scope_begin();
    if (scope)
        status = tt_backward(tt_sum(tt_module_forward(net, tt_ones(S(2, 3), TT_F32))));
    else if (!status)
        status = tt_last_status();
    tt_scope_end(scope);
    if (!status)
        status = tt_grad_scaler_step(scaler, sgd);
    if (!status)
        status = tt_grad_scaler_update(scaler);
    if (!status && (!tt_optimizer_state_dict(sgd) || !tt_optimizer_master_params(sgd)))
        status = tt_last_status();
    tt_grad_scaler_free(scaler);
    tt_optimizer_free(sgd);
    tt_module_free(net);
    return status;
}

static void nothing_leaks_when_memory_is_out(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    assert_true(alloc_fail_each(whole_program, NULL, ALLOC_MAY_END) > 20);
}

static void a_steady_step_allocates_nothing(void **state) {
    (void)state;
    run r = run_make(1);
    tt_tensor *x = tt_keep(drawn(S(8, 6), 1));
    long before = 0;
    for (int i = 0; i < 6; i++) {
        TT_AUTO_SCOPE;
        before = alloc_count_own;
        tt_optimizer_zero_grad(r.adam);
        tt_tensor *loss = tt_mse_loss(tt_module_forward(r.net, x), tt_zeros(S(8, 3), TT_F32));
        assert_int_equal(tt_backward(tt_grad_scaler_scale(r.scaler, loss)), TT_OK);
        assert_int_equal(tt_grad_scaler_step(r.scaler, r.adam), TT_OK);
        assert_int_equal(tt_grad_scaler_update(r.scaler), TT_OK);
    }
    assert_int_equal(alloc_count_own - before, 0);
    tt_tensor_free(x);
    run_free(&r);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_level_learns_as_f32_does),
        cmocka_unit_test(what_cannot_be_is_an_error),
        cmocka_unit_test(masters_step_as_f32_parameters_do),
        cmocka_unit_test(what_a_program_writes_counts),
        cmocka_unit_test(gradients_can_be_clipped),
        cmocka_unit_test(a_resumed_run_has_the_bits_of_one_that_never_stopped),
        cmocka_unit_test(a_wrong_master_is_refused),
        cmocka_unit_test(nothing_leaks_when_memory_is_out),
        cmocka_unit_test(a_steady_step_allocates_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
