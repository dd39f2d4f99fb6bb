/* checkpoint: safetensors, read and written. */
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <tutti/checkpoint.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/error.h"
#include "support/own_folder.h"
#include "unit/checkpoint/safetensors_file.h"

/* ---- writing ---- */

static void writes_what_the_reference_writes(void **state) {
    (void)state;
    int scope = tt_scope_begin();
    int64_t seven = 7;
    float bias[] = {1.5f, -2}, weight[] = {0, 0.25f, 0.5f, 0.75f, 1, 1.25f};
    const char *names[] = {"weight", "mask", "bias", "step", "empty"};
    tt_tensor *tensors[] = {tt_from_data(weight, TT_SHAPE(2, 3), TT_F32), tt_ones(TT_SHAPE(3), TT_U8),
                            tt_from_data(bias, TT_SHAPE(2), TT_F32), tt_from_data(&seven, TT_SCALAR, TT_I64),
                            tt_empty(TT_SHAPE(0, 3), TT_F32)};
    assert_int_equal(tt_safetensors_save("a", TT_NAMED_TENSORS(5, names, tensors), NULL, 0), TT_OK);
    static const char header[] = "{\"__metadata__\":{\"format\":\"pt\"}"
                                 ",\"step\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}"
                                 ",\"bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}"
                                 ",\"empty\":{\"dtype\":\"F32\",\"shape\":[0,3],\"data_offsets\":[16,16]}"
                                 ",\"weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[16,40]}"
                                 ",\"mask\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[40,43]}}";
    size_t size, length = sizeof header - 1, padded = (length + 7) / 8 * 8;
    unsigned char *bytes = slurp("a", &size);
    assert_int_equal(size, 8 + padded + 43);
    assert_memory_equal(bytes, &(uint64_t){padded}, 8);
    assert_memory_equal(bytes + 8, header, length);
    for (size_t i = length; i < padded; i++)
        assert_int_equal(bytes[8 + i], ' ');
    assert_memory_equal(bytes + 8 + padded, &seven, 8);
    assert_memory_equal(bytes + 8 + padded + 8, bias, 8);
    assert_memory_equal(bytes + 8 + padded + 16, weight, 24);
    assert_memory_equal(bytes + 8 + padded + 40, "\1\1\1", 3);
    free(bytes);
    tt_scope_end(scope);
}

static void comes_back_as_it_went(void **state) {
    (void)state;
    int scope = tt_scope_begin();
    tt_tensor *rows = tt_arange(6), *turned = tt_transpose(tt_view(rows, TT_SHAPE(2, 3)), 0, 1);
    double pi[] = {3.14159, -0.0};
    int32_t small[] = {INT32_MIN, 5};
    const char *names[] = {"", "z\"\\\n", "\xc3\xa9t\xc3\xa9", "d"};
    tt_tensor *tensors[] = {turned, tt_from_data(pi, TT_SHAPE(2), TT_F64), tt_from_data(small, TT_SHAPE(2, 1), TT_I32),
                            tt_zeros(TT_SHAPE(0), TT_U8)};
    const tt_metadata metadata[] = {{"epoch", "3"}, {"note", "\xe2\x82\xac"}};
    assert_int_equal(tt_safetensors_save("b", TT_NAMED_TENSORS(4, names, tensors), metadata, 2), TT_OK);
    tt_safetensors *file;
    assert_int_equal(tt_safetensors_load(&file, "b"), TT_OK);
    tt_scope_end(scope); /* what was loaded belongs to no scope */
    const tt_named_tensors *back = tt_safetensors_tensors(file);
    assert_int_equal(back->count, 4);
    static const char *const sorted[] = {"", "d", "z\"\\\n", "\xc3\xa9t\xc3\xa9"};
    for (int i = 0; i < 4; i++)
        assert_string_equal(back->names[i], sorted[i]);
    static const int64_t transposed[] = {0, 3, 1, 4, 2, 5};
    assert_int_equal(tt_tensor_size(back->tensors[0], 0), 3);
    assert_memory_equal(tt_tensor_i64(back->tensors[0]), transposed, sizeof transposed);
    assert_int_equal(tt_tensor_numel(back->tensors[1]), 0);
    assert_memory_equal(tt_tensor_data(back->tensors[2]), pi, sizeof pi);
    assert_memory_equal(tt_tensor_data(back->tensors[3]), small, sizeof small);
    assert_string_equal(tt_safetensors_metadata(file, "epoch"), "3");
    assert_string_equal(tt_safetensors_metadata(file, "format"), "pt");
    assert_null(tt_safetensors_metadata(file, "nothing"));
    tt_safetensors_free(file);
}

