/* Pictures: what PIL and torchvision make of the same files, folders in ImageFolder's order, files that are cut,
 * corrupt or claim too much. */
#include "data/images/image.h"
#include "support/own_folder.h"
#include "unit/alloc_fail.h"
#include "unit/base/hex.h"
#include "unit/expect.h"
#include "unit/vectors.h"

#include <pthread.h>
#include <sys/stat.h>
#include <tutti/datasets.h>
#include <zlib.h>

static json_t *vectors;
static int64_t height, width; /* of all pictures of the vectors */

static int load_vectors(void **state) {
    if (make_folder(state))
        return -1;
    vectors = vectors_load("pil-images.json");
    height = (int64_t)vectors_member(vectors, "height");
    width = (int64_t)vectors_member(vectors, "width");
    return vectors ? 0 : -1;
}

static int free_vectors(void **state) {
    json_decref(vectors);
    return remove_folder(state);
}

static const char *member_text(const json_t *object, const char *key) {
    return json_string_value(json_object_get(object, key));
}

/* The file of the vectors that is called so; the caller's to free. */
static uint8_t *file_called(const char *name, size_t *size) {
    const json_t *files = json_object_get(vectors, "files");
    for (size_t i = 0; i < json_array_size(files); i++)
        if (!strcmp(member_text(json_array_get(files, i), "name"), name))
            return hex_bytes(member_text(json_array_get(files, i), "file"), size);
    fail_msg("there is no %s", name);
    return NULL;
}

static void put_file(const char *path, const char *name) {
    size_t size;
    uint8_t *bytes = file_called(name, &size);
    write_bytes(path, bytes, size);
    free(bytes);
}

/* (3, h, w) against PIL's (h, w, 3). */
static void check_pixels(const char *name, const uint8_t *got, const char *digits, int64_t h, int64_t w) {
    size_t size;
    uint8_t *expected = hex_bytes(digits, &size);
    assert_int_equal(size, 3 * h * w);
    for (int64_t i = 0; i < h * w; i++)
        for (int64_t c = 0; c < 3; c++)
            if (got[c * h * w + i] != expected[3 * i + c])
                fail_msg("%s: pixel %d, colour %d: expected %d, got %d", name, (int)i, (int)c, expected[3 * i + c],
                         got[c * h * w + i]);
    free(expected);
}

/* ---- pictures ---- */

static void every_kind_is_read_as_pil_does(void **state) {
    (void)state;
    const json_t *files = json_object_get(vectors, "files");
    assert_true(json_array_size(files) >= 13);
    for (size_t i = 0; i < json_array_size(files); i++) {
        const json_t *c = json_array_get(files, i);
        tt_tensor *x = NULL;
        write_hex("x", member_text(c, "file"));
        if (tt_image_read(&x, "x"))
            fail_msg("%s: %s", member_text(c, "name"), tt_last_error());
        assert_int_equal(tt_tensor_size(x, 1), height);
        assert_int_equal(tt_tensor_size(x, 2), width);
        check_pixels(member_text(c, "name"), tt_tensor_data(x), member_text(c, "pixels"), height, width);
        tt_tensor_free(x);
    }
}

