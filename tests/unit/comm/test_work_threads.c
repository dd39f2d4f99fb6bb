/* Works in the hands of other threads than the one that makes the calls, on every engine. */
#include "support/engines.h"

#include "comm/group.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <time.h>

enum { N = 3000, ROUNDS = 60, THREADS = 4, DEPTH = 8 };

/* ---- works handed to threads, which wait for them and free them */

typedef struct slot {
    tt_work *_Atomic work; /* NULL: free for the next */
    float *data;
    float expected;
} slot;

typedef struct crew {
    slot slots[DEPTH];
    _Atomic bool over;
    int next; /* which thread this is */
} crew;

static void check_and_free(slot *s, tt_work *work) {
    for (int i = 0; i < N; i += N - 1)
        CHECK(s->data[i] == s->expected);
    tt_work_free(work);
    atomic_store(&s->work, NULL);
}

/* Every second one asks instead of waiting. */
static void *serve(void *arg) {
    crew *c = arg;
    bool asks = c->next & 1;
    while (!atomic_load(&c->over)) {
        for (int i = 0; i < DEPTH; i++) {
            tt_work *work = atomic_load(&c->slots[i].work);
            if (!work)
                continue;
            while (asks && !tt_work_is_completed(work))
                sched_yield();
            CHECK_OK(tt_work_wait(work));
            check_and_free(&c->slots[i], work);
        }
        sched_yield();
    }
    return NULL;
}

static void handed(tt_group *group, int rank, void *store) {
    static float data[THREADS][DEPTH][N];
    crew crews[THREADS];
    pthread_t threads[THREADS];
    (void)store;
    memset(crews, 0, sizeof crews);
    for (int t = 0; t < THREADS; t++) {
        crews[t].next = t;
        for (int i = 0; i < DEPTH; i++)
            crews[t].slots[i].data = data[t][i];
        CHECK(!pthread_create(&threads[t], NULL, serve, &crews[t]));
    }
    for (int k = 0; k < ROUNDS * THREADS; k++) {
        slot *s = &crews[k % THREADS].slots[k / THREADS % DEPTH];
        tt_work *work = NULL;
        while (atomic_load(&s->work))
            sched_yield();
        for (int i = 0; i < N; i++)
            s->data[i] = (float)(rank + k);
        s->expected = (float)(2 * k + 1);
        CHECK_OK(tt_all_reduce(group, s->data, N, TT_F32, TT_SUM, .work = &work));
        atomic_store(&s->work, work);
        if (k % 16 == 0)
            CHECK_OK(tt_barrier(group)); /* behind works that other threads wait for and free */
    }
    for (int t = 0; t < THREADS; t++)
        for (int i = 0; i < DEPTH; i++)
            while (atomic_load(&crews[t].slots[i].work))
                sched_yield();
    for (int t = 0; t < THREADS; t++) {
        atomic_store(&crews[t].over, true);
        pthread_join(threads[t], NULL);
    }
}

static void other_threads_wait_and_free(void **state) {
    (void)state;
    on_all_engines(2, handed);
}

/* ---- one work, many threads */

static void *wait_twice(void *work) {
    CHECK_OK(tt_work_wait(work));
    CHECK(tt_work_is_completed(work));
    CHECK_OK(tt_work_wait(work));
    return NULL;
}

static void shared_work(tt_group *group, int rank, void *store) {
    float x[N] = {0};
    pthread_t threads[THREADS];
    (void)rank, (void)store;
    for (int k = 0; k < ROUNDS / 4; k++) {
        tt_work *work = NULL;
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work));
        for (int t = 0; t < THREADS; t++)
            CHECK(!pthread_create(&threads[t], NULL, wait_twice, work));
        for (int t = 0; t < THREADS; t++)
            pthread_join(threads[t], NULL);
        tt_work_free(work);
    }
}

static void several_threads_wait_for_one_work(void **state) {
    (void)state;
    on_all_engines(2, shared_work);
}

/* ---- a thread waits for one work, the program makes others and synchronous calls */

