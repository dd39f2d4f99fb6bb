/* .npy and .npz files: what NumPy wrote is read, what is written is what NumPy writes, and a bad file is told what is
 * wrong with it. */
#include "support/own_folder.h"
#include "unit/alloc_fail.h"
#include "unit/base/hex.h"
#include "unit/expect.h"
#include "unit/vectors.h"

#include <tutti/autograd.h>
#include <tutti/datasets.h>
#include <zlib.h>

/* ---- what NumPy wrote ---- */

static void check_values(const json_t *values, tt_tensor *x) {
    TT_AUTO_SCOPE;
    tt_tensor *flat = tt_to(tt_reshape(x, TT_SHAPE(-1)), TT_F64), *whole = tt_to(tt_reshape(x, TT_SHAPE(-1)), TT_I64);
    const double *number = tt_tensor_data(flat);
    for (size_t i = 0; i < json_array_size(values); i++) {
        const json_t *value = json_array_get(values, i);
        if (json_is_integer(value))
            assert_int_equal(tt_tensor_i64(whole)[i], json_integer_value(value));
        else
            assert_true(number[i] == json_number_value(value));
    }
}

static void check_case(const json_t *c) {
    const json_t *shape = json_object_get(c, "shape");
    tt_tensor *x = NULL;
    write_hex("x.npy", json_string_value(json_object_get(c, "file")));
    if (tt_npy_read(&x, "x.npy"))
        fail_msg("%s: %s", json_string_value(json_object_get(c, "name")), tt_last_error());
    assert_string_equal(tt_dtype_name(tt_tensor_dtype(x)), json_string_value(json_object_get(c, "dtype")));
    assert_int_equal(tt_tensor_dim(x), json_array_size(shape));
    for (int d = 0; d < tt_tensor_dim(x); d++)
        assert_int_equal(tt_tensor_size(x, d), json_integer_value(json_array_get(shape, (size_t)d)));
    check_values(json_object_get(c, "values"), x);
    if (strstr(json_string_value(json_object_get(c, "name")), "fortran"))
        assert_false(tt_is_contiguous(x));
    tt_tensor_free(x);
}

static void what_numpy_wrote_is_read(void **state) {
    (void)state;
    json_t *vectors = vectors_load("numpy-files.json");
    const json_t *cases = json_object_get(vectors, "arrays");
    assert_true(json_array_size(cases) > 30);
    for (size_t i = 0; i < json_array_size(cases); i++)
        check_case(json_array_get(cases, i));
    json_decref(vectors);
}

/* Little-endian arrays in C order of types that both have: the same bytes come out. */
static void what_is_written_is_what_numpy_writes(void **state) {
    (void)state;
    json_t *vectors = vectors_load("numpy-files.json");
    const json_t *cases = json_object_get(vectors, "arrays");
    int compared = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        const char *name = json_string_value(json_object_get(c, "name"));
        size_t size, expected_size;
        tt_tensor *x = NULL;
        if (name[0] == '>' || strstr(name, "fortran") || (strchr(name, 'u') && strcmp(name, "=u1")))
            continue;
        unsigned char *expected = hex_bytes(json_string_value(json_object_get(c, "file")), &expected_size);
        write_bytes("x.npy", expected, expected_size);
        assert_int_equal(tt_npy_read(&x, "x.npy"), TT_OK);
        assert_int_equal(tt_npy_write(x, "y.npy"), TT_OK);
        unsigned char *got = slurp("y.npy", &size);
        assert_int_equal(size, expected_size);
        assert_memory_equal(got, expected, size);
        free(got);
        free(expected);
        tt_tensor_free(x);
        compared++;
    }
    assert_true(compared >= 9);
    json_decref(vectors);
}

static void every_type_and_layout_comes_back(void **state) {
    (void)state;
    for (int dtype = TT_F32; dtype <= TT_BOOL; dtype++) {
        TT_AUTO_SCOPE;
        tt_tensor *x = tt_transpose(tt_to(tt_reshape(tt_arange(6), TT_SHAPE(2, 3)), (tt_dtype)dtype), 0, 1), *y = NULL;
        assert_int_equal(tt_npy_write(x, "x.npy"), TT_OK);
        assert_int_equal(tt_npy_read(&y, "x.npy"), TT_OK);
        assert_true(tt_is_contiguous(y) && tt_equal(x, y));
        tt_tensor_free(y);
    }
}

