/* Loaders with workers: the batches of a loader without them, to the bit, whatever happens in between. */
#include "base/build.h"
#include "base/hash.h"
#include "data/loader/crew.h"
#include "unit/alloc_fail.h"
#include "unit/data/data_cases.h"
#include "unit/expect.h"

#include <tutti/functional.h>

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- the same batches ---- */

static uint64_t mix_batch(uint64_t hash, const tt_batch *b) {
    hash = tt__fnv_bytes(hash, b->indices, (size_t)b->size * sizeof *b->indices);
    hash =
        tt__fnv_bytes(hash, tt_tensor_data(b->x), (size_t)tt_tensor_numel(b->x) * tt_dtype_size(tt_tensor_dtype(b->x)));
    return tt__fnv_bytes(hash, tt_tensor_data(b->y),
                         (size_t)tt_tensor_numel(b->y) * tt_dtype_size(tt_tensor_dtype(b->y)));
}

/* Three epochs; the second is left early. */
static uint64_t hash_of_epochs(tt_dataset *d, int64_t batch, uint64_t seed, int workers, int prefetch) {
    tt_manual_seed(seed);
    tt_loader *loader = tt_loader_new(d, batch, tt_shuffled(), .workers = workers, .prefetch = prefetch);
    assert_non_null(loader);
    uint64_t hash = TT__FNV;
    tt_batch b;
    for (int epoch = 0; epoch < 3; epoch++) {
        for (int i = 0; (epoch != 1 || i < 3) && tt_loader_next(loader, &b) == 1; i++)
            hash = mix_batch(hash, &b);
        tt_loader_restart(loader);
    }
    tt_loader_free(loader);
    return hash;
}

static void any_number_of_workers_gives_the_same_batches(void **state) {
    (void)state;
    tt_dataset *digits = tt_digits(203, 1), *numbers = numbered(203);
    assert_int_equal(tt_dataset_normalize(digits, 0.1307, 0.3081), TT_OK);
    for (uint64_t seed = 0; seed < 12; seed++) {
        int64_t batch = 1 + (int64_t)(seed * 7 % 40);
        for (int kind = 0; kind < 2; kind++) {
            tt_dataset *d = kind ? digits : numbers;
            uint64_t want = hash_of_epochs(d, batch, seed, 0, 0);
            for (int workers = 1; workers <= 5; workers += 2)
                for (int prefetch = 0; prefetch <= 3; prefetch++)
                    assert_int_equal(hash_of_epochs(d, batch, seed, workers, prefetch), want);
        }
    }
    tt_dataset_free(digits);
    tt_dataset_free(numbers);
}