static void what_is_written_is_read(void **state) {
    (void)state;
    static const int64_t sizes[][2] = {{1, 1}, {3, 200}, {300, 301}};
    for (int i = 0; i < 3; i++)
        for (int channels = 1; channels <= 3; channels += 2) {
            TT_AUTO_SCOPE;
            tt_tensor *x = tt_empty(TT_SHAPE(channels, sizes[i][0], sizes[i][1]), TT_U8), *y = NULL;
            uint8_t *p = tt_tensor_data(x);
            for (int64_t k = 0; k < tt_tensor_numel(x); k++)
                p[k] = (uint8_t)(k * k >> 3);
            assert_int_equal(tt_image_write_png(x, "x.png"), TT_OK);
            assert_int_equal(tt_image_read(&y, "x.png"), TT_OK);
            assert_true(tt_equal(tt_select(y, 0, 2), tt_select(x, 0, channels - 1)));
            assert_true(tt_equal(tt_select(y, 0, 0), tt_select(x, 0, 0)));
            tt_tensor_free(y);
            assert_int_equal(tt_image_write_png(tt_transpose(tt_select(x, 0, 0), 0, 1), "x.png"), TT_OK);
            assert_int_equal(tt_image_read(&y, "x.png"), TT_OK);
            assert_true(tt_equal(tt_select(y, 0, 1), tt_contiguous(tt_transpose(tt_select(x, 0, 0), 0, 1))));
            tt_tensor_free(y);
        }
    tt_tensor *bad = tt_ones(TT_SHAPE(2, 3, 3), TT_U8), *floats = tt_ones(TT_SHAPE(3, 3), TT_F32);
    assert_int_equal(tt_image_write_png(bad, "x.png"), TT_ERR_SHAPE);
    expect_error(TT_ERR_SHAPE, "got u8 (2, 3, 3)");
    assert_int_equal(tt_image_write_png(floats, "x.png"), TT_ERR_DTYPE);
    assert_int_equal(tt_image_write_png(bad, NULL), TT_ERR_INVALID);
    tt_tensor_free(bad);
    tt_tensor_free(floats);
}

/* ---- bad files ---- */

static void refuse(const void *bytes, size_t size, tt_status status, const char *text) {
    tt_tensor *x = (tt_tensor *)&x;
    write_bytes("bad", bytes, size);
    assert_int_equal(tt_image_read(&x, "bad"), status);
    assert_null(x);
    assert_non_null(strstr(tt_last_error(), "bad: "));
    expect_error(status, text);
}

static void cut_files_are_refused(void **state) {
    (void)state;
    static const char *const names[] = {"jpeg", "jpeg progressive", "jpeg cmyk", "png", "png palette"};
    for (int i = 0; i < 5; i++) {
        size_t size;
        uint8_t *bytes = file_called(names[i], &size);
        for (size_t n = 0; n + 12 < size; n += 5) /* a PNG's last 12 bytes say only that it ends */
            refuse(bytes, n, TT_ERR_FORMAT, "");
        free(bytes);
    }
    refuse("GIF89a..", 8, TT_ERR_FORMAT, "neither JPEG nor PNG: its 8 bytes begin with 47 49 46 38");
}

/* A bit flipped in each byte: an error, or a picture of some kind. */
static void damaged_files_never_crash(void **state) {
    (void)state;
    const json_t *files = json_object_get(vectors, "files");
    for (size_t i = 0; i < json_array_size(files); i++) {
        size_t size;
        uint8_t *bytes = hex_bytes(member_text(json_array_get(files, i), "file"), &size);
        tt__image image = {0};
        for (size_t at = 0; at < size; at++) {
            bytes[at] ^= (uint8_t)(1 << at % 8);
            tt_status status = tt__image_decode(&image, "test", bytes, size);
            assert_true(status == TT_OK || status == TT_ERR_FORMAT);
            bytes[at] ^= (uint8_t)(1 << at % 8);
        }
        tt__reused_memory_free(&image.pixels);
        free(bytes);
    }
}

static void put_big(uint8_t *to, uint32_t number) {
    for (int k = 0; k < 4; k++)
        to[k] = (uint8_t)(number >> (24 - 8 * k));
}

