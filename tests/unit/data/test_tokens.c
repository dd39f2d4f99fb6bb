/* Files of tokens and windows of them: every example, every type, files that lie about themselves or shrink. */
#include "support/own_folder.h"
#include "unit/alloc_fail.h"
#include "unit/base/hex.h"
#include "unit/expect.h"

#include <pthread.h>
#include <tutti/datasets.h>
#include <unistd.h>

enum { N = 1000 };

static int64_t token_at(int64_t i) { return (i * 7919 + 13) % 50257; }

static void put_number(uint8_t *to, uint64_t number, size_t width) {
    for (size_t k = 0; k < width; k++)
        to[k] = (uint8_t)(number >> 8 * k);
}

/* N tokens of `width` bytes behind `header` bytes that begin with three numbers. */
static void write_tokens(const char *path, size_t width, size_t header, uint32_t magic, uint32_t version) {
    uint8_t *bytes = calloc(1, header + N * width);
    if (header) {
        put_number(bytes, magic, 4);
        put_number(bytes + 4, version, 4);
        put_number(bytes + 8, N, 4);
    }
    for (int64_t i = 0; i < N; i++)
        put_number(bytes + header + (size_t)i * width, (uint64_t)token_at(i), width);
    write_bytes(path, bytes, header + N * width);
    free(bytes);
}

static void check_windows(tt_dataset *set, int64_t block, int64_t stride) {
    assert_non_null(set);
    assert_int_equal(tt_dataset_size(set), (N - 1 - block) / stride + 1);
    int64_t *x = malloc((size_t)block * sizeof *x), *y = malloc((size_t)block * sizeof *y);
    for (int64_t i = 0; i < tt_dataset_size(set); i++) {
        assert_int_equal(tt_dataset_get(set, i, x, y), TT_OK);
        for (int64_t k = 0; k < block; k++) {
            assert_int_equal(x[k], token_at(i * stride + k));
            assert_int_equal(y[k], token_at(i * stride + k + 1));
        }
    }
    free(x);
    free(y);
    tt_dataset_free(set);
}

static tt_tensor *tokens_tensor(void) {
    tt_tensor *x = tt_keep(tt_empty(TT_SHAPE(N), TT_I64));
    for (int64_t i = 0; i < N; i++)
        tt_tensor_i64(x)[i] = token_at(i);
    return x;
}

static void every_window_is_read(void **state) {
    (void)state;
    static const int64_t blocks[] = {1, 2, 7, 64, 998, 999}, strides[] = {1, 3, 64};
    write_tokens("plain16", 2, 0, 0, 0);
    write_tokens("plain32", 4, 0, 0, 0);
    write_tokens("gpt2", 2, 1024, 20240520, 1);
    write_tokens("llama3", 4, 1024, 20240801, 7);
    for (int b = 0; b < 6; b++)
        for (int s = 0; s < 3; s++) {
            int64_t block = blocks[b], stride = strides[s];
            check_windows(tt_token_dataset("plain16", block, .stride = stride, .vocab_size = 50257), block, stride);
            check_windows(tt_token_dataset("plain32", block, .stride = stride, .type = TT_TOKEN_U32), block, stride);
            check_windows(tt_token_dataset("plain32", block, .stride = stride, .type = TT_TOKEN_I32), block, stride);
            check_windows(tt_token_dataset("gpt2", block, .stride = stride), block, stride);
            check_windows(tt_token_dataset("llama3", block, .stride = stride), block, stride);
            check_windows(tt_window_dataset(tokens_tensor(), block, .stride = stride), block, stride);
        }
    check_windows(tt_token_dataset("plain16", 10), 10, 10);
}

static void a_loader_makes_batches(void **state) {
    (void)state;
    tt_batch batch;
    char text[64];
    tt_dataset *set = tt_token_dataset("plain16", 16);
    tt_loader *loader = tt_loader_new(set, 4, tt_in_order());
    assert_int_equal(tt_loader_next(loader, &batch), 1);
    assert_string_equal(tt_tensor_describe(batch.x, text, sizeof text), "i64 (4, 16)");
    assert_int_equal(tt_tensor_i64(batch.y)[17], token_at(18));
    tt_loader_free(loader);
    tt_dataset_free(set);
}

static void files_that_lie_are_refused(void **state) {
    (void)state;
    write_bytes("odd", "abc", 3);
    assert_null(tt_token_dataset("odd", 1));
    expect_error(TT_ERR_FORMAT, "odd: expected tokens of 2 bytes each, got 3 bytes in all");
    write_tokens("bad", 2, 1024, 20240520, 2);
    assert_null(tt_token_dataset("bad", 1));
    expect_error(TT_ERR_FORMAT, "expected version 1 of a header with magic number 20240520, got 2");
    write_tokens("bad", 4, 1024, 20240520, 1);
    assert_null(tt_token_dataset("bad", 1));
    expect_error(TT_ERR_FORMAT, "promises 1000 tokens, a file of 3024 bytes, but it has 5024");
    assert_null(tt_token_dataset("plain16", N));
    expect_error(TT_ERR_FORMAT, "plain16: expected at least 1001 tokens, block_size + 1, got 1000");
    write_bytes("empty", "", 0);
    assert_null(tt_token_dataset("empty", 1));
    expect_error(TT_ERR_FORMAT, "got 0");
}

