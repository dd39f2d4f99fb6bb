/* Data sets and loaders: batches hold the examples they should, normalised as torchvision does, and cost no
 * allocation. */
#include "data/loader/convert_kernels.h"
#include "unit/alloc_fail.h"
#include "unit/data/data_cases.h"

#include <stdlib.h>
#include <tutti/autograd.h>
#include <tutti/functional.h>

#include <unistd.h>

/* Gradients of inputs, for batches of any size: each batch is a new tensor in this. */
static void a_batch_may_require_a_gradient(void **state) {
    (void)state;
    tt_dataset *d = numbered(5);
    tt_loader *loader = tt_loader_new(d, 3, tt_in_order());
    tt_batch b;
    for (int epoch = 0; epoch < 2; epoch++)
        while (tt_loader_next(loader, &b) == 1) {
            TT_AUTO_SCOPE;
            assert_false(tt_requires_grad(b.x));
            assert_null(tt_grad(b.x));
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
    tt_loader *loader = tt_loader_new(d, 3, tt_in_order());
    assert_int_equal(tt_loader_batches(loader), 3);
    tt_batch b;
    for (int epoch = 0; epoch < 3; epoch++) {
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_batch(&b, (int64_t[]){0, 1, 2}, 3);
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_batch(&b, (int64_t[]){3, 4, 5}, 3);
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_batch(&b, (int64_t[]){6}, 1);
        assert_int_equal(tt_loader_next(loader, &b), 0);
    }
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* Sets are freed before what was made of them: that goes on, and the last one frees all (LeakSanitizer sees to it). */
static void sets_and_samplers_live_as_long_as_what_uses_them(void **state) {
    (void)state;
    tt_dataset *first = numbered(2), *second = numbered(3);
    tt_dataset *both = tt_concat_dataset((tt_dataset *[]){first, second}, 2);
    tt_dataset_free(first);
    tt_dataset_free(second);
    tt_dataset *part = tt_subset(both, 1, 5);
    tt_dataset_free(both);
    tt_sampler *sampler = tt_sequential_sampler(4);
    tt_loader *loader = tt_loader_new(part, 3, sampler), *other = tt_loader_new(part, 4, sampler);
    tt_dataset_free(part);
    tt_dataset_free(part); /* a second time is an error */
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    tt_sampler_free(sampler);
    tt_sampler_free(sampler);
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_memory_equal(tt_tensor_i64(b.y), ((int64_t[]){10, 0, 10}), 3 * sizeof(int64_t));
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_memory_equal(tt_tensor_i64(b.y), ((int64_t[]){20}), sizeof(int64_t));
    assert_int_equal(tt_loader_next(loader, &b), 0);
    tt_loader_free(loader);
    assert_int_equal(tt_loader_next(other, &b), 1);
    assert_memory_equal(tt_tensor_i64(b.y), ((int64_t[]){10, 0, 10, 20}), 4 * sizeof(int64_t));
    tt_loader_free(other);
}

static void a_loop_left_early_can_start_again(void **state) {
    (void)state;
    tt_dataset *d = numbered(7);
    tt_loader *loader = tt_loader_new(d, 3, tt_in_order());
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    tt_loader_restart(loader);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_batch(&b, (int64_t[]){0, 1, 2}, 3);
    tt_loader_restart(NULL);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static void drop_last_leaves_the_rest_out(void **state) {
    (void)state;
    tt_dataset *d = numbered(7);
    tt_loader *loader = tt_loader_new(d, 3, tt_in_order(), .drop_last = true);
    assert_int_equal(tt_loader_batches(loader), 2);
    tt_batch b;
    int batches = 0;
    while (tt_loader_next(loader, &b) == 1) {
        assert_int_equal(b.size, 3);
        batches++;
    }
    assert_int_equal(batches, 2);
    tt_loader_free(loader);
    loader = tt_loader_new(d, 8, tt_in_order(), .drop_last = true);
    assert_int_equal(tt_loader_batches(loader), 0);
    assert_int_equal(tt_loader_next(loader, &b), 0);
    tt_loader_free(loader);
    loader = tt_loader_new(d, 1000000000000, tt_in_order()); /* takes no more memory than the epoch has */
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_batch(&b, (int64_t[]){0, 1, 2, 3, 4, 5, 6}, 7);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static void the_sampler_says_which(void **state) {
    (void)state;
    tt_dataset *d = numbered(10);
    tt_sampler *s = tt_distributed_sampler(10, 3, 1, .seed = 4);
    tt_loader *loader = tt_loader_new(d, 3, s);
    tt_batch b;
    for (int epoch = 0; epoch < 3; epoch++) {
        tt_sampler_set_epoch(s, epoch);
        const int64_t *want = tt_sampler_indices(s);
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_batch(&b, want, 3);
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_batch(&b, want + 3, 1);
        assert_int_equal(tt_loader_next(loader, &b), 0);
    }
    tt_loader_free(loader);
    tt_sampler_free(s);
    tt_dataset_free(d);
}

static void batches_survive_scopes(void **state) {
    (void)state;
    tt_dataset *d = numbered(4);
    int scope = tt_scope_begin();
    tt_loader *loader = tt_loader_new(d, 2, tt_in_order());
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    tt_scope_end(scope);
    assert_batch(&b, (int64_t[]){0, 1}, 2);
    tt_tensor_free(b.x); /* not the caller's: refused */
    assert_int_equal(tt_last_status(), TT_ERR_STATE);
    assert_int_equal(tt_loader_next(loader, &b), 1);
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
    while (tt_loader_next(loader, &b) == 1)
        continue;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_null(b.y);
    return tt_tensor_f32(b.x);
}

static void u8_is_normalised_as_torchvision_does(void **state) {
    (void)state;
    tt_dataset *d = bytes();
    tt_loader *loader = tt_loader_new(d, 4, tt_in_order());
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
    tt_loader *loader = tt_loader_new(d, 2, tt_in_order());
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_int_equal(tt_tensor_i64(b.x)[1], 3);
    assert_int_equal(tt_tensor_dtype(b.y), TT_F64);
    assert_int_equal(tt_tensor_size(b.y, 1), 3);
    assert_true(((double *)tt_tensor_data(b.y))[5] == 1);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* ---- arguments, cost ---- */

static void bad_arguments_are_named(void **state) {
    (void)state;
    tt_dataset *d = numbered(4);
    tt_sampler *s = tt_distributed_sampler(5, 1, 0);
    tt_batch b;
    tt_clear_error();
    assert_null(tt_loader_new(NULL, 1, tt_in_order()));
    assert_string_equal(tt_last_error(), "tt_loader_new: the data set is NULL");
    assert_null(tt_loader_new(tt_subset(tt_image_dataset("/no/such/file", "b"), 0, 1), 1, tt_in_order()));
    assert_int_equal(tt_last_status(), TT_ERR_IO); /* the first reason stays */
    assert_non_null(strstr(tt_last_error(), "/no/such/file"));
    assert_null(tt_loader_new(d, 0, tt_in_order()));
    assert_string_equal(tt_last_error(), "tt_loader_new: batch_size: expected at least 1, got 0");
    assert_null(tt_loader_new(d, 2, s));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "of 5 examples, but this one has 4"));
    assert_null(tt_loader_new_with(NULL, 0));
    assert_int_equal(tt_loader_next(NULL, &b), -1);
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_int_equal(tt_loader_next_with(NULL, NULL, 0), -1);
    assert_int_equal(tt_loader_batches(NULL), 0);
    tt_loader_free(NULL);
    tt_sampler_free(s);
    tt_dataset_free(d);
}

/* Not "in order", which would train on every rank's examples. */
static void a_sampler_that_could_not_be_made_is_an_error(void **state) {
    (void)state;
    tt_dataset *d = numbered(4);
    tt_clear_error();
    assert_null(tt_loader_new(d, 2, NULL));
    assert_string_equal(tt_last_error(),
                        "tt_loader_new: the sampler (without one: tt_in_order() or tt_shuffled()) is NULL");
    assert_null(tt_loader_new(d, 2, tt_distributed_sampler(4, 2, 2)));
    assert_non_null(strstr(tt_last_error(), "tt_distributed_sampler: rank: expected 0 to 1"));
    tt_dataset_free(d);
}

/* A program built when the struct was shorter, or has become longer. */
static void batches_of_other_versions_are_filled(void **state) {
    (void)state;
    tt_dataset *d = numbered(4);
    tt_loader *loader = tt_loader_new(d, 2, tt_in_order());
    tt_batch b = {.indices = (const int64_t *)state};
    struct {
        tt_batch b;
        void *later;
    } longer = {.later = state};
    assert_int_equal(tt_loader_next_with(loader, &b, offsetof(tt_batch, indices)), 1);
    assert_int_equal(b.size, 2);
    assert_ptr_equal(b.indices, state);
    assert_int_equal(tt_loader_next_with(loader, &longer.b, sizeof longer), 1);
    assert_batch(&longer.b, (int64_t[]){2, 3}, 2);
    assert_null(longer.later);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* Epochs of whatever the loader visits, by a caller who holds on to one batch. The first is not counted: in it the pool
 * of tensors fills, and the loader makes its second buffer. */
static void assert_allocates_nothing(tt_dataset *d, tt_sampler *s) {
    tt_loader *loader = tt_loader_new(d, 8, s);
    tt_tensor *kept = NULL;
    tt_batch b;
    long before = 0;
    assert_non_null(loader);
    for (int epoch = 0; epoch < 4; epoch++) {
        before = epoch == 1 ? alloc_count : before;
        tt_sampler_set_epoch(s, epoch);
        while (tt_loader_next(loader, &b) == 1) {
            assert_true(b.size == 8 || b.size == 2);
            tt_tensor_free(kept);
            kept = tt_keep(b.x);
        }
    }
    assert_true(before > 0); /* it does count */
    assert_int_equal(alloc_count - before, 0);
    tt_tensor_free(kept);
    tt_loader_free(loader);
}

static tt_status get_index(void *user, int64_t index, void *x, void *y) {
    (void)user;
    *(int64_t *)x = *(int64_t *)y = index;
    return TT_OK;
}

static void a_batch_allocates_nothing(void **state) {
    (void)state;
    if (!alloc_count_works) {
        print_message("skipped: this build's allocator is the sanitizer's\n");
        skip();
    }
    const tt_tensor_spec one = tt_spec(TT_I64, TT_SHAPE(1));
    tt_dataset *digits = tt_digits(100, 0), *rest = tt_subset(digits, 50, 100);
    tt_dataset *numbers = tt_dataset_from(50, get_index, one, .y = one);
    tt_sampler *half = tt_distributed_sampler(100, 2, 0);
    assert_int_equal(tt_dataset_normalize(digits, 0.1307, 0.3081), TT_OK);
    assert_allocates_nothing(digits, half);
    assert_allocates_nothing(rest, tt_in_order());
    assert_allocates_nothing(numbers, tt_shuffled());
    tt_sampler_free(half);
    tt_dataset_free(numbers);
    tt_dataset_free(rest);
    tt_dataset_free(digits);
}

/* From digits to the first batches, by way of a file. */
static tt_status whole_way(void *arg) {
    const char *path = arg;
    tt_tensor *images = NULL, *kept = NULL;
    tt_dataset *digits = tt_digits(3, 0), *read = NULL, *part = NULL, *both = NULL;
    tt_sampler *s = NULL;
    tt_loader *loader = NULL;
    tt_batch b;
    bool ok = digits && !tt_idx_write(tt_dataset_inputs(digits), path) && !tt_idx_read(&images, path);
    read = ok ? tt_tensor_dataset(images, NULL) : NULL; /* images are the set's now */
    part = read ? tt_subset(read, 0, 2) : NULL;
    both = part ? tt_concat_dataset((tt_dataset *[]){part, part}, 2) : NULL;
    s = both ? tt_distributed_sampler(4, 1, 0) : NULL;
    loader = s ? tt_loader_new(both, 2, s) : NULL;
    ok = loader && tt_loader_next(loader, &b) == 1 && b.size == 2;
    kept = ok ? tt_keep(b.x) : NULL;
    ok = ok && tt_loader_next(loader, &b) == 1; /* in another buffer */
    tt_tensor_free(kept);
    tt_loader_free(loader);
    tt_sampler_free(s);
    tt_dataset_free(both);
    tt_dataset_free(part);
    tt_dataset_free(read);
    tt_dataset_free(digits);
    return ok ? TT_OK : tt_last_status();
}

/* The same with what a program brings itself, and with the other samplers. */
static tt_status own_way(void *arg) {
    (void)arg;
    const tt_tensor_spec one = tt_spec(TT_I64, TT_SHAPE(1));
    tt_dataset *d = tt_dataset_from(4, get_index, one, .y = one);
    tt_sampler *longer = d ? tt_random_sampler(4, .num_samples = 6) : NULL;
    tt_sampler *chosen = longer ? tt_subset_random_sampler(4, ((int64_t[]){2, 3}), 2) : NULL;
    tt_loader *first = chosen ? tt_loader_new(d, 2, longer) : NULL,
              *second = first ? tt_loader_new(d, 2, chosen) : NULL;
    tt_loader *third = second ? tt_loader_new(d, 2, tt_shuffled()) : NULL;
    tt_batch b;
    bool ok =
        third && tt_loader_next(first, &b) == 1 && tt_loader_next(second, &b) == 1 && tt_loader_next(third, &b) == 1;
    tt_loader_free(third);
    tt_loader_free(second);
    tt_loader_free(first);
    tt_sampler_free(chosen);
    tt_sampler_free(longer);
    tt_dataset_free(d);
    return ok ? TT_OK : tt_last_status();
}

static void running_out_of_memory_is_an_error(void **state) {
    (void)state;
    if (!alloc_count_works) {
        print_message("skipped: this build's allocator is the sanitizer's\n");
        skip();
    }
    char folder[] = "/tmp/tutti-loader-XXXXXX", path[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.gz", folder);
    assert_true(alloc_fail_each(whole_way, path, ALLOC_ENDS) > 10);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(rmdir(folder), 0); /* no temporary is left either */
    assert_true(alloc_fail_each(own_way, NULL, ALLOC_ENDS) > 10);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_may_require_a_gradient),
        cmocka_unit_test(batches_come_in_order_and_start_again),
        cmocka_unit_test(sets_and_samplers_live_as_long_as_what_uses_them),
        cmocka_unit_test(a_loop_left_early_can_start_again),
        cmocka_unit_test(drop_last_leaves_the_rest_out),
        cmocka_unit_test(the_sampler_says_which),
        cmocka_unit_test(batches_survive_scopes),
        cmocka_unit_test(a_sampler_that_could_not_be_made_is_an_error),
        cmocka_unit_test(batches_of_other_versions_are_filled),
        cmocka_unit_test(u8_is_normalised_as_torchvision_does),
        cmocka_unit_test(every_instruction_set_gives_the_same_bits),
        cmocka_unit_test(normalisation_is_checked),
        cmocka_unit_test(other_types_stay_what_they_are),
        cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(a_batch_allocates_nothing),
        cmocka_unit_test(running_out_of_memory_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
