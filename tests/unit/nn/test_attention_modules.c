/* MultiheadAttention and transformer encoders: PyTorch's initial bits, results and gradients; masks, modes, what they
 * refuse. */
#include "module_vectors.h"

#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <tutti/init.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

static tt_module *plain(tt_dtype dtype) { return tt_nn_multihead_attention(8, 2, .dtype = dtype); }
static tt_module *cross(tt_dtype dtype) {
    return tt_nn_multihead_attention(8, 2, .kdim = 6, .vdim = 5, .batch_first = true, .dtype = dtype);
}
static tt_module *four_heads(tt_dtype dtype) { return tt_nn_multihead_attention(8, 4, .dtype = dtype); }
static tt_module *unbiased(tt_dtype dtype) {
    return tt_nn_multihead_attention(8, 2, .batch_first = true, .no_bias = true, .dtype = dtype);
}

static tt_status with_masks(tt_module *m, tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count) {
    out[0] = tt_multihead_attention(m, in[0], in[0], in[0], .key_padding_mask = in_count == 3 ? in[1] : NULL,
                                    .attn_mask = in[in_count - 1], .weights = out_count == 2 ? &out[1] : NULL);
    return out[0] ? TT_OK : tt_last_status();
}

static void attention_is_pytorchs(void **state) {
    (void)state;
    static const module_case cases[] = {
        {.name = "attention", .make = plain},
        {.name = "attention cross f64", .make = cross},
        {.name = "attention apart", .make = four_heads},
        {.name = "attention masks", .make = unbiased, .forward = with_masks},
        {.name = "attention masks of heads", .make = plain, .forward = with_masks},
        {.name = "attention unbatched", .make = plain, .forward = with_masks},
    };
    expect_modules_like_torch("torch-attention.json", "attention", cases, COUNT(cases));
}

static tt_module *layer(tt_dtype dtype) { return tt_nn_transformer_encoder_layer(8, 2, 12, 0, .dtype = dtype); }
static tt_module *layer_norm_first(tt_dtype dtype) {
    return tt_nn_transformer_encoder_layer(8, 2, 12, 0, .gelu = true, .layer_norm_eps = 1e-3, .batch_first = true,
                                           .norm_first = true, .dtype = dtype);
}
static tt_module *layer_batch_first(tt_dtype dtype) {
    return tt_nn_transformer_encoder_layer(8, 2, 12, 0, .batch_first = true, .dtype = dtype);
}
static tt_module *stack(tt_dtype dtype) { return tt_nn_transformer_encoder(layer(dtype), 2, .norm = true); }
static tt_module *stack_norm_first(tt_dtype dtype) {
    return tt_nn_transformer_encoder(tt_nn_transformer_encoder_layer(8, 2, 12, 0, .norm_first = true, .dtype = dtype),
                                     2);
}

static tt_status encode(tt_module *m, tt_tensor *const *in, int64_t in_count, tt_tensor **out, int64_t out_count) {
    assert_true(in_count == 3 && out_count == 1);
    out[0] = tt_transformer_encoder(m, in[0], .mask = in[1], .src_key_padding_mask = in[2]);
    return out[0] ? TT_OK : tt_last_status();
}

static void encoders_are_pytorchs(void **state) {
    (void)state;
    static const module_case cases[] = {
        {.name = "encoder layer", .make = layer},
        {.name = "encoder layer norm_first", .make = layer_norm_first},
        {.name = "encoder layer masks", .make = layer_batch_first, .forward = encode},
        {.name = "encoder f64", .make = stack},
        {.name = "encoder masks", .make = stack_norm_first, .forward = encode},
    };
    expect_modules_like_torch("torch-attention.json", "encoder", cases, COUNT(cases));
}

/* ---- ways to the same result ---- */

static tt_tensor *some(tt_shape shape) { return vector_values(shape, 29, TT_F32); }

/* bool (T,S), true above the diagonal. */
static tt_tensor *hides_later(int64_t T, int64_t S) { return tt_triu(tt_ones(TT_SHAPE(T, S), TT_BOOL), 1); }