static void batches_that_are_kept_stay(void **state) {
    (void)state;
    enum { N = 60 };
    tt_dataset *d = numbered(N);
    tt_loader *loader = tt_loader_new(d, 3, tt_in_order(), .workers = 3, .prefetch = 1);
    tt_tensor *kept[N / 3];
    tt_batch b;
    for (int i = 0; i < N / 3; i++) {
        assert_int_equal(tt_loader_next(loader, &b), 1);
        kept[i] = tt_keep(b.x);
    }
    assert_int_equal(tt_loader_next(loader, &b), 0);
    assert_int_equal(tt_loader_next(loader, &b), 1); /* others are being filled */
    for (int i = 0; i < N / 3; i++) {
        for (int k = 0; k < 6; k++)
            assert_true(tt_tensor_f32(kept[i])[k] == (float)(6 * i + k));
        tt_tensor_free(kept[i]);
    }
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* ---- a data set that watches its callers ---- */

typedef struct watched {
    atomic_int inside, most, calls;
    pthread_t caller;
    int64_t fails_at; /* -1: nowhere */
    atomic_bool saw_signals_open, saw_caller;
} watched;

static tt_status get_watched(void *user, int64_t index, void *x, void *y) {
    watched *w = user;
    int inside = atomic_fetch_add(&w->inside, 1) + 1;
    for (int most = atomic_load(&w->most); inside > most;)
        if (atomic_compare_exchange_weak(&w->most, &most, inside))
            break;
    sigset_t blocked;
    pthread_sigmask(SIG_SETMASK, NULL, &blocked);
    if (!sigismember(&blocked, SIGINT) || !sigismember(&blocked, SIGTERM))
        w->saw_signals_open = true;
    if (pthread_equal(pthread_self(), w->caller))
        w->saw_caller = true;
    atomic_fetch_add(&w->calls, 1);
    for (int i = 0; i < 20; i++)
        sched_yield();
    *(int64_t *)x = *(int64_t *)y = index;
    atomic_fetch_sub(&w->inside, 1);
    return index == w->fails_at ? tt_fail(TT_ERR_IO, "the disk is gone") : TT_OK;
}

static tt_dataset *watch(watched *w, int64_t n, bool serial) {
    const tt_tensor_spec one = tt_spec(TT_I64, TT_SCALAR);
    *w = (watched){.fails_at = -1, .caller = pthread_self()};
    return tt_dataset_from(n, get_watched, one, .y = one, .user = w, .name = "watched", .serial = serial);
}

static void a_serial_data_set_is_read_by_one_at_a_time(void **state) {
    (void)state;
    watched w;
    tt_dataset *d = watch(&w, 200, true), *part = tt_subset(d, 0, 100);
    tt_dataset *both = tt_concat_dataset((tt_dataset *[]){part, d}, 2);
    tt_loader *loader = tt_loader_new(both, 2, tt_in_order(), .workers = 4);
    tt_batch b;
    int64_t next = 0;
    while (tt_loader_next(loader, &b) == 1)
        for (int64_t i = 0; i < b.size; i++, next++)
            assert_int_equal(tt_tensor_i64(b.x)[i], next < 100 ? next : next - 100);
    assert_int_equal(next, 300);
    assert_int_equal(w.most, 1);
    assert_int_equal(w.calls, 300);
    tt_loader_free(loader);
    tt_dataset_free(both);
    tt_dataset_free(part);
    tt_dataset_free(d);
}

static void workers_take_no_signals(void **state) {
    (void)state;
    watched w;
    tt_dataset *d = watch(&w, 20, true);
    tt_loader *loader = tt_loader_new(d, 2, tt_in_order(), .workers = 2);
    tt_batch b;
    while (tt_loader_next(loader, &b) == 1)
        continue;
    assert_false(w.saw_caller);
    assert_false(w.saw_signals_open);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

static void an_error_comes_with_its_batch(void **state) {
    (void)state;
    watched w;
    tt_dataset *d = watch(&w, 50, false);
    w.fails_at = 23;
    for (int workers = 0; workers <= 4; workers++) {
        tt_loader *loader = tt_loader_new(d, 5, tt_in_order(), .workers = workers);
        tt_batch b;
        for (int again = 0; again < 2; again++) {
            for (int i = 0; i < 4; i++)
                assert_int_equal(tt_loader_next(loader, &b), 1);
            for (int i = 0; i < 3; i++) {
                assert_int_equal(tt_loader_next(loader, &b), -1);
                assert_null(b.x);
                expect_error(TT_ERR_IO, "watched: example 23: the disk is gone");
            }
            tt_loader_restart(loader);
        }
        tt_loader_free(loader);
    }
    tt_dataset_free(d);
}

static void a_loader_can_be_freed_at_any_moment(void **state) {
    (void)state;
    watched w;
    tt_dataset *d = watch(&w, 40, false);
    for (int steps = 0; steps < 12; steps++) {
        tt_loader *loader = tt_loader_new(d, 4, tt_shuffled(), .workers = 1 + steps % 4, .prefetch = 1 + steps % 3);
        tt_batch b;
        for (int i = 0; i < steps; i++)
            assert_true(tt_loader_next(loader, &b) >= 0);
        tt_loader_free(loader);
    }
    assert_int_equal(w.inside, 0);
    tt_dataset_free(d);
}

/* In a forked child. The thread sanitizer allows none to start threads there. */
static bool own_workers_go(tt_dataset *d) {
    if (TT__TSAN)
        return d != NULL;
    tt_batch b;
    tt_loader *own = tt_loader_new(d, 4, tt_in_order(), .workers = 2);
    bool goes = own && tt_loader_next(own, &b) == 1 && b.indices[3] == 3;
    tt_loader_free(own);
    return goes;
}

static void a_forked_child_is_told(void **state) {
    (void)state;
    tt_dataset *d = numbered(40);
    tt_loader *loader = tt_loader_new(d, 4, tt_in_order(), .workers = 2);
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 1);
    pid_t child = fork();
    if (!child) {
        bool told = tt_loader_next(loader, &b) == -1 && tt_last_status() == TT_ERR_STATE &&
                    strstr(tt_last_error(), "was forked");
        tt_loader_restart(loader);
        tt_loader_free(loader);
        bool goes = own_workers_go(d);
        _exit(told && goes ? 0 : 1);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(tt_loader_next(loader, &b), 1); /* the parent goes on */
    assert_batch(&b, (int64_t[]){4, 5, 6, 7}, 4);
    tt_loader_free(loader);
    tt_dataset_free(d);
}

/* ---- collate ---- */

/* Sequence i has i % 5 + 1 numbers, all of them i. A batch is as wide as its longest, filled up by -1. */
static tt_status collate_padded(void *user, const tt_examples *e, tt_tensor **x, tt_tensor **y) {
    int64_t width = 0;
    const int64_t *value = e->x;
    (void)user;
    for (int64_t i = 0; i < e->n; i++)
        width = value[i] % 5 + 1 > width ? value[i] % 5 + 1 : width;
    if (value[0] == 30)
        return tt_fail(TT_ERR_FORMAT, "no sequence %d", (int)value[0]);
    *x = tt_full(TT_SHAPE(e->n, width), TT_F32, -1);
    *y = tt_from_data(e->y, TT_SHAPE(e->n), TT_I64);
    for (int64_t i = 0; *x && i < e->n; i++)
        for (int64_t k = 0; k <= value[i] % 5; k++)
            tt_tensor_f32(*x)[i * width + k] = (float)value[i];
    return *x && *y ? TT_OK : tt_last_status();
}

static void collate_makes_batches_of_any_shape(void **state) {
    (void)state;
    watched w;
    tt_dataset *d = watch(&w, 30, false);
    for (int workers = 0; workers <= 3; workers++) {
        tt_loader *loader = tt_loader_new(d, 4, tt_in_order(), .workers = workers, .collate = collate_padded);
        tt_batch b;
        for (int epoch = 0; epoch < 2; epoch++) {
            for (int64_t begin = 0; begin < 30; begin += 4) {
                assert_int_equal(tt_loader_next(loader, &b), 1);
                int64_t n = 30 - begin < 4 ? 30 - begin : 4, width = tt_tensor_size(b.x, 1);
                assert_int_equal(tt_tensor_size(b.x, 0), n);
                assert_int_equal(width, begin % 5 ? 5 : 4);
                for (int64_t i = 0; i < n; i++) {
                    assert_int_equal(tt_tensor_i64(b.y)[i], begin + i);
                    assert_true(tt_tensor_f32(b.x)[i * width] == (float)(begin + i));
                }
            }
            assert_int_equal(tt_loader_next(loader, &b), 0);
        }
        tt_loader_free(loader);
    }
    tt_dataset_free(d);
}

static tt_status collate_nothing(void *user, const tt_examples *e, tt_tensor **x, tt_tensor **y) {
    (void)user, (void)e, (void)x;
    *y = tt_keep(tt_ones(TT_SHAPE(2), TT_F32));
    return TT_OK;
}

static tt_status collate_borrowed(void *user, const tt_examples *e, tt_tensor **x, tt_tensor **y) {
    (void)e;
    *x = user;
    *y = tt_keep(tt_ones(TT_SHAPE(2), TT_F32));
    return TT_OK;
}

static void collate_failures_are_told(void **state) {
    (void)state;
    watched w;
    tt_dataset *d = watch(&w, 31, false), *set = numbered(3);
    for (int workers = 0; workers <= 2; workers += 2) {
        tt_batch b;
        tt_loader *loader = tt_loader_new(d, 15, tt_in_order(), .workers = workers, .collate = collate_padded);
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_int_equal(tt_loader_next(loader, &b), 1);
        assert_int_equal(tt_loader_next(loader, &b), -1);
        expect_error(TT_ERR_FORMAT, "collate: 1 examples, the first is number 30: no sequence 30");
        tt_loader_free(loader);
        loader = tt_loader_new(d, 15, tt_in_order(), .workers = workers, .collate = collate_nothing);
        assert_int_equal(tt_loader_next(loader, &b), -1);
        expect_error(TT_ERR_INVALID, "it set no x");
        tt_loader_free(loader);
        loader = tt_loader_new(d, 15, tt_in_order(), .workers = workers, .collate = collate_borrowed,
                               .collate_user = tt_dataset_inputs(set));
        assert_int_equal(tt_loader_next(loader, &b), -1);
        expect_error(TT_ERR_STATE, "belongs to a data set already");
        tt_loader_free(loader);
    }
    tt_dataset_free(set);
    tt_dataset_free(d);
}

/* ---- arguments, time, cost ---- */

static void workers_are_checked(void **state) {
    (void)state;
    tt_dataset *d = numbered(4), *none = numbered(0);
    tt_clear_error();
    assert_null(tt_loader_new(d, 2, tt_in_order(), .workers = -1));
    expect_error(TT_ERR_INVALID, "workers: expected 0 to 1024, got -1");
    assert_null(tt_loader_new(d, 2, tt_in_order(), .workers = 1025));
    expect_error(TT_ERR_INVALID, "workers: expected 0 to 1024, got 1025");
    assert_null(tt_loader_new(d, 2, tt_in_order(), .workers = 1, .prefetch = -1));
    expect_error(TT_ERR_INVALID, "prefetch: expected 0 to 1024, got -1");
    assert_null(tt_loader_new(d, 2, tt_in_order(), .prefetch = 2));
    expect_error(TT_ERR_INVALID, "without workers nothing is made ahead");
    tt_loader *loader = tt_loader_new(none, 2, tt_shuffled(), .workers = 3);
    tt_batch b;
    assert_int_equal(tt_loader_next(loader, &b), 0);
    assert_int_equal(tt_loader_next(loader, &b), 0);
    tt_loader_free(loader);
    tt_dataset_free(d);
    tt_dataset_free(none);
}

static void it_tells_how_long_the_caller_waited(void **state) {
    (void)state;
    tt_dataset *d = numbered(40);
    assert_true(tt_loader_waited(NULL) == 0);
    for (int workers = 0; workers <= 2; workers++) {
        tt_loader *loader = tt_loader_new(d, 4, tt_in_order(), .workers = workers);
        tt_batch b;
        assert_true(tt_loader_waited(loader) == 0);
        while (tt_loader_next(loader, &b) == 1)
            usleep(1000); /* the step */
        assert_true(tt_loader_waited(loader) > 0);
        assert_true(tt_loader_waited(loader) < 1);
        tt_loader_free(loader);
    }
    tt_dataset_free(d);
}

static void batches_ahead_allocate_nothing(void **state) {
    (void)state;
    if (!alloc_count_works) {
        print_message("skipped: this build's allocator is the sanitizer's\n");
        skip();
    }
    tt_dataset *digits = tt_digits(100, 0);
    tt_loader *loader = tt_loader_new(digits, 8, tt_shuffled(), .workers = 3);
    tt_batch b;
    long before = 0;
    for (int epoch = 0; epoch < 4; epoch++) {
        before = epoch == 1 ? alloc_count : before;
        while (tt_loader_next(loader, &b) == 1)
            assert_true(b.size == 8 || b.size == 4);
    }
    assert_true(before > 0);
    assert_int_equal(alloc_count - before, 0);
    tt_loader_free(loader);
    tt_dataset_free(digits);
}

static tt_status few_batches(void *user) {
    tt_dataset *d = user;
    tt_loader *loader = tt_loader_new(d, 2, tt_shuffled(), .workers = 2);
    tt_batch b;
    int more = loader ? 1 : -1;
    for (int i = 0; i < 3 && more > 0; i++)
        more = tt_loader_next(loader, &b);
    tt_loader_free(loader);
    return more > 0 ? TT_OK : tt_last_status();
}

static void memory_that_runs_out_is_an_error(void **state) {
    (void)state;
    if (!alloc_count_works)
        skip();
    tt_dataset *d = numbered(20);
    assert_true(alloc_fail_each(few_batches, d, ALLOC_ENDS) > 10);
    tt_dataset_free(d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_number_of_workers_gives_the_same_batches),
        cmocka_unit_test(batches_that_are_kept_stay),
        cmocka_unit_test(a_serial_data_set_is_read_by_one_at_a_time),
        cmocka_unit_test(workers_take_no_signals),
        cmocka_unit_test(an_error_comes_with_its_batch),
        cmocka_unit_test(a_loader_can_be_freed_at_any_moment),
        cmocka_unit_test(a_forked_child_is_told),
        cmocka_unit_test(collate_makes_batches_of_any_shape),
        cmocka_unit_test(collate_failures_are_told),
        cmocka_unit_test(workers_are_checked),
        cmocka_unit_test(it_tells_how_long_the_caller_waited),
        cmocka_unit_test(batches_ahead_allocate_nothing),
        cmocka_unit_test(memory_that_runs_out_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