/* All element types that tensors have, in the reference writer's order: its layout byte for byte, and back. */
static void every_element_type(void **state) {
    (void)state;
    static const struct {
        tt_dtype dtype;
        const char *entry; /* of two elements */
    } types[] = {
        {TT_I64, ",\"i64\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}"},
        {TT_F64, ",\"f64\":{\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[16,32]}"},
        {TT_F32, ",\"f32\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[32,40]}"},
        {TT_I32, ",\"i32\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[40,48]}"},
        {TT_BF16, ",\"bf16\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[48,52]}"},
        {TT_F16, ",\"f16\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[52,56]}"},
        {TT_I16, ",\"i16\":{\"dtype\":\"I16\",\"shape\":[2],\"data_offsets\":[56,60]}"},
        {TT_I8, ",\"i8\":{\"dtype\":\"I8\",\"shape\":[2],\"data_offsets\":[60,62]}"},
        {TT_U8, ",\"u8\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[62,64]}"},
        {TT_BOOL, ",\"bool\":{\"dtype\":\"BOOL\",\"shape\":[2],\"data_offsets\":[64,66]}"},
    };
    enum { TYPES = sizeof types / sizeof *types };
    int scope = tt_scope_begin();
    /* 1 and 0 in every type, written by hand. */
    static const unsigned char data[66] = {
        [0] = 1,     [22] = 0xf0, [23] = 0x3f, [34] = 0x80, [35] = 0x3f, [40] = 1, [48] = 0x80,
        [49] = 0x3f, [53] = 0x3c, [56] = 1,    [60] = 1,    [62] = 1,    [64] = 1};
    static const int64_t one_zero[] = {1, 0};
    const char *names[TYPES];
    tt_tensor *tensors[TYPES];
    char header[2048] = "{\"__metadata__\":{\"format\":\"pt\"}";
    for (int i = 0; i < TYPES; i++) {
        strcat(header, types[i].entry);
        int last = TYPES - 1 - i; /* given in another order */
        names[i] = tt_dtype_name(types[last].dtype);
        tensors[i] = tt_to(tt_from_data(one_zero, TT_SHAPE(2), TT_I64), types[last].dtype);
    }
    strcat(header, "}");
    assert_int_equal(tt_safetensors_save("types", TT_NAMED_TENSORS(TYPES, names, tensors), NULL, 0), TT_OK);
    size_t size, length = strlen(header), padded = (length + 7) / 8 * 8;
    unsigned char *bytes = slurp("types", &size);
    assert_int_equal(size, 8 + padded + sizeof data);
    assert_memory_equal(bytes + 8, header, length);
    assert_memory_equal(bytes + 8 + padded, data, sizeof data);
    tt_safetensors *file;
    assert_int_equal(tt_safetensors_parse(&file, bytes, size, "types"), TT_OK);
    for (int i = 0; i < TYPES; i++)
        assert_true(tt_equal(tt_named_tensors_find(tt_safetensors_tensors(file), names[i]), tensors[i]));
    tt_safetensors_free(file);
    free(bytes);
    tt_scope_end(scope);
}

