/* IDX files: what is read is what was written, and a bad file is told what is wrong with it. */
#include <tutti/data.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

static char folder[] = "/tmp/tutti-idx-XXXXXX";

static int make_folder(void **state) {
    (void)state;
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    char command[256];
    snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

static char *in_folder(const char *name) {
    static char path[256];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static char *write_file(const char *name, const void *bytes, size_t size) {
    char *path = in_folder(name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    return path;
}

/* bytes -> gzip, the caller's to free. */
static uint8_t *gzip(const void *bytes, size_t size, size_t *packed) {
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 9, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY), Z_OK);
    size_t room = deflateBound(&z, size) + 64;
    uint8_t *out = malloc(room);
    z.next_in = (Bytef *)(uintptr_t)bytes;
    z.avail_in = (uInt)size;
    z.next_out = out;
    z.avail_out = (uInt)room;
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    *packed = room - z.avail_out;
    deflateEnd(&z);
    return out;
}

/* Decode a file of these bytes, called "test"; the tensor is the caller's. */
static tt_status decode(tt_tensor **out, const void *bytes, size_t size) {
    return tt_idx_read(out, write_file("test", bytes, size));
}

#define BYTES(text) (text), sizeof(text) - 1

static void check(const char *bytes, size_t size, const char *describe, const void *elements) {
    char text[64];
    size_t packed_size;
    uint8_t *packed = gzip(bytes, size, &packed_size);
    tt_tensor *plain, *unpacked;
    assert_int_equal(decode(&plain, bytes, size), TT_OK);
    assert_string_equal(tt_tensor_describe(plain, text, sizeof text), describe);
    assert_memory_equal(tt_tensor_data(plain), elements,
                        (size_t)tt_tensor_numel(plain) * tt_dtype_size(tt_tensor_dtype(plain)));
    assert_int_equal(decode(&unpacked, packed, packed_size), TT_OK);
    assert_true(tt_equal(plain, unpacked));
    tt_tensor_free(plain);
    tt_tensor_free(unpacked);
    free(packed);
}

static void every_type_is_read(void **state) {
    (void)state;
    check(BYTES("\0\0\x08\x02\0\0\0\x02\0\0\0\x03\1\2\3\4\5\xff"), "u8 (2, 3)", "\1\2\3\4\5\xff");
    check(BYTES("\0\0\x09\x01\0\0\0\x03\x80\xff\x7f"), "i32 (3)", (int32_t[]){-128, -1, 127});
    check(BYTES("\0\0\x0b\x01\0\0\0\x04\x80\0\xff\xff\0\1\x7f\xff"), "i32 (4)", (int32_t[]){-32768, -1, 1, 32767});
    check(BYTES("\0\0\x0c\x01\0\0\0\x02\x80\0\0\0\1\2\3\4"), "i32 (2)", (int32_t[]){INT32_MIN, 0x01020304});
    check(BYTES("\0\0\x0d\x01\0\0\0\x02\x3f\xc0\0\0\x80\0\0\0"), "f32 (2)", (float[]){1.5f, -0.0f});
    check(BYTES("\0\0\x0e\x01\0\0\0\x01\xbf\xe0\0\0\0\0\0\0"), "f64 (1)", (double[]){-0.5});
}

static void empty_and_scalar_are_read(void **state) {
    (void)state;
    check(BYTES("\0\0\x08\x00\x07"), "u8 ()", "\7");
    check(BYTES("\0\0\x08\x02\0\0\0\0\0\0\0\x05"), "u8 (0, 5)", "");
    check(BYTES("\0\0\x08\x02\xff\xff\xff\xff\0\0\0\0"), "u8 (4294967295, 0)", "");
}

static void refuse(const char *bytes, size_t size, tt_status status, const char *text) {
    tt_tensor *x = (tt_tensor *)&x;
    assert_int_equal(decode(&x, bytes, size), status);
    assert_null(x);
    if (!strstr(tt_last_error(), text))
        fail_msg("expected an error with \"%s\", got \"%s\"", text, tt_last_error());
    assert_non_null(strstr(tt_last_error(), "test"));
}

static void bad_headers_are_refused(void **state) {
    (void)state;
    refuse(BYTES(""), TT_ERR_FORMAT, "expected 4 bytes of magic number, but it ends after 0");
    refuse(BYTES("\0\0\x08"), TT_ERR_FORMAT, "ends after 3");
    refuse(BYTES("PNG\r\n"), TT_ERR_FORMAT, "it begins with 50 4e 47 0d, expected 00 00");
    refuse(BYTES("\0\0\x0a\x01\0\0\0\0"), TT_ERR_FORMAT, "unknown element type 0x0a");
    refuse(BYTES("\0\0\x08\x09"), TT_ERR_FORMAT, "at most 8 dimensions, got 9");
    refuse(BYTES("\0\0\x08\x03\0\0\0\x02\0\0\0"), TT_ERR_FORMAT,
           "expected 12 bytes of dimensions, but it ends after 7");
}

/* Memory of that size must not be allocated: a sanitizer or the machine would tell. */
static void oversized_headers_are_refused(void **state) {
    (void)state;
    static const char huge[] = "\0\0\x08\x03\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff";
    static const char wide[] = "\0\0\x0e\x02\xff\xff\xff\xff\xff\xff\xff\xff";
    static const char million[] = "\0\0\x08\x01\0\x0f\x42\x40\0";
    size_t packed_size;
    uint8_t *packed = gzip(BYTES(huge), &packed_size);
    refuse(BYTES(huge), TT_ERR_FORMAT, "the product of the sizes in its header overflows");
    refuse(BYTES(wide), TT_ERR_FORMAT, "overflows");
    refuse(BYTES("\0\0\x08\x04\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), TT_ERR_FORMAT, "overflows");
    refuse(BYTES(million), TT_ERR_FORMAT, "promises 1000000 bytes of elements, more than a file of 9 bytes can hold");
    refuse((char *)packed, packed_size, TT_ERR_FORMAT, "overflows");
    free(packed);
    packed = gzip(BYTES(million), &packed_size);
    refuse((char *)packed, packed_size, TT_ERR_FORMAT, "more than a gzip file of");
    free(packed);
}

static void the_length_must_be_exact(void **state) {
    (void)state;
    static const char longer[] = "\0\0\x0c\x01\0\0\0\x01\0\0\0\0\1";
    static const char shorter[] = "\0\0\x08\x01\0\0\0\x06\0\0\0\0\1";
    size_t packed_size;
    uint8_t *packed = gzip(BYTES(longer), &packed_size);
    refuse(BYTES(longer), TT_ERR_FORMAT, "promises 4 bytes of elements, but 5 follow");
    refuse((char *)packed, packed_size, TT_ERR_FORMAT, "promises 4 bytes of elements, but 5 follow");
    free(packed);
    refuse(BYTES(shorter), TT_ERR_FORMAT, "promises 6 bytes of elements, but 5 follow");
    packed = gzip(BYTES(shorter), &packed_size);
    refuse((char *)packed, packed_size, TT_ERR_FORMAT, "promises 6 bytes of elements, but 5 follow");
    free(packed);
}

/* Cut at every byte, and flipped at every bit: never a success with other values, never a crash. */
static void damaged_gzip_is_refused(void **state) {
    (void)state;
    static const char good[] = "\0\0\x08\x01\0\0\0\x10"
                               "abcdefghabcdefgh";
    size_t size;
    uint8_t *packed = gzip(BYTES(good), &size);
    tt_tensor *x;
    for (size_t n = 2; n < size; n++) {
        refuse((char *)packed, n, TT_ERR_FORMAT, "gzip stream is cut off");
    }
    for (size_t bit = 16; bit < 8 * size; bit++) {
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
        if (decode(&x, packed, size) == TT_OK)
            assert_memory_equal(tt_tensor_data(x), good + 8, 16);
        else
            assert_int_equal(tt_last_status(), TT_ERR_FORMAT);
        tt_tensor_free(x);
        packed[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    packed[size - 5] ^= 1; /* the checksum */
    refuse((char *)packed, size, TT_ERR_FORMAT, "corrupt");
    free(packed);
}

static void gzip_members_are_joined_but_garbage_is_refused(void **state) {
    (void)state;
    size_t a_size, b_size;
    uint8_t *a = gzip(BYTES("\0\0\x08\x01\0\0\0\x04xy"), &a_size), *b = gzip(BYTES("zw"), &b_size);
    uint8_t *both = malloc(a_size + b_size);
    memcpy(both, a, a_size);
    memcpy(both + a_size, b, b_size);
    tt_tensor *x;
    assert_int_equal(decode(&x, both, a_size + b_size), TT_OK);
    assert_memory_equal(tt_tensor_data(x), "xyzw", 4);
    tt_tensor_free(x);
    both[a_size] = 0;
    refuse((char *)both, a_size + b_size, TT_ERR_FORMAT, "but other bytes follow");
    free(a);
    free(b);
    free(both);
}

/* ---- files ---- */

static void files_are_told_apart_by_content(void **state) {
    (void)state;
    static const char bytes[] = "\0\0\x08\x01\0\0\0\x02hi";
    size_t size;
    uint8_t *packed = gzip(BYTES(bytes), &size);
    tt_tensor *x;
    assert_int_equal(tt_idx_read(&x, write_file("plain.gz", BYTES(bytes))), TT_OK);
    tt_tensor_free(x);
    assert_int_equal(tt_idx_read(&x, write_file("packed", packed, size)), TT_OK);
    assert_memory_equal(tt_tensor_data(x), "hi", 2);
    tt_tensor_free(x);
    free(packed);
}

static void what_cant_be_opened_is_named(void **state) {
    (void)state;
    tt_tensor *x;
    assert_int_equal(tt_idx_read(&x, in_folder("missing")), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), in_folder("missing")));
    assert_non_null(strstr(tt_last_error(), "No such file"));
    assert_int_equal(tt_idx_read(&x, folder), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "directory"));
    assert_int_equal(mkfifo(in_folder("pipe"), 0600), 0);
    assert_int_equal(tt_idx_read(&x, in_folder("pipe")), TT_ERR_IO); /* must not wait for a writer */
    assert_int_equal(tt_idx_read(&x, NULL), TT_ERR_INVALID);
    assert_int_equal(tt_idx_read(NULL, folder), TT_ERR_INVALID);
}

static void round_trip(tt_tensor *x, const char *name) {
    tt_tensor *back;
    assert_int_equal(tt_idx_write(x, in_folder(name)), TT_OK);
    assert_int_equal(tt_idx_read(&back, in_folder(name)), TT_OK);
    assert_true(tt_equal(x, back));
    tt_tensor_free(back);
}

static void what_is_written_is_read_back(void **state) {
    (void)state;
    static const tt_dtype dtypes[] = {TT_U8, TT_I32, TT_F32, TT_F64};
    TT_AUTO_SCOPE;
    tt_manual_seed(1);
    tt_tensor *numbers = tt_randint(-5, 90, TT_SHAPE(70, 9, 50), NULL); /* several blocks of any width */
    for (size_t i = 0; i < 4; i++) {
        tt_tensor *x = tt_to(i ? numbers : tt_randint(0, 256, TT_SHAPE(70, 9, 50), NULL), dtypes[i]);
        round_trip(x, "a.idx");
        round_trip(x, "a.idx.gz");
    }
    round_trip(tt_zeros(TT_SHAPE(0, 4), TT_F32), "a.idx");
    round_trip(tt_zeros(TT_SCALAR, TT_F64), "a.idx.gz");
    FILE *f = fopen(in_folder("a.idx.gz"), "rb");
    assert_int_equal(fgetc(f), 0x1f);
    fclose(f);
    assert_int_equal(tt_idx_write(tt_from_data("\7\1", TT_SHAPE(2), TT_U8), in_folder("b")), TT_OK);
    f = fopen(in_folder("b"), "rb");
    char bytes[16];
    assert_int_equal(fread(bytes, 1, sizeof bytes, f), 10);
    assert_memory_equal(bytes, "\0\0\x08\x01\0\0\0\2\7\1", 10);
    fclose(f);
}

static void what_cant_be_written_is_refused(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_zeros(TT_SHAPE(2, 3), TT_F32);
    assert_int_equal(tt_idx_write(tt_arange(3), in_folder("c")), TT_ERR_DTYPE);
    assert_int_equal(tt_idx_write(tt_transpose(x, 0, 1), in_folder("c")), TT_ERR_SHAPE);
    assert_int_equal(access(in_folder("c"), F_OK), -1);
    assert_int_equal(tt_idx_write(x, in_folder("no/such/folder")), TT_ERR_IO);
    assert_int_equal(tt_idx_write(x, NULL), TT_ERR_INVALID);
    assert_int_not_equal(tt_idx_write(NULL, in_folder("c")), TT_OK);
}

static void what_is_read_outlives_scopes(void **state) {
    (void)state;
    tt_tensor *x;
    int scope = tt_scope_begin();
    assert_int_equal(tt_idx_read(&x, write_file("s", BYTES("\0\0\x08\x01\0\0\0\x02hi"))), TT_OK);
    tt_scope_end(scope);
    assert_memory_equal(tt_tensor_data(x), "hi", 2);
    tt_tensor_free(x);
}

/* ---- image sets ---- */

static const char two_images[] = "\0\0\x08\x03\0\0\0\2\0\0\0\1\0\0\0\3abcdef",
                  two_labels[] = "\0\0\x08\x01\0\0\0\2\7\1";

static void images_and_labels_become_a_data_set(void **state) {
    (void)state;
    char images[256], text[64];
    strcpy(images, write_file("images", BYTES(two_images)));
    tt_dataset *d = tt_image_dataset(images, write_file("labels", BYTES(two_labels)));
    assert_non_null(d);
    assert_int_equal(tt_dataset_size(d), 2);
    assert_string_equal(tt_tensor_describe(tt_dataset_inputs(d), text, sizeof text), "u8 (2, 1, 1, 3)");
    assert_memory_equal(tt_tensor_data(tt_dataset_inputs(d)), "abcdef", 6);
    assert_memory_equal(tt_tensor_i64(tt_dataset_targets(d)), ((int64_t[]){7, 1}), 16);
    tt_dataset_free(d);
    assert_null(tt_image_dataset(images, write_file("labels", BYTES("\0\0\x08\x01\0\0\0\1\7"))));
    assert_int_equal(tt_last_status(), TT_ERR_FORMAT);
    assert_non_null(strstr(tt_last_error(), "has 2 images, but"));
    assert_null(tt_image_dataset(images, images));
    assert_non_null(strstr(tt_last_error(), "expected labels (N) of u8, got u8 (2, 1, 3)"));
    assert_null(tt_image_dataset(in_folder("labels"), images));
    assert_non_null(strstr(tt_last_error(), "expected images"));
    assert_null(tt_image_dataset(images, in_folder("missing")));
    assert_int_equal(tt_last_status(), TT_ERR_IO);
    assert_null(tt_image_dataset(images, NULL));
}

static void mnist_is_found_where_it_usually_lies(void **state) {
    (void)state;
    char command[512];
    assert_null(tt_mnist(folder, true));
    assert_int_equal(tt_last_status(), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "train-images-idx3-ubyte"));
    snprintf(command, sizeof command, "mkdir -p '%s/MNIST/raw'", folder);
    assert_int_equal(system(command), 0);
    write_file("MNIST/raw/train-images-idx3-ubyte", BYTES(two_images));
    assert_null(tt_mnist(folder, true)); /* labels are missing */
    size_t size;
    uint8_t *packed = gzip(BYTES(two_labels), &size);
    write_file("MNIST/raw/train-labels-idx1-ubyte.gz", packed, size);
    free(packed);
    tt_dataset *d = tt_mnist(folder, true);
    assert_non_null(d);
    assert_int_equal(tt_dataset_size(d), 2);
    tt_dataset_free(d);
    assert_null(tt_mnist(folder, false));
    assert_non_null(strstr(tt_last_error(), "t10k"));
    assert_null(tt_mnist(NULL, false));
}

/* The real files, where someone has them: TT_MNIST, or ../shared/data/mnist beside the source. */
static void real_mnist_is_read(void **state) {
    (void)state;
    char beside[4096];
    const char *source = getenv("TT_SOURCE"), *dir = getenv("TT_MNIST");
    snprintf(beside, sizeof beside, "%s/../shared/data/mnist", source ? source : ".");
    dir = dir ? dir : beside;
    if (access(dir, F_OK)) {
        print_message("skipped: no MNIST at %s; name its folder in TT_MNIST\n", dir);
        skip();
    }
    static const int64_t first[] = {7, 2, 1, 0, 4, 1, 4, 9};
    tt_dataset *d = tt_mnist(dir, false);
    assert_non_null(d);
    assert_int_equal(tt_dataset_size(d), 10000);
    assert_memory_equal(tt_tensor_i64(tt_dataset_targets(d)), first, sizeof first);
    assert_int_equal(tt_tensor_numel(tt_dataset_inputs(d)), 10000 * 784);
    tt_dataset_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_type_is_read),
        cmocka_unit_test(empty_and_scalar_are_read),
        cmocka_unit_test(bad_headers_are_refused),
        cmocka_unit_test(oversized_headers_are_refused),
        cmocka_unit_test(the_length_must_be_exact),
        cmocka_unit_test(damaged_gzip_is_refused),
        cmocka_unit_test(gzip_members_are_joined_but_garbage_is_refused),
        cmocka_unit_test(files_are_told_apart_by_content),
        cmocka_unit_test(what_cant_be_opened_is_named),
        cmocka_unit_test(what_is_written_is_read_back),
        cmocka_unit_test(what_cant_be_written_is_refused),
        cmocka_unit_test(what_is_read_outlives_scopes),
        cmocka_unit_test(images_and_labels_become_a_data_set),
        cmocka_unit_test(mnist_is_found_where_it_usually_lies),
        cmocka_unit_test(real_mnist_is_read),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
