/* checkpoint: tensors in several safetensors files under an index. */
#include "unit/alloc_fail.h"
#include "unit/expect.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <tutti/checkpoint.h>
#include <unistd.h>

#include "base/error.h"
#include "support/own_folder.h"

#define INDEX "model.safetensors.index.json"
#define FIRST "model-00001-of-00002.safetensors"
#define SECOND "model-00002-of-00002.safetensors"

/* Three tensors of 24, 40 and 8 bytes. */
static tt_status save_three(uint64_t most) {
    TT_AUTO_SCOPE;
    const char *names[] = {"b", "a", "c"};
    tt_tensor *tensors[] = {tt_ones(TT_SHAPE(6), TT_F32), tt_arange(5), tt_ones(TT_SHAPE(8), TT_U8)};
    if (!tensors[0] || !tensors[1] || !tensors[2])
        return tt_last_status();
    const tt_metadata note = {"note", "text"};
    return tt_safetensors_save_sharded(INDEX, TT_NAMED_TENSORS(3, names, tensors), .max_shard_bytes = most,
                                       .metadata = &note, .metadata_count = 1);
}

static void write_text(const char *path, const char *text) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void files_are_hugging_faces(void **state) {
    (void)state;
    assert_int_equal(save_three(64), TT_OK);
    char text[1024] = "";
    FILE *file = fopen(INDEX, "r");
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    fclose(file);
    char *save = strstr(text, "\"tutti.save\": \"");
    assert_non_null(save);
    memset(save + strlen("\"tutti.save\": \""), 'x', 16);
    assert_string_equal(
        text, "{\n  \"metadata\": {\n    \"total_size\": 72,\n    \"tutti.save\": \"xxxxxxxxxxxxxxxx\"\n  },\n"
              "  \"weight_map\": {\n"
              "    \"b\": \"" FIRST "\",\n    \"a\": \"" FIRST "\",\n    \"c\": \"" SECOND "\"\n  }\n}\n");
    tt_safetensors *part;
    assert_int_equal(tt_safetensors_load(&part, SECOND), TT_OK);
    assert_int_equal(tt_safetensors_tensors(part)->count, 1);
    tt_safetensors_free(part);
    /* a tensor that is larger than a file may be has one alone */
    assert_int_equal(save_three(4), TT_OK);
    assert_int_equal(access("model-00003-of-00003.safetensors", F_OK), 0);
    assert_int_equal(save_three(0), TT_OK);
    assert_int_equal(access("model-00001-of-00001.safetensors", F_OK), 0);
}

static void all_files_are_read_as_one(void **state) {
    (void)state;
    for (uint64_t most = 4; most < 100; most += 30) {
        tt_safetensors *all;
        assert_int_equal(save_three(most), TT_OK);
        assert_int_equal(tt_safetensors_load(&all, INDEX), TT_OK);
        const tt_named_tensors *tensors = tt_safetensors_tensors(all);
        assert_int_equal(tensors->count, 3);
        assert_string_equal(tensors->names[0], "a");
        assert_string_equal(tensors->names[2], "c");
        assert_int_equal(tt_tensor_numel(tt_named_tensors_find(tensors, "b")), 6);
        assert_int_equal(tt_tensor_i64(tensors->tensors[0])[4], 4);
        assert_string_equal(tt_safetensors_metadata(all, "note"), "text");
        tt_safetensors_free(all);
    }
}

#define MAP(pairs) "{\"weight_map\":{" pairs "}}"

