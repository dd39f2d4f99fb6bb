/* The flight recorder: what is written is what a reader gets, and never half of it. */
#include "support/recorder.h"

#include <tutti/comm.h>
#include <tutti/job.h>

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static tt__record_slot *begin_call(const char *file, int line, uint32_t seq) {
    tt__record_slot *record = tt__record_begin(
        recorder, file, line,
        (tt__call_record){
            .seq = seq, .group = 7, .op = TT_OP_ALL_REDUCE, .dtype = TT_F32, .reduce_op = TT_SUM, .count = 512});
    tt__record_ready(record, TT__CALL_BEGUN);
    return record;
}

static void test_a_call_is_read_back(void **state) {
    (void)state;
    char text[128];
    tt__call_record copy;
    int64_t before = tt__now_ns();
    tt__record_slot *record = begin_call("/src/deep/train.c", 88, 5);
    uint32_t number = record->number;
    assert_true(tt__record_read(recorder, number, &copy));
    assert_int_equal(copy.state, TT__CALL_BEGUN);
    assert_int_equal(copy.end, 0);
    assert_string_equal(tt__record_text(recorder, &copy, text, sizeof text),
                        "all_reduce(f32 x 512, sum) at train.c:88");
    assert_int_equal(tt__record_bytes(&copy), 2048);
    tt__record_done(record, number, TT__CALL_DONE, true);
    assert_true(tt__record_read(recorder, number, &copy));
    assert_int_equal(copy.state, TT__CALL_DONE);
    tt__moment now = tt__moment_now();
    tt__ticks_line line = tt__ticks_line_through(&recorder->begin, &now);
    int64_t begin = tt__ticks_ns(&line, copy.begin), end = tt__ticks_ns(&line, copy.end);
    assert_true(begin >= before - 1000 && begin <= end && end <= tt__now_ns() + 1000);
    assert_false(tt__record_read(recorder, number + 1, &copy));
}