static void archives_of_numpy_are_read(void **state) {
    (void)state;
    static const char *const kinds[] = {"stored", "deflated"};
    json_t *vectors = vectors_load("numpy-files.json");
    for (int i = 0; i < 2; i++) {
        tt_npz *file = NULL;
        char text[64];
        write_hex("x.npz", json_string_value(json_object_get(vectors, kinds[i])));
        if (tt_npz_read(&file, "x.npz"))
            fail_msg("%s: %s", kinds[i], tt_last_error());
        const tt_named_tensors *all = tt_npz_tensors(file);
        assert_int_equal(all->count, 2);
        const float *w = tt_tensor_f32(tt_named_tensors_find(all, "w"));
        assert_true(w[0] == 0 && w[1] == 1 && w[2] == 2 && w[3] == 3);
        assert_string_equal(tt_tensor_describe(tt_named_tensors_find(all, "b"), text, sizeof text), "i64 (300)");
        assert_null(tt_named_tensors_find(all, "w.npy"));
        tt_npz_free(file);
    }
    json_decref(vectors);
}

static void archives_come_back(void **state) {
    (void)state;
    static const char *const names[] = {"a/b", "long name"};
    TT_AUTO_SCOPE;
    tt_tensor *tensors[] = {tt_transpose(tt_reshape(tt_arange(6), TT_SHAPE(2, 3)), 0, 1), tt_ones(TT_SHAPE(0), TT_F16)};
    tt_npz *file = NULL;
    assert_int_equal(tt_npz_write("x.npz", TT_NAMED_TENSORS(2, names, tensors)), TT_OK);
    assert_int_equal(tt_npz_read(&file, "x.npz"), TT_OK);
    assert_int_equal(tt_npz_tensors(file)->count, 2);
    for (int i = 0; i < 2; i++) {
        assert_string_equal(tt_npz_tensors(file)->names[i], names[i]);
        assert_true(tt_equal(tt_npz_tensors(file)->tensors[i], tensors[i]));
    }
    tt_npz_free(file);
    tt_npz_free(NULL);
    assert_null(tt_npz_tensors(NULL));
}

/* ---- bad files ---- */

static void refuse(const char *bytes, size_t size, tt_status status, const char *text) {
    tt_tensor *x = (tt_tensor *)&x;
    write_bytes("bad.npy", bytes, size);
    assert_int_equal(tt_npy_read(&x, "bad.npy"), status);
    assert_null(x);
    assert_non_null(strstr(tt_last_error(), "bad.npy"));
    expect_error(status, text);
}

/* A header of version 1 with these words, and elements behind it. */
static void refuse_header(const char *words, const char *elements, tt_status status, const char *text) {
    char file[1024];
    size_t n = strlen(words);
    memcpy(file, "\x93NUMPY\1\0", 8);
    file[8] = (char)(n & 255);
    file[9] = (char)(n >> 8);
    memcpy(file + 10, words, n);
    memcpy(file + 10 + n, elements, strlen(elements));
    refuse(file, 10 + n + strlen(elements), status, text);
}

#define BYTES(text) (text), sizeof(text) - 1

static void what_has_no_tensor_is_named(void **state) {
    (void)state;
    static const struct {
        const char *name, *text;
    } cases[] = {{"complex", "'<c8'"},
                 {"a text", "'<U3'"},
                 {"records", "records with fields"},
                 {"objects", "Python's objects"},
                 {"a date", "'<M8[s]'"},
                 {"nine dimensions", "at most 8 dimensions"},
                 {"a large uint64", "uint64 in place 0"}};
    json_t *vectors = vectors_load("numpy-files.json");
    const json_t *all = json_object_get(vectors, "unsupported");
    assert_int_equal(json_object_size(all), sizeof cases / sizeof *cases);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt_tensor *x = NULL;
        write_hex("bad.npy", json_string_value(json_object_get(all, cases[i].name)));
        assert_int_equal(tt_npy_read(&x, "bad.npy"), TT_ERR_UNSUPPORTED);
        expect_error(TT_ERR_UNSUPPORTED, cases[i].text);
    }
    json_decref(vectors);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    refuse(BYTES(""), TT_ERR_FORMAT, "expected 8 bytes of magic number, but it ends after 0");
    refuse(BYTES("\x89PNG\r\n\x1a\n"), TT_ERR_FORMAT, "not a .npy file: it begins with 89 50 4e 47");
    refuse(BYTES("\x93NUMPY\4\0"), TT_ERR_UNSUPPORTED, "got 4.0");
    refuse(BYTES("\x93NUMPY\1\0\1"), TT_ERR_FORMAT, "header's length, but it ends after 1");
    refuse(BYTES("\x93NUMPY\2\0\xff\xff\xff\xff"), TT_ERR_FORMAT, "at most 10000 bytes, got one of 4294967295");
    refuse(BYTES("\x93NUMPY\1\0\x10\0{"), TT_ERR_FORMAT, "expected 16 bytes of header, but it ends after 1");
}