/* The fused operator and the explicit one, a mask and is_causal, module and call. */
static void all_ways_agree(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = plain(TT_F32);
    tt_manual_seed(2);
    tt_module *causal = tt_nn_multihead_attention(8, 2, .is_causal = true), *encoder = stack(TT_F32);
    assert_int_equal(tt_module_load_state_dict(causal, tt_module_state_dict(m)), TT_OK);
    tt_tensor *x = some(TT_SHAPE(5, 2, 8)), *weights = NULL;
    tt_tensor *y = tt_multihead_attention(m, x, x, x, .is_causal = true);
    expect_close("a causal module", "", tt_module_forward(causal, x), y, 1e-6);
    expect_close("a mask", "", tt_multihead_attention(m, x, x, x, .attn_mask = hides_later(5, 5)), y, 1e-6);
    expect_close("with weights", "", tt_multihead_attention(m, x, x, x, .is_causal = true, .weights = &weights), y,
                 1e-6);
    expect_close("sums of weights", "", tt_sum(weights, .dim = TT_DIMS(-1)), tt_ones(TT_SHAPE(2, 5), TT_F32), 1e-6);
    expect_close("later weights", "", tt_sum(tt_triu(weights, 1)), tt_zeros(TT_SCALAR, TT_F32), 0);
    expect_close("three inputs", "", tt_multihead_attention(m, x, tt_clone(x), x, .is_causal = true), y, 1e-6);
    y = tt_transformer_encoder(encoder, x, .is_causal = true);
    expect_close("an encoder", "", tt_transformer_encoder(encoder, x, .mask = hides_later(5, 5)), y, 1e-5);
    tt_module_free(encoder);
    tt_module_free(causal);
    tt_module_free(m);
}

/* Where every key is hidden: 0 before the last product, in both ways, and gradients without NaN. */
static void what_sees_nothing_is_0(void **state) {
    (void)state;
    tt_module *m = plain(TT_F32);
    for (int with = 0; with < 2; with++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_requires_grad_(some(TT_SHAPE(3, 1, 8)), true), *weights = NULL;
        tt_tensor *all = tt_ones(TT_SHAPE(1, 3), TT_BOOL);
        tt_tensor *y = tt_multihead_attention(m, x, x, x, .key_padding_mask = all, .weights = with ? &weights : NULL);
        expect_close("hidden", "", y, tt_zeros(TT_SHAPE(3, 1, 8), TT_F32), 0); /* its bias is 0 */
        assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
        expect_close("its gradient", "", tt_grad(x), tt_zeros(TT_SHAPE(3, 1, 8), TT_F32), 0);
    }
    tt_module_free(m);
}

static void dropout_follows_the_mode(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = tt_nn_multihead_attention(8, 2, .dropout = 0.5);
    tt_module *l = tt_nn_transformer_encoder_layer(8, 2, 12, 0.5);
    tt_tensor *x = some(TT_SHAPE(5, 2, 8));
    assert_false(tt_equal(tt_module_forward(m, x), tt_module_forward(m, x)));
    assert_false(tt_equal(tt_module_forward(l, x), tt_module_forward(l, x)));
    tt_module_eval(m);
    tt_module_eval(l);
    assert_true(tt_equal(tt_module_forward(m, x), tt_module_forward(m, x)));
    assert_true(tt_equal(tt_module_forward(l, x), tt_module_forward(l, x)));
    tt_module_free(m);
    tt_module_free(l);
}

/* As PyTorch's: the layers of a stack begin alike, and nothing is drawn for the copies. */
static void layers_of_a_stack_are_copies(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_manual_seed(4);
    tt_module *one = layer(TT_F32);
    tt_tensor *after_one = tt_rand(TT_SHAPE(3), NULL);
    tt_manual_seed(4);
    tt_module *m = tt_nn_transformer_encoder(layer(TT_F32), 3);
    assert_true(tt_equal(tt_rand(TT_SHAPE(3), NULL), after_one));
    const tt_named_tensors *state_dict = tt_module_state_dict(m), *of_one = tt_module_state_dict(one);
    assert_int_equal(state_dict->count, 3 * of_one->count);
    assert_string_equal(state_dict->names[of_one->count], "layers.1.self_attn.in_proj_weight");
    for (int64_t i = 0; i < state_dict->count; i++)
        assert_true(tt_equal(state_dict->tensors[i], of_one->tensors[i % of_one->count]));
    tt_module_free(one);
    tt_module_free(m);
}

/* ---- what is refused ---- */

static void what_cannot_be_made_is_refused(void **state) {
    (void)state;
    assert_null(tt_nn_multihead_attention(8, 3));
    expect_error(TT_ERR_INVALID, "tt_nn_multihead_attention: expected embed_dim of at least 1 and num_heads that "
                                 "divides it, got 8 and 3");
    assert_null(tt_nn_multihead_attention(8, 2, .dropout = -1));
    expect_error(TT_ERR_INVALID, "tt_nn_multihead_attention: expected kdim and vdim of at least 0, dropout in 0..1");
    assert_null(tt_nn_multihead_attention(8, 2, .dtype = TT_I64));
    expect_error(TT_ERR_DTYPE, "tt_nn_multihead_attention: expected dtype f32 or f64, got i64");
    assert_null(tt_nn_transformer_encoder_layer(8, 3, 12, 0));
    expect_error(TT_ERR_INVALID,
                 "tt_nn_transformer_encoder_layer: expected sizes of at least 1 and nhead that divides");
    assert_null(tt_nn_transformer_encoder_layer(8, 2, 12, 2));
    expect_error(TT_ERR_INVALID, "tt_nn_transformer_encoder_layer: expected dropout in 0..1");
    assert_null(tt_nn_transformer_encoder(layer(TT_F32), 0));
    expect_error(TT_ERR_INVALID, "tt_nn_transformer_encoder: expected num_layers in 1..1000, got 0");
    assert_null(tt_nn_transformer_encoder(layer(TT_F32), INT64_MAX));
    expect_error(TT_ERR_INVALID, "expected num_layers in 1..1000, got 9223372036854775807");
    assert_null(tt_nn_transformer_encoder(tt_nn_relu(), 2));
    expect_error(TT_ERR_INVALID, "tt_nn_transformer_encoder: expected a TransformerEncoderLayer, got a ReLU");
    assert_null(tt_nn_transformer_encoder(tt_nn_transformer_encoder_layer(0, 1, 1, 0), 2));
    expect_error(TT_ERR_INVALID, "tt_nn_transformer_encoder_layer: expected sizes of at least 1");
}

