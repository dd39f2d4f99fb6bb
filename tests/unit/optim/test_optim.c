/* Optimizers: PyTorch's bits, levels and types, strided parameters, state, wrong arguments of SGD. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>
#include <tutti/optim.h>

#include "optim/rules/rule.h"
#include "tensor/core/tensor.h"
#include "unit/autograd/gradcheck.h"
#include "unit/vectors.h"

enum { N = 37, STEPS = 4 };

static tt_tensor *values(int k, tt_dtype dtype) {
    tt_tensor *x = tt_empty(TT_SHAPE(N), dtype);
    for (int64_t i = 0; i < N; i++) {
        float v = (float)gradcheck_value(k, i);
        if (dtype == TT_F32)
            ((float *)tt_tensor_data(x))[i] = v;
        else
            ((double *)tt_tensor_data(x))[i] = (double)v;
    }
    return x;
}

/* Make x's gradient exactly `g`: that of sum(x * g). */
static void set_grad(tt_tensor *x, tt_tensor *g) {
    tt_zero_grad(x);
    assert_int_equal(tt_backward(tt_sum(tt_mul(x, g))), TT_OK);
    assert_true(tt_equal(tt_grad(x), g));
}

/* A list that lives until the next call. */
static const tt_named_tensors *list_of(tt_tensor **x, int64_t n) {
    static const char *const names[] = {"a", "b", "c"};
    static tt_named_tensors list;
    list = (tt_named_tensors){sizeof list, n, names, x};
    return &list;
}

/* How many tensors of state, beside options of groups, an optimizer has. */
static int64_t state_count(tt_optimizer *o) {
    const tt_named_tensors *dict = tt_optimizer_state_dict(o);
    int64_t n = 0;
    for (int64_t i = 0; i < dict->count; i++)
        n += !strncmp(dict->names[i], "state.", 6);
    return n;
}

static tt_optimizer *from_json(const json_t *o, const tt_named_tensors *params) {
    return tt_sgd(params, vectors_member(o, "lr"), .momentum = vectors_member(o, "momentum"),
                  .dampening = vectors_member(o, "dampening"), .weight_decay = vectors_member(o, "weight_decay"),
                  .nesterov = json_is_true(json_object_get(o, "nesterov")));
}

static void steps_are_pytorchs_to_the_bit(void **state) {
    (void)state;
    json_t *vectors = vectors_load("torch-ops.json");
    assert_non_null(vectors);
    const json_t *variants = json_object_get(vectors, "sgd");
    assert_int_equal(json_array_size(variants), 7);
    for (size_t v = 0; v < json_array_size(variants); v++) {
        TT_AUTO_SCOPE;
        const json_t *variant = json_array_get(variants, v);
        tt_tensor *x = tt_requires_grad_(values(0, TT_F32), true);
        tt_optimizer *sgd = from_json(variant, list_of(&x, 1));
        assert_non_null(sgd);
        for (int s = 0; s < STEPS; s++) {
            set_grad(x, values(s + 1, TT_F32));
            assert_int_equal(tt_optimizer_step(sgd), TT_OK);
            const json_t *want = json_array_get(json_object_get(variant, "steps"), (size_t)s);
            for (size_t i = 0; i < N; i++)
                assert_true(tt_tensor_f32(x)[i] == (float)vectors_number(want, i));
        }
        tt_optimizer_free(sgd);
    }
    json_decref(vectors);
}

static tt_optimizer *adam_from_json(const json_t *o, const tt_named_tensors *params) {
    const double lr = vectors_member(o, "lr"), decay = vectors_member(o, "weight_decay");
    const double beta1 = vectors_member(o, "beta1"), beta2 = vectors_member(o, "beta2"), eps = vectors_member(o, "eps");
    const bool amsgrad = json_is_true(json_object_get(o, "amsgrad"));
    if (!strcmp(json_string_value(json_object_get(o, "kind")), "adam"))
        return tt_adam(params, lr, .weight_decay = decay, .beta1 = beta1, .beta2 = beta2, .eps = eps,
                       .amsgrad = amsgrad);
    return tt_adamw(params, lr, decay, .beta1 = beta1, .beta2 = beta2, .eps = eps, .amsgrad = amsgrad);
}

static void assert_bits(const tt_tensor *x, const json_t *want) {
    for (size_t i = 0; i < N; i++)
        assert_true(tt_tensor_f32(x)[i] == (float)vectors_number(want, i));
}

