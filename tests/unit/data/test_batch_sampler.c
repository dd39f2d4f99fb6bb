/* Batch samplers: those that cut a sampler's order, and batches of one's own, of several sizes. */
#include "unit/alloc_fail.h"
#include "unit/data/data_cases.h"
#include "unit/expect.h"

#include <tutti/tutti.h>

/* ---- of another sampler ---- */

static void expect_same_batches(tt_loader *a, tt_loader *b, int64_t epochs) {
    tt_batch x, y;
    assert_int_equal(tt_loader_batches(a), tt_loader_batches(b));
    for (int64_t i = 0; i < epochs * (tt_loader_batches(a) + 1); i++) {
        assert_int_equal(tt_loader_next(a, &x), tt_loader_next(b, &y));
        assert_int_equal(x.size, y.size);
        if (x.size)
            assert_batch(&x, y.indices, y.size);
    }
}

static void a_cut_order_gives_the_loaders_own_batches(void **state) {
    (void)state;
    for (int drop = 0; drop < 2; drop++)
        for (int workers = 0; workers < 3; workers++) {
            tt_dataset *d = numbered(23);
            tt_sampler *share = tt_distributed_sampler(23, 2, 1, .seed = 4);
            tt_sampler *cut = tt_batch_sampler(share, 5, .drop_last = drop);
            tt_loader *a = tt_loader_new(d, 5, share, .drop_last = drop);
            tt_loader *b = tt_loader_new(d, 0, NULL, .batch_sampler = cut, .workers = workers);
            tt_sampler_set_epoch(cut, 3);
            assert_int_equal(tt_sampler_seed(cut), 4);
            assert_int_equal(tt_sampler_size(cut), drop ? 10 : 12);
            assert_ptr_equal(tt_sampler_indices(cut), tt_sampler_indices(share));
            tt_sampler_free(cut);
            expect_same_batches(a, b, 2);
            tt_loader_free(a);
            tt_loader_free(b);
            tt_sampler_free(share);
            tt_dataset_free(d);
        }
}

/* ---- of one's own ---- */

enum { EXAMPLES = 10, BATCHES = 6, LARGEST = 4 };

typedef struct plan {
    int64_t sizes[BATCHES], epochs, index, destroyed;
    tt_status status;
} plan;

/* Examples from the last one down, in batches of the plan's sizes; in epoch 1 in those sizes in reverse. */
static tt_status fill_plan(void *user, int64_t epoch, int64_t *indices, int64_t n, int64_t *sizes, int64_t batches) {
    plan *p = user;
    int64_t at = 0;
    assert_int_equal(batches, BATCHES);
    for (int64_t b = 0, k; b < batches; b++) {
        assert_int_equal(sizes[b], 0);
        sizes[b] = p->sizes[epoch == 1 ? batches - 1 - b : b];
        for (k = 0; k < sizes[b] && at < n; k++, at++)
            indices[at] = p->index + EXAMPLES - 1 - at;
    }
    p->epochs++;
    return p->status;
}

static int64_t plan_batches(void *user) { return user ? BATCHES : -1; }
static int64_t plan_largest(void *user) { return user ? LARGEST : -1; }
static void plan_destroy(void *user) { ((plan *)user)->destroyed++; }

static void expect_epoch(tt_loader *loader, const int64_t sizes[BATCHES]) {
    tt_batch b;
    int64_t at = EXAMPLES, want[LARGEST];
    for (int64_t i = 0; i < BATCHES && sizes[i]; i++) {
        assert_int_equal(tt_loader_next(loader, &b), 1);
        for (int64_t k = 0; k < sizes[i]; k++)
            want[k] = --at;
        assert_batch(&b, want, sizes[i]);
    }
    assert_int_equal(tt_loader_next(loader, &b), 0);
}

static void batches_of_ones_own_have_their_sizes(void **state) {
    (void)state;
    for (int workers = 0; workers < 4; workers++) {
        plan p = {.sizes = {1, 4, 2, 1, 1, 1}};
        tt_dataset *d = numbered(EXAMPLES);
        tt_sampler *s = tt_batch_sampler_from(EXAMPLES, BATCHES, LARGEST, fill_plan, .user = &p);
        tt_loader *loader = tt_loader_new(d, 0, NULL, .batch_sampler = s, .workers = workers);
        assert_int_equal(tt_loader_batches(loader), BATCHES);
        assert_int_equal(tt_sampler_size(s), EXAMPLES);
        expect_epoch(loader, p.sizes);
        tt_sampler_set_epoch(s, 1);
        expect_epoch(loader, (const int64_t[]){1, 1, 1, 2, 4, 1});
        tt_sampler_set_epoch(s, 2);
        memcpy(p.sizes, (const int64_t[]){3, 3, 0, 0, 0, 0}, sizeof p.sizes);
        expect_epoch(loader, p.sizes);
        assert_int_equal(tt_sampler_size(s), 6);
        assert_int_equal(p.epochs, 3);
        tt_sampler_free(s);
        tt_loader_free(loader);
        tt_dataset_free(d);
    }
}

