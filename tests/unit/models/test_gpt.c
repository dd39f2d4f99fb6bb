/* The two GPTs beside PyTorch (tests/vectors/make_torch_gpt.py): states, logits, gradients; dropout; state dicts as
 * they are found; wrong options. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <zlib.h>

#include <cmocka.h>

#include "gpt_cases.h"
#include "unit/expect.h"
#include "unit/vectors.h"

static json_t *vectors;

static int load_gpt_vectors(void **state) {
    (void)state;
    vectors = vectors_load("torch-gpt.json");
    return vectors ? 0 : -1;
}

static int drop_gpt_vectors(void **state) {
    (void)state;
    json_decref(vectors);
    return 0;
}

static void close_to(double got, double expected, const char *what) {
    if (!(fabs(got - expected) <= 1e-9 * fmax(fabs(expected), 1e-2)))
        fail_msg("%s: expected %.17g, got %.17g", what, expected, got);
}

/* The logits of each text's last token. */
static void last_logits_are(tt_tensor *y, const json_t *expected) {
    const double *data = tt_tensor_data(y);
    int64_t T = tt_tensor_size(y, 1);
    for (int64_t b = 0; b < 2; b++)
        for (int64_t v = 0; v < GPT_V; v++)
            close_to(data[(b * T + T - 1) * GPT_V + v], vectors_number(expected, (size_t)(b * GPT_V + v)), "logit");
}

/* Logits and all gradients, in f64. */
static void step_is_torchs(tt_module *model, const json_t *v) {
    TT_AUTO_SCOPE;
    tt_tensor *y = tt_module_forward(model, gpt_tokens(2, 11));
    assert_int_equal(tt_backward(tt_sum(tt_mul(y, gpt_values(tt_tensor_shape(y), 0)))), TT_OK);
    last_logits_are(y, json_object_get(v, "logits"));
    const tt_named_tensors *p = tt_module_parameters(model);
    assert_int_equal(p->count, json_array_size(json_object_get(v, "grad_norms")));
    for (int64_t i = 0; i < p->count; i++) {
        double norm = NAN;
        assert_int_equal(tt_item(tt_norm(tt_grad(p->tensors[i]), 2), &norm), TT_OK);
        close_to(norm, vectors_number(json_object_get(v, "grad_norms"), (size_t)i), p->names[i]);
    }
}

static void the_small_one_is_pytorchs(void **state) {
    (void)state;
    const json_t *v = json_object_get(vectors, "gpt"), *entries = json_object_get(v, "state");
    tt_manual_seed(0);
    tt_module *model = tt_model_gpt(GPT_V, GPT_P, GPT_C, GPT_L, GPT_H);
    const tt_named_tensors *own = tt_module_state_dict(model);
    assert_int_equal(own->count, json_array_size(entries));
    for (int64_t i = 0; i < own->count; i++) {
        const json_t *entry = json_array_get(entries, (size_t)i);
        uLong bits = crc32(0, tt_tensor_data(own->tensors[i]), (uInt)(4 * tt_tensor_numel(own->tensors[i])));
        assert_string_equal(own->names[i], json_string_value(json_array_get(entry, 0)));
        assert_int_equal(bits, json_integer_value(json_array_get(entry, 2)));
    }
    assert_int_equal(tt_module_to(model, TT_F64), TT_OK);
    step_is_torchs(model, v);
    tt_module_free(model);
}

static void gpt2_is_pytorchs(void **state) {
    (void)state;
    const json_t *v = json_object_get(vectors, "gpt2");
    tt_module *model = gpt2_case(TT_F64);
    const tt_named_tensors *own = tt_module_state_dict(model);
    assert_int_equal(own->count, json_array_size(json_object_get(v, "names")) + 1);
    for (int64_t i = 0; i + 1 < own->count; i++)
        assert_string_equal(own->names[i], json_string_value(json_array_get(json_object_get(v, "names"), (size_t)i)));
    assert_string_equal(own->names[own->count - 1], "lm_head.weight");
    assert_ptr_equal(own->tensors[own->count - 1], own->tensors[0]);
    step_is_torchs(model, v);
    tt_module_free(model);
}

