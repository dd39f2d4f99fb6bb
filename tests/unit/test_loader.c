/* Data sets and loaders: batches hold the examples they should, normalised as torchvision does, and cost no
 * allocation. */
#include "data/convert_kernels.h"
#include "unit/alloc_count.h"

#include <tutti/autograd.h>
#include <tutti/data.h>

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* n examples: input i is {2i, 2i+1}, target i is 10i. */
static tt_dataset *numbered(int64_t n) {
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_to(tt_view(tt_arange(2 * n), TT_SHAPE(n, 2)), TT_F32), *y = tt_arange(n);
    for (int64_t i = 0; i < n; i++)
        tt_tensor_i64(y)[i] *= 10;
    return tt_tensor_dataset(tt_keep(x), y); /* whoever owned them, the data set has them now */
}

static void assert_batch(const tt_batch *b, const int64_t *want, int64_t n) {
    char text[64], shape[64];
    snprintf(shape, sizeof shape, "f32 (%d, 2)", (int)n);
    assert_int_equal(b->size, n);
    assert_string_equal(tt_tensor_describe(b->x, text, sizeof text), shape);
    assert_int_equal(tt_tensor_numel(b->y), n);
    for (int64_t i = 0; i < n; i++) {
        assert_int_equal(tt_tensor_i64(b->y)[i], 10 * want[i]);
        assert_true(tt_tensor_f32(b->x)[2 * i] == (float)(2 * want[i]));
        assert_true(tt_tensor_f32(b->x)[2 * i + 1] == (float)(2 * want[i] + 1));
    }
}