/* Memory of that size must not be allocated: a sanitizer or the machine would tell. */
static void bombs_are_refused(void **state) {
    (void)state;
    size_t size;
    uint8_t *png = file_called("png", &size);
    put_big(png + 16, 1000000);
    put_big(png + 20, 1000000);
    put_big(png + 29, (uint32_t)crc32(0, png + 12, 17));
    refuse(png, size, TT_ERR_FORMAT, "claims 3000000000000 bytes of pixels, more than a file of");
    put_big(png + 16, 100);
    put_big(png + 20, 30000);
    put_big(png + 29, (uint32_t)crc32(0, png + 12, 17));
    refuse(png, size, TT_ERR_FORMAT, "more than a file of");
    free(png);
    uint8_t *jpeg = file_called("jpeg", &size);
    uint8_t *frame = memmem(jpeg, size, "\xff\xc0", 2);
    assert_non_null(frame);
    memset(frame + 5, 0xfd, 4);
    refuse(jpeg, size, TT_ERR_FORMAT, "claims 65021 x 65021 pixels, more than a file of");
    free(jpeg);
}

/* ---- folders ---- */

static void make_folders(void) {
    static const char *const folders[] = {"set", "set/dog", "set/cat", "set/cat/b", "set/cat/a.x", "set/cat/a"};
    for (int i = 0; i < 6; i++)
        assert_int_equal(mkdir(folders[i], 0700), 0);
    put_file("set/dog/1.png", "png");
    put_file("set/cat/z.JPG", "jpeg");
    put_file("set/cat/b/2.jpeg", "jpeg gray");
    put_file("set/cat/a/.png", "png gray");
    put_file("set/cat/a.x/1.png", "png alpha");
    write_bytes("set/cat/notes.txt", "x", 1);
    write_bytes("set/top.png", "x", 1); /* in no class */
}

static void folders_are_classes(void **state) {
    (void)state;
    static const char *const order[] = {"jpeg", "png gray", "png alpha", "jpeg gray", "png"};
    int64_t count;
    make_folders();
    tt_dataset *set = tt_image_folder("set", 18, 25);
    assert_int_equal(tt_dataset_size(set), 5);
    assert_string_equal(tt_dataset_classes(set, &count)[0], "cat");
    assert_string_equal(tt_dataset_classes(set, &count)[1], "dog");
    assert_int_equal(count, 2);
    const json_t *files = json_object_get(vectors, "files");
    for (int i = 0; i < 5; i++) {
        uint8_t x[3 * 18 * 25];
        int64_t y;
        assert_int_equal(tt_dataset_get(set, i, x, &y), TT_OK);
        assert_int_equal(y, i == 4);
        for (size_t k = 0; k < json_array_size(files); k++)
            if (!strcmp(member_text(json_array_get(files, k), "name"), order[i]))
                check_pixels(order[i], x, member_text(json_array_get(files, k), "pixels"), 18, 25);
    }
    tt_dataset_free(set);
}

static void pictures_are_resized_as_torchvision_does(void **state) {
    (void)state;
    const json_t *cases = json_object_get(vectors, "resized");
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *c = json_array_get(cases, i);
        int64_t h = (int64_t)vectors_member(c, "height"), w = (int64_t)vectors_member(c, "width"), y;
        uint8_t x[3 * 64 * 64];
        char name[64];
        tt_dataset *set = tt_image_folder("set", h, w, .resize = (int64_t)vectors_member(c, "resize"));
        assert_int_equal(tt_dataset_get(set, 4, x, &y), TT_OK);
        snprintf(name, sizeof name, "%d x %d", (int)h, (int)w);
        check_pixels(name, x, member_text(c, "pixels"), h, w);
        tt_dataset_free(set);
    }
}