static void refuses_to_write_nonsense(void **state) {
    (void)state;
    int scope = tt_scope_begin();
    tt_tensor *x = tt_ones(TT_SHAPE(2), TT_F32), *two[] = {x, x}, *none[] = {NULL};
    const char *same[] = {"w", "w"}, *reserved[] = {"__metadata__"}, *latin[] = {"\xe9"}, *w[] = {"w"};
    const char *overlong[] = {"\xc0\xaf"}, *surrogate[] = {"\xed\xa0\x80"};
    const struct {
        const tt_named_tensors *tensors;
        tt_metadata metadata;
        const char *text;
    } cases[] = {
        {TT_NAMED_TENSORS(2, same, two), {"k", "v"}, "\"w\" is given twice"},
        {TT_NAMED_TENSORS(1, reserved, two), {"k", "v"}, "\"__metadata__\" is given twice"},
        {TT_NAMED_TENSORS(1, latin, two), {"k", "v"}, "UTF-8"},
        {TT_NAMED_TENSORS(1, overlong, two), {"k", "v"}, "UTF-8"},
        {TT_NAMED_TENSORS(1, surrogate, two), {"k", "v"}, "UTF-8"},
        {TT_NAMED_TENSORS(1, w, none), {"k", "v"}, "no tensor"},
        {TT_NAMED_TENSORS(1, w, two), {"format", "v"}, "\"format\" is given twice"},
        {TT_NAMED_TENSORS(1, w, two), {"k", "\xff"}, "UTF-8"},
        {TT_NAMED_TENSORS(1, w, two), {"k", NULL}, "NULL"},
        {TT_NAMED_TENSORS(1, w, two), {NULL, "v"}, "NULL"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tt_safetensors_save("never", cases[i].tensors, &cases[i].metadata, 1), TT_ERR_INVALID);
        assert_non_null(strstr(tt_last_error(), cases[i].text));
        assert_non_null(strstr(tt_last_error(), "never"));
        assert_int_equal(access("never", F_OK), -1);
    }
    tt_scope_end(scope);
}

/* ---- reading ---- */

#define TWO(b0, e0, b1, e1)                                                                                          \
    "{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[" b0 "," e0 "]},\"b\":{\"dtype\":\"U8\",\"shape\":[4]" \
    ",\"data_offsets\":[" b1 "," e1 "]}}"