static void *wait_for(void *work) {
    CHECK_OK(tt_work_wait(work));
    return NULL;
}

static void calls_go_on(tt_group *group, int rank, void *store) {
    static const char *const go[] = {"go"};
    float x[N] = {0}, y[N] = {0};
    tt_work *works[2] = {NULL, NULL};
    pthread_t thread;
    if (rank == 1)
        CHECK_OK(tt_store_wait(store, go, 1, PATIENCE_MS));
    CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &works[0]));
    CHECK(!pthread_create(&thread, NULL, wait_for, works[0]));
    CHECK_OK(tt_all_reduce(group, y, N, TT_F32, TT_SUM, .work = &works[1]));
    if (rank == 0)
        CHECK_OK(tt_store_set(store, go[0], "", 0));
    CHECK_OK(tt_all_reduce(group, y, 1, TT_F32, TT_SUM));
    CHECK_OK(tt_work_wait_all(works, 2));
    pthread_join(thread, NULL);
    tt_work_free(works[0]);
    tt_work_free(works[1]);
}

static void calls_go_on_while_a_thread_waits(void **state) {
    (void)state;
    for (int i = 0; i < 5; i++)
        on_all_engines(2, calls_go_on);
}

/* Another group's calls come late: who waits for a work in another thread holds nobody up. */
static void two_groups(tt_group *group, int rank, void *store) {
    float x[N] = {0};
    tt_group *other = NULL;
    tt_work *work = NULL;
    pthread_t thread;
    (void)store;
    CHECK_OK(tt_new_group(&other, group, ((int[]){0, 1}), 2));
    CHECK_OK(tt_barrier(other));
    if (rank == 0) {
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work));
        CHECK(!pthread_create(&thread, NULL, wait_for, work));
        struct timespec pause = {.tv_nsec = 700000000}; /* longer than a deadlock takes to be seen */
        nanosleep(&pause, NULL);
        CHECK_OK(tt_barrier(other));
        pthread_join(thread, NULL);
        tt_work_free(work);
    } else {
        CHECK_OK(tt_barrier(other));
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM));
    }
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(other);
}

static void a_waiting_thread_is_no_deadlock(void **state) {
    (void)state;
    on_all_engines(2, two_groups);
}

/* ---- calls that overlap */

static void *call_barrier(void *group) {
    CHECK_OK(tt_barrier(group));
    return NULL;
}

static void overlap(tt_group *group, int rank, void *store) {
    static const char *const tried[] = {"tried"};
    float x = 0;
    tt_work *work = NULL;
    pthread_t thread;
    if (rank == 0) {
        CHECK(!pthread_create(&thread, NULL, call_barrier, group));
        while (!atomic_load(&group->alone))
            sched_yield();
        CHECK(tt_barrier(group) == TT_ERR_STATE);
        CHECK_TEXT("must not overlap");
        CHECK(tt_all_reduce(group, &x, 1, TT_F32, TT_SUM) == TT_ERR_STATE);
        CHECK(tt_all_reduce(group, &x, 1, TT_F32, TT_SUM, .work = &work) == TT_ERR_STATE && !work);
        CHECK_OK(tt_store_set(store, tried[0], "", 0));
        pthread_join(thread, NULL);
    } else {
        CHECK_OK(tt_store_wait(store, tried, 1, PATIENCE_MS));
        CHECK_OK(tt_barrier(group));
    }
    CHECK_OK(tt_all_reduce(group, &x, 1, TT_F32, TT_SUM));
}

static void calls_that_overlap_are_refused(void **state) {
    (void)state;
    engine_body body = {ENGINE_SHARED, overlap};
    with_ranks(2, run_on_engine, &body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_threads_wait_and_free),      cmocka_unit_test(several_threads_wait_for_one_work),
        cmocka_unit_test(calls_go_on_while_a_thread_waits), cmocka_unit_test(a_waiting_thread_is_no_deadlock),
        cmocka_unit_test(calls_that_overlap_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