/* The state has torch's values too, under torch's names. */
static void check_adam_state(tt_optimizer *adam, const json_t *want) {
    const tt_named_tensors *dict = tt_optimizer_state_dict(adam);
    assert_int_equal(state_count(adam), json_object_size(want));
    dict = tt_optimizer_state_dict(adam);
    assert_int_equal(*tt_tensor_i64(tt_named_tensors_find(dict, "state.0.step")), STEPS);
    static const char *const full[] = {"state.0.exp_avg", "state.0.exp_avg_sq", "state.0.max_exp_avg_sq"};
    for (int i = 0; i < 3; i++) {
        const json_t *numbers = json_object_get(want, full[i] + strlen("state.0."));
        const tt_tensor *x = tt_named_tensors_find(dict, full[i]);
        assert_true(!x == !numbers);
        if (x)
            assert_bits(x, numbers);
    }
}

static void adam_steps_are_pytorchs_to_the_bit(void **state) {
    (void)state;
    json_t *vectors = vectors_load("torch-ops.json");
    assert_non_null(vectors);
    const json_t *variants = json_object_get(vectors, "adam");
    assert_int_equal(json_array_size(variants), 16);
    for (size_t v = 0; v < json_array_size(variants); v++) {
        TT_AUTO_SCOPE;
        const json_t *variant = json_array_get(variants, v);
        tt_tensor *x = tt_requires_grad_(values(0, TT_F32), true);
        tt_optimizer *adam = adam_from_json(variant, list_of(&x, 1));
        assert_non_null(adam);
        for (int s = 0; s < STEPS; s++) {
            set_grad(x, values(s + 1, TT_F32));
            assert_int_equal(tt_optimizer_step(adam), TT_OK);
            assert_bits(x, json_array_get(json_object_get(variant, "steps"), (size_t)s));
        }
        check_adam_state(adam, json_object_get(variant, "state"));
        tt_optimizer_free(adam);
    }
    json_decref(vectors);
}

/* Adam in f64 is close to Adam in f32, whose bits are PyTorch's. */
static void adam_in_f64_is_close_to_f32(void **state) {
    (void)state;
    for (int variant = 0; variant < 4; variant++) {
        TT_AUTO_SCOPE;
        tt_tensor *x[] = {tt_requires_grad_(values(0, TT_F32), true), tt_requires_grad_(values(0, TT_F64), true)};
        tt_optimizer *adam = variant & 1 ? tt_adam(list_of(x, 2), 0.01, .weight_decay = 0.1, .amsgrad = variant & 2)
                                         : tt_adamw(list_of(x, 2), 0.01, 0.1, .amsgrad = variant & 2);
        for (int s = 0; s < STEPS; s++) {
            set_grad(x[0], values(s + 1, TT_F32));
            set_grad(x[1], values(s + 1, TT_F64));
            assert_int_equal(tt_optimizer_step(adam), TT_OK);
        }
        for (int i = 0; i < N; i++)
            assert_true(fabs((double)tt_tensor_f32(x[0])[i] - ((double *)tt_tensor_data(x[1]))[i]) < 1e-5);
        tt_optimizer_free(adam);
    }
}

static void f64_is_close_to_f32(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x[] = {tt_requires_grad_(values(0, TT_F32), true), tt_requires_grad_(values(0, TT_F64), true)};
    tt_optimizer *sgd = tt_sgd(list_of(x, 2), 0.05, .momentum = 0.9, .weight_decay = 0.03, .nesterov = true);
    for (int s = 0; s < STEPS; s++) {
        set_grad(x[0], values(s + 1, TT_F32));
        set_grad(x[1], values(s + 1, TT_F64));
        assert_int_equal(tt_optimizer_step(sgd), TT_OK);
    }
    for (int i = 0; i < N; i++)
        assert_true(fabs((double)tt_tensor_f32(x[0])[i] - ((double *)tt_tensor_data(x[1]))[i]) < 1e-6);
    tt_optimizer_free(sgd);
}

