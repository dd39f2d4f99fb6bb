/* Callbacks of works, on every engine: each comes exactly once, whatever becomes of its work, and none may wait. */
#include "support/engines.h"

#include "comm/group.h"
#include "comm/work.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { N = 1000, MANY = 50 };

/* What callbacks found. */
typedef struct outcome {
    _Atomic int calls;
    tt_status status;
    int source;
    char text[400];
} outcome;

static void note(tt_status status, int source, void *user) {
    outcome *o = user;
    o->status = status;
    o->source = source;
    snprintf(o->text, sizeof o->text, "%s", tt_last_error());
    atomic_fetch_add(&o->calls, 1);
}

static void await(const outcome *o, int calls) {
    while (atomic_load(&o->calls) < calls)
        sched_yield();
    CHECK(atomic_load(&o->calls) == calls);
}

static void done(tt_group *group, int rank, void *store) {
    float x[N] = {0};
    outcome before = {0}, after = {0};
    tt_work *work = NULL;
    (void)rank, (void)store;
    CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work));
    CHECK_OK(tt_work_add_done_callback(work, note, &before));
    CHECK_OK(tt_work_wait(work));
    await(&before, 1);
    CHECK(before.status == TT_OK && before.source == -1 && !*before.text);
    CHECK_OK(tt_work_add_done_callback(work, note, &after));
    CHECK(atomic_load(&after.calls) == 1 && after.status == TT_OK);
    tt_work_free(work);
    CHECK_OK(tt_barrier(group));
    CHECK(atomic_load(&before.calls) == 1 && atomic_load(&after.calls) == 1);
}

static void a_callback_comes_once(void **state) {
    (void)state;
    on_all_engines(2, done);
}

/* ---- their order, and works that are freed first */

typedef struct numbers {
    _Atomic int count;
    int got[2 * MANY];
    pthread_mutex_t lock;
} numbers;

typedef struct numbered {
    numbers *all;
    int number;
} numbered;

static void note_number(tt_status status, int source, void *user) {
    const numbered *n = user;
    (void)source;
    CHECK_OK(status);
    pthread_mutex_lock(&n->all->lock);
    n->all->got[atomic_load(&n->all->count)] = n->number;
    atomic_fetch_add(&n->all->count, 1); // after what it counts: who reads the count reads the numbers without the lock
    pthread_mutex_unlock(&n->all->lock);
}

static void freed(tt_group *group, int rank, void *store) {
    static float x[MANY][N];
    numbers all = {.lock = PTHREAD_MUTEX_INITIALIZER};
    numbered each[2 * MANY];
    bool seen[2 * MANY] = {0};
    (void)rank, (void)store;
    for (int i = 0; i < MANY; i++) {
        tt_work *work = NULL;
        CHECK_OK(tt_all_reduce(group, x[i], N, TT_F32, TT_SUM, .work = &work));
        for (int k = 0; k < 2; k++) {
            each[2 * i + k] = (numbered){&all, 2 * i + k};
            CHECK_OK(tt_work_add_done_callback(work, note_number, &each[2 * i + k]));
        }
        tt_work_free(work);
    }
    CHECK_OK(tt_barrier(group));
    while (atomic_load(&all.count) < 2 * MANY)
        sched_yield();
    for (int i = 0; i < 2 * MANY; i++) {
        CHECK(!seen[all.got[i]]);
        seen[all.got[i]] = true;
    }
}

static void callbacks_of_freed_works_come(void **state) {
    (void)state;
    on_all_engines(2, freed);
}

/* One thread is in the first callback of a work, while another is within a call: the second waits for its turn. */
typedef struct turns {
    tt_work *work;
    _Atomic bool entered, passed, first_is_over, second_came, in_turn;
} turns;

static void take_first_turn(tt_status status, int source, void *user) {
    turns *t = user;
    (void)status, (void)source;
    atomic_store(&t->entered, true);
    while (!atomic_load(&t->passed))
        sched_yield();
    atomic_store(&t->first_is_over, true);
}

static void take_second_turn(tt_status status, int source, void *user) {
    turns *t = user;
    (void)status, (void)source;
    atomic_store(&t->in_turn, atomic_load(&t->first_is_over));
    atomic_store(&t->second_came, true);
}

static void *pass_by(void *arg) {
    turns *t = arg;
    while (!atomic_load(&t->entered))
        sched_yield();
    CHECK_OK(tt__group_progress(t->work->group));
    atomic_store(&t->passed, true);
    return NULL;
}