static void indices_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *index;
        tt_status status;
        const char *text;
    } cases[] = {
        {"", TT_ERR_FORMAT, "no valid JSON"},
        {"{}", TT_ERR_FORMAT, "expected an object \"weight_map\""},
        {"[]", TT_ERR_FORMAT, "expected an object \"weight_map\""},
        {MAP("\"a\":3"), TT_ERR_FORMAT, "tensor \"a\": expected the name of a file"},
        {MAP("\"a\":\"../x\""), TT_ERR_FORMAT, "beside the index, got \"../x\""},
        {MAP("\"a\":\"/etc/passwd\""), TT_ERR_FORMAT, "beside the index"},
        {MAP("\"a\":\"x/y\""), TT_ERR_FORMAT, "beside the index"},
        {MAP("\"a\":\"..\""), TT_ERR_FORMAT, "beside the index"},
        {MAP("\"a\":\"\""), TT_ERR_FORMAT, "beside the index"},
        {MAP("\"a\":\"" FIRST "\",\"a\":\"" FIRST "\""), TT_ERR_FORMAT, "duplicate"},
        {MAP("\"a\":\"none.safetensors\""), TT_ERR_IO, "none.safetensors"},
        {MAP("\"a\":\"" FIRST "\",\"x\":\"" FIRST "\",\"y\":\"" SECOND "\""), TT_ERR_FORMAT,
         "tensor \"x\" is missing: " FIRST " has none; tensor \"y\" is missing: " SECOND
         " has none; tensor \"b\" is unexpected: the index lacks it; tensor \"c\" is unexpected"},
        {MAP("\"a\":\"" FIRST "\",\"b\":\"copy.safetensors\""), TT_ERR_FORMAT, "tensor \"a\" lies in two files"},
    };
    assert_int_equal(save_three(64), TT_OK);
    assert_int_equal(link(FIRST, "copy.safetensors"), 0);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt_safetensors *all = (tt_safetensors *)"untouched";
        write_text(INDEX, cases[i].index);
        assert_int_equal(tt_safetensors_load(&all, INDEX), cases[i].status);
        assert_null(all);
        expect_error(cases[i].status, cases[i].text);
    }
}

/* A save that is killed behind its first file, or its last one. */
static void files_of_two_saves_are_refused(void **state) {
    (void)state;
    tt_safetensors *all;
    assert_int_equal(save_three(64), TT_OK);
    assert_int_equal(rename(SECOND, "old"), 0);
    assert_int_equal(rename(INDEX, "old-index"), 0);
    assert_int_equal(save_three(64), TT_OK);
    assert_int_equal(rename("old-index", INDEX), 0);
    assert_int_equal(tt_safetensors_load(&all, INDEX), TT_OK); /* all of the new one's are there */
    tt_safetensors_free(all);
    assert_int_equal(rename("old", SECOND), 0);
    assert_int_equal(tt_safetensors_load(&all, INDEX), TT_ERR_FORMAT);
    expect_error(TT_ERR_FORMAT, INDEX ": its files are of two saves");
    assert_int_equal(tt_safetensors_load(&all, SECOND), TT_OK); /* and beside one of another program */
    assert_int_equal(tt_safetensors_save(SECOND, tt_safetensors_tensors(all), NULL, 0), TT_OK);
    tt_safetensors_free(all);
    assert_int_equal(tt_safetensors_load(&all, INDEX), TT_ERR_FORMAT);
    expect_error(TT_ERR_FORMAT, "its files are of two saves");
}

static void an_index_is_a_file(void **state) {
    (void)state;
    tt_safetensors *all;
    assert_int_equal(mkfifo("pipe.safetensors.index.json", 0600), 0);
    assert_int_equal(tt_safetensors_load(&all, "pipe.safetensors.index.json"), TT_ERR_IO);
    expect_error(TT_ERR_IO, "pipe.safetensors.index.json: expected a regular file, got a pipe, socket or device");
}

static void mistakes_are_told(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    const char *names[] = {"a", "a"};
    tt_tensor *x = tt_ones(TT_SHAPE(2), TT_F32), *tensors[] = {x, tt_clone(x)};
    assert_int_equal(tt_safetensors_save_sharded("x.json", TT_NAMED_TENSORS(1, names, tensors)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "NAME.safetensors.index.json");
    assert_int_equal(tt_safetensors_save_sharded(INDEX, TT_NAMED_TENSORS(2, names, tensors)), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "\"a\" is given twice");
    assert_int_equal(tt_safetensors_save_sharded(INDEX, NULL), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "`tensors` is NULL");
}

static tt_status save_and_load(void *unused) {
    (void)unused;
    tt_safetensors *all = NULL;
    tt_status status = save_three(64);
    if (!status)
        status = tt_safetensors_load(&all, INDEX);
    tt_safetensors_free(all);
    return status;
}

static void memory_that_runs_out(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    assert_true(alloc_fail_each(save_and_load, NULL, ALLOC_ENDS) > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_hugging_faces), cmocka_unit_test(all_files_are_read_as_one),
        cmocka_unit_test(indices_are_checked),     cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(memory_that_runs_out),    cmocka_unit_test(files_of_two_saves_are_refused),
        cmocka_unit_test(an_index_is_a_file),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