static void reads_what_is_allowed(void **state) {
    (void)state;
    static const struct {
        const char *header;
        size_t data, count;
    } cases[] = {
        {"{}", 0, 0},
        {"{}     \n\t\r", 0, 0},
        {" {}", 0, 0},
        {"{\"__metadata__\":null}", 0, 0},
        {"{\"__metadata__\":{\"format\":\"pt\"}}", 0, 0},
        {W("F32", "[]", "0", "4"), 4, 1},
        {W("F32", "[0,3]", "0", "0"), 0, 1},
        {W("F32", "[1,1,1,1,1,1,1,2]", "0", "8"), 8, 1},
        {TWO("4", "8", "0", "4"), 8, 2},
        {"{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1],\"more\":{\"x\":[1.5]}}}", 1, 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt_safetensors *file;
        assert_int_equal(parse(cases[i].header, cases[i].data, &file), TT_OK);
        assert_int_equal(tt_safetensors_tensors(file)->count, cases[i].count);
        tt_safetensors_free(file);
    }
    tt_safetensors *file;
    assert_int_equal(parse(TWO("4", "8", "0", "4"), 8, &file), TT_OK);
    assert_memory_equal(tt_tensor_data(tt_safetensors_tensors(file)->tensors[0]), "\4\5\6\7", 4);
    tt_safetensors_free(file);
}

/* A user's likely mistake: a file of torch.save(). */
static void names_a_zip_archive(void **state) {
    (void)state;
    static const char zip[] = "PK\3\4\0\0\10\10\0\0\0\0\0\0\0\0";
    tt_safetensors *file;
    assert_int_equal(tt_safetensors_parse(&file, zip, sizeof zip, "checkpoint.pt"), TT_ERR_FORMAT);
    assert_non_null(strstr(tt_last_error(), "checkpoint.pt: not safetensors but a zip archive"));
}

static const struct {
    const char *header;
    size_t data;
    tt_status status;
    const char *text;
} refused[] = {
    {"", 0, TT_ERR_FORMAT, "JSON"},
    {"[]", 0, TT_ERR_FORMAT, "JSON object"},
    {"{", 0, TT_ERR_FORMAT, "JSON"},
    {"{} x", 0, TT_ERR_FORMAT, "JSON"},
    {"{\"\xff\":1}", 0, TT_ERR_FORMAT, "JSON"},
    {"{\"w\":1,\"w\":1}", 0, TT_ERR_FORMAT, "duplicate"},
    {"{\"__metadata__\":3}", 0, TT_ERR_FORMAT, "__metadata__"},
    {"{\"__metadata__\":{\"k\":3}}", 0, TT_ERR_FORMAT, "\"k\""},
    {"{\"w\":1}", 0, TT_ERR_FORMAT, "tensor \"w\""},
    {"{\"w\":{\"shape\":[1],\"data_offsets\":[0,4]}}", 4, TT_ERR_FORMAT, "\"dtype\""},
    {"{\"w\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 4, TT_ERR_FORMAT, "\"shape\""},
    {"{\"w\":{\"dtype\":\"F32\",\"shape\":[1]}}", 4, TT_ERR_FORMAT, "data_offsets"},
    {W("F33", "[1]", "0", "4"), 4, TT_ERR_FORMAT, "F33"},
    {W("F32", "[-1]", "0", "4"), 4, TT_ERR_FORMAT, "\"shape\""},
    {W("F32", "[1.0]", "0", "4"), 4, TT_ERR_FORMAT, "\"shape\""},
    {W("F32", "[\"1\"]", "0", "4"), 4, TT_ERR_FORMAT, "\"shape\""},
    {W("F32", "1", "0", "4"), 4, TT_ERR_FORMAT, "\"shape\""},
    {W("F32", "[4294967296,4294967296]", "0", "4"), 4, TT_ERR_FORMAT, "64 bits"},
    {W("F32", "[4611686018427387904]", "0", "4"), 4, TT_ERR_FORMAT, "64 bits"},
    {W("F32", "[1]", "-4", "0"), 4, TT_ERR_FORMAT, "data_offsets"},
    {W("F32", "[1]", "4", "0"), 4, TT_ERR_FORMAT, "data_offsets"},
    {W("F32", "[1]", "0,4", "4"), 4, TT_ERR_FORMAT, "data_offsets"},
    {W("F32", "[1]", "0", "99999999999999999999"), 4, TT_ERR_FORMAT, "JSON"},
    {W("F32", "[2]", "0", "4"), 4, TT_ERR_FORMAT, "8 bytes, data_offsets 4"},
    {W("F32", "[2]", "0", "8"), 4, TT_ERR_FORMAT, "cut short"},
    {W("F32", "[1]", "0", "4"), 5, TT_ERR_FORMAT, "4 bytes, the file has 5"},
    {W("F32", "[1]", "1", "5"), 5, TT_ERR_FORMAT, "no tensor's"},
    {TWO("0", "4", "0", "4"), 4, TT_ERR_FORMAT, "inside another"},
    {TWO("0", "4", "3", "7"), 7, TT_ERR_FORMAT, "inside another"},
    {TWO("0", "4", "5", "9"), 9, TT_ERR_FORMAT, "no tensor's"},
    {W("F4", "[3]", "0", "1"), 1, TT_ERR_FORMAT, "whole number of bytes"},
    {W("F4", "[2]", "0", "1"), 1, TT_ERR_UNSUPPORTED, "F4"},
    {W("F8_E4M3", "[2]", "0", "2"), 2, TT_ERR_UNSUPPORTED, "F8_E4M3"},
    {W("U16", "[2]", "0", "2"), 2, TT_ERR_FORMAT, "4 bytes, data_offsets 2"},
    {W("C64", "[1]", "0", "8"), 8, TT_ERR_UNSUPPORTED, "tensor \"w\": dtype C64"},
    {W("BF16", "[2]", "0", "2"), 2, TT_ERR_FORMAT, "4 bytes, data_offsets 2"},
    {W("BOOL", "[3]", "0", "3"), 3, TT_ERR_FORMAT, "byte 2 is 2"},
    {W("F32", "[1,1,1,1,1,1,1,1,1]", "0", "4"), 4, TT_ERR_UNSUPPORTED, "tensor \"w\": 9 dimensions, at most 8"},
    {"{\"\\u001b[2J\":1}", 0, TT_ERR_FORMAT, "\"?[2J\""},
};

static void refuses_what_is_not(void **state) {
    (void)state;
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        tt_safetensors *file = (tt_safetensors *)"untouched";
        assert_int_equal(parse(refused[i].header, refused[i].data, &file), refused[i].status);
        assert_null(file);
        assert_non_null(strstr(tt_last_error(), refused[i].text));
        assert_non_null(strstr(tt_last_error(), "x.safetensors"));
    }
}