static void gelu_by_erf(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *model = tt_model_gpt2(GPT_V, GPT_P, GPT_C, GPT_L, GPT_H, .exact_gelu = true, .dtype = TT_F64);
    gpt2_set_weights(model);
    last_logits_are(tt_module_forward(model, gpt_tokens(2, 11)),
                    json_object_get(json_object_get(vectors, "gpt2"), "exact_gelu_logits"));
    tt_module_free(model);
}

/* ---- how GPT-2 begins ---- */

static double deviation_of(const tt_module *model, const char *name) {
    TT_AUTO_SCOPE;
    double variance = NAN;
    tt_tensor *x = tt_named_tensors_find(tt_module_parameters((tt_module *)(uintptr_t)model), name);
    assert_int_equal(tt_item(tt_var(x, 1), &variance), TT_OK);
    return sqrt(variance);
}

static void gpt2_begins_with_small_numbers(void **state) {
    (void)state;
    tt_manual_seed(1);
    tt_module *model = tt_model_gpt2(500, 64, 128, 8, 4, .no_weight_tying = true, .n_inner = 96);
    static const char *const names[] = {"transformer.wte.weight", "transformer.wpe.weight", "lm_head.weight",
                                        "transformer.h.7.attn.c_attn.weight", "transformer.h.3.mlp.c_fc.weight"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_true(fabs(deviation_of(model, names[i]) / 0.02 - 1) < 0.05);
    assert_true(fabs(deviation_of(model, "transformer.h.0.attn.c_proj.weight") / 0.005 - 1) < 0.05);
    assert_true(fabs(deviation_of(model, "transformer.h.7.mlp.c_proj.weight") / 0.005 - 1) < 0.05);
    assert_true(deviation_of(model, "transformer.h.0.mlp.c_fc.bias") == 0);
    tt_module_free(model);
}

/* ---- dropout ---- */

static double mean_of_losses(tt_module *model, int rounds) {
    double sum = 0;
    for (int i = 0; i < rounds; i++) {
        TT_AUTO_SCOPE;
        double loss = NAN;
        tt_tensor *y = tt_module_forward(model, gpt_tokens(2, 16));
        assert_int_equal(tt_backward(tt_mean(tt_mul(y, y))), TT_OK);
        assert_int_equal(tt_item(tt_mean(tt_mul(y, y)), &loss), TT_OK);
        sum += loss;
    }
    return sum / rounds;
}

/* Each place drops in training, with gradients, and nothing in evaluation, where attention is fused. */
static void dropouts_are_for_training(void **state) {
    (void)state;
    tt_module *models[] = {tt_model_gpt2(GPT_V, GPT_P, GPT_C, 1, 4, .embd_pdrop = 0.5),
                           tt_model_gpt2(GPT_V, GPT_P, GPT_C, 1, 4, .attn_pdrop = 0.5),
                           tt_model_gpt2(GPT_V, GPT_P, GPT_C, 1, 4, .resid_pdrop = 0.5),
                           tt_model_gpt(GPT_V, GPT_P, GPT_C, 1, 4, .dropout = 0.1)};
    for (int i = 0; i < 4; i++) {
        assert_true(mean_of_losses(models[i], 1) != mean_of_losses(models[i], 1));
        tt_module_eval(models[i]);
        assert_true(mean_of_losses(models[i], 1) == mean_of_losses(models[i], 1));
        tt_module_free(models[i]);
    }
}

/* With nothing dropped the attention that could drop gives what the fused one gives. */
static void attention_with_dropout_is_attention(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    double distance = NAN;
    tt_module *model = tt_model_gpt2(GPT_V, GPT_P, GPT_C, GPT_L, GPT_H, .attn_pdrop = 1e-18, .dtype = TT_F64);
    gpt2_set_weights(model);
    tt_tensor *dropped = tt_module_forward(model, gpt_tokens(2, 11));
    tt_module_eval(model);
    tt_tensor *fused = tt_module_forward(model, gpt_tokens(2, 11));
    assert_int_equal(tt_item(tt_max(tt_abs(tt_sub(dropped, fused))), &distance), TT_OK);
    assert_true(distance < 1e-12);
    tt_module_free(model);
}

/* ---- state dicts as they are found ---- */

typedef struct found_state {
    char names[64][96];
    const char *pointers[64];
    tt_tensor *tensors[64];
    tt_named_tensors list;
} found_state;

static void found_add(found_state *s, const char *name, tt_tensor *x) {
    int64_t i = s->list.count++;
    snprintf(s->names[i], sizeof s->names[i], "%s", name);
    s->pointers[i] = s->names[i];
    s->tensors[i] = x;
}

/* The model's tensors in bf16 or as they are, without this beginning and the head, with masks. */
static void found_without(found_state *s, tt_module *from, const char *beginning, bool bf16) {
    const tt_named_tensors *own = tt_module_state_dict(from);
    *s = (found_state){.list = {sizeof s->list, 0, s->pointers, s->tensors}};
    for (int64_t i = 0; i + 1 < own->count; i++)
        found_add(s, own->names[i] + strlen(beginning), bf16 ? tt_to(own->tensors[i], TT_BF16) : own->tensors[i]);
    found_add(s, "h.0.attn.bias", tt_ones(TT_SHAPE(1, 1, GPT_P, GPT_P), TT_F32));
    found_add(s, "h.1.attn.masked_bias", tt_full(TT_SCALAR, TT_F32, -1e4));
}

static bool same_logits(tt_module *a, tt_module *b) {
    return tt_equal(tt_module_forward(a, gpt_tokens(1, 5)), tt_module_forward(b, gpt_tokens(1, 5)));
}

static void published_states_load(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *from = gpt2_case(TT_F32), *to = tt_model_gpt2(GPT_V, GPT_P, GPT_C, GPT_L, GPT_H);
    found_state s;
    found_without(&s, from, "transformer.", false);
    assert_false(same_logits(from, to));
    assert_int_equal(tt_model_gpt2_load_state_dict(to, &s.list), TT_OK);
    assert_true(same_logits(from, to));
    tt_module_free(to);
    to = tt_model_gpt2(GPT_V, GPT_P, GPT_C, GPT_L, GPT_H);
    assert_int_equal(tt_model_gpt2_load_state_dict(to, tt_module_state_dict(from)), TT_OK);
    assert_true(same_logits(from, to));
    found_without(&s, from, "", true);
    assert_int_equal(tt_model_gpt2_load_state_dict(to, &s.list), TT_OK);
    assert_false(same_logits(from, to)); /* rounded to bf16 */
    assert_int_equal(tt_tensor_dtype(tt_module_parameters(to)->tensors[0]), TT_F32);
    tt_module_free(from);
    tt_module_free(to);
}

static void wrong_states(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *from = gpt2_case(TT_F32),
              *untied = tt_model_gpt2(GPT_V, GPT_P, GPT_C, GPT_L, GPT_H, .no_weight_tying = true);
    found_state s;
    found_without(&s, from, "transformer.", false);
    assert_int_equal(tt_model_gpt2_load_state_dict(untied, &s.list), TT_ERR_NOT_FOUND);
    expect_error(TT_ERR_NOT_FOUND, "lm_head.weight");
    s.tensors[2] = tt_ones(TT_SHAPE(GPT_C + 1), TT_F32);
    assert_int_equal(tt_model_gpt2_load_state_dict(from, &s.list), TT_ERR_SHAPE);
    expect_error(TT_ERR_SHAPE, "h.0.ln_1.weight");
    s.list.count = 5;
    assert_int_equal(tt_model_gpt2_load_state_dict(untied, &s.list), TT_ERR_NOT_FOUND);
    expect_error(TT_ERR_NOT_FOUND, "transformer.h.");
    assert_int_equal(tt_model_gpt2_load_state_dict(from, NULL), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a list of tensors with names");
    tt_module *other = tt_nn_linear(2, 2);
    assert_int_equal(tt_model_gpt2_load_state_dict(other, &s.list), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "got a Linear");
    tt_module_free(other);
    other = tt_model_gpt(GPT_V, GPT_P, GPT_C, 1, 4);
    assert_int_equal(tt_model_gpt2_load_state_dict(other, &s.list), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a model of tt_model_gpt2(), got a GPT");
    tt_module_free(other);
    tt_module_free(untied);
    tt_module_free(from);
}

/* ---- wrong options, wrong tokens ---- */

static void wrong_sizes(void **state) {
    (void)state;
    assert_null(tt_model_gpt(65, 128, 256, 4, 0));
    expect_error(TT_ERR_INVALID, "tt_model_gpt: expected sizes of at least 1");
    assert_null(tt_model_gpt2(65, 128, 256, 4, 3));
    expect_error(TT_ERR_INVALID, "tt_model_gpt2: expected n_head to divide n_embd 256, got 3");
    assert_null(tt_model_gpt(4, 4, 4, 1000000000, 2));
    expect_error(TT_ERR_INVALID, "tt_model_gpt: expected n_layer of at most 1000, got 1000000000");
    assert_null(tt_model_gpt(INT64_MAX, 1, 1, 1, 1));
    expect_error(TT_ERR_INVALID, "parameters");
    assert_null(tt_model_gpt2(1, 1, 1, INT64_MAX, 1));
    expect_error(TT_ERR_INVALID, "parameters");
    assert_null(tt_model_gpt2(65, 128, 256, 4, 4, .attn_pdrop = 2));
    expect_error(TT_ERR_INVALID, "dropout of attention in 0..1, got 2");
    assert_null(tt_model_gpt2(65, 128, 256, 4, 4, .n_inner = -1));
    expect_error(TT_ERR_INVALID, "n_inner");
    assert_null(tt_model_gpt2(65, 128, 256, 4, 4, .layer_norm_epsilon = NAN));
    expect_error(TT_ERR_INVALID, "layer_norm_epsilon");
    assert_null(tt_model_gpt(65, 128, 256, 4, 4, .dtype = TT_I64));
    expect_error(TT_ERR_DTYPE, "tt_model_gpt: expected dtype f32 or f64");
    assert_null(tt_model_gpt2(65, 128, 256, 4, 4, .dtype = TT_F16));
    expect_error(TT_ERR_DTYPE, "tt_model_gpt2: expected dtype f32 or f64");
}

/* No texts, and texts of no tokens, have logits without elements; as in PyTorch. */
static void nothing_to_read(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *model = gpt2_case(TT_F32);
    tt_tensor *no_texts = tt_module_forward(model, tt_zeros(TT_SHAPE(0, 5), TT_I64));
    tt_tensor *no_tokens = tt_module_forward(model, tt_zeros(TT_SHAPE(2, 0), TT_I64));
    assert_int_equal(tt_tensor_size(no_texts, 1), 5);
    assert_int_equal(tt_tensor_size(no_texts, 2), GPT_V);
    assert_int_equal(tt_tensor_size(no_tokens, 0), 2);
    assert_int_equal(tt_tensor_numel(no_tokens), 0);
    assert_int_equal(tt_backward(tt_sum(no_tokens)), TT_OK);
    tt_module_free(model);
}

static void wrong_tokens(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *models[] = {gpt2_case(TT_F32), tt_model_gpt(GPT_V, GPT_P, GPT_C, 1, 4)};
    for (int i = 0; i < 2; i++) {
        tt_tensor *ids = gpt_tokens(1, 3);
        assert_null(tt_module_forward(models[i], gpt_tokens(2, GPT_P + 1)));
        expect_error(TT_ERR_SHAPE, "expected at most 16 tokens, as there are positions, got i64 (2, 17)");
        assert_null(tt_module_forward(models[i], tt_arange(4)));
        expect_error(TT_ERR_SHAPE, "expected tokens i64 (B, T), got i64 (4)");
        assert_null(tt_module_forward(models[i], tt_ones(TT_SHAPE(1, 4), TT_F32)));
        expect_error(TT_ERR_DTYPE, "tt_embedding");
        tt_tensor_i64(ids)[1] = GPT_V;
        assert_null(tt_module_forward(models[i], ids));
        expect_error(TT_ERR_INVALID, "65");
        tt_module_free(models[i]);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_small_one_is_pytorchs),
        cmocka_unit_test(gpt2_is_pytorchs),
        cmocka_unit_test(gelu_by_erf),
        cmocka_unit_test(gpt2_begins_with_small_numbers),
        cmocka_unit_test(dropouts_are_for_training),
        cmocka_unit_test(attention_with_dropout_is_attention),
        cmocka_unit_test(published_states_load),
        cmocka_unit_test(wrong_states),
        cmocka_unit_test(wrong_sizes),
        cmocka_unit_test(nothing_to_read),
        cmocka_unit_test(wrong_tokens),
    };
    return cmocka_run_group_tests(tests, load_gpt_vectors, drop_gpt_vectors);
}