static void in_order(tt_group *group, int rank, void *store) {
    static const char *const added[] = {"added"};
    float x[N] = {0};
    turns t = {0};
    pthread_t thread;
    if (rank == 1)
        CHECK_OK(tt_store_wait(store, added, 1, PATIENCE_MS));
    CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &t.work));
    if (rank == 0) {
        CHECK_OK(tt_work_add_done_callback(t.work, take_first_turn, &t));
        CHECK_OK(tt_work_add_done_callback(t.work, take_second_turn, &t));
        CHECK(!pthread_create(&thread, NULL, pass_by, &t));
        CHECK_OK(tt_store_set(store, added[0], "", 0));
        CHECK_OK(tt_work_wait(t.work));
        while (!atomic_load(&t.second_came))
            sched_yield();
        CHECK(atomic_load(&t.in_turn));
        pthread_join(thread, NULL);
    }
    CHECK_OK(tt_work_wait(t.work));
    tt_work_free(t.work);
    CHECK_OK(tt_barrier(group));
}

static void callbacks_of_a_work_dont_overtake(void **state) {
    (void)state;
    on_all_engines(2, in_order);
}

/* ---- what goes wrong */

static void aborted(tt_group *group, int rank, void *store) {
    static const char *const over[] = {"over"}, *const joined[] = {"joined"};
    float x[N] = {0};
    outcome o = {0}, late = {0};
    tt_work *work = NULL;
    CHECK_OK(tt_barrier(group));
    if (rank == 0) {
        CHECK_OK(tt_store_wait(store, joined, 1, PATIENCE_MS)); /* or the abort may end rank 1's barrier */
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work));
        CHECK_OK(tt_work_add_done_callback(work, note, &o));
        CHECK(atomic_load(&o.calls) == 0);
        tt_group_abort(group, "a whim");
        CHECK(tt_work_wait(work) == TT_ERR_ABORTED);
        await(&o, 1);
        CHECK(o.status == tt_work_wait(work) && !strcmp(o.text, tt_last_error()));
        CHECK_OK(tt_work_add_done_callback(work, note, &late));
        CHECK(atomic_load(&late.calls) == 1 && late.status == o.status && !strcmp(late.text, o.text));
        tt_work_free(work);
        CHECK_OK(tt_store_set(store, over[0], "", 0));
    } else {
        CHECK_OK(tt_store_set(store, joined[0], "", 0));
        CHECK_OK(tt_store_wait(store, over, 1, PATIENCE_MS));
    }
}

static void a_failure_comes_with_its_text(void **state) {
    (void)state;
    on_forgiving_engines(2, aborted);
}

static void destroyed(tt_group *group, int rank, void *arg) {
    static const char *const over[] = {"over"};
    tt_store *store = arg;
    float x[N] = {0};
    outcome o = {0}, late = {0};
    tt_work *work = NULL;
    if (rank == 0) {
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work));
        CHECK_OK(tt_work_add_done_callback(work, note, &o));
        tt_destroy_process_group(group);
        CHECK(atomic_load(&o.calls) == 1 && o.status == TT_ERR_STATE);
        CHECK(strstr(o.text, "was destroyed before the work was done"));
        CHECK_OK(tt_work_add_done_callback(work, note, &late));
        CHECK(atomic_load(&late.calls) == 1 && late.status == TT_ERR_STATE && !strcmp(late.text, o.text));
        tt_work_free(work);
        CHECK_OK(tt_store_set(store, over[0], "", 0));
        exit(0);
    }
    CHECK_OK(tt_store_wait(store, over, 1, PATIENCE_MS));
}

static void destroying_the_group_calls_them(void **state) {
    (void)state;
    on_forgiving_engines(2, destroyed);
}

/* A thread is in a callback: the group ends behind it. */
typedef struct held {
    pthread_t in;
    _Atomic bool entered, left;
} held;

static void hold(tt_status status, int source, void *user) {
    held *h = user;
    (void)status, (void)source;
    h->in = pthread_self();
    atomic_store(&h->entered, true);
    for (int i = 0; i < 2000; i++)
        sched_yield();
    atomic_store(&h->left, true);
}

static void *wait_for(void *work) {
    tt_ignore(tt_work_wait(work));
    return NULL;
}

