/* CIFAR's files: images, labels and classes; files that are cut, mislabelled or missing. */
#include "support/own_folder.h"
#include "unit/alloc_fail.h"
#include "unit/base/hex.h"
#include "unit/expect.h"

#include <tutti/datasets.h>

#include <sys/stat.h>

enum { IMAGE = 3 * 32 * 32 };

/* Byte `at` of image i: of file and place alike, so that no two images are equal. */
static uint8_t pixel(int i, int at) { return (uint8_t)(31 * i + at + at / 1024 * 7); }

/* Write images begin .. begin+n-1, with `labels` labels each: i % modulus, and i % 7 before it if there are two. */
static void write_records(const char *path, int labels, int begin, int n, int modulus) {
    size_t size = (size_t)n * (size_t)(labels + IMAGE);
    uint8_t *bytes = malloc(size), *p = bytes;
    for (int i = begin; i < begin + n; i++) {
        if (labels == 2)
            *p++ = (uint8_t)(i % 7);
        *p++ = (uint8_t)(i % modulus);
        for (int at = 0; at < IMAGE; at++)
            *p++ = pixel(i, at);
    }
    write_bytes(path, bytes, size);
    free(bytes);
}

static void write_ten(const char *dir) {
    char path[256];
    assert_int_equal(mkdir(dir, 0700), 0);
    for (int k = 0; k < 5; k++) {
        snprintf(path, sizeof path, "%s/data_batch_%d.bin", dir, k + 1);
        write_records(path, 1, 3 * k, 3, 10);
    }
    snprintf(path, sizeof path, "%s/test_batch.bin", dir);
    write_records(path, 1, 100, 4, 10);
}

static void check_examples(tt_dataset *set, int first, int n, int modulus) {
    assert_non_null(set);
    assert_int_equal(tt_dataset_size(set), n);
    for (int i = 0; i < n; i++) {
        uint8_t x[IMAGE];
        int64_t y;
        assert_int_equal(tt_dataset_get(set, i, x, &y), TT_OK);
        assert_int_equal(y, (first + i) % modulus);
        for (int at = 0; at < IMAGE; at++)
            assert_int_equal(x[at], pixel(first + i, at));
    }
}

static void ten_classes_are_read(void **state) {
    (void)state;
    int64_t count;
    write_ten("ten");
    tt_dataset *train = tt_cifar10("ten", true), *test = tt_cifar10("ten", false), *part = tt_subset(train, 2, 5);
    check_examples(train, 0, 15, 10);
    check_examples(test, 100, 4, 10);
    assert_string_equal(tt_dataset_classes(train, &count)[9], "truck");
    assert_int_equal(count, 10);
    assert_string_equal(tt_dataset_classes(part, NULL)[0], "airplane");
    assert_null(tt_dataset_classes(NULL, &count));
    assert_int_equal(count, 0);
    assert_int_equal(tt_tensor_size(tt_dataset_inputs(train), 0), 15);
    tt_dataset_free(part);
    tt_dataset_free(train);
    tt_dataset_free(test);
}

static void a_hundred_classes_are_read(void **state) {
    (void)state;
    int64_t count;
    assert_int_equal(mkdir("hundred", 0700) | mkdir("hundred/cifar-100-binary", 0700), 0);
    write_records("hundred/cifar-100-binary/train.bin", 2, 0, 5, 100);
    write_records("hundred/cifar-100-binary/test.bin", 2, 95, 5, 100);
    tt_dataset *fine = tt_cifar100("hundred", false), *coarse = tt_cifar100("hundred", true, .coarse = true);
    check_examples(fine, 95, 5, 100);
    check_examples(coarse, 0, 5, 7);
    assert_string_equal(tt_dataset_classes(fine, &count)[99], "worm");
    assert_int_equal(count, 100);
    assert_string_equal(tt_dataset_classes(coarse, &count)[19], "vehicles_2");
    assert_int_equal(count, 20);
    tt_dataset_free(fine);
    tt_dataset_free(coarse);
}

static void bad_files_are_refused(void **state) {
    (void)state;
    write_ten("bad");
    assert_int_equal(truncate("bad/data_batch_4.bin", 3073 * 2 + 9), 0);
    assert_null(tt_cifar10("bad", true));
    expect_error(TT_ERR_FORMAT, "bad/data_batch_4.bin: expected records of 3073 bytes each, got 6155 bytes in all");
    assert_int_equal(truncate("bad/data_batch_4.bin", 0), 0);
    assert_null(tt_cifar10("bad", true));
    expect_error(TT_ERR_FORMAT, "got 0 bytes in all");
    write_records("bad/test_batch.bin", 1, 0, 12, 13);
    assert_null(tt_cifar10("bad", false));
    expect_error(TT_ERR_FORMAT, "bad/test_batch.bin: image 10: expected a label from 0 to 9, got 10");
    assert_int_equal(unlink("bad/data_batch_4.bin"), 0);
    assert_null(tt_cifar10("bad", true));
    expect_error(TT_ERR_IO, "expected data_batch_1.bin to data_batch_5.bin in bad or bad/cifar-10-batches-bin");
    assert_int_equal(mkdir("bad/train.bin", 0700), 0);
    assert_null(tt_cifar100("bad", true));
    expect_error(TT_ERR_IO, "expected a regular file, got a directory");
    assert_null(tt_cifar100("no/such", true));
    expect_error(TT_ERR_IO, "expected train.bin in no/such or no/such/cifar-100-binary");
    assert_null(tt_cifar10(NULL, true));
    expect_error(TT_ERR_INVALID, "the directory is NULL");
    assert_null(tt_cifar100(NULL, true));
    expect_error(TT_ERR_INVALID, "the directory is NULL");
}

static tt_status load(void *arg) {
    (void)arg;
    tt_dataset *set = tt_cifar10("ten", true);
    tt_dataset_free(set);
    return set ? TT_OK : tt_last_status();
}

static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    if (alloc_count_works)
        assert_true(alloc_fail_each(load, NULL, ALLOC_ENDS) > 5);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ten_classes_are_read),
        cmocka_unit_test(a_hundred_classes_are_read),
        cmocka_unit_test(bad_files_are_refused),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