#if defined(__x86_64__)
/* One step of a rule at a level, in place, on bytes that are the same for all levels. */
static void step_at(tt__update_fn rule, tt_dtype dtype, const double *option, bool fresh, bool all_slots,
                    void **memory) {
    for (int k = 0; k < 5; k++)
        memory[k] = tt_tensor_data(values(k, dtype));
    for (int i = 0; i < N; i++) /* second moments are not negative */
        for (int k = 2; k < 5; k++)
            if (dtype == TT_F32)
                ((float *)memory[k])[i] = fabsf(((float *)memory[k])[i]);
            else
                ((double *)memory[k])[i] = fabs(((double *)memory[k])[i]);
    void *state[] = {memory[2], memory[3], all_slots ? memory[4] : NULL};
    const bool all_fresh[] = {fresh, fresh, fresh};
    rule(&(tt__update){.n = N,
                       .p = memory[0],
                       .g = memory[1],
                       .state = state,
                       .fresh = all_fresh,
                       .option = option,
                       .step = 3,
                       .power = {0.729, 0.970299}});
}

static void compare_levels(const tt__rule_kernels *const *levels, const double *option, bool fresh, bool all_slots) {
    const tt_dtype types[] = {TT_F32, TT_F64};
    for (int t = 0; t < 2; t++) {
        void *base[5], *other[5];
        step_at(t ? levels[0]->f64 : levels[0]->f32, types[t], option, fresh, all_slots, base);
        for (int level = 1; level <= (int)tt__cpu_level_get(); level++) {
            step_at(t ? levels[level]->f64 : levels[level]->f32, types[t], option, fresh, all_slots, other);
            for (int k = 0; k < 5; k++)
                assert_memory_equal(base[k], other[k], N * tt_dtype_size(types[t]));
        }
    }
}

static void all_levels_give_the_same_bits(void **state) {
    (void)state;
    const tt__rule_kernels *sgd[] = {&tt__sgd_kernels_base, &tt__sgd_kernels_avx2, &tt__sgd_kernels_avx512},
                           *adam[] = {&tt__adam_kernels_base, &tt__adam_kernels_avx2, &tt__adam_kernels_avx512},
                           *adamw[] = {&tt__adamw_kernels_base, &tt__adamw_kernels_avx2, &tt__adamw_kernels_avx512},
                           *rmsprop[] = {&tt__rmsprop_kernels_base, &tt__rmsprop_kernels_avx2,
                                         &tt__rmsprop_kernels_avx512},
                           *adagrad[] = {&tt__adagrad_kernels_base, &tt__adagrad_kernels_avx2,
                                         &tt__adagrad_kernels_avx512},
                           *adadelta[] = {&tt__adadelta_kernels_base, &tt__adadelta_kernels_avx2,
                                          &tt__adadelta_kernels_avx512};
    for (int variant = 0; variant < 16; variant++) {
        TT_AUTO_SCOPE;
        const double decay = variant & 2 ? 0.03 : 0;
        const double of_sgd[] = {0.07, variant & 4 ? 0.9 : 0, 0, decay, variant & 1, variant & 4};
        const double of_adam[] = {0.07, 0.9, 0.99, 1e-8, decay, variant & 1, variant & 4};
        const double of_rmsprop[] = {0.07, 0.9, 1e-4, decay, 0.8, variant & 1, variant & 4};
        const double of_adagrad[] = {0.07, 0.1, 1e-4, decay, 0.3, variant & 4};
        const double of_adadelta[] = {0.07, 0.9, 1e-4, decay, variant & 4};
        compare_levels(sgd, of_sgd, variant & 8, false);
        compare_levels(adam, of_adam, variant & 8, variant & 1);
        compare_levels(adamw, of_adam, variant & 8, variant & 1);
        compare_levels(rmsprop, of_rmsprop, variant & 8, variant & 1);
        compare_levels(adagrad, of_adagrad, variant & 8, false);
        compare_levels(adadelta, of_adadelta, variant & 8, false);
    }
}
#endif

static void a_parameter_without_gradient_stays(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x[] = {tt_requires_grad_(values(0, TT_F32), true), tt_requires_grad_(values(1, TT_F32), true)};
    tt_optimizer *sgd = tt_sgd(list_of(x, 2), 0.5, .momentum = 0.9);
    set_grad(x[0], values(3, TT_F32));
    assert_int_equal(tt_optimizer_step(sgd), TT_OK);
    assert_false(tt_equal(x[0], values(0, TT_F32)));
    assert_true(tt_equal(x[1], values(1, TT_F32)));
    const tt_named_tensors *dict = tt_optimizer_state_dict(sgd);
    assert_int_equal(state_count(sgd), 1);
    dict = tt_optimizer_state_dict(sgd);
    assert_string_equal(dict->names[0], "state.0.momentum_buffer");
    assert_true(tt_equal(dict->tensors[0], values(3, TT_F32)));
    tt_optimizer_zero_grad(sgd);
    assert_null(tt_grad(x[0]));
    tt_optimizer_free(sgd);
}

