/* Loaders of virtual ranks: each gets the batches that a rank of that number would get, whoever reads them, also after
 * the state of one number of ranks was loaded on another. */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include <cmocka.h>

enum { SIZE = 103, BATCH = 4, SHARDS = 6, SEED = 5, EPOCH = 2 };

typedef struct Kind {
    bool drop_last, exact, drop_batches;
    int workers;
} Kind;

typedef struct Reader {
    tt_sampler *sampler;
    tt_loader *loader;
} Reader;

static tt_dataset *make_set(void) { return tt_tensor_dataset(tt_zeros(TT_SHAPE(SIZE), TT_F32), tt_arange(SIZE)); }

static Reader reader_new(tt_dataset *set, int world, int rank, int shards, const Kind *kind) {
    Reader r = {.sampler = tt_distributed_sampler(SIZE, world, rank, .seed = SEED, .drop_last = kind->drop_last,
                                                  .exact = kind->exact, .virtual_ranks = shards)};
    assert_non_null(r.sampler);
    tt_sampler_set_epoch(r.sampler, EPOCH);
    r.loader = tt_loader_new(set, BATCH, r.sampler, .drop_last = kind->drop_batches, .workers = kind->workers);
    assert_non_null(r.loader);
    return r;
}

static void reader_free(Reader *r) {
    tt_loader_free(r->loader);
    tt_sampler_free(r->sampler);
}

/* The next batch is what a rank reads, or the end of what it reads. */
static void expect_batch(Reader *expected, Reader *got) {
    tt_batch a, b;
    int more = tt_loader_next(expected->loader, &a);
    assert_int_equal(tt_loader_next(got->loader, &b), more);
    if (more != 1)
        return;
    assert_int_equal(a.size, b.size);
    assert_memory_equal(tt_tensor_i64(a.y), tt_tensor_i64(b.y), (size_t)a.size * sizeof(int64_t));
}

static int first_of(int world, int rank) { return SHARDS * rank / world; }

/* Let the reader read all that is left for shards `first` to `end`, of which `expected` reads one each. */
static void expect_rest(Reader *expected, Reader *got, int first, int end) {
    int64_t batches = 0, left = tt_loader_batches_left(got->loader);
    for (bool more = true; more;) {
        more = false;
        for (int s = first; s < end; s++) {
            if (!tt_loader_batches_left(expected[s].loader))
                continue;
            expect_batch(&expected[s], got);
            more = ++batches;
            assert_int_equal(tt_loader_batches_left(got->loader), left - batches);
        }
    }
    assert_int_equal(batches, left);
    tt_batch none;
    assert_int_equal(tt_loader_next(got->loader, &none), 0);
}

static const Kind kinds[] = {{.workers = 0},  {.workers = 2},         {.drop_last = true},
                             {.exact = true}, {.drop_batches = true}, {.exact = true, .drop_batches = true}};
enum { KINDS = sizeof kinds / sizeof *kinds };

static void shards_get_what_ranks_get(void **state) {
    (void)state;
    tt_dataset *set = make_set();
    for (int k = 0; k < KINDS; k++)
        for (int world = 1; world <= SHARDS; world++)
            for (int rank = 0; rank < world; rank++) {
                Reader expected[SHARDS], got = reader_new(set, world, rank, SHARDS, &kinds[k]);
                int64_t batches = 0;
                for (int s = 0; s < SHARDS; s++) {
                    expected[s] = reader_new(set, SHARDS, s, 0, &kinds[k]);
                    if (s >= first_of(world, rank) && s < first_of(world, rank + 1))
                        batches += tt_loader_batches(expected[s].loader);
                }
                assert_int_equal(tt_loader_batches(got.loader), batches);
                expect_rest(expected, &got, first_of(world, rank), first_of(world, rank + 1));
                for (int s = 0; s < SHARDS; s++)
                    reader_free(&expected[s]);
                reader_free(&got);
            }
    tt_dataset_free(set);
}

/* Read `steps` rounds and `more` batches on the last rank of `from` ranks, and go on as all of `to` ranks. */
static void go_on(tt_dataset *set, const Kind *kind, int from, int to, int steps, int more) {
    Reader before = reader_new(set, from, from - 1, SHARDS, kind), expected[SHARDS];
    int shards = SHARDS - first_of(from, from - 1);
    tt_batch b;
    for (int i = 0; i < steps * shards + (more < shards ? more : 0); i++)
        assert_int_equal(tt_loader_next(before.loader, &b), 1);
    for (int s = 0; s < SHARDS; s++) {
        expected[s] = reader_new(set, SHARDS, s, 0, kind);
        for (int i = 0; i < steps; i++)
            assert_int_equal(tt_loader_next(expected[s].loader, &b), 1);
    }
    const tt_named_tensors *dict = tt_loader_state_dict(before.loader);
    assert_non_null(dict);
    for (int rank = 0; rank < to; rank++) {
        Reader after = reader_new(set, to, rank, SHARDS, kind);
        assert_int_equal(tt_loader_load_state_dict(after.loader, dict), TT_OK);
        expect_rest(expected, &after, first_of(to, rank), first_of(to, rank + 1));
        reader_free(&after);
    }
    for (int s = 0; s < SHARDS; s++)
        reader_free(&expected[s]);
    reader_free(&before);
}

static void a_state_goes_on_on_any_number_of_ranks(void **state) {
    (void)state;
    tt_dataset *set = make_set();
    for (int k = 0; k < 3; k++)
        for (int from = 1; from <= SHARDS; from += 2)
            for (int to = 1; to <= SHARDS; to++)
                for (int steps = 1; steps <= 4; steps++)
                    go_on(set, &kinds[k], from, to, steps, to % 2); /* a step that was begun is made again */
    tt_dataset_free(set);
}

static void what_does_not_fit_is_refused(void **state) {
    (void)state;
    assert_null(tt_distributed_sampler(SIZE, 3, 0, .virtual_ranks = 2));
    assert_non_null(strstr(tt_last_error(), "expected at least as many .virtual_ranks as ranks (3), got 2"));
    assert_null(tt_distributed_sampler(SIZE, 3, 0, .virtual_ranks = -1));
    tt_sampler *s = tt_distributed_sampler(SIZE, 3, 0, .virtual_ranks = 4);
    assert_null(tt_batch_sampler(s, 4));
    assert_non_null(strstr(tt_last_error(), "expected a sampler without .virtual_ranks"));
    tt_sampler_free(s);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shards_get_what_ranks_get),
        cmocka_unit_test(a_state_goes_on_on_any_number_of_ranks),
        cmocka_unit_test(what_does_not_fit_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