static void test_texts_of_operations(void **state) {
    (void)state;
    static const struct {
        uint8_t op, dtype;
        int32_t root;
        uint64_t count, bytes;
        const char *text;
    } rows[] = {
        {TT_OP_BARRIER, 0, 0, 0, 0, "barrier() at a.c:1"},
        {TT_OP_REDUCE, TT_F64, 2, 3, 24, "reduce(f64 x 3, sum, root 2) at a.c:1"},
        {TT_OP_BROADCAST, TT_I8, 1, 9, 9, "broadcast(i8 x 9, root 1) at a.c:1"},
        {TT_OP_ALL_GATHER, TT_F32, 0, 4, 16, "all_gather(f32 x 4) at a.c:1"},
        {TT_OP_SEND, TT_F32, 4, 1, 4, "send(f32 x 1, to 4, tag 6) at a.c:1"},
        {TT_OP_RECV, TT_F32, TT_ANY_SOURCE, 1, 4, "recv(f32 x 1, from any, tag 6) at a.c:1"},
        {TT_OP_BATCH_ISEND_IRECV, 0, 0, 3, 0, "batch_isend_irecv(3 operations) at a.c:1"},
        {TT_OP_ALLOC, 0, 0, 4096, 0, "alloc(4096 bytes) at a.c:1"},
        {TT_OP_FREE, 0, 0, 2, 0, "free(allocation 2) at a.c:1"},
        {TT_OPS, 0, 0, 2, 0, "?() at a.c:1"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char text[128];
        tt__call_record copy;
        tt__record_slot *record = tt__record_begin(recorder, "a.c", 1,
                                                   (tt__call_record){.op = rows[i].op,
                                                                     .dtype = rows[i].dtype,
                                                                     .reduce_op = TT_SUM,
                                                                     .root = rows[i].root,
                                                                     .count = rows[i].count,
                                                                     .tag = 6});
        assert_false(tt__record_read(recorder, record->number, &copy)); /* not yet */
        tt__record_ready(record, TT__CALL_BEGUN);
        assert_true(tt__record_read(recorder, record->number, &copy));
        assert_string_equal(tt__record_text(recorder, &copy, text, sizeof text), rows[i].text);
        assert_int_equal(tt__record_bytes(&copy), rows[i].bytes);
    }
}

static void test_line_zero_says_what_for(void **state) {
    (void)state;
    char text[128];
    tt__call_record copy;
    tt__record_slot *record = begin_call("the gradients of the model", 0, 1);
    assert_true(tt__record_read(recorder, record->number, &copy));
    assert_string_equal(tt__record_text(recorder, &copy, text, sizeof text),
                        "all_reduce(f32 x 512, sum) in the gradients of the model");
}

/* Also past the largest number. */
static void test_old_calls_make_room(void **state) {
    (void)state;
    atomic_store(&recorder->calls, UINT32_MAX - 2047);
    uint32_t last = 0;
    for (uint32_t i = 0; i < 4096; i++) {
        const tt__record_slot *record = begin_call("a.c", 1, i);
        last = record->number;
        assert_int_equal(last, UINT32_MAX - 2047 + i + 1);
    }
    for (uint32_t back = 0; back < TT__RECORDS; back++) {
        tt__call_record copy;
        assert_true(tt__record_read(recorder, last - back, &copy));
        assert_int_equal(copy.seq, 4095 - back);
    }
    tt__call_record copy;
    assert_false(tt__record_read(recorder, last - TT__RECORDS, &copy));
}

/* A work that ends after its place was given away leaves the newcomer alone. */
static void test_end_of_a_forgotten_call(void **state) {
    (void)state;
    tt__record_slot *old = begin_call("a.c", 1, 1);
    tt__call_record copy;
    uint32_t number = old->number;
    for (int i = 0; i < TT__RECORDS; i++)
        begin_call("b.c", 2, 2);
    tt__record_note_begun(old, number);
    tt__record_note_seq(old, number, 1, 1);
    tt__record_note_algorithm(old, number, 9);
    tt__record_done(old, number, TT__CALL_FAILED, true);
    assert_true(tt__record_read(recorder, number + TT__RECORDS, &copy));
    assert_int_equal(copy.state, TT__CALL_BEGUN);
    assert_int_equal(copy.seq, 2);
    assert_int_equal(copy.call, 0);
    assert_int_equal(copy.algorithm, 0);
}

/* A thread stands still while it writes a record, and writes on when others have been once around the ring: readers get
 * the later record or none, never one of two halves. */
static void test_a_record_of_two_calls_is_none(void **state) {
    (void)state;
    tt__record_slot *old = tt__record_begin(recorder, "a.c", 1, (tt__call_record){.group = 1, .count = 10}), late;
    tt__call_record copy;
    uint32_t number = old->number;
    memcpy((void *)&late, (const void *)old, sizeof late);
    for (int i = 0; i < TT__RECORDS; i++)
        begin_call("b.c", 2, 2);
    assert_true(tt__record_read(recorder, number + TT__RECORDS, &copy));
    atomic_store(&old->count, atomic_load(&late.count));
    assert_false(tt__record_read(recorder, number + TT__RECORDS, &copy));
    atomic_store(&old->begin, atomic_load(&late.begin));
    atomic_store(&old->group, atomic_load(&late.group));
    atomic_store(&old->check, atomic_load(&late.check));
    assert_false(tt__record_read(recorder, number + TT__RECORDS, &copy));
    assert_false(tt__record_read(recorder, number, &copy));
}

static void test_more_files_than_room(void **state) {
    (void)state;
    static char names[400][16];
    int named = 0;
    for (int i = 0; i < 400; i++) {
        snprintf(names[i], sizeof names[i], "x/file%d.c", i);
        uint8_t file = tt__record_file(recorder, names[i]);
        assert_int_equal(file, tt__record_file(recorder, names[i]));
        if (!strcmp(recorder->files[file], names[i] + 2))
            named++;
        else
            assert_string_equal(recorder->files[file], "?");
    }
    assert_in_range(named, 200, TT__FILES);
    assert_string_equal(recorder->files[tt__record_file(recorder, NULL)], "?");
}

static void test_what_is_waited_for(void **state) {
    (void)state;
    tt__waiting waiting;
    assert_false(tt__recorder_waiting(recorder, &waiting));
    tt__recorder_wait(recorder, &(tt__waiting){.group = 7, .seq = 12, .whom = 2, .record = 40, .since = 99});
    assert_true(tt__recorder_waiting(recorder, &waiting));
    assert_int_equal(waiting.whom, 2);
    assert_int_equal(waiting.seq, 12);
    assert_int_equal(waiting.since, 99);
    tt__recorder_wait(recorder, &(tt__waiting){.since = 0});
    assert_false(tt__recorder_waiting(recorder, &waiting));
}

static void test_groups_have_names(void **state) {
    (void)state;
    int ranks[60];
    for (int i = 0; i < 60; i++)
        ranks[i] = 2 * i;
    tt__recorder_name_group(recorder, 0, (int[]){0, 1, 2, 3, 7, 9}, 6);
    tt__recorder_name_group(recorder, 5, ranks, 60);
    assert_string_equal(tt__recorder_group_ranks(recorder, 0), "0-3, 7, 9");
    assert_non_null(strstr(tt__recorder_group_ranks(recorder, 5), ", ..."));
    assert_string_equal(tt__recorder_group_ranks(recorder, 6), "?");
    for (uint32_t id = 100; id < 200; id++)
        tt__recorder_name_group(recorder, id, (int[]){(int)id}, 1);
    assert_string_equal(tt__recorder_group_ranks(recorder, 0), "0-3, 7, 9");
    assert_string_equal(tt__recorder_group_ranks(recorder, 199), "199");
    assert_string_equal(tt__recorder_group_ranks(recorder, 5), "?");
}

/* Threads that call on different groups, many times around the ring, and one that reads meanwhile: no number twice, no
 * record of two halves. */
enum { THREADS = 3, CALLS = 20000 };

static atomic_bool callers_are_done;

static void *caller(void *which) {
    uint32_t mine = (uint32_t)(uintptr_t)which;
    for (uint32_t i = 0; i < CALLS; i++) {
        const tt__call_record call = {
            .group = mine, .op = TT_OP_ALL_TO_ALL_V, .tag = (int)i, .count = (uint64_t)mine << 32 | i};
        tt__record_slot *record = tt__record_begin(recorder, "t.c", (int)mine, call);
        uint32_t number = record->number;
        int64_t values[2] = {number, -(int64_t)number};
        tt__record_keep_lists(recorder, number, &(tt__lists){values, values, 2, 2});
        tt__record_ready(record, TT__CALL_BEGUN);
        tt__record_note_seq(record, number, i, i);
        tt__record_done(record, number, TT__CALL_DONE, true);
    }
    return NULL;
}

static bool is_whole(const tt__call_record *record) {
    tt__record_list list;
    int64_t number = record->number;
    if (record->count != ((uint64_t)record->group << 32 | (uint32_t)record->tag) ||
        (uint32_t)record->line != record->group)
        return false;
    return !tt__record_read_list(recorder, record->number, &list) ||
           (list.n == 4 && list.total == 0 && (int64_t)list.values[0] == number && (int64_t)list.values[1] == -number &&
            list.values[2] == list.values[0] && list.values[3] == list.values[1]);
}

/* Counts records of two halves. */
static void *reader(void *halves) {
    int64_t seen = 0;
    while (!atomic_load(&callers_are_done) || !seen)
        for (uint32_t i = 0; i < TT__RECORDS; i++) {
            tt__call_record copy;
            if (!tt__record_read(recorder, atomic_load(&recorder->records[i].number), &copy))
                continue;
            *(int *)halves += !is_whole(&copy);
            seen++;
        }
    return NULL;
}

static void test_threads(void **state) {
    (void)state;
    pthread_t threads[THREADS], reads;
    static bool seen[THREADS][CALLS];
    int halves = 0;
    atomic_store(&callers_are_done, false);
    assert_int_equal(pthread_create(&reads, NULL, reader, &halves), 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, caller, (void *)i), 0);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    atomic_store(&callers_are_done, true);
    pthread_join(reads, NULL);
    assert_int_equal(halves, 0);
    uint32_t calls = atomic_load(&recorder->calls);
    /* At its end, and whenever it is half the ring behind, a thread leaves the rest of a block of numbers unused. */
    uint32_t halves_of_ring = calls / (TT__RECORDS / 2) + 1;
    assert_true(calls >= THREADS * CALLS && calls - THREADS * CALLS <= THREADS * halves_of_ring * TT__RECORD_BLOCK);
    int found = 0;
    for (uint32_t n = calls - TT__RECORDS + 1; n != calls + 1; n++) {
        tt__call_record copy;
        if (!tt__record_read(recorder, n, &copy))
            continue;
        assert_true(is_whole(&copy));
        assert_false(seen[copy.group][copy.tag]);
        seen[copy.group][copy.tag] = true;
        found++;
    }
    int all = THREADS * CALLS < TT__RECORDS ? THREADS * CALLS : TT__RECORDS;
    assert_true(found >= all - THREADS * (3 * TT__RECORD_BLOCK + 1));
}

