/* Tokenizers: GPT-2's tokens of all kinds of texts, texts that come back whatever their bytes, files that don't fit. */
#include "base/hash.h"
#include "data/text/bpe.h"
#include "data/text/unicode_classes.h"
#include "support/own_folder.h"
#include "unit/alloc_fail.h"
#include "unit/base/hex.h"
#include "unit/expect.h"
#include "unit/vectors.h"

#include <sys/stat.h>
#include <time.h>
#include <tutti/datasets.h>
#include <unistd.h>

static json_t *vectors;

static int load_vectors(void **state) {
    char path[4096];
    json_error_t error;
    if (make_folder(state))
        return -1;
    snprintf(path, sizeof path, "%s/tests/vectors/gpt2-bpe.json", getenv("TT_SOURCE") ? getenv("TT_SOURCE") : ".");
    vectors = json_load_file(path, JSON_ALLOW_NUL, &error);
    if (!vectors)
        return -1;
    const json_t *vocab = json_object_get(vectors, "vocab"), *merges = json_object_get(vectors, "merges");
    write_bytes("vocab.json", json_string_value(vocab), json_string_length(vocab));
    write_bytes("merges.txt", json_string_value(merges), json_string_length(merges));
    return 0;
}

static int free_vectors(void **state) {
    json_decref(vectors);
    return remove_folder(state);
}

static tt_tokenizer *small_gpt2(void) {
    tt_tokenizer *t = tt_gpt2_tokenizer("vocab.json", "merges.txt");
    if (!t)
        fail_msg("%s", tt_last_error());
    return t;
}

/* Encode, compare with `tokens` (NULL: with nothing), decode, compare with the text. */
static void check_text(const tt_tokenizer *t, const char *text, size_t size, const json_t *tokens) {
    tt_tensor *x = NULL;
    size_t length;
    assert_int_equal(tt_tokenizer_encode(&x, t, text, size), TT_OK);
    int64_t n = tt_tensor_numel(x);
    if (tokens && (size_t)n != json_array_size(tokens))
        fail_msg("\"%s\": expected %zu tokens, got %d", text, json_array_size(tokens), (int)n);
    for (int64_t i = 0; tokens && i < n; i++)
        if (tt_tensor_i64(x)[i] != json_integer_value(json_array_get(tokens, (size_t)i)))
            fail_msg("\"%s\": token %d is wrong", text, (int)i);
    char *back = malloc(size + 1);
    assert_int_equal(tt_tokenizer_decode(&length, t, tt_tensor_i64(x), n, back, size), TT_OK);
    assert_int_equal(length, size);
    assert_memory_equal(back, text, size);
    free(back);
    tt_tensor_free(x);
}

static void tokens_are_gpt2s(void **state) {
    (void)state;
    tt_tokenizer *t = small_gpt2();
    const json_t *cases = json_object_get(vectors, "cases");
    assert_true(json_array_size(cases) > 100);
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i), *text = json_object_get(c, "text");
        check_text(t, json_string_value(text), json_string_length(text), json_object_get(c, "tokens"));
    }
    tt_tokenizer_free(t);
}

static void words_are_those_of_the_pattern(void **state) {
    (void)state;
    const json_t *cases = json_object_get(vectors, "cases"), *words = json_object_get(vectors, "words");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *text = json_object_get(json_array_get(cases, i), "text"), *lengths = json_array_get(words, i);
        const uint8_t *at = (const uint8_t *)json_string_value(text), *end = at + json_string_length(text);
        size_t n = 0;
        for (; at < end; n++) {
            size_t length = tt__gpt2_word(at, (size_t)(end - at));
            assert_int_equal(length, json_integer_value(json_array_get(lengths, n)));
            at += length;
        }
        assert_int_equal(n, json_array_size(lengths));
    }
}

static void any_bytes_come_back(void **state) {
    (void)state;
    static const char common[] = "a \xc3\xa9\xf0\x9f\xff\n"; /* whole characters and parts of them */
    tt_tokenizer *t = small_gpt2();
    uint8_t text[256];
    uint32_t random = 1;
    for (int round = 0; round < 300; round++) {
        for (int i = 0; i < 256; i++) {
            random = random * 1664525 + 1013904223;
            text[i] = round % 2 ? (uint8_t)(random >> 24) : (uint8_t)common[random >> 28 & 7];
        }
        check_text(t, (const char *)text, (size_t)(random >> 16 & 255), NULL);
    }
    tt_tokenizer_free(t);
}

/* A word of a megabyte: merging takes n log n, not n squared. */
static void long_words_are_cut_soon(void **state) {
    (void)state;
    enum { N = 1 << 20 };
    tt_tokenizer *t = small_gpt2();
    char *text = malloc(N);
    for (int i = 0; i < N; i++)
        text[i] = "banana"[i % 6];
    check_text(t, text, N, NULL);
    free(text);
    tt_tokenizer_free(t);
}

