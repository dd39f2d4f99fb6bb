/* What becomes of a batch: kept, recorded, reused; which order an epoch has; how a loader fails. */
#include "unit/data/data_cases.h"

#include <tutti/autograd.h>
#include <tutti/functional.h>

/* ---- holding on to batches ---- */

static void a_kept_batch_is_not_overwritten(void **state) {
    (void)state;
    tt_dataset *d = numbered(40);
    tt_loader *loader = tt_loader_new(d, 2, tt_in_order());
    tt_tensor *x[20], *y[20];
    tt_batch b;
    int n = 0;
    while (tt_loader_next(loader, &b) == 1) {
        TT_AUTO_SCOPE; /* which has nothing to do with it */
        x[n] = tt_keep(b.x);
        y[n++] = tt_keep(b.y);
    }
    tt_loader_free(loader); /* nor has the loader any more */
    for (int i = 0; i < n; i++) {
        tt_batch kept = {x[i], y[i], 2, (int64_t[]){2 * i, 2 * i + 1}};
        assert_batch(&kept, kept.indices, 2);
        tt_tensor_free(x[i]);
        tt_tensor_free(y[i]);
    }
    assert_int_equal(n, 20);
    tt_dataset_free(d);
}

static void a_view_keeps_the_elements(void **state) {
    (void)state;
    tt_dataset *d = numbered(6);
    tt_loader *loader = tt_loader_new(d, 2, tt_in_order());
    tt_batch b;
    TT_AUTO_SCOPE;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    tt_tensor *view = tt_narrow(b.y, 0, 1, 1);
    const void *first = tt_tensor_data(b.x);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_batch(&b, (int64_t[]){2, 3}, 2);
    assert_ptr_not_equal(tt_tensor_data(b.x), first);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_batch(&b, (int64_t[]){4, 5}, 2);
    assert_int_equal(tt_tensor_i64(view)[0], 10);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* Several graphs at once, the oldest walked first: each sees the batch that it was recorded with. */
static void recorded_operators_keep_their_batch(void **state) {
    (void)state;
    enum { GRAPHS = 6 }; /* more than the loader has buffers for */
    tt_dataset *d = numbered(2 * GRAPHS);
    tt_loader *loader = tt_loader_new(d, 2, tt_in_order());
    tt_tensor *w[GRAPHS], *loss[GRAPHS];
    tt_batch b;
    TT_AUTO_SCOPE;
    for (int i = 0; i < GRAPHS; i++) {
        assert_int_equal(tt_loader_next(loader, &b), 1);
        w[i] = tt_requires_grad_(tt_ones(TT_SHAPE(2, 2), TT_F32), true);
        loss[i] = tt_sum(tt_mul(w[i], b.x));
    }
    for (int i = 0; i < GRAPHS; i++) {
        assert_int_equal(tt_backward(loss[i]), TT_OK);
        for (int k = 0; k < 4; k++)
            assert_true(tt_tensor_f32(tt_grad(w[i]))[k] == (float)(4 * i + k));
    }
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static void memory_is_used_again_when_it_is_let_go(void **state) {
    (void)state;
    tt_dataset *d = numbered(40);
    tt_loader *loader = tt_loader_new(d, 2, tt_in_order());
    tt_tensor *kept = NULL;
    const void *seen[20];
    tt_batch b;
    int n = 0, different = 0;
    while (tt_loader_next(loader, &b) == 1) { /* always one batch is held */
        tt_tensor_free(kept);
        kept = tt_keep(b.x);
        seen[n++] = tt_tensor_data(b.x);
    }
    for (int i = 0; i < n; i++) {
        bool before = false;
        for (int k = 0; k < i; k++)
            before |= seen[k] == seen[i];
        different += !before;
    }
    assert_int_equal(different, 2);
    tt_tensor_free(kept);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* ---- order ---- */

static void an_epoch_keeps_the_order_it_began_with(void **state) {
    (void)state;
    tt_dataset *d = numbered(8);
    tt_sampler *s = tt_distributed_sampler(8, 1, 0);
    tt_loader *loader = tt_loader_new(d, 4, s);
    int64_t want[8];
    tt_batch b;
    memcpy(want, tt_sampler_indices(s), sizeof want);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_batch(&b, want, 4);
    tt_sampler_set_epoch(s, 1);
    assert_memory_not_equal(tt_sampler_indices(s), want, sizeof want);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_batch(&b, want + 4, 4);
    assert_int_equal(tt_loader_next(loader, &b), 0);
    memcpy(want, tt_sampler_indices(s), sizeof want);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_batch(&b, want, 4);
    tt_loader_free(loader);
    tt_sampler_free(s);
    tt_dataset_free(d);
}

static void shuffled_draws_as_a_random_sampler(void **state) {
    (void)state;
    tt_dataset *d = numbered(9), *nothing = tt_subset(d, 0, 0);
    tt_loader *loader = tt_loader_new(d, 9, tt_shuffled());
    tt_sampler *s = tt_random_sampler(9);
    int64_t want[3][9];
    tt_batch b;
    tt_manual_seed(3);
    for (int epoch = 0; epoch < 3; epoch++) {
        tt_sampler_set_epoch(s, epoch);
        memcpy(want[epoch], tt_sampler_indices(s), sizeof want[epoch]);
    }
    assert_memory_not_equal(want[0], want[1], sizeof want[0]);
    tt_manual_seed(3);
    for (int epoch = 0; epoch < 3; epoch++) {
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_batch(&b, want[epoch], 9);
        assert_int_equal(tt_loader_next(loader, &b), 0);
    }
    tt_loader_free(loader);
    loader = tt_loader_new(nothing, 9, tt_shuffled());
    assert_int_equal(tt_loader_next(loader, &b), 0);
    tt_loader_free(loader);
    tt_sampler_free(s);
    tt_dataset_free(nothing);
    tt_dataset_free(d);
}

/* ---- errors ---- */

/* Example 5 can't be read until somebody mends it. */
static tt_status get_but_five(void *user, int64_t index, void *x, void *y) {
    const bool *mended = user;
    if (index == 5 && !*mended)
        return tt_fail(TT_ERR_IO, "its file is gone");
    *(float *)x = (float)index;
    *(int64_t *)y = index;
    return TT_OK;
}

static void assert_no_batch(const tt_batch *b) {
    assert_null(b->x);
    assert_null(b->y);
    assert_null(b->indices);
    assert_int_equal(b->size, 0);
}

static void an_error_is_told_from_the_end_and_stays(void **state) {
    (void)state;
    static const char text[] = "faces: example 5: its file is gone";
    bool mended = false;
    tt_dataset *d = tt_dataset_from(8, get_but_five, tt_spec(TT_F32, TT_SHAPE(1)), .y = tt_spec(TT_I64, TT_SCALAR),
                                    .user = &mended, .name = "faces");
    tt_loader *loader = tt_loader_new(d, 3, tt_in_order());
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    for (int i = 0; i < 2; i++) {
        tt_clear_error();
        assert_int_equal(tt_loader_next(loader, &b), -1);
        assert_no_batch(&b);
        assert_int_equal(tt_last_status(), TT_ERR_IO);
        assert_string_equal(tt_last_error(), text);
        mended = true; /* which needs a restart to count */
    }
    tt_loader_restart(loader);
    int batches = 0;
    while (tt_loader_next(loader, &b) == 1)
        batches++;
    assert_int_equal(batches, 3);
    assert_no_batch(&b);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* The usual loop, which only looks for zero, ends in its first step after the error. */
static tt_status train(tt_loader *loader, int *steps) {
    tt_tensor *w = tt_keep(tt_requires_grad_(tt_ones(TT_SHAPE(1), TT_F32), true));
    tt_status status = TT_OK;
    tt_batch b;
    while (!status && tt_loader_next(loader, &b)) {
        TT_AUTO_SCOPE;
        ++*steps;
        status = tt_backward(tt_sum(tt_mul(b.x, w)));
    }
    tt_tensor_free(w);
    return status;
}

static void a_loop_that_looks_for_zero_fails_with_the_error(void **state) {
    (void)state;
    bool mended = false;
    tt_dataset *d = tt_dataset_from(8, get_but_five, tt_spec(TT_F32, TT_SHAPE(1)), .y = tt_spec(TT_I64, TT_SCALAR),
                                    .user = &mended);
    tt_loader *loader = tt_loader_new(d, 1, tt_in_order());
    for (int scoped = 0; scoped < 2; scoped++) {
        int steps = 0, scope = scoped ? tt_scope_begin() : 0;
        assert_int_equal(train(loader, &steps), TT_ERR_IO);
        assert_string_equal(tt_last_error(), "a data set: example 5: its file is gone");
        assert_int_equal(steps, 6);
        tt_loader_restart(loader);
        tt_scope_end(scope);
    }
    tt_loader_free(loader);
    tt_dataset_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_kept_batch_is_not_overwritten),
        cmocka_unit_test(a_view_keeps_the_elements),
        cmocka_unit_test(recorded_operators_keep_their_batch),
        cmocka_unit_test(memory_is_used_again_when_it_is_let_go),
        cmocka_unit_test(an_epoch_keeps_the_order_it_began_with),
        cmocka_unit_test(shuffled_draws_as_a_random_sampler),
        cmocka_unit_test(an_error_is_told_from_the_end_and_stays),
        cmocka_unit_test(a_loop_that_looks_for_zero_fails_with_the_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