static void destroyed_meanwhile(tt_group *group, int rank, void *store) {
    float x[N] = {0};
    held h = {.entered = false, .left = false};
    tt_work *work = NULL;
    pthread_t thread;
    (void)rank, (void)store;
    CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work));
    CHECK_OK(tt_work_add_done_callback(work, hold, &h));
    CHECK(!pthread_create(&thread, NULL, wait_for, work));
    while (!atomic_load(&h.entered))
        sched_yield();
    CHECK_OK(tt_work_wait(work));
    /* else it may not have begun to, which it may not any more behind the free */
    bool waits = pthread_equal(h.in, thread);
    if (!waits)
        pthread_join(thread, NULL);
    tt_work_free(work);
    if (waits)
        pthread_join(thread, NULL);
    tt_destroy_process_group(group);
    CHECK(atomic_load(&h.left));
    exit(0);
}

static void destroying_waits_for_a_callback(void **state) {
    (void)state;
    on_all_engines(2, destroyed_meanwhile);
}

static void wrong(tt_group *group, int rank, void *store) {
    outcome o = {0};
    tt_work *work = NULL;
    (void)rank, (void)store;
    CHECK(tt_work_add_done_callback(NULL, note, &o) == TT_ERR_INVALID);
    CHECK_TEXT("the work is NULL");
    CHECK_OK(tt_barrier(group, .work = &work));
    CHECK(tt_work_add_done_callback(work, NULL, &o) == TT_ERR_INVALID);
    CHECK_TEXT("the function is NULL");
    CHECK_OK(tt_work_wait(work));
    tt_work_free(work);
    CHECK(atomic_load(&o.calls) == 0);
}

static void wrong_arguments_are_refused(void **state) {
    (void)state;
    on_all_engines(2, wrong);
}

/* ---- calls from within */

typedef struct chain {
    tt_group *group;
    float x[N];
    int left;
    _Atomic int calls;
} chain;

/* Each callback makes the next call. */
static void go_on(tt_status status, int source, void *user) {
    chain *c = user;
    tt_work *work = NULL;
    (void)source;
    CHECK_OK(status);
    atomic_fetch_add(&c->calls, 1);
    if (c->left-- == 0)
        return;
    CHECK_OK(tt_all_reduce(c->group, c->x, N, TT_F32, TT_SUM, .work = &work));
    CHECK_OK(tt_work_add_done_callback(work, go_on, c));
    tt_work_free(work);
}

/* What is under way advances in whatever call asks for it. */
static void advance(tt_group *group) {
    CHECK_OK(tt__group_progress(group));
    sched_yield();
}

static void chained(tt_group *group, int rank, void *store) {
    static chain c;
    tt_work *work = NULL;
    (void)store;
    c = (chain){.group = group, .left = MANY};
    c.x[0] = rank == 0;
    CHECK_OK(tt_barrier(group, .work = &work));
    CHECK_OK(tt_work_add_done_callback(work, go_on, &c));
    CHECK_OK(tt_work_wait(work));
    tt_work_free(work);
    while (atomic_load(&c.calls) <= MANY)
        advance(group);
    CHECK_OK(tt_barrier(group));
    CHECK(c.calls == MANY + 1 && c.x[0] != 0);
}

static void a_callback_makes_calls(void **state) {
    (void)state;
    on_all_engines(2, chained);
    on_all_engines(1, chained);
}

typedef struct attempts {
    tt_group *group;
    tt_work *undone;
    tt_status waited, synchronous, small, made, received;
    _Atomic bool over;
} attempts;

static void try_to_wait(tt_status status, int source, void *user) {
    attempts *a = user;
    tt_group *made = NULL;
    float x = 0;
    int from;
    (void)source;
    CHECK_OK(status);
    a->waited = tt_work_wait(a->undone);
    CHECK_TEXT("must not wait");
    a->synchronous = tt_barrier(a->group);
    CHECK_TEXT("barrier: a callback of a work must not wait");
    a->small = tt_all_reduce(a->group, &x, 1, TT_F32, TT_SUM);
    a->received = tt_recv(a->group, &x, 1, TT_F32, 1, .source = &from);
    a->made = tt_new_group(&made, a->group, ((int[]){0}), 1);
    tt_destroy_process_group(a->group);
    atomic_store(&a->over, true);
}