static void classes_are_unicodes(void **state) {
    (void)state;
    assert_true(tt__is_letter('z') && tt__is_letter(0xaa) && tt__is_letter(0x3134a) && tt__is_letter(0x4e2d));
    assert_false(tt__is_letter('[') || tt__is_letter(0x301) || tt__is_letter(0x10ffff) || tt__is_letter(UINT32_MAX));
    assert_true(tt__is_number('0') && tt__is_number(0xbd) && tt__is_number(0x2167) && tt__is_number(0x1fbf9));
    assert_false(tt__is_number('a') || tt__is_number(':'));
    assert_true(tt__is_space(' ') && tt__is_space(0x85) && tt__is_space(0x3000));
    assert_false(tt__is_space(0x1c) || tt__is_space(0x200b));
}

static void bytes_are_a_vocabulary(void **state) {
    (void)state;
    static const char text[] = "hello, world";
    tt_tensor *x = NULL;
    tt_tokenizer *t = tt_char_vocab(text, sizeof text - 1);
    assert_int_equal(tt_tokenizer_size(t), 9); /* " ,dehlorw" */
    assert_int_equal(tt_tokenizer_find(t, " ", 1), 0);
    assert_int_equal(tt_tokenizer_find(t, "w", 1), 8);
    assert_int_equal(tt_tokenizer_find(t, "z", 1), -1);
    check_text(t, text, sizeof text - 1, NULL);
    check_text(t, "", 0, NULL);
    assert_int_equal(tt_tokenizer_encode(&x, t, "held, zero", 10), TT_ERR_INVALID);
    assert_null(x);
    expect_error(TT_ERR_INVALID, "byte 6 of the text, 7a, is not among the 9 of the vocabulary");
    tt_tokenizer_free(t);
    write_bytes("text", text, sizeof text - 1);
    assert_int_equal(tt_bytes_read(&x, "text"), TT_OK);
    assert_int_equal(tt_tensor_numel(x), sizeof text - 1);
    assert_memory_equal(tt_tensor_data(x), text, sizeof text - 1);
    tt_tensor_free(x);
}