static void wrong_inputs_are_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_module *m = plain(TT_F32), *l = layer(TT_F32), *relu = tt_nn_relu();
    tt_tensor *x = some(TT_SHAPE(5, 2, 8)), *out[2], *wide = some(TT_SHAPE(5, 2, 9));
    assert_null(tt_module_forward(m, wide));
    expect_error(TT_ERR_SHAPE,
                 "a MultiheadAttention expected query (T, B, 8) or, without a batch, (T, 8), got f32 (5, 2, 9)");
    assert_null(tt_multihead_attention(m, x, some(TT_SHAPE(4, 2, 8)), x));
    expect_error(TT_ERR_SHAPE, "expected query, key and value of one batch, key and value of one length");
    assert_null(tt_multihead_attention(m, x, some(TT_SHAPE(5, 3, 8)), some(TT_SHAPE(5, 3, 8))));
    expect_error(TT_ERR_SHAPE, "expected query, key and value of one batch");
    assert_null(tt_module_forward(m, tt_to(x, TT_F64)));
    expect_error(TT_ERR_DTYPE, "a MultiheadAttention of f32 parameters expected query of that type, got f64 (5, 2, 8)");
    assert_null(tt_multihead_attention(m, x, x, x, .attn_mask = hides_later(5, 4)));
    expect_error(TT_ERR_SHAPE, "expected attn_mask (T, S) or (B num_heads, T, S) for query f32 (5, 2, 8)");
    assert_null(tt_multihead_attention(m, x, x, x, .key_padding_mask = hides_later(5, 2)));
    expect_error(TT_ERR_SHAPE, "expected key_padding_mask (B, S) for query f32 (5, 2, 8)");
    assert_null(tt_multihead_attention(m, x, x, x, .attn_mask = tt_ones(TT_SHAPE(5, 5), TT_I64)));
    expect_error(TT_ERR_DTYPE, "expected attn_mask bool or f32, got i64 (5, 5)");
    assert_null(tt_multihead_attention(relu, x, x, x));
    expect_error(TT_ERR_INVALID, "tt_multihead_attention: expected a MultiheadAttention, got a ReLU");
    assert_int_equal(tt_module_forward_many(m, TT_TENSORS(x, x), out, 2), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "a MultiheadAttention takes x, or query, key and value");
    assert_null(tt_module_forward(l, wide));
    expect_error(TT_ERR_SHAPE,
                 "a TransformerEncoderLayer expected x (T, B, 8) or, without a batch, (T, 8), got x f32 (5, 2, 9)");
    assert_null(tt_module_forward(l, tt_to(x, TT_F64)));
    expect_error(TT_ERR_DTYPE, "a TransformerEncoderLayer of f32 parameters expected x of that type");
    assert_null(tt_transformer_encoder(l, x, .mask = hides_later(5, 4)));
    expect_error(TT_ERR_SHAPE, "a TransformerEncoderLayer expected attn_mask (T, S)");
    assert_null(tt_transformer_encoder(relu, x));
    expect_error(TT_ERR_INVALID,
                 "tt_transformer_encoder: expected a TransformerEncoder or one of its layers, got a ReLU");
    assert_null(tt_module_forward(l, tt_to_device(x, tt_device_get("reference"))));
    expect_error(TT_ERR_INVALID, "a TransformerEncoderLayer on the device \"cpu\" expected x there");
    tt_module_free(relu);
    tt_module_free(l);
    tt_module_free(m);
}

/* ---- memory ---- */