#define F4 "{'descr': '<f4', 'fortran_order': False, 'shape': "

static void bad_headers_are_refused(void **state) {
    (void)state;
    refuse_header("", "", TT_ERR_FORMAT, "expected {");
    refuse_header("{}", "", TT_ERR_FORMAT, "there is no 'descr'");
    refuse_header(F4 "(2), }", "12345678", TT_ERR_FORMAT, "a comma in a shape of one dimension");
    refuse_header(F4 "(2,, 3)}", "", TT_ERR_FORMAT, "expected a size");
    refuse_header(F4 "(2 3)}", "", TT_ERR_FORMAT, "expected a comma");
    refuse_header(F4 "(-1,)}", "", TT_ERR_FORMAT, "expected a size, got \"-1,)}\"");
    refuse_header(F4 "(1,)} x", "1234", TT_ERR_FORMAT, "nothing behind the }");
    refuse_header(F4 "(1,), 'more': 1}", "1234", TT_ERR_FORMAT, "got 'more'");
    refuse_header(F4 "(1,), 'shape': (1,)}", "1234", TT_ERR_FORMAT, "got 'shape'");
    refuse_header("{'descr': '<f4', 'fortran_order': 0, 'shape': ()}", "", TT_ERR_FORMAT, "True or False");
    refuse_header("{'descr': '<f4' 'fortran_order': False, 'shape': ()}", "", TT_ERR_FORMAT, "expected a comma");
    refuse_header("{'descr': 'x\n", "", TT_ERR_FORMAT, "an element type such as");
    refuse_header("{'descr': '<f3', 'fortran_order': False, 'shape': ()}", "", TT_ERR_UNSUPPORTED, "'<f3'");
    refuse_header("{'descr': '', 'fortran_order': False, 'shape': ()}", "", TT_ERR_UNSUPPORTED, "''");
}

/* Memory of that size must not be allocated: a sanitizer or the machine would tell. */
static void wrong_sizes_are_refused(void **state) {
    (void)state;
    refuse_header(F4 "(99999999999999999999,)}", "", TT_ERR_FORMAT, "more than 63 bits");
    refuse_header(F4 "(4294967296, 4294967296)}", "", TT_ERR_FORMAT, "overflows");
    refuse_header(F4 "(0, 4294967296, 4294967296)}", "", TT_ERR_FORMAT, "overflows");
    refuse_header(F4 "(1000000000,)}", "1234", TT_ERR_FORMAT, "promises 4000000000 bytes of elements, but at most 4");
    refuse_header(F4 "(2,)}", "1234567", TT_ERR_FORMAT, "promises 8 bytes of elements, but at most 7 follow");
    refuse_header("{'descr': '|b1', 'fortran_order': False, 'shape': (2,)}", "\1\2", TT_ERR_FORMAT,
                  "bools of 0 or 1, got 2 in place 1");
}