static void bytes_are_written_whole_or_not(void **state) {
    (void)state;
    static const uint8_t columns[] = {'a', 'c', 'e', 'b', 'd', 'f'};
    char read[8] = "";
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_from_data(columns, TT_SHAPE(2, 3), TT_U8);
    write_bytes("old", "old", 3);
    assert_int_equal(link("old", "bytes"), 0);
    assert_int_equal(tt_bytes_write(tt_transpose(x, 0, 1), "bytes"), TT_OK);
    FILE *file = fopen("bytes", "rb");
    assert_int_equal(fread(read, 1, sizeof read, file), 6);
    fclose(file);
    assert_memory_equal(read, "abcdef", 6);
    file = fopen("old", "rb"); /* its other name has another file now */
    assert_int_equal(fread(read, 1, sizeof read, file), 3);
    fclose(file);
    assert_int_equal(tt_bytes_write(tt_zeros(TT_SHAPE(2), TT_F32), "bytes"), TT_ERR_DTYPE);
    expect_error(TT_ERR_DTYPE, "bytes: expected u8");
    assert_int_equal(tt_bytes_write(x, NULL), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a path");
    assert_int_equal(mkfifo("pipe", 0600), 0);
    assert_int_equal(tt_bytes_write(x, "pipe"), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "pipe: expected a file, got a FIFO");
}

static void what_cant_be_decoded_is_named(void **state) {
    (void)state;
    static const int64_t tokens[] = {0, 3, 1}, far[] = {1, 3};
    char out[2] = "..";
    size_t length = 0;
    tt_tokenizer *t = tt_char_vocab("abc", 3);
    assert_int_equal(tt_tokenizer_decode(&length, t, tokens, 3, NULL, 0), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "token 1: expected 0 to 2, got 3");
    assert_int_equal(tt_tokenizer_decode(&length, t, far, 1, NULL, 0), TT_OK);
    assert_int_equal(length, 1);
    assert_int_equal(tt_tokenizer_decode(&length, t, (int64_t[]){0, 1, 2}, 3, out, 2), TT_OK);
    assert_true(length == 3 && out[0] == 'a' && out[1] == 'b');
    assert_int_equal(tt_tokenizer_decode(&length, t, tokens, -1, NULL, 0), TT_ERR_INVALID);
    tt_tokenizer_free(t);
    assert_null(tt_char_vocab("", 0));
    expect_error(TT_ERR_INVALID, "got an empty one");
    assert_int_equal(tt_tokenizer_size(NULL), 0);
}

/* ---- files that don't fit ---- */

static void refuse(const char *vocab, const char *merges, tt_status status, const char *text) {
    write_bytes("bad.json", vocab, strlen(vocab));
    write_bytes("bad.txt", merges, strlen(merges));
    assert_null(tt_gpt2_tokenizer("bad.json", "bad.txt"));
    expect_error(status, text);
}

/* Tokens that FNV-1a puts into an eighth of a table, which anybody can find: each cost a look at half of the others. */
static void tokens_that_were_chosen_cost_no_more(void **state) {
    (void)state;
    enum { TOKENS = 100000, SLOTS = 1 << 18, ROOM = 24 };
    char *vocab = malloc(TOKENS * ROOM), name[ROOM];
    assert_non_null(vocab);
    size_t n = 0;
    for (int found = 0, i = 0; found < TOKENS; i++) {
        snprintf(name, sizeof name, "%x", i);
        uint64_t hash = tt__fnv_bytes(TT__FNV, name, strlen(name));
        if (((hash ^ hash >> 32) & (SLOTS - 1)) >= SLOTS / 8)
            continue;
        n += (size_t)snprintf(vocab + n, ROOM, "%c\"%s\":%d", found ? ',' : '{', name, found);
        found++;
    }
    snprintf(vocab + n, 2, "}");
    clock_t before = clock(); /* of the processor */
    refuse(vocab, "", TT_ERR_FORMAT, "the vocabulary has no token for byte 00");
    assert_true((clock() - before) / CLOCKS_PER_SEC < 5);
    free(vocab);
}

static void files_that_dont_fit_are_refused(void **state) {
    (void)state;
    const char *vocab = json_string_value(json_object_get(vectors, "vocab"));
    refuse("{", "", TT_ERR_FORMAT, "bad.json: no valid JSON");
    refuse("{}", "", TT_ERR_FORMAT, "expected an object of tokens");
    refuse("[1]", "", TT_ERR_FORMAT, "expected an object of tokens");
    refuse("{\"a\": 1}", "", TT_ERR_FORMAT, "token \"a\": expected a number from 0 to 0");
    refuse("{\"a\": \"0\"}", "", TT_ERR_FORMAT, "token \"a\": expected a number from 0 to 0");
    refuse("{\"a\": 0, \"b\": 0}", "", TT_ERR_FORMAT, "the number 0 is given twice");
    refuse("{\"a\": 0, \"b c\": 1}", "", TT_ERR_FORMAT, "token \"b c\": expected characters that stand for bytes");
    refuse("{\"a\": 0, \"\": 1}", "", TT_ERR_FORMAT, "token \"\": expected characters that stand for bytes");
    refuse("{\"a\": 0}", "", TT_ERR_FORMAT, "the vocabulary has no token for byte 00");
    refuse(vocab, "#version: 0.2\nab\n", TT_ERR_FORMAT, "bad.txt: line 2: expected two tokens with a blank between");
    refuse(vocab, "a a\na a\n", TT_ERR_FORMAT, "bad.txt: line 2: this pair comes twice");
    refuse(
        vocab, "Z Z\nqqq a\na qqq\n", TT_ERR_FORMAT,
        "bad.txt: line 1: the vocabulary lacks what they become; line 2: the vocabulary lacks the left token; line 3: "
        "the vocabulary lacks the right token");
    assert_null(tt_gpt2_tokenizer("no/such", "bad.txt"));
    expect_error(TT_ERR_IO, "no/such: can't open it");
    assert_null(tt_gpt2_tokenizer("vocab.json", NULL));
    expect_error(TT_ERR_INVALID, "the path of the merges is NULL");
}

static tt_status read_and_encode(void *arg) {
    tt_tensor *x = NULL;
    tt_tokenizer *t = tt_gpt2_tokenizer("vocab.json", "merges.txt"), *chars = t ? tt_char_vocab("abc", 3) : NULL;
    (void)arg;
    tt_status status = chars ? tt_tokenizer_encode(&x, t, "the bananas", 11) : tt_last_status();
    tt_tensor_free(x);
    tt_tokenizer_free(t);
    tt_tokenizer_free(chars);
    return status;
}

static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    if (alloc_count_works)
        assert_true(alloc_fail_each(read_and_encode, NULL, ALLOC_ENDS) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_gpt2s),
        cmocka_unit_test(words_are_those_of_the_pattern),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(long_words_are_cut_soon),
        cmocka_unit_test(classes_are_unicodes),
        cmocka_unit_test(bytes_are_a_vocabulary),
        cmocka_unit_test(bytes_are_written_whole_or_not),
        cmocka_unit_test(what_cant_be_decoded_is_named),
        cmocka_unit_test(files_that_dont_fit_are_refused),
        cmocka_unit_test(tokens_that_were_chosen_cost_no_more),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, load_vectors, free_vectors);
}