/* Gradients of inputs, for batches of any size: each batch is a new tensor in this. */
static void a_batch_may_require_a_gradient(void **state) {
    (void)state;
    tt_dataset *d = numbered(5);
    tt_loader *loader = tt_loader_new(d, 3);
    tt_batch b;
    for (int epoch = 0; epoch < 2; epoch++)
        while (tt_loader_next(loader, &b)) {
            TT_AUTO_SCOPE;
            assert_false(tt_requires_grad(b.x));
            if (epoch == 0 && b.size == 3)
                continue; /* the smaller one comes first */
            assert_non_null(tt_requires_grad_(b.x, true));
            assert_int_equal(tt_backward(tt_sum(b.x)), TT_OK);
            assert_int_equal(tt_tensor_size(tt_grad(b.x), 0), b.size);
        }
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static void batches_come_in_order_and_start_again(void **state) {
    (void)state;
    tt_dataset *d = numbered(7);
    tt_loader *loader = tt_loader_new(d, 3);
    assert_int_equal(tt_loader_batches(loader), 3);
    tt_batch b;
    for (int epoch = 0; epoch < 3; epoch++) {
        assert_true(tt_loader_next(loader, &b));
        assert_batch(&b, (int64_t[]){0, 1, 2}, 3);
        assert_true(tt_loader_next(loader, &b));
        assert_batch(&b, (int64_t[]){3, 4, 5}, 3);
        assert_true(tt_loader_next(loader, &b));
        assert_batch(&b, (int64_t[]){6}, 1);
        assert_false(tt_loader_next(loader, &b));
    }
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static void a_loop_left_early_can_start_again(void **state) {
    (void)state;
    tt_dataset *d = numbered(7);
    tt_loader *loader = tt_loader_new(d, 3);
    tt_batch b;
    assert_true(tt_loader_next(loader, &b));
    assert_true(tt_loader_next(loader, &b));
    tt_loader_restart(loader);
    assert_true(tt_loader_next(loader, &b));
    assert_batch(&b, (int64_t[]){0, 1, 2}, 3);
    tt_loader_restart(NULL);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static void drop_last_leaves_the_rest_out(void **state) {
    (void)state;
    tt_dataset *d = numbered(7);
    tt_loader *loader = tt_loader_new(d, 3, .drop_last = true);
    assert_int_equal(tt_loader_batches(loader), 2);
    tt_batch b;
    int batches = 0;
    while (tt_loader_next(loader, &b)) {
        assert_int_equal(b.size, 3);
        batches++;
    }
    assert_int_equal(batches, 2);
    tt_loader_free(loader);
    loader = tt_loader_new(d, 8, .drop_last = true);
    assert_int_equal(tt_loader_batches(loader), 0);
    assert_false(tt_loader_next(loader, &b));
    tt_loader_free(loader);
    loader = tt_loader_new(d, 1000000000000); /* takes no more memory than the epoch has */
    assert_true(tt_loader_next(loader, &b));
    assert_batch(&b, (int64_t[]){0, 1, 2, 3, 4, 5, 6}, 7);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static void the_sampler_says_which(void **state) {
    (void)state;
    tt_dataset *d = numbered(10);
    tt_sampler *s = tt_distributed_sampler(10, .num_replicas = 3, .rank = 1, .seed = 4);
    tt_loader *loader = tt_loader_new(d, 3, .sampler = s);
    tt_batch b;
    for (int epoch = 0; epoch < 3; epoch++) {
        tt_sampler_set_epoch(s, epoch);
        const int64_t *want = tt_sampler_indices(s);
        assert_true(tt_loader_next(loader, &b));
        assert_batch(&b, want, 3);
        assert_true(tt_loader_next(loader, &b));
        assert_batch(&b, want + 3, 1);
        assert_false(tt_loader_next(loader, &b));
    }
    tt_loader_free(loader);
    tt_sampler_free(s);
    tt_dataset_free(d);
}

static void batches_survive_scopes(void **state) {
    (void)state;
    tt_dataset *d = numbered(4);
    int scope = tt_scope_begin();
    tt_loader *loader = tt_loader_new(d, 2);
    tt_batch b;
    assert_true(tt_loader_next(loader, &b));
    tt_scope_end(scope);
    assert_batch(&b, (int64_t[]){0, 1}, 2);
    tt_tensor_free(b.x); /* not the caller's: refused */
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    assert_true(tt_loader_next(loader, &b));
    assert_batch(&b, (int64_t[]){2, 3}, 2);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* ---- kinds of inputs ---- */

static tt_dataset *bytes(void) {
    uint8_t all[256];
    for (int i = 0; i < 256; i++)
        all[i] = (uint8_t)i;
    return tt_tensor_dataset(tt_from_data(all, TT_SHAPE(4, 64), TT_U8), NULL);
}

static const float *only_batch(tt_loader *loader) {
    tt_batch b;
    while (tt_loader_next(loader, &b))
        continue;
    assert_true(tt_loader_next(loader, &b));
    assert_null(b.y);
    return tt_tensor_f32(b.x);
}

static void u8_is_normalised_as_torchvision_does(void **state) {
    (void)state;
    tt_dataset *d = bytes();
    tt_loader *loader = tt_loader_new(d, 4);
    const float *x = only_batch(loader);
    for (int v = 0; v < 256; v++)
        assert_true(x[v] == (float)v);
    assert_int_equal(tt_dataset_normalize(d, 0, 1), TT_OK); /* counts from the next batch on */
    x = only_batch(loader);
    for (int v = 0; v < 256; v++)
        assert_true(x[v] == (float)v / 255.0f);
    assert_int_equal(tt_dataset_normalize(d, 0.1307, 0.3081), TT_OK);
    x = only_batch(loader);
    for (int v = 0; v < 256; v++) {
        volatile float scaled = (float)v / 255.0f, centred = scaled - 0.1307f;
        assert_true(x[v] == centred / 0.3081f);
    }
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* Any tail, and any level: the plain build is the reference. */
static void every_instruction_set_gives_the_same_bits(void **state) {
    (void)state;
    enum { N = 300 };
    const tt__convert_kernels *base = &tt__convert_kernels_base, *best = TT__LEVEL_CHOOSE(tt__convert_kernels);
    uint8_t in[N];
    float want[N], got[N + 1];
    for (int i = 0; i < N; i++)
        in[i] = (uint8_t)(i * 7);
    for (size_t n = 0; n <= N; n += n < 70 ? 1 : 23) {
        got[n] = -5;
        base->plain(want, in, n);
        best->plain(got, in, n);
        assert_memory_equal(want, got, n * sizeof *got);
        base->normalize(want, in, n, 0.1307f, 0.3081f);
        best->normalize(got, in, n, 0.1307f, 0.3081f);
        assert_memory_equal(want, got, n * sizeof *got);
        assert_true(got[n] == -5); /* nothing beyond */
    }
}

static void normalisation_is_checked(void **state) {
    (void)state;
    tt_dataset *d = bytes(), *floats = numbered(2);
    assert_int_equal(tt_dataset_normalize(d, 0, 0), TT_ERR_INVALID);
    assert_int_equal(tt_dataset_normalize(d, 0, -1), TT_ERR_INVALID);
    assert_int_equal(tt_dataset_normalize(d, 0, 1e-60), TT_ERR_INVALID); /* zero in f32 */
    assert_int_equal(tt_dataset_normalize(d, 0.0 / 0.0, 1), TT_ERR_INVALID);
    assert_int_equal(tt_dataset_normalize(floats, 0, 1), TT_ERR_DTYPE);
    assert_int_equal(tt_dataset_normalize(NULL, 0, 1), TT_ERR_INVALID);
    tt_dataset_free(d);
    tt_dataset_free(floats);
}

static void other_types_stay_what_they_are(void **state) {
    (void)state;
    tt_dataset *d = tt_tensor_dataset(tt_arange(5), tt_ones(TT_SHAPE(5, 3), TT_F64));
    tt_loader *loader = tt_loader_new(d, 2);
    tt_batch b;
    assert_true(tt_loader_next(loader, &b));
    assert_true(tt_loader_next(loader, &b));
    assert_int_equal(tt_tensor_i64(b.x)[1], 3);
    assert_int_equal(tt_tensor_dtype(b.y), TT_F64);
    assert_int_equal(tt_tensor_size(b.y, 1), 3);
    assert_true(((double *)tt_tensor_data(b.y))[5] == 1);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* ---- data sets ---- */

static void subsets_are_views_with_their_base_s_normalisation(void **state) {
    (void)state;
    tt_dataset *d = bytes(), *tail = tt_subset(d, 3, 4), *nothing = tt_subset(d, 4, 4);
    assert_int_equal(tt_dataset_size(tail), 1);
    assert_int_equal(tt_dataset_size(nothing), 0);
    assert_ptr_equal(tt_tensor_data(tt_dataset_inputs(tail)), (uint8_t *)tt_tensor_data(tt_dataset_inputs(d)) + 192);
    assert_null(tt_dataset_targets(tail));
    tt_dataset_normalize(d, 0, 1);
    tt_loader *loader = tt_loader_new(tail, 1);
    assert_true(only_batch(loader)[63] == 1.0f);
    tt_dataset_normalize(tail, 1, 1); /* its own wins */
    assert_true(only_batch(loader)[63] == 0.0f);
    tt_loader_free(loader);
    tt_batch b;
    loader = tt_loader_new(nothing, 1);
    assert_non_null(loader);
    assert_int_equal(tt_loader_batches(loader), 0);
    assert_false(tt_loader_next(loader, &b));
    tt_loader_free(loader);
    tt_dataset_free(nothing);
    tt_dataset_free(tail);
    assert_null(tt_subset(d, -1, 2));
    assert_null(tt_subset(d, 3, 2));
    assert_null(tt_subset(d, 0, 5));
    assert_string_equal(tt_last_error(), "tt_subset: expected 0 <= begin <= end <= 4, got 0 and 5");
    tt_dataset_free(d);
    assert_null(tt_subset(NULL, 0, 0));
}

static void subsets_carry_targets(void **state) {
    (void)state;
    tt_dataset *d = numbered(6), *middle = tt_subset(d, 2, 5);
    tt_loader *loader = tt_loader_new(middle, 3);
    tt_batch b;
    assert_true(tt_loader_next(loader, &b));
    assert_batch(&b, (int64_t[]){2, 3, 4}, 3);
    tt_loader_free(loader);
    tt_dataset_free(middle);
    tt_dataset_free(d);
}

static void views_with_gaps_are_copied(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_tensor *x = tt_transpose(tt_view(tt_arange(6), TT_SHAPE(2, 3)), 0, 1); /* {0,3}, {1,4}, {2,5} */
    tt_dataset *d = tt_tensor_dataset(x, NULL);
    assert_memory_equal(tt_tensor_data(tt_dataset_inputs(d)), ((int64_t[]){0, 3, 1, 4, 2, 5}), 48);
    tt_dataset_free(d);
}

/* Under a leak checker this also shows that what was taken over is freed on failure. */
static void tensors_that_do_not_fit_are_refused(void **state) {
    (void)state;
    assert_null(tt_tensor_dataset(tt_zeros(TT_SHAPE(3, 2), TT_F32), tt_arange(4)));
    assert_int_equal(tt_last_status(), TT_ERR_SHAPE);
    assert_non_null(strstr(tt_last_error(), "got inputs f32 (3, 2), targets i64 (4)"));
    assert_null(tt_tensor_dataset(tt_zeros(TT_SCALAR, TT_F32), NULL));
    assert_null(tt_tensor_dataset(tt_zeros(TT_SHAPE(1), TT_F32), tt_zeros(TT_SCALAR, TT_F32)));
    tt_clear_error();
    assert_null(tt_tensor_dataset(NULL, tt_arange(4)));
    assert_int_not_equal(tt_last_status(), TT_OK);
    tt_dataset *d = numbered(2);
    assert_null(tt_tensor_dataset(tt_arange(2), tt_dataset_inputs(d))); /* belongs to another set, which keeps it */
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    assert_int_equal(tt_tensor_numel(tt_dataset_inputs(d)), 4);
    tt_dataset_free(d);
    tt_dataset_free(NULL);
    assert_int_equal(tt_dataset_size(NULL), 0);
    assert_null(tt_dataset_inputs(NULL));
    assert_null(tt_dataset_targets(NULL));
}

/* ---- arguments, cost ---- */

static void bad_arguments_are_named(void **state) {
    (void)state;
    tt_dataset *d = numbered(4);
    tt_sampler *s = tt_distributed_sampler(5);
    tt_batch b;
    tt_clear_error();
    assert_null(tt_loader_new(NULL, 1));
    assert_string_equal(tt_last_error(), "tt_loader_new: the data set is NULL");
    assert_null(tt_loader_new(tt_subset(tt_image_dataset("/no/such/file", "b"), 0, 1), 1)); /* the first reason stays */
    assert_int_equal(tt_last_status(), TT_ERR_IO);
    assert_non_null(strstr(tt_last_error(), "/no/such/file"));
    assert_null(tt_loader_new(d, 0));
    assert_string_equal(tt_last_error(), "tt_loader_new: batch_size: expected at least 1, got 0");
    assert_null(tt_loader_new(d, 2, .sampler = s));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "of 5 examples, but this one has 4"));
    assert_null(tt_loader_with(NULL, 0));
    assert_false(tt_loader_next(NULL, &b));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_int_equal(tt_loader_batches(NULL), 0);
    tt_loader_free(NULL);
    tt_sampler_free(s);
    tt_dataset_free(d);
}

static void a_batch_allocates_nothing(void **state) {
    (void)state;
    if (!alloc_count_works) {
        print_message("skipped: this build's allocator is the sanitizer's\n");
        skip();
    }
    tt_dataset *d = tt_digits(100, 0);
    tt_dataset_normalize(d, 0.1307, 0.3081);
    tt_sampler *s = tt_distributed_sampler(100, .num_replicas = 2);
    tt_loader *loader = tt_loader_new(d, 8, .sampler = s);
    tt_batch b;
    long before = alloc_count;
    assert_true(before > 0); /* it does count */
    for (int epoch = 0; epoch < 3; epoch++) {
        tt_sampler_set_epoch(s, epoch);
        while (tt_loader_next(loader, &b))
            assert_true(b.size == 8 || b.size == 2);
    }
    assert_int_equal(alloc_count - before, 0);
    tt_loader_free(loader);
    tt_sampler_free(s);
    tt_dataset_free(d);
}

/* From digits to the first batch, by way of a file. */
static tt_status whole_way(const char *path) {
    tt_tensor *images = NULL;
    tt_dataset *digits = tt_digits(3, 0), *read = NULL, *part = NULL;
    tt_sampler *s = NULL;
    tt_loader *loader = NULL;
    tt_batch b;
    bool ok = digits && !tt_idx_write(tt_dataset_inputs(digits), path) && !tt_idx_read(&images, path);
    read = ok ? tt_tensor_dataset(images, NULL) : NULL; /* images are the set's now */
    part = read ? tt_subset(read, 0, 2) : NULL;
    s = part ? tt_distributed_sampler(2) : NULL;
    loader = s ? tt_loader_new(part, 2, .sampler = s) : NULL;
    ok = loader && tt_loader_next(loader, &b) && b.size == 2;
    tt_loader_free(loader);
    tt_sampler_free(s);
    tt_dataset_free(part);
    tt_dataset_free(read);
    tt_dataset_free(digits);
    return ok ? TT_OK : tt_last_status();
}

/* Each allocation in turn fails: an error, nothing else; a leak checker sees that nothing is left. */
static void running_out_of_memory_is_an_error(void **state) {
    (void)state;
    if (!alloc_count_works) {
        print_message("skipped: this build's allocator is the sanitizer's\n");
        skip();
    }
    char folder[] = "/tmp/tutti-loader-XXXXXX", path[64];
    int failures = 0;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.gz", folder);
    do {
        tt_clear_error();
        alloc_fail_own = alloc_count_own + ++failures;
        tt_status status = whole_way(path);
        assert_true(status == TT_OK || status == TT_ERR_MEMORY);
    } while (alloc_count_own >= alloc_fail_own);
    alloc_fail_own = 0;
    assert_true(failures > 10);
    assert_int_equal(whole_way(path), TT_OK);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* no temporary is left either */
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_may_require_a_gradient),
        cmocka_unit_test(batches_come_in_order_and_start_again),
        cmocka_unit_test(a_loop_left_early_can_start_again),
        cmocka_unit_test(drop_last_leaves_the_rest_out),
        cmocka_unit_test(the_sampler_says_which),
        cmocka_unit_test(batches_survive_scopes),
        cmocka_unit_test(u8_is_normalised_as_torchvision_does),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(normalisation_is_checked),
        cmocka_unit_test(other_types_stay_what_they_are),
        cmocka_unit_test(subsets_are_views_with_their_base_s_normalisation),
        cmocka_unit_test(subsets_carry_targets),
        cmocka_unit_test(views_with_gaps_are_copied),
        cmocka_unit_test(tensors_that_do_not_fit_are_refused),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(a_batch_allocates_nothing),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
