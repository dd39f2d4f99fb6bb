/* Language models that several tests make: the sizes and numbers of tests/vectors/make_torch_gpt.py. Include it after
 * cmocka.h. */
#ifndef TT_TESTS_UNIT_GPT_CASES_H
#define TT_TESTS_UNIT_GPT_CASES_H

#include <string.h>

#include <tutti/models.h>

enum { GPT_V = 65, GPT_P = 16, GPT_C = 32, GPT_L = 2, GPT_H = 4 };

/* Number i of tensor k. */
static inline double gpt_value(int64_t i, int64_t k) { return (double)((i * 37 + k * 53 + 19) % 211 - 105) / 105; }

/* What the script calls tokens(). */
static inline tt_tensor *gpt_tokens(int64_t b, int64_t t) {
    tt_tensor *x = tt_empty(TT_SHAPE(b, t), TT_I64);
    for (int64_t i = 0; i < b * t; i++)
        tt_tensor_i64(x)[i] = i * 17 % GPT_V;
    return x;
}

static inline tt_tensor *gpt_values(tt_shape shape, int64_t k) {
    tt_tensor *x = tt_empty(shape, TT_F64);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        ((double *)tt_tensor_data(x))[i] = gpt_value(i, k);
    return x;
}

/* Set the weights of the script's gpt2_state(); f32 or f64. */
static inline void gpt2_set_weights(tt_module *model) {
    const tt_named_tensors *p = tt_module_parameters(model);
    for (int64_t k = 0; k < p->count; k++) {
        TT_AUTO_SCOPE;
        bool norm = strstr(p->names[k], "ln_") && strstr(p->names[k], ".weight");
        double scale = strstr(p->names[k], "wpe") ? 3 : 0.3;
        tt_tensor *x = tt_add_scalar(tt_scale(gpt_values(tt_tensor_shape(p->tensors[k]), k), scale), norm);
        assert_int_equal(tt_copy(p->tensors[k], tt_to(x, tt_tensor_dtype(p->tensors[k]))), TT_OK);
    }
}

static inline tt_module *gpt2_case(tt_dtype dtype) {
    tt_module *model = tt_model_gpt2(GPT_V, GPT_P, GPT_C, GPT_L, GPT_H, .dtype = dtype);
    gpt2_set_weights(model);
    return model;
}

#endif