/* A parameter in another layout than row-major is updated like any other. */
static void strided_parameters(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *base = tt_ones(TT_SHAPE(2, 3), TT_F32), *x = tt_requires_grad_(tt_transpose(base, 0, 1), true);
    tt_optimizer *sgd = tt_sgd(list_of(&x, 1), 1);
    tt_tensor *g = tt_from_data(((float[]){1, 2, 3, 4, 5, 6}), TT_SHAPE(3, 2), TT_F32);
    assert_int_equal(tt_backward(tt_sum(tt_mul(x, g))), TT_OK);
    assert_int_equal(tt_optimizer_step(sgd), TT_OK);
    assert_true(tt_equal(base, tt_from_data(((float[]){0, -2, -4, -1, -3, -5}), TT_SHAPE(2, 3), TT_F32)));
    tt_optimizer_free(sgd);
}

/* ---- state ---- */

static void train(tt_optimizer *sgd, tt_tensor **x, int from, int to) {
    for (int s = from; s < to; s++) {
        set_grad(x[0], values(s, TT_F32));
        set_grad(x[1], values(s + 1, TT_F32));
        assert_int_equal(tt_optimizer_step(sgd), TT_OK);
    }
}

static void state_goes_on_where_it_was(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *a[] = {tt_requires_grad_(values(0, TT_F32), true), tt_requires_grad_(values(1, TT_F32), true)};
    tt_tensor *b[] = {tt_requires_grad_(values(0, TT_F32), true), tt_requires_grad_(values(1, TT_F32), true)};
    tt_optimizer *whole = tt_sgd(list_of(a, 2), 0.1, .momentum = 0.9),
                 *first = tt_sgd(list_of(b, 2), 0.1, .momentum = 0.9);
    train(whole, a, 0, 6);
    train(first, b, 0, 3);
    tt_optimizer *second = tt_sgd(list_of(b, 2), 0.1, .momentum = 0.9);
    assert_int_equal(state_count(second), 0);
    assert_int_equal(tt_optimizer_load_state_dict(second, tt_optimizer_state_dict(first)), TT_OK);
    assert_int_equal(tt_optimizer_load_state_dict(second, tt_optimizer_state_dict(second)), TT_OK); /* its own */
    tt_optimizer_free(first);
    train(second, b, 3, 6);
    assert_true(tt_equal(a[0], b[0]) && tt_equal(a[1], b[1]));
    assert_int_equal(tt_optimizer_load_state_dict(second, TT_NAMED_TENSORS(0, NULL, NULL)), TT_OK);
    assert_int_equal(state_count(second), 0); /* starts without state */
    tt_optimizer_free(whole);
    tt_optimizer_free(second);
}

static void refuse(tt_optimizer *sgd, int64_t n, const char *const *names, tt_tensor *const *x, tt_status status,
                   const char *what) {
    assert_int_equal(tt_optimizer_load_state_dict(sgd, TT_NAMED_TENSORS(n, names, x)), status);
    if (!strstr(tt_last_error(), what))
        fail_msg("expected \"%s\" in: %s", what, tt_last_error());
    assert_int_equal(state_count(sgd), 0); /* nothing was changed */
    tt_clear_error();
}

static void wrong_state_is_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_requires_grad_(values(0, TT_F32), true);
    tt_optimizer *sgd = tt_sgd(list_of(&x, 1), 0.1, .momentum = 0.9), *plain = tt_sgd(list_of(&x, 1), 0.1);
    tt_tensor *good[] = {values(1, TT_F32), values(1, TT_F32)}, *f64 = values(1, TT_F64),
              *shape = tt_ones(TT_SHAPE(2), TT_F32);
    const char *names[] = {"state.0.momentum_buffer", "state.1.momentum_buffer"};
    refuse(sgd, 2, names, good, TT_ERR_NOT_FOUND, "unexpected entry \"state.1.momentum_buffer\"");
    refuse(plain, 1, names, good, TT_ERR_NOT_FOUND, "was it saved with other options, such as momentum?");
    refuse(sgd, 1, names, &f64, TT_ERR_DTYPE, "\"state.0.momentum_buffer\": expected f32 (37), got f64 (37)");
    refuse(sgd, 1, names, &shape, TT_ERR_SHAPE, "got f32 (2)");
    names[1] = names[0];
    refuse(sgd, 2, names, good, TT_ERR_INVALID, "twice");
    tt_optimizer_free(sgd);
    tt_optimizer_free(plain);
}

