/* Random orders (torch's: tests/vectors/torch-rng.json), in order, by callback, by class. */
#include "unit/data/data_cases.h"
#include "unit/vectors.h"

#include "tensor/random/generator.h"

#include <inttypes.h>
#include <tutti/datasets.h>
#include <tutti/nn.h>

/* The epoch after the one before, as a loader sees it. */
static void next_epoch(tt_sampler *s, int64_t dataset_size, int64_t *order) {
    tt_dataset *d = numbered(dataset_size);
    tt_loader *loader = tt_loader_new(d, tt_sampler_size(s), s);
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_int_equal(b.size, tt_sampler_size(s));
    memcpy(order, b.indices, (size_t)b.size * sizeof *order);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* ---- random ---- */

static void check_shuffle(const json_t *v) {
    enum { N = 23 };
    const json_t *want = json_object_get(v, "first");
    tt_sampler *s = tt_random_sampler(N);
    int64_t order[N];
    tt_manual_seed((uint64_t)json_integer_value(json_object_get(v, "seed")));
    for (size_t epoch = 0; epoch < 2; epoch++) {
        next_epoch(s, N, order);
        for (size_t i = 0; i < N; i++)
            assert_int_equal(order[i], json_integer_value(json_array_get(want, epoch * N + i)));
    }
    tt_sampler_free(s);
}

static void shuffled_epochs_are_torchs(void **state) {
    (void)state;
    json_t *file = vectors_load("torch-rng.json"), *cases = json_object_get(file, "cases");
    int found = 0;
    for (size_t i = 0; i < json_array_size(cases); i++) {
        const json_t *v = json_array_get(cases, i);
        if (strcmp(json_string_value(json_object_get(v, "name")),
                   "DataLoader(23 items, shuffle=True) order, epochs 0 and 1"))
            continue;
        check_shuffle(v);
        found++;
    }
    assert_int_equal(found, 3);
    json_decref(file);
}

/* From one's own generator: the base seed, an epoch's permutations, one that is thrown away. */
static void a_generator_of_one_s_own_is_drawn_from(void **state) {
    (void)state;
    enum { N = 7 };
    tt_generator *mine = tt_generator_new(5), *same = tt_generator_new(5);
    tt_sampler *s = tt_random_sampler(N, .generator = mine, .num_samples = 2 * N);
    int64_t order[2 * N], want[2 * N], thrown[N];
    for (int epoch = 0; epoch < 3; epoch++) {
        next_epoch(s, N, order);
        tt_generator_random64(same);
        tt_randperm(want, N, same);
        tt_randperm(want + N, N, same);
        tt_randperm(thrown, N, same);
        assert_memory_equal(order, want, sizeof want);
    }
    assert_int_equal(tt_generator_random64(mine), tt_generator_random64(same));
    tt_sampler_free(s);
    tt_generator_free(same);
    tt_generator_free(mine);
}

static void an_epoch_can_be_shorter_or_longer(void **state) {
    (void)state;
    enum { N = 10, MANY = 25 };
    int64_t order[MANY];
    int seen[N] = {0};
    tt_sampler *s = tt_random_sampler(N, .num_samples = MANY);
    next_epoch(s, N, order);
    for (int i = 0; i < MANY; i++)
        seen[order[i]]++;
    for (int i = 0; i < N; i++)
        assert_true(seen[i] == 2 || seen[i] == 3); /* two permutations and half of one */
    tt_sampler_free(s);
    s = tt_random_sampler(N, .num_samples = 3);
    assert_int_equal(tt_sampler_size(s), 3);
    next_epoch(s, N, order);
    assert_true(order[0] != order[1] && order[1] != order[2] && order[0] != order[2]);
    tt_sampler_free(s);
}

static void with_replacement_each_is_drawn_by_itself(void **state) {
    (void)state;
    enum { N = 5, MANY = 70 };
    int64_t order[MANY], want[MANY];
    tt_generator fresh;
    tt_sampler *s = tt_random_sampler(N, .replacement = true, .num_samples = MANY);
    tt_manual_seed(11);
    next_epoch(s, N, order);
    tt_manual_seed(11);
    tt_generator_random64(tt_default_generator());
    tt__generator_init(&fresh, tt_generator_random64(tt_default_generator()));
    for (int i = 0; i < MANY; i++)
        want[i] = tt_generator_random(&fresh) % N;
    assert_memory_equal(order, want, sizeof want);
    tt_sampler_free(s);
}

static void a_subset_is_permuted(void **state) {
    (void)state;
    enum { N = 20, CHOSEN = 6 };
    int64_t chosen[CHOSEN] = {3, 19, 0, 7, 7, 12}, order[CHOSEN], permutation[CHOSEN], before[CHOSEN];
    memcpy(before, chosen, sizeof before);
    tt_sampler *s = tt_subset_random_sampler(N, chosen, CHOSEN);
    memset(chosen, 0, sizeof chosen); /* they were copied */
    tt_manual_seed(2);
    next_epoch(s, N, order);
    tt_manual_seed(2);
    tt_generator_random64(tt_default_generator());
    tt_randperm(permutation, CHOSEN, NULL);
    for (int i = 0; i < CHOSEN; i++)
        assert_int_equal(order[i], before[permutation[i]]);
    tt_sampler_free(s);
    s = tt_subset_random_sampler(N, NULL, 0);
    assert_int_equal(tt_sampler_size(s), 0);
    tt_sampler_free(s);
}

/* Looking at an order does not draw another one. */
static void what_is_looked_at_is_what_comes(void **state) {
    (void)state;
    enum { N = 12 };
    int64_t first[N], second[N];
    tt_sampler *s = tt_random_sampler(N);
    const int64_t *seen = tt_sampler_indices(s);
    memcpy(first, seen, sizeof first);
    assert_memory_equal(tt_sampler_indices(s), first, sizeof first);
    next_epoch(s, N, second);
    assert_memory_equal(second, first, sizeof first);
    assert_memory_equal(tt_sampler_indices(s), first, sizeof first); /* the epoch that began last */
    next_epoch(s, N, second);
    assert_memory_not_equal(second, first, sizeof first);
    tt_sampler_free(s);
}

/* ---- in order ---- */

static void in_order_is_in_order(void **state) {
    (void)state;
    tt_sampler *s = tt_sequential_sampler(4), *none = tt_sequential_sampler(0);
    assert_memory_equal(tt_sampler_indices(s), ((int64_t[]){0, 1, 2, 3}), 4 * sizeof(int64_t));
    assert_int_equal(tt_sampler_size(none), 0);
    assert_null(tt_sequential_sampler(-1));
    assert_string_equal(tt_last_error(), "tt_sequential_sampler: a sequential sampler: dataset_size: expected at "
                                         "least 0, got -1");
    tt_sampler_free(none);
    tt_sampler_free(s);
    tt_sampler_set_epoch(tt_in_order(), 3);
    assert_int_equal(tt_sampler_size(tt_shuffled()), 0);
    assert_null(tt_sampler_indices(tt_in_order()));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    tt_sampler_free(tt_in_order());
}

/* ---- of one's own ---- */

typedef struct evens {
    int64_t size, bad_position;
    int drawn, destroyed;
    tt_status status;
} evens;

static int64_t evens_size(void *user) { return ((evens *)user)->size; }

/* Every second example, beginning with number `epoch`. */
static tt_status evens_order(void *user, int64_t epoch, int64_t *indices, int64_t n) {
    evens *e = user;
    e->drawn++;
    for (int64_t i = 0; i < n; i++)
        indices[i] = i == e->bad_position ? 77 : 2 * i + epoch;
    return e->status ? tt_fail(e->status, "no order today") : TT_OK;
}

static void evens_destroy(void *user) { ((evens *)user)->destroyed++; }

static const tt_sampler_class evens_class = {
    .name = "evens", .size = evens_size, .order = evens_order, .destroy = evens_destroy};

static void a_callback_says_which(void **state) {
    (void)state;
    evens e = {.bad_position = -1};
    int64_t order[3];
    tt_sampler *s = tt_sampler_from(7, 3, evens_order, .user = &e);
    next_epoch(s, 7, order);
    assert_memory_equal(order, ((int64_t[]){0, 2, 4}), sizeof order);
    next_epoch(s, 7, order);
    assert_int_equal(e.drawn, 2); /* once an epoch */
    tt_sampler_set_epoch(s, 1);
    next_epoch(s, 7, order);
    assert_memory_equal(order, ((int64_t[]){1, 3, 5}), sizeof order);
    assert_int_equal(e.drawn, 3);
    tt_sampler_free(s);
}

static void a_class_has_functions(void **state) {
    (void)state;
    evens e = {.size = 4, .bad_position = -1};
    int64_t order[4];
    tt_sampler *s = tt_sampler_new(&evens_class, &e, 7);
    assert_int_equal(tt_sampler_size(s), 4);
    assert_int_equal(tt_sampler_seed(s), 0);
    next_epoch(s, 7, order);
    assert_memory_equal(order, ((int64_t[]){0, 2, 4, 6}), sizeof order);
    tt_sampler_free(s);
    assert_int_equal(e.destroyed, 1);
    tt_sampler_new_args args = {
        .cls = &evens_class, .cls_size = offsetof(tt_sampler_class, destroy), .user = &e, .dataset_size = 7};
    tt_sampler_free(tt_sampler_new_with(&args, sizeof args));
    assert_int_equal(e.destroyed, 1); /* an older class has no such function */
}

static void orders_that_cannot_be_are_errors(void **state) {
    (void)state;
    evens e = {.size = 3, .bad_position = 1};
    tt_dataset *d = numbered(7);
    tt_sampler *s = tt_sampler_new(&evens_class, &e, 7);
    tt_loader *loader = tt_loader_new(d, 2, s);
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), -1);
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_string_equal(tt_last_error(), "evens: epoch 0: expected indices from 0 to 6, got 77 in position 1");
    assert_null(tt_sampler_indices(s));
    e.bad_position = -1;
    e.status = TT_ERR_NET;
    assert_int_equal(tt_loader_next(loader, &b), -1);
    assert_int_equal(tt_last_status(),
                     TT_ERR_INVALID); /* the same error as before, until the loader is told to restart */
    tt_loader_restart(loader);
    tt_sampler_set_epoch(s, 1);
    assert_int_equal(tt_loader_next(loader, &b), -1);
    assert_int_equal(tt_last_status(), TT_ERR_NET);
    assert_string_equal(tt_last_error(), "evens: epoch 1: no order today");
    e.status = TT_OK;
    tt_loader_restart(loader);
    assert_int_equal(tt_loader_next(loader, &b), 1);
    assert_batch(&b, (int64_t[]){1, 3}, 2);
    tt_loader_free(loader);
    tt_sampler_free(s);
    tt_dataset_free(d);
}