static void paths_and_arguments_are_checked(void **state) {
    (void)state;
    static const char *const names[] = {"a", "a", ""};
    TT_AUTO_SCOPE;
    tt_tensor *x = NULL, *ones = tt_ones(TT_SHAPE(2), TT_F32), *three[] = {ones, ones, ones};
    tt_npz *file = NULL;
    assert_int_equal(tt_npy_read(&x, "no/such"), TT_ERR_IO);
    assert_int_equal(tt_npy_read(&x, "."), TT_ERR_IO);
    assert_int_equal(tt_npz_read(&file, "no/such"), TT_ERR_IO);
    assert_int_equal(tt_npz_read(&file, "."), TT_ERR_IO);
    assert_int_equal(tt_npy_write(ones, "no/such/folder"), TT_ERR_IO);
    assert_int_equal(tt_npz_write("x.npz", TT_NAMED_TENSORS(2, names, three)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "\"a\" comes twice");
    assert_int_equal(tt_npz_write("x.npz", TT_NAMED_TENSORS(1, names + 2, three)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "got an empty one");
}

/* ---- bad archives ---- */

static void refuse_archive(const void *bytes, size_t size, tt_status status, const char *text) {
    tt_npz *file = (tt_npz *)&file;
    write_bytes("bad.npz", bytes, size);
    assert_int_equal(tt_npz_read(&file, "bad.npz"), status);
    assert_null(file);
    expect_error(status, text);
}

/* Cut at every byte, and a bit flipped in every byte: an error, or the same arrays. */
static void damaged_archives_are_refused(void **state) {
    (void)state;
    json_t *vectors = vectors_load("numpy-files.json");
    size_t size;
    uint8_t *bytes = hex_bytes(json_string_value(json_object_get(vectors, "deflated")), &size);
    for (size_t n = 0; n < size; n += 7) {
        tt_npz *file = NULL;
        write_bytes("bad.npz", bytes, n);
        assert_int_equal(tt_npz_read(&file, "bad.npz"), TT_ERR_FORMAT);
    }
    for (size_t at = 0; at < size; at++) {
        tt_npz *file = NULL;
        bytes[at] ^= 1 << at % 8;
        write_bytes("bad.npz", bytes, size);
        if (tt_npz_read(&file, "bad.npz") == TT_OK) {
            tt_tensor *w = tt_named_tensors_find(tt_npz_tensors(file), "w");
            assert_true(!w || tt_tensor_f32(w)[3] == 3);
        }
        tt_npz_free(file);
        bytes[at] ^= 1 << at % 8;
    }
    free(bytes);
    json_decref(vectors);
}

static uint8_t *find_word(uint8_t *bytes, size_t size, const char *word) {
    uint8_t *at = memmem(bytes, size, word, strlen(word));
    assert_non_null(at);
    return at;
}

static void foreign_records_are_refused(void **state) {
    (void)state;
    json_t *vectors = vectors_load("numpy-files.json");
    size_t size;
    uint8_t *bytes = hex_bytes(json_string_value(json_object_get(vectors, "stored")), &size);
    refuse_archive("not a zip", 9, TT_ERR_FORMAT, "not a whole zip archive");
    refuse_archive("PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 22, TT_ERR_FORMAT, "without records");
    for (int i = 0; i < 2; i++) /* both headers */
        memcpy(find_word(bytes, size, "w.npy"), "w.txt", 5);
    refuse_archive(bytes, size, TT_ERR_FORMAT, "expected records called NAME.npy, got \"w.txt\"");
    free(bytes);
    json_decref(vectors);
}

/* ---- memory ---- */

static tt_status round_trip(void *arg) {
    static const char *const names[] = {"a", "b"};
    (void)arg;
    TT_AUTO_SCOPE;
    tt_tensor *tensors[] = {tt_transpose(tt_ones(TT_SHAPE(2, 3), TT_I64), 0, 1), tt_ones(TT_SHAPE(5), TT_BF16)};
    tt_tensor *x = NULL;
    tt_npz *file = NULL;
    tt_status status =
        tensors[0] && tensors[1] ? tt_npz_write("m.npz", TT_NAMED_TENSORS(2, names, tensors)) : tt_last_status();
    if (!status)
        status = tt_npz_read(&file, "m.npz");
    if (!status)
        status = tt_npy_write(tensors[0], "m.npy");
    if (!status)
        status = tt_npy_read(&x, "m.npy");
    tt_npz_free(file);
    tt_tensor_free(x);
    return status;
}

static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    if (alloc_count_works)
        assert_true(alloc_fail_each(round_trip, NULL, ALLOC_ENDS) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_numpy_wrote_is_read),
        cmocka_unit_test(what_is_written_is_what_numpy_writes),
        cmocka_unit_test(every_type_and_layout_comes_back),
        cmocka_unit_test(archives_of_numpy_are_read),
        cmocka_unit_test(archives_come_back),
        cmocka_unit_test(what_has_no_tensor_is_named),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(wrong_sizes_are_refused),
        cmocka_unit_test(paths_and_arguments_are_checked),
        cmocka_unit_test(damaged_archives_are_refused),
        cmocka_unit_test(foreign_records_are_refused),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