static void waiting(tt_group *group, int rank, void *store) {
    static const char *const tried[] = {"tried"};
    float x[N] = {0};
    attempts a = {.group = group};
    tt_work *first = NULL;
    CHECK_OK(tt_barrier(group, .work = &first));
    CHECK_OK(tt_work_wait(first));
    if (rank == 0) {
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &a.undone));
        CHECK_OK(tt_work_add_done_callback(first, try_to_wait, &a));
        CHECK(atomic_load(&a.over));
        CHECK(a.waited == TT_ERR_STATE && a.synchronous == TT_ERR_STATE && a.small == TT_ERR_STATE);
        CHECK(a.made == TT_ERR_STATE && a.received == TT_ERR_STATE);
        CHECK_OK(tt_store_set(store, tried[0], "", 0));
        CHECK_OK(tt_work_wait(a.undone));
    } else {
        CHECK_OK(tt_store_wait(store, tried, 1, PATIENCE_MS));
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM));
    }
    tt_work_free(a.undone);
    tt_work_free(first);
    CHECK_OK(tt_barrier(group));
}

static void a_callback_must_not_wait(void **state) {
    (void)state;
    on_all_engines(2, waiting);
}

/* ---- a work that its callback frees, and whose memory the next call takes, while a thread waits for it */

typedef struct relay {
    tt_group *group;
    tt_work *first, *second;
    float x[N];
} relay;

static void pass_on(tt_status status, int source, void *user) {
    relay *r = user;
    (void)source;
    CHECK(status == TT_OK);
    tt_work_free(r->first);
    CHECK_OK(tt_all_reduce(r->group, r->x, N, TT_F32, TT_SUM, .work = &r->second));
}

/* On shared memory, where nothing is done before the wait has begun. */
static void freed_while_waited_for(tt_group *group, int rank, void *store) {
    relay r = {.group = group};
    bool finished = false;
    if (rank == 1) {
        CHECK_OK(tt_store_wait(store, (const char *const[]){"go"}, 1, PATIENCE_MS));
        CHECK_OK(tt_all_reduce(group, r.x, N, TT_F32, TT_SUM));
        CHECK_OK(tt_store_wait(store, (const char *const[]){"go on"}, 1, PATIENCE_MS));
        CHECK_OK(tt_all_reduce(group, r.x, N, TT_F32, TT_SUM));
        return;
    }
    CHECK_OK(tt_all_reduce(group, r.x, N, TT_F32, TT_SUM, .work = &r.first));
    CHECK_OK(tt_work_add_done_callback(r.first, pass_on, &r));
    CHECK_OK(tt_store_set(store, "go", "", 0));
    CHECK_OK(tt_work_wait_for(r.first, PATIENCE_MS, &finished));
    CHECK(finished);
    CHECK_OK(tt_store_set(store, "go on", "", 0));
    CHECK_OK(tt_work_wait(r.second));
    tt_work_free(r.second);
}

static void a_callback_frees_what_is_waited_for(void **state) {
    (void)state;
    on_engines(ENGINE_SHARED + 1, 2, freed_while_waited_for);
}

/* ---- forked children */

static void forked(tt_group *group, int rank, void *store) {
    float x[N] = {0};
    outcome o = {0};
    tt_work *work = NULL;
    int ended;
    (void)store;
    if (rank == 1)
        CHECK_OK(tt_store_wait(store, (const char *const[]){"go"}, 1, PATIENCE_MS));
    CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work));
    CHECK_OK(tt_work_add_done_callback(work, note, &o));
    if (rank == 0) {
        pid_t child = fork();
        if (!child) {
            CHECK(tt_work_add_done_callback(work, note, &o) == TT_ERR_STATE);
            tt_destroy_process_group(group);
            CHECK(atomic_load(&o.calls) == 0);
            tt_work_free(work);
            _exit(0);
        }
        CHECK(waitpid(child, &ended, 0) == child && WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
        CHECK_OK(tt_store_set(store, "go", "", 0));
    }
    CHECK_OK(tt_work_wait(work));
    await(&o, 1);
    tt_work_free(work);
    CHECK_OK(tt_barrier(group));
}

static void a_forked_child_has_none(void **state) {
    (void)state;
    on_all_engines(2, forked);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_callback_comes_once),
        cmocka_unit_test(callbacks_of_freed_works_come),
        cmocka_unit_test(callbacks_of_a_work_dont_overtake),
        cmocka_unit_test(a_failure_comes_with_its_text),
        cmocka_unit_test(destroying_the_group_calls_them),
        cmocka_unit_test(destroying_waits_for_a_callback),
        cmocka_unit_test(wrong_arguments_are_refused),
        cmocka_unit_test(a_callback_makes_calls),
        cmocka_unit_test(a_callback_must_not_wait),
        cmocka_unit_test(a_callback_frees_what_is_waited_for),
        cmocka_unit_test(a_forked_child_has_none),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
