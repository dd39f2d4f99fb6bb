/* tt_distributed_sampler: torch's indices (tests/vectors/torch-rng.json), and what they must be for any arguments. */
#include <tutti/data.h>

#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <jansson.h>

static int64_t number(json_t *object, const char *key) { return json_integer_value(json_object_get(object, key)); }

static void check_rank(json_t *v, int world, int rank, json_t *want) {
    tt_sampler *s = tt_distributed_sampler(
        number(v, "n"), world, rank, .no_shuffle = json_is_false(json_object_get(v, "shuffle")),
        .seed = (uint64_t)number(v, "seed"), .drop_last = json_is_true(json_object_get(v, "drop_last")));
    assert_non_null(s);
    assert_int_equal(tt_sampler_seed(s), number(v, "seed"));
    tt_sampler_set_epoch(s, number(v, "epoch"));
    assert_int_equal(tt_sampler_size(s), json_array_size(want));
    for (size_t i = 0; i < json_array_size(want); i++)
        assert_int_equal(tt_sampler_indices(s)[i], json_integer_value(json_array_get(want, i)));
    tt_sampler_free(s);
}

static void indices_are_torchs(void **state) {
    (void)state;
    char path[4096];
    const char *source = getenv("TT_SOURCE");
    snprintf(path, sizeof path, "%s/tests/vectors/torch-rng.json", source ? source : ".");
    json_t *file = json_load_file(path, 0, NULL), *vectors = json_object_get(file, "distributed_sampler");
    assert_int_equal(json_array_size(vectors), 5);
    for (size_t i = 0; i < json_array_size(vectors); i++) {
        json_t *v = json_array_get(vectors, i), *per_rank = json_object_get(v, "per_rank");
        assert_int_equal(json_array_size(per_rank), number(v, "world"));
        for (size_t rank = 0; rank < json_array_size(per_rank); rank++)
            check_rank(v, (int)number(v, "world"), (int)rank, json_array_get(per_rank, rank));
    }
    json_decref(file);
}

/* The definition, written down as torch does: the whole order, repeated or cut, then every world-th of it. */
static void check_against_definition(int64_t n, int world, int rank, bool shuffle, bool drop_last) {
    int64_t *order = malloc((size_t)n * sizeof *order);
    tt_generator *g = tt_generator_new(40 + 2);
    for (int64_t i = 0; i < n; i++)
        order[i] = i;
    if (shuffle)
        tt_randperm(order, n, g);
    tt_sampler *s = tt_distributed_sampler(n, world, rank, .no_shuffle = !shuffle, .seed = 40, .drop_last = drop_last);
    assert_int_equal(tt_sampler_size(s), drop_last ? n / world : (n + world - 1) / world);
    tt_sampler_set_epoch(s, 2);
    const int64_t *got = tt_sampler_indices(s);
    for (int64_t i = 0; i < tt_sampler_size(s); i++)
        assert_int_equal(got[i], order[(rank + i * world) % n]);
    tt_sampler_free(s);
    tt_generator_free(g);
    free(order);
}

static void ranks_share_any_data_set(void **state) {
    (void)state;
    for (int64_t n = 1; n <= 23; n++)
        for (int world = 1; world <= 9; world++)
            for (int rank = 0; rank < world; rank++)
                for (int flags = 0; flags < 4; flags++)
                    check_against_definition(n, world, rank, flags & 1, flags & 2);
}

static void epochs_differ_and_come_back(void **state) {
    (void)state;
    enum { N = 50 };
    int64_t first[N], second[N];
    tt_sampler *s = tt_distributed_sampler(N, 1, 0, .seed = 3);
    memcpy(first, tt_sampler_indices(s), sizeof first);
    memcpy(second, tt_sampler_indices(s), sizeof second);
    assert_memory_equal(first, second, sizeof first); /* without set_epoch every epoch is alike */
    tt_sampler_set_epoch(s, 1);
    memcpy(second, tt_sampler_indices(s), sizeof second);
    assert_memory_not_equal(first, second, sizeof first);
    tt_sampler_set_epoch(s, 0);
    assert_memory_equal(first, tt_sampler_indices(s), sizeof first);
    tt_sampler_free(s);
    s = tt_distributed_sampler(N, 1, 0, .seed = 4); /* seed + epoch is what counts */
    assert_memory_equal(second, tt_sampler_indices(s), sizeof second);
    tt_sampler_free(s);
}

static void bad_arguments_are_named(void **state) {
    (void)state;
    assert_null(tt_distributed_sampler(0, 1, 0));
    assert_int_equal(tt_last_status(), TT_ERR_INVALID);
    assert_non_null(strstr(tt_last_error(), "dataset_size"));
    assert_null(tt_distributed_sampler(-5, 1, 0));
    assert_null(tt_distributed_sampler(INT64_MAX, 1, 0));
    assert_null(tt_distributed_sampler(10, 0, 0));
    assert_non_null(strstr(tt_last_error(), "num_replicas"));
    assert_null(tt_distributed_sampler(10, 2, 2));
    assert_string_equal(tt_last_error(), "tt_distributed_sampler: rank: expected 0 to 1 (num_replicas is 2), got 2");
    assert_null(tt_distributed_sampler(10, 1, -1));
    assert_null(tt_distributed_sampler_with(NULL, 0));
}

/* A program built when the struct was shorter passes a smaller size: what it did not know is zero. */
static void older_callers_work(void **state) {
    (void)state;
    tt_distributed_sampler_args args = {.dataset_size = 10, .num_replicas = 3, .rank = 1, .drop_last = true};
    tt_sampler *s = tt_distributed_sampler_with(&args, offsetof(tt_distributed_sampler_args, drop_last));
    assert_int_equal(tt_sampler_size(s), 4);
    tt_sampler_free(s);
}

static void null_is_harmless(void **state) {
    (void)state;
    tt_sampler_set_epoch(NULL, 1);
    assert_int_equal(tt_sampler_size(NULL), 0);
    assert_null(tt_sampler_indices(NULL));
    assert_int_equal(tt_sampler_seed(NULL), 0);
    tt_sampler_free(NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(indices_are_torchs),          cmocka_unit_test(ranks_share_any_data_set),
        cmocka_unit_test(epochs_differ_and_come_back), cmocka_unit_test(bad_arguments_are_named),
        cmocka_unit_test(older_callers_work),          cmocka_unit_test(null_is_harmless),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