static void bad_arguments_are_named(void **state) {
    (void)state;
    evens e = {.size = -4, .bad_position = -1};
    tt_sampler_class without = evens_class;
    without.order = NULL;
    assert_null(tt_sampler_new(&evens_class, &e, 7));
    assert_string_equal(tt_last_error(), "tt_sampler_new: evens: size: expected at least 0 examples an epoch, got -4");
    assert_null(tt_sampler_new(&without, &e, 7));
    assert_string_equal(tt_last_error(), "tt_sampler_new: evens: the class has no order function");
    assert_null(tt_sampler_new(&evens_class, &e, -1));
    assert_int_equal(e.destroyed, 3);
    assert_null(tt_sampler_new_with(NULL, 0));
    assert_null(tt_sampler_from(7, 3, NULL));
    assert_string_equal(tt_last_error(), "tt_sampler_from: a sampler: order is NULL");
    assert_null(tt_sampler_from(7, -3, evens_order));
    assert_null(tt_sampler_from_with(NULL, 0));
    assert_null(tt_random_sampler(0));
    assert_non_null(strstr(tt_last_error(), "tt_random_sampler: dataset_size: expected at least 1, got 0"));
    assert_null(tt_random_sampler(INT64_MAX));
    assert_string_equal(tt_last_error(), "tt_random_sampler: dataset_size: expected at most 576460752303423487, got "
                                         "9223372036854775807");
    assert_null(tt_sequential_sampler(INT64_MAX));
    assert_non_null(strstr(tt_last_error(), "expected at most 576460752303423487 examples an epoch, got 92233720"));
    assert_null(tt_random_sampler(5, .num_samples = -1));
    assert_string_equal(tt_last_error(), "tt_random_sampler: num_samples: expected at least 1, got -1");
    assert_null(tt_random_sampler_with(NULL, 0));
    assert_null(tt_subset_random_sampler(5, ((int64_t[]){4, 5}), 2));
    assert_string_equal(tt_last_error(), "tt_subset_random_sampler: expected indices from 0 to 4, got 5 in position 1");
    assert_null(tt_subset_random_sampler(5, NULL, 2));
    assert_null(tt_subset_random_sampler(5, ((int64_t[]){0}), -1));
    assert_null(tt_subset_random_sampler_with(NULL, 0));
}