/* More threads at once than blocks of numbers: those that come too late take theirs one by one. Threads that follow
 * others take over what these left. */
enum { MANY = TT__RECORD_OWNERS + 44, EACH = 3, ROUNDS = 2 };
static uint32_t numbers[ROUNDS][MANY][EACH];
static pthread_barrier_t all_run;

static void *one_of_many(void *numbers_of) {
    uint32_t *mine = numbers_of;
    pthread_barrier_wait(&all_run);
    for (int i = 0; i < EACH; i++)
        mine[i] = tt__record_number(recorder);
    pthread_barrier_wait(&all_run);
    return NULL;
}

static int compare_numbers(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void test_many_threads(void **state) {
    (void)state;
    enum { ALL = ROUNDS * MANY * EACH };
    static uint32_t sorted[ALL];
    pthread_t threads[MANY];
    assert_int_equal(pthread_barrier_init(&all_run, NULL, MANY), 0);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < MANY; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, one_of_many, numbers[round][i]), 0);
        for (int i = 0; i < MANY; i++)
            pthread_join(threads[i], NULL);
    }
    pthread_barrier_destroy(&all_run);
    memcpy(sorted, numbers, sizeof sorted);
    qsort(sorted, ALL, sizeof *sorted, compare_numbers);
    for (int i = 1; i < ALL; i++)
        assert_true(sorted[i] > sorted[i - 1]);
    assert_true(sorted[0] > 0 && sorted[ALL - 1] <= atomic_load(&recorder->calls));
}