static tt_status train_step(tt_module *m, bool scope) {
    int begun = scope ? tt_scope_begin() : 0;
    tt_tensor *x = tt_ones(TT_SHAPE(3, 2, 8), TT_F32), *padding = x ? tt_zeros(TT_SHAPE(2, 3), TT_BOOL) : NULL;
    tt_tensor *y = padding ? tt_transformer_encoder(m, x, .src_key_padding_mask = padding, .is_causal = true) : NULL;
    tt_tensor *loss = y ? tt_sum(y) : NULL;
    tt_status status = loss ? tt_backward(loss) : tt_last_status();
    if (scope) {
        tt_scope_end(begun);
    } else {
        tt_tensor_free(loss);
        tt_tensor_free(y);
        tt_tensor_free(padding);
        tt_tensor_free(x);
    }
    return status;
}

static tt_module *stacked(double dropout) {
    return tt_nn_transformer_encoder(tt_nn_transformer_encoder_layer(8, 2, 12, dropout, .norm_first = true), 2,
                                     .norm = true);
}

static void nothing_is_left_without_a_scope(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    for (int k = 0; k < 2; k++) {
        tt_module *m = stacked(k * 0.5);
        assert_int_equal(train_step(m, false), TT_OK);
        long before = alloc_in_use();
        assert_int_equal(train_step(m, false), TT_OK);
        assert_int_equal(alloc_in_use(), before);
        tt_module_free(m);
    }
}

static void steady_steps_allocate_nothing(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    for (int k = 0; k < 2; k++) {
        tt_module *m = stacked(k * 0.5);
        for (int i = 0; i < 3; i++)
            assert_int_equal(train_step(m, true), TT_OK);
        long before = alloc_count_own;
        for (int i = 0; i < 3; i++)
            assert_int_equal(train_step(m, true), TT_OK);
        assert_int_equal(alloc_count_own - before, 0);
        tt_module_free(m);
    }
}

static tt_status make_and_train(void *arg) {
    tt_module *m = stacked(*(const double *)arg);
    tt_status status = m ? train_step(m, true) : tt_last_status();
    tt_module_free(m);
    return status;
}

static void out_of_memory_is_an_error(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    for (int k = 0; k < 2; k++)
        assert_true(alloc_fail_each(make_and_train, &(double){k * 0.5}, ALLOC_ENDS) > 50);
}

static bool all_nan(const tt_tensor *x) {
    const float *p = tt_tensor_f32(x);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        if (p[i] == p[i])
            return false;
    return tt_tensor_numel(x) > 0;
}

static void expect_nan_scores(tt_tensor *score, tt_tensor *mask) {
    tt_tensor *q = tt_expand(score, TT_SHAPE(1, 3, 4)),
              *v = tt_requires_grad_(tt_ones(TT_SHAPE(1, 3, 4), TT_F32), true);
    tt_tensor *y = tt_scaled_dot_product_attention(q, q, v, .attn_mask = mask);
    assert_true(y && all_nan(y));
    assert_int_equal(tt_backward(tt_sum(y)), TT_OK);
    assert_true(all_nan(tt_grad(v)));
}

/* Scores of infinity, made by a product or by a mask, are NaN behind softmax, as in PyTorch. */
static void infinite_scores_are_nan(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    expect_nan_scores(tt_full(TT_SCALAR, TT_F32, 1e20), NULL);
    expect_nan_scores(tt_full(TT_SCALAR, TT_F32, 1), tt_full(TT_SHAPE(3, 3), TT_F32, INFINITY));
    tt_module *m = tt_nn_multihead_attention(4, 1);
    tt_tensor *x = tt_ones(TT_SHAPE(3, 1, 4), TT_F32), *weights = NULL, *mask = tt_zeros(TT_SHAPE(3, 3), TT_F32);
    tt_tensor_f32(mask)[0] = INFINITY;
    tt_tensor_f32(mask)[1] = -INFINITY;
    for (int with = 0; with < 2; with++) {
        tt_tensor *y = tt_multihead_attention(m, x, x, x, .attn_mask = mask, .weights = with ? &weights : NULL);
        assert_true(all_nan(tt_narrow(y, 0, 0, 1)));
        for (int i = 4; i < 12; i++)
            assert_true(tt_tensor_f32(y)[i] == tt_tensor_f32(y)[i]);
    }
    assert_true(isnan(tt_tensor_f32(weights)[0]) && !isnan(tt_tensor_f32(weights)[3]));
    tt_module_free(m);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(infinite_scores_are_nan),       cmocka_unit_test(attention_is_pytorchs),
        cmocka_unit_test(encoders_are_pytorchs),         cmocka_unit_test(all_ways_agree),
        cmocka_unit_test(what_sees_nothing_is_0),        cmocka_unit_test(dropout_follows_the_mode),
        cmocka_unit_test(layers_of_a_stack_are_copies),  cmocka_unit_test(what_cannot_be_made_is_refused),
        cmocka_unit_test(wrong_inputs_are_refused),      cmocka_unit_test(nothing_is_left_without_a_scope),
        cmocka_unit_test(steady_steps_allocate_nothing), cmocka_unit_test(out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
