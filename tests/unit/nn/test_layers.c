/* Layers of one operator: PyTorch's initial bits, results and gradients; what they refuse. */
#include "module_vectors.h"

#include "unit/expect.h"

static tt_module *embedding(tt_dtype dtype) { return tt_nn_embedding(5, 7, .dtype = dtype); }

static tt_module *embedding_padded(tt_dtype dtype) {
    return tt_nn_embedding(5, 7, .padding_idx = &(int64_t){-5}, .dtype = dtype);
}

static tt_module *conv1d(tt_dtype dtype) { return tt_nn_conv1d(4, 6, 3, .dtype = dtype); }

static tt_module *conv1d_options(tt_dtype dtype) {
    return tt_nn_conv1d(4, 6, 3, .stride = 2, .padding = 2, .dilation = 2, .groups = 2, .no_bias = true,
                        .dtype = dtype);
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

static void embeddings_are_pytorchs(void **state) {
    (void)state;
    static const module_case cases[] = {{.name = "embedding", .make = embedding},
                                        {.name = "embedding padding_idx -5", .make = embedding_padded},
                                        {.name = "embedding f64", .make = embedding}};
    expect_modules_like_torch("torch-modules.json", "embedding", cases, COUNT(cases));
}

static void convolutions_are_pytorchs(void **state) {
    (void)state;
    static const module_case cases[] = {{.name = "conv1d", .make = conv1d},
                                        {.name = "conv1d options", .make = conv1d_options}};
    expect_modules_like_torch("torch-modules.json", "conv1d", cases, COUNT(cases));
}

static void an_identity_gives_back_what_it_gets(void **state) {
    (void)state;
    tt_module *m = tt_nn_identity();
    tt_tensor *x = tt_ones(TT_SHAPE(2), TT_I64);
    assert_ptr_equal(tt_module_forward(m, x), x);
    assert_int_equal(tt_module_state_dict(m)->count, 0);
    tt_tensor_free(x);
    tt_module_free(m);
}

static void what_cannot_be_made_is_refused(void **state) {
    (void)state;
    assert_null(tt_nn_embedding(0, 4));
    expect_error(TT_ERR_INVALID, "tt_nn_embedding: expected sizes of at least 1, got num_embeddings 0");
    assert_null(tt_nn_embedding(INT64_MAX, 2, .padding_idx = &(int64_t){2}));
    expect_error(TT_ERR_SHAPE, "9223372036854775807");
    assert_null(tt_nn_embedding(3, 4, .padding_idx = &(int64_t){3}));
    expect_error(TT_ERR_INVALID, "tt_nn_embedding: expected padding_idx in -3..2, got 3");
    assert_null(tt_nn_embedding(3, 4, .dtype = TT_F16));
    expect_error(TT_ERR_DTYPE, "tt_nn_embedding: expected dtype f32 or f64, got f16");
    assert_null(tt_nn_embedding(INT64_MAX / 2, INT64_MAX / 2));
    expect_error(TT_ERR_SHAPE, "tt_nn_embedding: expected sizes of at least 0 whose product fits memory");
    assert_null(tt_nn_conv1d(4, 6, 0));
    expect_error(TT_ERR_INVALID, "tt_nn_conv1d: expected sizes of at least 1");
    assert_null(tt_nn_conv1d(4, 6, 3, .groups = 4));
    expect_error(TT_ERR_INVALID, "tt_nn_conv1d: expected groups to divide in_channels 4 and out_channels 6, got 4");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(embeddings_are_pytorchs),
        cmocka_unit_test(convolutions_are_pytorchs),
        cmocka_unit_test(an_identity_gives_back_what_it_gets),
        cmocka_unit_test(what_cannot_be_made_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
