/* Memory. It runs out: each allocation of a training program fails once, the first, the second, ... Every round must
 * end with TT_ERR_MEMORY, and, when what was made is freed, with as much memory in use as before. And operators used
 * without a scope leave nothing behind. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/nn.h>
#include <tutti/optim.h>

#include "unit/alloc_fail.h"

static tt_status forward_and_backward(tt_module *model, tt_optimizer *sgd) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_transpose(tt_ones(TT_SHAPE(6, 4), TT_F32), 0, 1); /* not contiguous: copies are made */
    tt_tensor *y = tt_module_forward(model, x), *t = tt_zeros(TT_SHAPE(4), TT_I64);
    tt_tensor *loss = tt_add(tt_cross_entropy(y, t), tt_nll_loss(tt_log_softmax(y, 0), t));
    loss =
        tt_add(loss, tt_mean(tt_mul(tt_reshape(tt_transpose(y, 0, 1), TT_SHAPE(-1)), tt_scale(tt_flatten(y, 0), 2))));
    loss = tt_add(loss, tt_mse_loss(tt_matmul(tt_transpose(y, 0, 1), tt_relu(y)), tt_zeros(TT_SHAPE(3, 3), TT_F32)));
    tt_status status = tt_backward(loss);
    return status ? status : tt_optimizer_step(sgd);
}

static tt_status hook(tt_module *module, tt_tensor **in, int64_t count, void *user) {
    (void)module;
    (void)in;
    (void)count;
    (void)user;
    return TT_OK;
}

/* x is the module's, or freed. */
static tt_status add_buffer(tt_module *model, tt_tensor *x) {
    tt_status status = tt_module_register_buffer(model, "seen", x);
    if (status)
        tt_tensor_free(x);
    return status;
}

static tt_status train_in_f64(tt_module *model, tt_optimizer *adam) {
    TT_AUTO_SCOPE;
    tt_status status = tt_backward(tt_mean(tt_module_forward(model, tt_ones(TT_SHAPE(4, 6), TT_F64))));
    if (!status)
        status = tt_optimizer_step(adam);
    return status ? status : tt_optimizer_load_state_dict(adam, tt_optimizer_state_dict(adam));
}

/* Groups, buffers, hooks, a conversion. */
static tt_status program_of_modules(void) {
    tt_module *model = tt_nn_sequential_named({"a", tt_nn_linear(6, 5)}, {"b", tt_nn_linear(5, 3)});
    tt_optimizer *adam = NULL;
    tt_status status = model ? add_buffer(model, tt_ones(TT_SHAPE(3), TT_F32)) : tt_last_status();
    if (!status)
        status = tt_module_register_forward_pre_hook(NULL, model, hook, NULL);
    if (!status && !tt_module_named_modules(model))
        status = tt_last_status();
    if (!status)
        status = tt_module_to(model, TT_F64);
    if (!status) {
        adam = tt_adamw(tt_module_parameters(tt_module_child(model, "a")), 0.1, 0.01, .amsgrad = true);
        status = adam ? tt_optimizer_add_param_group(adam, tt_module_parameters(tt_module_child(model, "b")))
                      : tt_last_status();
    }
    if (!status)
        status = train_in_f64(model, adam);
    tt_optimizer_free(adam);
    tt_module_free(model);
    return status;
}

/* A little of everything; TT_OK or the first error. */
static tt_status program(void *arg) {
    (void)arg;
    tt_status status = TT_OK;
    tt_module *model = tt_nn_sequential(tt_nn_linear(6, 5), tt_nn_relu(), tt_nn_linear(5, 3));
    tt_optimizer *sgd = model ? tt_sgd(tt_module_parameters(model), 0.1, .momentum = 0.9) : NULL;
    if (!sgd)
        status = tt_last_status();
    for (int i = 0; i < 2 && !status; i++)
        status = forward_and_backward(model, sgd);
    if (!status)
        status = tt_optimizer_load_state_dict(sgd, tt_optimizer_state_dict(sgd));
    if (!status)
        status = tt_module_load_state_dict(model, tt_module_state_dict(model));
    tt_optimizer_free(sgd);
    tt_module_free(model);
    return status ? status : program_of_modules();
}

static void every_allocation_may_fail(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip(); /* a sanitizer's allocator stands in the way */
    assert_in_range(alloc_fail_each(program, NULL, ALLOC_ENDS), 50, 1000); /* there was something to fail */
}

/* ---- without a scope ---- */

static tt_tensor *matmul(tt_tensor *x) { return tt_matmul(x, x); }
static tt_tensor *linear(tt_tensor *x) { return tt_linear(x, x, NULL); }
static tt_tensor *add(tt_tensor *x) { return tt_add(x, x); }
static tt_tensor *mul(tt_tensor *x) { return tt_mul(x, x); }
static tt_tensor *scale(tt_tensor *x) { return tt_scale(x, 2); }
static tt_tensor *sum(tt_tensor *x) { return tt_sum(x); }
static tt_tensor *mean(tt_tensor *x) { return tt_mean(x); }
static tt_tensor *softmax_0(tt_tensor *x) { return tt_log_softmax(x, 0); }
static tt_tensor *softmax_1(tt_tensor *x) { return tt_log_softmax(x, 1); }
static tt_tensor *mse(tt_tensor *x) { return tt_mse_loss(x, x); }
static tt_tensor *reshape(tt_tensor *x) { return tt_reshape(x, TT_SHAPE(-1)); }
static tt_tensor *to_f64(tt_tensor *x) { return tt_to(x, TT_F64); }
static tt_tensor *argmax(tt_tensor *x) { return tt_argmax(x, 0); }
static tt_tensor *wrong(tt_tensor *x) { return tt_view(x, TT_SHAPE(7)); }

/* The caller owns what operators return, and nothing else: temporaries and records go by themselves. */
static void use_without_a_scope(tt_tensor *(*f)(tt_tensor *)) {
    tt_tensor *base = tt_ones(TT_SHAPE(3, 3), TT_F32), *leaf = tt_requires_grad_(base, true);
    tt_tensor *part = tt_narrow(leaf, 1, 0, 2), *x = tt_narrow(part, 0, 0, 2); /* (2, 2) with gaps */
    tt_tensor *y = f(x), *loss = y && tt_requires_grad(y) ? tt_sum(y) : NULL;
    tt_tensor_free(x); /* the record of y holds it */
    tt_tensor_free(part);
    if (loss)
        assert_int_equal(tt_backward(loss), TT_OK);
    tt_tensor_free(loss);
    tt_tensor_free(y);
    tt_tensor_free(leaf);
}

static void the_caller_owns_results_only(void **state) {
    (void)state;
    static tt_tensor *(*const ops[])(tt_tensor *) = {matmul, linear,   add,           mul,       tt_relu,   scale,
                                                     sum,    mean,     softmax_0,     softmax_1, mse,       reshape,
                                                     to_f64, tt_clone, tt_contiguous, argmax,    tt_detach, wrong};
    for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
        use_without_a_scope(ops[i]); /* what is made once stays */
        long before = alloc_in_use();
        use_without_a_scope(ops[i]);
        if (alloc_in_use() != before)
            fail_msg("operator number %zu leaves %ld blocks", i, alloc_in_use() - before);
    }
    tt_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(the_caller_owns_results_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