static void bad_folders_and_arguments_are_refused(void **state) {
    (void)state;
    uint8_t x[3];
    int64_t y;
    assert_null(tt_image_folder("no/such", 1, 1));
    expect_error(TT_ERR_IO, "no/such: can't open the folder");
    assert_int_equal(mkdir("none", 0700), 0);
    assert_null(tt_image_folder("none", 1, 1));
    expect_error(TT_ERR_NOT_FOUND, "none: expected a folder for each class in it");
    assert_int_equal(mkdir("none/empty", 0700), 0);
    assert_null(tt_image_folder("none", 1, 1));
    expect_error(TT_ERR_NOT_FOUND, "none/empty: expected pictures (.jpg, .jpeg, .png)");
    assert_int_equal(symlink(".", "none/empty/circle"), 0);
    assert_null(tt_image_folder("none", 1, 1));
    expect_error(TT_ERR_NOT_FOUND, "none/empty: expected pictures"); /* the system follows a link 40 times */
    write_bytes("none/empty/x.png", "\x89PNG\r\n\x1a\n", 8);
    assert_int_equal(unlink("none/empty/circle"), 0);
    tt_dataset *set = tt_image_folder("none", 1, 1);
    assert_int_equal(tt_dataset_get(set, 0, x, &y), TT_ERR_FORMAT);
    expect_error(TT_ERR_FORMAT, "a folder of pictures: example 0: none/empty/x.png: ");
    tt_dataset_free(set);
    assert_null(tt_image_folder("set", 0, 1));
    expect_error(TT_ERR_INVALID, "expected a height and width from 1");
    assert_null(tt_image_folder("set", 8, 9, .resize = 8));
    expect_error(TT_ERR_INVALID, "expected .resize to be 0, or at least height and width (8, 9)");
    assert_null(tt_image_folder(NULL, 8, 9));
    expect_error(TT_ERR_INVALID, "the directory is NULL");
}

static void *read_all(void *user) {
    tt_dataset *set = user;
    uint8_t x[3 * 8 * 8];
    int64_t y;
    for (int round = 0; round < 20; round++)
        for (int64_t i = 0; i < 5; i++)
            if (tt_dataset_get(set, i, x, &y) || y != (i == 4))
                return set;
    return NULL;
}

static void threads_read_at_once(void **state) {
    (void)state;
    pthread_t threads[4];
    tt_dataset *set = tt_image_folder("set", 8, 8);
    for (int i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_all, set), 0);
    for (int i = 0; i < 4; i++) {
        void *wrong;
        assert_int_equal(pthread_join(threads[i], &wrong), 0);
        assert_null(wrong);
    }
    tt_dataset_free(set);
}

static void reading_again_allocates_nothing(void **state) {
    (void)state;
    uint8_t x[3 * 8 * 8];
    int64_t y;
    tt_dataset *set = tt_image_folder("set", 8, 8, .resize = 9);
    for (int round = 0; round < 3; round++) {
        long before = alloc_count_own;
        for (int64_t i = 0; i < 5; i++)
            assert_int_equal(tt_dataset_get(set, i, x, &y), TT_OK);
        if (round > 0)
            assert_int_equal(alloc_count_own - before, 0);
    }
    tt_dataset_free(set);
}

static tt_status read_and_write(void *arg) {
    uint8_t x[3 * 8 * 8];
    int64_t y;
    tt_tensor *image = NULL;
    (void)arg;
    tt_dataset *set = tt_image_folder("set", 8, 8);
    tt_status status = set ? tt_dataset_get(set, 0, x, &y) : tt_last_status();
    if (!status)
        status = tt_dataset_get(set, 4, x, &y);
    if (!status)
        status = tt_image_read(&image, "set/dog/1.png");
    if (!status)
        status = tt_image_write_png(image, "m.png");
    tt_tensor_free(image);
    tt_dataset_free(set);
    return status;
}

static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    if (alloc_count_works)
        assert_true(alloc_fail_each(read_and_write, NULL, ALLOC_ENDS) > 20);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_is_read_as_pil_does),
        cmocka_unit_test(what_is_written_is_read),
        cmocka_unit_test(cut_files_are_refused),
        cmocka_unit_test(damaged_files_never_crash),
        cmocka_unit_test(bombs_are_refused),
        cmocka_unit_test(folders_are_classes),
        cmocka_unit_test(pictures_are_resized_as_torchvision_does),
        cmocka_unit_test(bad_folders_and_arguments_are_refused),
        cmocka_unit_test(threads_read_at_once),
        cmocka_unit_test(reading_again_allocates_nothing),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, load_vectors, free_vectors);
}