static void a_class_is_destroyed_with_its_sampler(void **state) {
    (void)state;
    plan p = {.sizes = {4, 4, 2}};
    tt_batch_sampler_class cls = {
        .name = "a plan", .batches = plan_batches, .largest = plan_largest, .fill = fill_plan, .destroy = plan_destroy};
    tt_dataset *d = numbered(EXAMPLES);
    tt_sampler *s = tt_batch_sampler_new(&cls, &p, EXAMPLES);
    tt_loader *loader = tt_loader_new(d, 0, NULL, .batch_sampler = s);
    tt_sampler_free(s);
    expect_epoch(loader, p.sizes);
    assert_int_equal(p.destroyed, 0);
    tt_loader_free(loader);
    tt_dataset_free(d);
    assert_int_equal(p.destroyed, 1);
    assert_null(tt_batch_sampler_new(&cls, &p, -1));
    assert_int_equal(p.destroyed, 2);
    expect_error(TT_ERR_INVALID, "a plan: dataset_size: expected at least 0, got -1");
    cls.destroy = NULL;
    assert_null(tt_batch_sampler_new(&cls, NULL, 3));
    expect_error(TT_ERR_INVALID, "a plan: batches: expected at least 0, got -1");
    cls.largest = NULL;
    assert_null(tt_batch_sampler_new(&cls, &p, 3));
    expect_error(TT_ERR_INVALID, "the class has no largest function");
    cls.fill = NULL;
    assert_null(tt_batch_sampler_new(&cls, &p, 3));
    expect_error(TT_ERR_INVALID, "the class has no fill function");
}

/* ---- errors ---- */