static void tokens_beyond_the_vocabulary_are_named(void **state) {
    (void)state;
    static const uint8_t negative[] = {1, 0, 0, 0, 0xff, 0xff, 0xff, 0xff};
    int64_t x[4], y[4];
    tt_dataset *set = tt_token_dataset("plain16", 4, .vocab_size = 30000);
    assert_int_equal(tt_dataset_get(set, 0, x, y), TT_ERR_FORMAT);
    expect_error(TT_ERR_FORMAT, "token 4: expected 0 to 29999, got 31689");
    tt_dataset_free(set);
    write_bytes("negative", negative, sizeof negative);
    set = tt_token_dataset("negative", 1, .type = TT_TOKEN_I32);
    assert_int_equal(tt_dataset_get(set, 0, x, y), TT_ERR_FORMAT);
    expect_error(TT_ERR_FORMAT, "example 0: negative: token 1: expected 0 to 2147483647, got -1");
    tt_dataset_free(set);
}

/* A mapping would end the process here. */
static void a_file_that_shrinks_is_an_error(void **state) {
    (void)state;
    int64_t x[8], y[8];
    write_tokens("shrinks", 2, 0, 0, 0);
    tt_dataset *set = tt_token_dataset("shrinks", 8);
    assert_int_equal(tt_dataset_get(set, 100, x, y), TT_OK);
    assert_int_equal(truncate("shrinks", 1616), 0); /* y's last token is gone */
    assert_int_equal(tt_dataset_get(set, 100, x, y), TT_ERR_IO);
    expect_error(TT_ERR_IO, "shrinks: it has become shorter: expected 1000 tokens");
    assert_int_equal(truncate("shrinks", 0), 0);
    assert_int_equal(tt_dataset_get(set, 0, x, y), TT_ERR_IO);
    tt_dataset_free(set);
}

static void arguments_are_checked(void **state) {
    (void)state;
    assert_null(tt_token_dataset(NULL, 4));
    expect_error(TT_ERR_INVALID, "the path is NULL");
    assert_null(tt_token_dataset("plain16", 0));
    expect_error(TT_ERR_INVALID, "expected a block_size from 1 to");
    assert_null(tt_token_dataset("plain16", 4, .stride = -1));
    expect_error(TT_ERR_INVALID, "expected a stride of at least 0, got -1");
    assert_null(tt_token_dataset("plain16", 4, .vocab_size = -1));
    expect_error(TT_ERR_INVALID, "vocab_size");
    assert_null(tt_token_dataset("plain16", 4, .type = (tt_token_type)9));
    expect_error(TT_ERR_INVALID, "number 9");
    assert_null(tt_token_dataset("no/such", 4));
    expect_error(TT_ERR_IO, "no/such: can't open it");
    assert_null(tt_window_dataset(tt_keep(tt_ones(TT_SHAPE(9), TT_F32)), 4));
    expect_error(TT_ERR_DTYPE, "expected tokens of i64, got f32 (9)");
    assert_null(tt_window_dataset(tt_keep(tt_ones(TT_SHAPE(3, 3), TT_I64)), 4));
    expect_error(TT_ERR_SHAPE, "of one dimension, got i64 (3, 3)");
    assert_null(tt_window_dataset(tt_keep(tt_ones(TT_SHAPE(4), TT_I64)), 4));
    expect_error(TT_ERR_FORMAT, "expected at least 5 tokens");
    assert_null(tt_window_dataset(NULL, 4));
    expect_error(TT_ERR_INVALID, "the tokens are NULL");
}

static void *read_all(void *set) {
    int64_t x[8], y[8];
    for (int round = 0; round < 20; round++)
        for (int64_t i = 0; i < tt_dataset_size(set); i++)
            if (tt_dataset_get(set, i, x, y) || x[0] != token_at(8 * i) || y[7] != token_at(8 * i + 8))
                return set;
    return NULL;
}

static void threads_read_at_once(void **state) {
    (void)state;
    pthread_t threads[4];
    tt_dataset *set = tt_token_dataset("plain16", 8);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, set), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    tt_dataset_free(set);
}

static tt_status make_both(void *arg) {
    (void)arg;
    tt_dataset *file = tt_token_dataset("plain16", 8), *memory = file ? tt_window_dataset(tt_arange(20), 4) : NULL;
    tt_dataset_free(file);
    tt_dataset_free(memory);
    return memory ? TT_OK : tt_last_status();
}

static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    if (alloc_count_works)
        assert_true(alloc_fail_each(make_both, NULL, ALLOC_ENDS) > 4);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_window_is_read),
        cmocka_unit_test(a_loader_makes_batches),
        cmocka_unit_test(files_that_lie_are_refused),
        cmocka_unit_test(tokens_beyond_the_vocabulary_are_named),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(arguments_are_checked),
        cmocka_unit_test(threads_read_at_once),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