/* The model goes first: what it gave to optimizers is theirs until they go, also of 16 bits. */
static void parameters_outlive_their_module(void **state) {
    (void)state;
    const tt_dtype types[] = {TT_F32, TT_F64, TT_BF16};
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        TT_AUTO_SCOPE;
        tt_module *model = tt_nn_linear(2, 1, .no_bias = true);
        assert_int_equal(tt_module_to(model, types[t]), TT_OK);
        tt_tensor *w = tt_module_parameters(model)->tensors[0];
        assert_int_equal(tt_copy(w, tt_full(TT_SHAPE(1, 2), types[t], 3)), TT_OK);
        tt_optimizer *sgd = tt_sgd(tt_module_parameters(model), 0.5), *second = tt_sgd(tt_module_parameters(model), 1);
        {
            TT_AUTO_SCOPE;
            assert_int_equal(tt_backward(tt_sum(tt_module_forward(model, tt_ones(TT_SHAPE(1, 2), types[t])))), TT_OK);
        }
        tt_module_free(model);
        assert_int_equal(tt_optimizer_step(sgd), TT_OK); /* 3 - 0.5 * 1 */
        const tt_tensor *stepped = tt_optimizer_master_params(sgd)->tensors[0];
        assert_true(tt_equal(stepped, tt_full(TT_SHAPE(1, 2), tt_tensor_dtype(stepped), 2.5)));
        tt_optimizer_zero_grad(sgd);
        tt_optimizer_free(sgd);
        tt_optimizer_zero_grad(second);
        assert_int_equal(tt_optimizer_step(second), TT_OK); /* no gradients: nothing to do */
        tt_optimizer_free(second);
    }
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = values(0, TT_F32), *i = tt_arange(3);
    const tt_named_tensors *p = list_of(&x, 1);
    assert_null(tt_sgd(TT_NAMED_TENSORS(0, NULL, NULL), 0.1));
    assert_non_null(strstr(tt_last_error(), "empty list"));
    assert_null(tt_sgd(list_of(&i, 1), 0.1));
    assert_non_null(strstr(tt_last_error(), "i64 (3)"));
    assert_null(tt_sgd(p, -1));
    assert_non_null(strstr(tt_last_error(), "lr of at least 0, got -1"));
    assert_null(tt_sgd(p, NAN));
    assert_null(tt_sgd_with(NULL, 0));
    assert_null(tt_sgd(p, 0.1, .momentum = -1));
    assert_null(tt_sgd(p, 0.1, .weight_decay = -1));
    assert_null(tt_sgd(p, 0.1, .dampening = INFINITY));
    assert_null(tt_sgd(p, 0.1, .nesterov = true));
    assert_null(tt_sgd(p, 0.1, .nesterov = true, .momentum = 0.9, .dampening = 0.1));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_int_equal(tt_optimizer_step(NULL), TT_ERR_INVALID);
    tt_optimizer_zero_grad(NULL);
    tt_optimizer_free(NULL);
    assert_null(tt_optimizer_state_dict(NULL));
    tt_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_pytorchs_to_the_bit),
        cmocka_unit_test(f64_is_close_to_f32),
        cmocka_unit_test(adam_steps_are_pytorchs_to_the_bit),
        cmocka_unit_test(adam_in_f64_is_close_to_f32),
#if defined(__x86_64__)
        cmocka_unit_test(all_levels_give_the_same_bits),
#endif
        cmocka_unit_test(a_parameter_without_gradient_stays),
        cmocka_unit_test(strided_parameters),
        cmocka_unit_test(state_goes_on_where_it_was),
        cmocka_unit_test(wrong_state_is_refused),
        cmocka_unit_test(parameters_outlive_their_module),
        cmocka_unit_test(wrong_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