static void expect_bad_epoch(plan p, tt_status status, const char *text) {
    tt_batch b;
    tt_dataset *d = numbered(EXAMPLES);
    tt_sampler *s = tt_batch_sampler_from(EXAMPLES, BATCHES, LARGEST, fill_plan, .user = &p, .name = "bad");
    tt_loader *loader = tt_loader_new(d, 0, NULL, .batch_sampler = s);
    tt_clear_error();
    assert_int_equal(tt_loader_next(loader, &b), -1);
    expect_error(status, text);
    tt_sampler_free(s);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static void bad_batches_are_errors(void **state) {
    (void)state;
    expect_bad_epoch((plan){.sizes = {5}}, TT_ERR_INVALID, "got 5 examples in batch 0");
    expect_bad_epoch((plan){.sizes = {2, -1}}, TT_ERR_INVALID, "got -1 examples in batch 1");
    expect_bad_epoch((plan){.sizes = {2, 0, 1}}, TT_ERR_INVALID, "got 1 examples in batch 2 behind a 0");
    expect_bad_epoch((plan){.sizes = {4, 4, 4}}, TT_ERR_INVALID, "at most 10 examples an epoch, got more by batch 2");
    expect_bad_epoch((plan){.sizes = {2}, .index = 1}, TT_ERR_INVALID, "from 0 to 9, got 10 in position 0");
    expect_bad_epoch((plan){.sizes = {2}, .status = TT_ERR_IO}, TT_ERR_IO, "bad: epoch 0");
}

static void what_a_batch_sampler_replaces_is_an_error(void **state) {
    (void)state;
    plan p = {.sizes = {4}};
    tt_dataset *d = numbered(EXAMPLES);
    tt_sampler *plain = tt_sequential_sampler(EXAMPLES), *cut = tt_batch_sampler(plain, 3);
    tt_sampler *own = tt_batch_sampler_from(EXAMPLES, BATCHES, LARGEST, fill_plan, .user = &p);
    tt_clear_error();
    assert_null(tt_loader_new(d, 4, NULL, .batch_sampler = cut));
    expect_error(TT_ERR_INVALID, "expected 0, NULL and false, got 4, NULL and false");
    assert_null(tt_loader_new(d, 0, plain, .batch_sampler = cut));
    expect_error(TT_ERR_INVALID, "got 0, a sequential sampler and false");
    assert_null(tt_loader_new(d, 0, NULL, .batch_sampler = own, .drop_last = true));
    expect_error(TT_ERR_INVALID, "NULL and true");
    assert_null(tt_loader_new(d, 4, own));
    expect_error(TT_ERR_INVALID, "give it as .batch_sampler");
    assert_null(tt_loader_new(d, 0, NULL, .batch_sampler = plain));
    expect_error(TT_ERR_INVALID, "expected a batch sampler, got a sequential sampler");
    assert_null(tt_batch_sampler(own, 3));
    expect_error(TT_ERR_INVALID, "expected a sampler of examples");
    assert_null(tt_batch_sampler(plain, 0));
    expect_error(TT_ERR_INVALID, "batch_size: expected at least 1, got 0");
    assert_null(tt_batch_sampler_from(EXAMPLES, 2, 0, fill_plan));
    expect_error(TT_ERR_INVALID, "largest: expected at least 1, got 0");
    tt_clear_error();
    assert_null(tt_batch_sampler(NULL, 3));
    expect_error(TT_ERR_INVALID, "the sampler is NULL");
    tt_sampler_free(own);
    tt_sampler_free(cut);
    tt_sampler_free(plain);
    tt_dataset_free(d);
}

/* ---- states, memory ---- */

static void a_state_of_other_batches_is_an_error(void **state) {
    (void)state;
    plan p = {.sizes = {4, 3, 2, 1}};
    tt_batch b;
    tt_dataset *d = numbered(EXAMPLES);
    tt_sampler *own = tt_batch_sampler_from(EXAMPLES, BATCHES, LARGEST, fill_plan, .user = &p);
    tt_loader *loader = tt_loader_new(d, 0, NULL, .batch_sampler = own), *plain = tt_loader_new(d, 4, tt_shuffled());
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_int_equal(tt_loader_next(plain, &b), 1);
    tt_clear_error();
    assert_int_equal(tt_loader_load_state_dict(loader, tt_loader_state_dict(plain)), TT_ERR_NOT_FOUND);
    expect_error(TT_ERR_NOT_FOUND, "batch_sizes");
    const tt_named_tensors *saved = tt_loader_state_dict(loader);
    tt_tensor *position = NULL, *sizes = NULL;
    for (int64_t i = 0; i < saved->count; i++) {
        position = !strcmp(saved->names[i], "position") ? saved->tensors[i] : position;
        sizes = !strcmp(saved->names[i], "batch_sizes") ? saved->tensors[i] : sizes;
    }
    assert_non_null(position);
    assert_non_null(sizes);
    tt_tensor_i64(position)[0] = 5;
    assert_int_equal(tt_loader_load_state_dict(loader, saved), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "one at which a batch begins, got 5");
    tt_tensor_i64(sizes)[1] = INT64_MAX;
    assert_int_equal(tt_loader_load_state_dict(loader, saved), TT_ERR_INVALID);
    tt_sampler_free(own);
    tt_loader_free(loader);
    tt_loader_free(plain);
    tt_dataset_free(d);
}

static tt_status make_and_resume(void *user) {
    plan p = {.sizes = {4, 3, 2, 1}};
    tt_batch b;
    tt_dataset *d = user;
    tt_sampler *own = tt_batch_sampler_from(EXAMPLES, BATCHES, LARGEST, fill_plan, .user = &p);
    tt_loader *loader = own ? tt_loader_new(d, 0, NULL, .batch_sampler = own) : NULL;
    tt_sampler *cut = loader ? tt_batch_sampler(tt_in_order(), 2) : NULL;
    bool ok = cut && tt_loader_next(loader, &b) == 1;
    const tt_named_tensors *saved = ok ? tt_loader_state_dict(loader) : NULL;
    tt_status status = saved ? tt_loader_load_state_dict(loader, saved) : tt_last_status();
    tt_sampler_free(cut);
    tt_sampler_free(own);
    tt_loader_free(loader);
    return status;
}

static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    tt_dataset *d = numbered(EXAMPLES);
    assert_true(alloc_fail_each(make_and_resume, d, ALLOC_ENDS) > 10);
    tt_dataset_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_cut_order_gives_the_loaders_own_batches),
        cmocka_unit_test(batches_of_ones_own_have_their_sizes),
        cmocka_unit_test(a_class_is_destroyed_with_its_sampler),
        cmocka_unit_test(bad_batches_are_errors),
        cmocka_unit_test(what_a_batch_sampler_replaces_is_an_error),
        cmocka_unit_test(a_state_of_other_batches_is_an_error),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