static void test_long_file_names_keep_their_end(void **state) {
    (void)state;
    char text[256];
    tt__call_record copy;
    const tt__record_slot *record =
        begin_call("/a/the_name_of_this_file_is_much_too_long_for_a_record_all_reduce.c", 7, 6);
    assert_true(tt__record_read(recorder, record->number, &copy));
    tt__record_text(recorder, &copy, text, sizeof text);
    assert_non_null(strstr(text, " at ..."));
    assert_non_null(strstr(text, "too_long_for_a_record_all_reduce.c:7"));
    assert_null(strstr(text, "the_name"));
}

/* Nobody was told anything before, so the first case must come before all others that publish. */
static void test_progress(void **state) {
    (void)state;
    tt__progress seen;
    assert_false(tt__recorder_progress(recorder, &seen));
    tt__progress_attach(recorder);
    assert_false(tt__recorder_progress(recorder, &seen));
    tt_publish_progress(3, 0.5, .steps = 10, .epoch = 2, .epochs = 4, .samples = 32);
    assert_true(tt__recorder_progress(recorder, &seen));
    assert_int_equal(seen.step, 3);
    assert_int_equal(seen.steps, 10);
    assert_int_equal(seen.epoch, 2);
    assert_int_equal(seen.epochs, 4);
    assert_int_equal(seen.samples, 32);
    assert_true(seen.loss == 0.5);
    tt__progress_detach(recorder);
    tt_publish_progress(4, (double)NAN, .steps = -10, .samples = 8);
    assert_true(tt__recorder_progress(recorder, &seen));
    assert_int_equal(seen.step, 3);
    tt__progress_attach(recorder); /* what was said meanwhile */
    assert_true(tt__recorder_progress(recorder, &seen));
    assert_int_equal(seen.step, 4);
    assert_int_equal(seen.steps, 0);
    assert_int_equal(seen.epoch, 0);
    assert_int_equal(seen.samples, 40);
    assert_true(isnan(seen.loss));
    tt__progress_detach(recorder);
}

static void test_a_forked_child_leaves_the_parents_progress_alone(void **state) {
    (void)state;
    tt__recorder *shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    tt__progress seen;
    int status;
    assert_true(shared != MAP_FAILED);
    tt__recorder_init(shared, 0, 1);
    tt__progress_attach(shared);
    tt_publish_progress(5, 1.0);
    pid_t pid = fork();
    if (!pid) {
        tt_publish_progress(6, 1.0);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(tt__recorder_progress(shared, &seen));
    assert_int_equal(seen.step, 5);
    tt__progress_detach(shared);
    munmap(shared, sizeof *shared);
}

static void test_rates_of_progress(void **state) {
    (void)state;
    const int64_t second = 1000000000;
    tt__progress p = {.samples = 300, .base_samples = 100, .base_ns = 5 * second, .at_ns = 7 * second};
    assert_true(tt__progress_rate(&p, 7 * second) == 100);
    assert_true(tt__progress_rate(&p, 9 * second) == 100); /* the next step may take as long as the last */
    assert_true(tt__progress_rate(&p, 27 * second) == 10);
    p.base_ns = p.at_ns;
    assert_true(tt__progress_rate(&p, 9 * second) == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_a_call_is_read_back, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_texts_of_operations, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_line_zero_says_what_for, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_old_calls_make_room, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_end_of_a_forgotten_call, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_a_record_of_two_calls_is_none, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_more_files_than_room, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_what_is_waited_for, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_groups_have_names, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_threads, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_many_threads, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_long_file_names_keep_their_end, recorder_setup, recorder_teardown),
        cmocka_unit_test_setup_teardown(test_progress, recorder_setup, recorder_teardown),
        cmocka_unit_test(test_a_forked_child_leaves_the_parents_progress_alone),
        cmocka_unit_test(test_rates_of_progress),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