/* Programs make everything, and look at the end: the first cause is what they must read then. */
static void errors_of_no_data_set_say_why_there_is_none(void **state) {
    (void)state;
    tt_dataset *pictures = tt_image_folder("/no/such/folder", 8, 8);
    int64_t classes = 7;
    assert_null(pictures);
    assert_null(tt_dataset_classes(pictures, &classes));
    assert_null(tt_random_sampler(tt_dataset_size(pictures)));
    assert_non_null(strstr(tt_last_error(), "tt_random_sampler: dataset_size: expected at least 1, got 0"));
    assert_non_null(strstr(tt_last_error(), "/no/such/folder"));
    assert_null(tt_nn_linear(32, classes));
    assert_non_null(strstr(tt_last_error(), "tt_nn_linear: expected sizes of at least 1, got in_features 32"));
    assert_non_null(strstr(tt_last_error(), "/no/such/folder"));
    assert_null(strstr(tt_last_error(), "tt_random_sampler")); /* the first cause alone, however many calls follow */
    tt_clear_error();
    assert_null(tt_nn_linear(32, 0));
    assert_null(strstr(tt_last_error(), "before"));
    tt_clear_error();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_of_no_data_set_say_why_there_is_none),
        cmocka_unit_test(shuffled_epochs_are_torchs),
        cmocka_unit_test(a_generator_of_one_s_own_is_drawn_from),
        cmocka_unit_test(an_epoch_can_be_shorter_or_longer),
        cmocka_unit_test(with_replacement_each_is_drawn_by_itself),
        cmocka_unit_test(a_subset_is_permuted),
        cmocka_unit_test(what_is_looked_at_is_what_comes),
        cmocka_unit_test(in_order_is_in_order),
        cmocka_unit_test(a_callback_says_which),
        cmocka_unit_test(a_class_has_functions),
        cmocka_unit_test(orders_that_cannot_be_are_errors),
        cmocka_unit_test(bad_arguments_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