static void lengths_are_checked_before_use(void **state) {
    (void)state;
    tt_safetensors *file;
    assert_int_equal(tt_safetensors_parse(&file, "1234567", 7, "x"), TT_ERR_FORMAT);
    assert_non_null(strstr(tt_last_error(), "7"));
    static const uint64_t lengths[] = {3, 100000001, UINT64_MAX, UINT64_MAX - 7, (uint64_t)1 << 63};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        unsigned char bytes[10] = {0};
        memcpy(bytes, &lengths[i], 8);
        memcpy(bytes + 8, "{}", 2);
        assert_int_equal(tt_safetensors_parse(&file, bytes, sizeof bytes, "x"), TT_ERR_FORMAT);
    }
    size_t size;
    unsigned char *bytes = make_file("{}\0\0", 0, &size);
    memcpy(bytes, &(uint64_t){4}, 8);
    bytes = realloc(bytes, 12);
    memset(bytes + 10, 0, 2);
    assert_int_equal(tt_safetensors_parse(&file, bytes, 12, "x"), TT_ERR_FORMAT); /* padded with NUL */
    free(bytes);
}

/* Every file that ends too early is refused, wherever it ends. */
static void every_truncation_is_refused(void **state) {
    (void)state;
    size_t size;
    unsigned char *bytes = make_file(TWO("0", "4", "4", "8"), 8, &size);
    tt_safetensors *file;
    for (size_t n = 0; n < size; n++) {
        unsigned char *part = malloc(n ? n : 1); /* so that a sanitizer sees reads beyond it */
        memcpy(part, bytes, n);
        assert_int_equal(tt_safetensors_parse(&file, part, n, "x"), TT_ERR_FORMAT);
        free(part);
    }
    free(bytes);
}

static void reads_the_reference_writers_file(void **state) {
    (void)state;
    char path[4096];
    const char *source = getenv("TT_SOURCE");
    if (!source)
        fail_msg("TT_SOURCE is not set: run this through ctest");
    snprintf(path, sizeof path, "%s/tests/vectors/example.safetensors", source);
    tt_safetensors *file;
    assert_int_equal(tt_safetensors_load(&file, path), TT_OK);
    const tt_named_tensors *t = tt_safetensors_tensors(file);
    assert_int_equal(t->count, 6);
    static const float weight[] = {0, 0.25f, 0.5f, 0.75f, 1, 1.25f}, bias[] = {1.5f, -2};
    static const int64_t seven = 7;
    static const uint16_t half[] = {0x3f80, 0x4000}; /* 1 and 2 in bf16 */
    static const struct {
        const char *name;
        tt_dtype dtype;
        const void *data;
        size_t bytes;
    } expected[] = {{"bias", TT_F32, bias, 8},      {"empty", TT_F32, bias, 0},  {"half", TT_BF16, half, 4},
                    {"mask", TT_BOOL, "\1\0\1", 3}, {"step", TT_I64, &seven, 8}, {"weight", TT_F32, weight, 24}};
    for (int i = 0; i < 6; i++) {
        assert_string_equal(t->names[i], expected[i].name);
        assert_int_equal(tt_tensor_dtype(t->tensors[i]), expected[i].dtype);
        assert_int_equal((size_t)tt_tensor_numel(t->tensors[i]) * tt_dtype_size(expected[i].dtype), expected[i].bytes);
        assert_memory_equal(tt_tensor_data(t->tensors[i]), expected[i].data, expected[i].bytes);
    }
    assert_string_equal(tt_safetensors_metadata(file, "format"), "pt");
    /* Written again it is the same file, whoever wrote it. */
    assert_int_equal(tt_safetensors_save("again", t, NULL, 0), TT_OK);
    size_t size, size_again;
    unsigned char *bytes = slurp(path, &size), *again = slurp("again", &size_again);
    assert_int_equal(size, size_again);
    assert_memory_equal(bytes, again, size);
    free(bytes);
    free(again);
    tt_safetensors_free(file);
}

static void files_that_are_none(void **state) {
    (void)state;
    tt_safetensors *file;
    assert_int_equal(tt_safetensors_load(&file, "missing"), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "missing: "));
    assert_int_equal(tt_safetensors_load(&file, "."), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "directory"));
    assert_int_equal(mkfifo("fifo", 0600), 0);
    assert_int_equal(tt_safetensors_load(&file, "fifo"), TT_ERR_IO);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_what_the_reference_writes),
        cmocka_unit_test(comes_back_as_it_went),
        cmocka_unit_test(every_element_type),
        cmocka_unit_test(refuses_to_write_nonsense),
        cmocka_unit_test(names_a_zip_archive),
        cmocka_unit_test(reads_what_is_allowed),
        cmocka_unit_test(refuses_what_is_not),
        cmocka_unit_test(lengths_are_checked_before_use),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(reads_the_reference_writers_file),
        cmocka_unit_test(files_that_are_none),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
