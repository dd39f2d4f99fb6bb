/* What happens to groups only in a long life, or when a process is forked: counters that begin again, groups by the
 * thousand, children that end what they inherited, deadlines behind other works, streams that are closed. */
#include "support/ranks.h"

#include "base/machine/clock.h"
#include "comm/message/state.h"
#include "comm/native_group.h"

#include <pthread.h>

/* How ranks reach each other: all by memory; all by TCP; two "hosts" of neighbours. */
typedef enum way { SHM, TCP, BOTH, WAYS } way;

static tt_group *join_by(tt_store *store, int rank, int world, const void *arg) {
    const way *way = arg;
    tt_group *group = NULL;
    if (*way == BOTH)
        CHECK(!setenv("TT_HOST_ID", rank < (world + 1) / 2 ? "alpha" : "beta", 1));
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS, .transport = *way == TCP ? "tcp" : "auto"));
    return group;
}

static void by_every_way(int world, rank_body body) {
    for (way way = 0; way < WAYS; way++)
        with_ranks(world, body, &way);
}

/* All ranks meet at the store, outside of their group. */
static void meet(tt_store *store, const char *where, int world) {
    int64_t came;
    char done[64];
    const char *const keys[] = {done};
    snprintf(done, sizeof done, "%s/all", where);
    CHECK_OK(tt_store_add(store, where, 1, &came));
    if (came == world)
        CHECK_OK(tt_store_set(store, done, "", 0));
    CHECK_OK(tt_store_wait(store, keys, 1, PATIENCE_MS));
}

/* ---- 2^32 calls */

static void age(tt_group *group) {
    if (!group)
        return;
    group->native->seq = UINT32_MAX - 3; /* the second all_reduce is call 0 */
    group->native->step = UINT32_MAX - 11;
    memset(group->native->begun, 0, sizeof group->native->begun);
    if (group->native->areas[group->rank])
        atomic_store(&group->native->areas[group->rank]->step, group->native->step);
}

/* So many calls later no record is left of the first. */
static void forget_calls(tt__world *world) {
    tt__recorder *recorder = &tt__world_control(world)->recorder;
    for (size_t i = 0; i < TT__RECORDS; i++)
        atomic_store(&recorder->records[i].number, 0);
}

/* Receives wait while the collective of each number runs. */
static int old_body(tt_store *store, int rank, int world, void *arg) {
    enum { N = 100000, ROUNDS = 5, TAGS = 8 };
    tt_group *group = join_by(store, rank, world, arg);
    float *x = calloc(N, sizeof *x), tokens[TAGS];
    CHECK(x);
    age(group);
    age(group->native->local);
    age(group->native->cross);
    forget_calls(group->native->world);
    meet(store, "old", world);
    for (int round = 0; round < ROUNDS; round++) {
        tt_work *works[TAGS];
        int sum = world * (world - 1) / 2 + world * round;
        float mine = (float)rank;
        for (int i = 0; i < N; i++)
            x[i] = (float)(rank + round);
        for (int tag = 0; tag < TAGS; tag++)
            CHECK_OK(tt_irecv(&works[tag], group, &tokens[tag], 1, TT_F32, (rank + 1) % world, .tag = tag));
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM));
        CHECK(x[N - 1] == (float)sum);
        for (int tag = 0; tag < TAGS; tag++)
            CHECK_OK(tt_send(group, &mine, 1, TT_F32, (rank + world - 1) % world, .tag = tag));
        CHECK_OK(tt_work_wait_all(works, TAGS));
        for (int tag = 0; tag < TAGS; tag++) {
            CHECK(tokens[tag] == (float)((rank + 1) % world));
            tt_work_free(works[tag]);
        }
        CHECK_OK(tt_barrier(group));
        CHECK_OK(tt_broadcast(group, x, N, TT_F32, round % world));
    }
    tt_destroy_process_group(group);
    free(x);
    return 0;
}

static void counters_begin_again(void **state) {
    (void)state;
    by_every_way(4, old_body);
}

/* ---- many groups */

/* What was sent in a group that is destroyed before anybody receives it is forgotten with it. */
static int unheard_body(tt_store *store, int rank, int world, void *arg) {
    enum { GROUPS = 100 };
    unsigned char data[TT__EAGER_MAX] = {0};
    tt_group *world_group = join_by(store, rank, world, arg);
    for (int i = 0; i < GROUPS; i++) {
        tt_group *group;
        CHECK_OK(tt_group_split(&group, world_group, 0, 0));
        tt_work *work = NULL;
        if (rank == 0)
            CHECK_OK(tt_isend(&work, group, data, sizeof data, TT_U8, 1, .tag = i));
        CHECK_OK(tt_barrier(group));
        CHECK_OK(tt_send(world_group, data, 1, TT_U8, (rank + 1) % world, .tag = 7));
        CHECK_OK(tt_recv(world_group, data, 1, TT_U8, (rank + 1) % world, .tag = 7));
        CHECK(!work || tt_work_is_completed(work));
        tt_work_free(work);
        tt_destroy_process_group(group);
    }
    const tt__link *link = world_group->native->world->messages->links[!rank];
    CHECK(link->arrival_count == 0 && link->ready_count == 0);
    tt_destroy_process_group(world_group);
    return 0;
}

static void what_nobody_heard_goes_with_its_group(void **state) {
    (void)state;
    by_every_way(2, unheard_body);
}

/* Names are 20 bits of a counter; the first group keeps 0, and no two groups that live have one name. */
static int names_body(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join_by(store, rank, world, arg), *early, *late[3];
    CHECK_OK(tt_group_split(&early, group, 0, 0));
    group->native->world->groups_named = 0xffffe;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tt_group_split(&late[i], group, 0, 0));
        CHECK(late[i]->id != group->id && late[i]->id != early->id && (!i || late[i]->id != late[i - 1]->id));
        CHECK_OK(tt_barrier(late[i]));
    }
    for (int i = 0; i < 3; i++)
        tt_destroy_process_group(late[i]);
    tt_destroy_process_group(early);
    tt_destroy_process_group(group);
    return 0;
}

static void names_of_groups_are_used_again(void **state) {
    (void)state;
    by_every_way(2, names_body);
}

/* ---- deadlines */

/* A synchronous call comes behind works that have more time than it has itself. */
static int behind_body(tt_store *store, int rank, int world, void *arg) {
    static const char *const over[] = {"over"};
    enum { N = 100000 };
    tt_group *group = join_by(store, rank, world, arg);
    float *x = calloc(N, sizeof *x);
    CHECK(x);
    if (rank == 0) {
        tt_work *work;
        int64_t start = tt__now_ms();
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work));
        CHECK(tt_barrier(group, .timeout_ms = 200) == TT_ERR_TIMEOUT);
        CHECK_TEXT("rank 1 did not");
        CHECK_TEXT("within 200 ms");
        CHECK(tt__now_ms() - start < 5000 + leeway_ms());
        tt_work_free(work);
        CHECK_OK(tt_store_set(store, over[0], "", 0));
    } else {
        CHECK_OK(tt_store_wait(store, over, 1, PATIENCE_MS));
    }
    tt_destroy_process_group(group);
    free(x);
    return 0;
}

static void a_deadline_counts_behind_other_works(void **state) {
    (void)state;
    by_every_way(2, behind_body);
}

/* ---- calls of every kind, to which the other rank does not come */

enum { LARGE = 100000 };
static float a[2 * LARGE], b[2 * LARGE];
static const int64_t counts[2] = {LARGE, LARGE - 1};
static void *const both[2] = {a, b};

#define CALL(name, ...) \
    static tt_status name(tt_group *g) { return __VA_ARGS__; }
#define MS .timeout_ms = 60

CALL(reduce_small, tt_all_reduce(g, a, 1, TT_F32, TT_SUM, MS))
CALL(reduce_large, tt_all_reduce(g, a, LARGE, TT_F32, TT_SUM, MS))
CALL(coalesced, tt_all_reduce_coalesced(g, both, counts, 2, TT_F32, TT_SUM, MS))
CALL(reduce, tt_reduce(g, a, LARGE, TT_F32, TT_SUM, 0, MS))
CALL(reduce_scatter, tt_reduce_scatter(g, a, b, LARGE, TT_F32, TT_SUM, MS))
CALL(broadcast, tt_broadcast(g, a, LARGE, TT_F32, 1, MS))
CALL(all_gather, tt_all_gather(g, a, b, LARGE, TT_F32, MS))
CALL(all_gather_v, tt_all_gather_v(g, a, b, counts, NULL, TT_F32, MS))
CALL(gather, tt_gather(g, a, b, LARGE, TT_F32, 0, MS))
CALL(scatter, tt_scatter(g, a, b, LARGE, TT_F32, 1, MS))
CALL(all_to_all, tt_all_to_all(g, a, b, LARGE, TT_F32, MS))
CALL(all_to_all_v, tt_all_to_all_v(g, a, counts, NULL, b, counts, NULL, TT_F32, MS))
CALL(barrier, tt_barrier(g, MS))
CALL(send_large, tt_send(g, a, LARGE, TT_F32, 1, MS))
CALL(receive, tt_recv(g, a, 1, TT_F32, 1, MS))
CALL(receive_any, tt_recv(g, a, 1, TT_F32, TT_ANY_SOURCE, MS))
CALL(batch,
     tt_batch_isend_irecv(g, ((const tt_p2p_op[]){tt_recv_op(a, 1, TT_F32, 1), tt_send_op(b, 1, TT_F32, 1)}), 2, MS))
CALL(new_group, tt_new_group(&(tt_group *){NULL}, g, (const int[]){0}, 1, MS))
CALL(split, tt_group_split(&(tt_group *){NULL}, g, 0, 0, MS))
CALL(allocate, tt_group_alloc(&(void *){NULL}, g, 4096, MS))
CALL(give_back, tt_group_free(g, NULL, MS))

static const struct {
    const char *name;
    tt_status (*call)(tt_group *);
} calls[] = {{"all_reduce", reduce_small},
             {"all_reduce", reduce_large},
             {"all_reduce_coalesced", coalesced},
             {"reduce", reduce},
             {"reduce_scatter", reduce_scatter},
             {"broadcast", broadcast},
             {"all_gather", all_gather},
             {"all_gather_v", all_gather_v},
             {"gather", gather},
             {"scatter", scatter},
             {"all_to_all", all_to_all},
             {"all_to_all_v", all_to_all_v},
             {"barrier", barrier},
             {"send", send_large},
             {"recv", receive},
             {"recv", receive_any},
             {"batch_isend_irecv", batch},
             {"new_group", new_group},
             {"split", split},
             {"alloc", allocate},
             {"free", give_back}};
enum { CALLS = sizeof calls / sizeof *calls };

static int every_call_body(tt_store *store, int rank, int world, void *arg) {
    static const char *const over[] = {"over"};
    tt_group *group = join_by(store, rank, world, arg), *groups[CALLS];
    for (int i = 0; i < CALLS; i++)
        CHECK_OK(tt_group_split(&groups[i], group, 0, 0));
    for (int i = 0; rank == 0 && i < CALLS; i++) {
        int64_t start = tt__now_ms();
        tt_status status = calls[i].call(groups[i]);
        if (status != TT_ERR_TIMEOUT)
            fprintf(stderr, "%s: ended with %d\n", calls[i].name, (int)status);
        CHECK(status == TT_ERR_TIMEOUT);
        CHECK_TEXT("rank 1 did not");
        CHECK_TEXT("within 60 ms");
        CHECK_TEXT(calls[i].name);
        CHECK(tt__now_ms() - start >= 60 && tt__now_ms() - start < 5000 + leeway_ms());
    }
    if (rank == 0)
        CHECK_OK(tt_store_set(store, over[0], "", 0));
    CHECK_OK(tt_store_wait(store, over, 1, PATIENCE_MS));
    for (int i = 0; i < CALLS; i++)
        tt_destroy_process_group(groups[i]);
    tt_destroy_process_group(group);
    return 0;
}

static void every_call_has_a_deadline(void **state) {
    (void)state;
    by_every_way(2, every_call_body);
}

/* ---- forked children */

static void *hold_lock(void *arg) {
    tt__world *world = ((tt_group **)arg)[0]->native->world;
    tt__world_lock(world);
    *(_Atomic bool *)((void **)arg)[1] = true;
    usleep(300000);
    tt__world_unlock(world);
    return NULL;
}

/* The child ends its copy while another thread of the parent has the lock, and a call is under way that its parent goes
 * on with. */
static int forked_body(tt_store *store, int rank, int world, void *arg) {
    static const char *const go[] = {"go"};
    enum { N = 300000 };
    tt_group *group = join_by(store, rank, world, arg);
    float *x = calloc(N, sizeof *x);
    tt_work *work = NULL;
    CHECK(x);
    x[N - 1] = (float)rank + 1;
    CHECK_OK(tt_barrier(group));
    if (rank == 0) {
        _Atomic bool held = false;
        void *args[] = {group, (void *)&held};
        pthread_t thread;
        int ended;
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work));
        CHECK(!pthread_create(&thread, NULL, hold_lock, args));
        while (!held)
            sched_yield();
        pid_t child = fork();
        CHECK(child >= 0);
        if (!child) {
            alarm(PATIENCE_MS / 1000);
            tt_destroy_process_group(group);
            _exit(work && tt_work_wait(work) == TT_ERR_STATE ? 0 : 1);
        }
        CHECK(waitpid(child, &ended, 0) == child);
        CHECK(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
        pthread_join(thread, NULL);
        CHECK_OK(tt_store_set(store, go[0], "", 0));
    } else {
        CHECK_OK(tt_store_wait(store, go, 1, PATIENCE_MS));
        CHECK_OK(tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work));
    }
    CHECK_OK(tt_work_wait(work));
    CHECK(x[N - 1] == 3);
    tt_work_free(work);
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(group);
    free(x);
    return 0;
}

static void a_child_ends_its_copy_only(void **state) {
    (void)state;
    by_every_way(2, forked_body);
}

/* ---- threads */

typedef struct aborter {
    tt_group *group;
    int after_us;
} aborter;

static void *abort_after(void *arg) {
    const aborter *a = arg;
    usleep((useconds_t)a->after_us);
    tt_ignore(tt_fail(TT_ERR_INVALID, "enough"));
    tt_group_abort(a->group, tt_last_error()); /* a text that the abort itself would change */
    return NULL;
}

/* One group after the other is aborted by another thread while calls of every kind run in it. */
static int aborted_body(tt_store *store, int rank, int world, void *arg) {
    enum { GROUPS = 12, N = 20000 };
    tt_group *all = join_by(store, rank, world, arg);
    float *x = calloc(N, sizeof *x);
    CHECK(x);
    for (int i = 0; i < GROUPS; i++) {
        tt_group *group;
        tt_status status = TT_OK;
        pthread_t thread;
        CHECK_OK(tt_group_split(&group, all, 0, 0));
        aborter a = {group, i * 700};
        if (rank == i % world)
            CHECK(!pthread_create(&thread, NULL, abort_after, &a));
        for (int k = 0; !status; k++) {
            tt_work *work = NULL;
            memset(x, 0, N * sizeof *x);
            if (k % 3 == 2)
                status = tt_all_reduce(group, x, N, TT_F32, TT_SUM, .work = &work);
            else
                status = tt_all_reduce(group, x, k % 3 ? N : 1, TT_F32, TT_SUM);
            if (!status && work)
                status = tt_work_wait(work);
            tt_work_free(work);
        }
        CHECK(status == TT_ERR_ABORTED);
        CHECK_TEXT("aborted the group: enough");
        if (rank == i % world)
            pthread_join(thread, NULL);
        tt_destroy_process_group(group);
        CHECK_OK(tt_barrier(all));
    }
    tt_destroy_process_group(all);
    free(x);
    return 0;
}

static void abort_meets_calls_under_way(void **state) {
    (void)state;
    by_every_way(2, aborted_body);
}

typedef struct leaver {
    tt_group *group;
    _Atomic bool began, left;
} leaver;

static void *let_go(void *arg) {
    leaver *leaver = arg;
    leaver->began = true;
    tt__group_let_go(leaver->group);
    leaver->left = true;
    return NULL;
}

static bool is_listed(const tt__world *world, const tt_group *group) {
    const tt_group *at = world->groups;
    while (at && at != group)
        at = at->native->next_group;
    return at;
}

/* A thread that has given the lock back to ask other ranks goes on with the next group when they have answered. */
static void no_group_goes_while_others_are_asked(void **state) {
    (void)state;
    tt_group *all, *held;
    pthread_t thread;
    assert_int_equal(tt_init_process_group(&all, .init_method = "tcp://localhost:0", .rank = 0, .world_size = 1),
                     TT_OK);
    assert_int_equal(tt_group_split(&held, all, 0, 0), TT_OK);
    tt__world *world = all->native->world;
    tt__group_hold(held);
    tt_destroy_process_group(held);
    tt__world_lock(world);
    world->asking++;
    tt__world_unlock(world);
    leaver leaver = {.group = held};
    assert_int_equal(pthread_create(&thread, NULL, let_go, &leaver), 0);
    for (int64_t start = tt__now_ms(); !leaver.began || tt__now_ms() - start < 20;)
        sched_yield();
    tt__world_lock(world);
    assert_true(is_listed(world, held) && !leaver.left);
    world->asking--;
    tt__world_unlock(world);
    pthread_join(thread, NULL);
    assert_false(is_listed(world, held));
    tt_destroy_process_group(all);
}

enum { THREADS = 3, ROUNDS = 150 };

/* One thread's group: what the others do in theirs is nothing to it. */
static void *busy(void *arg) {
    enum { N = 30000 };
    tt_group *group = arg;
    int32_t *x = calloc(N, sizeof *x);
    int rank = tt_get_rank(group), other = !rank;
    CHECK(x);
    for (int i = 0; i < ROUNDS; i++) {
        tt_work *work = NULL, *empty = NULL;
        int32_t token = i, got = -1;
        x[0] = x[N - 1] = i + rank;
        CHECK_OK(tt_all_reduce(group, x, i % 2 ? N : 1, TT_I32, TT_SUM, .work = &work));
        CHECK_OK(tt_irecv(&empty, group, NULL, 0, TT_I32, other, .tag = 9));
        CHECK_OK(tt_send(group, &token, 1, TT_I32, other));
        CHECK_OK(tt_send(group, NULL, 0, TT_I32, other, .tag = 9));
        CHECK_OK(tt_recv(group, &got, 1, TT_I32, other));
        CHECK(got == i);
        CHECK_OK(tt_work_wait_all((tt_work *[]){work, empty}, 2));
        tt_work_free(work);
        tt_work_free(empty);
        CHECK(x[0] == 2 * i + 1);
        CHECK_OK(tt_barrier(group));
    }
    free(x);
    return NULL;
}

static int busy_body(tt_store *store, int rank, int world, void *arg) {
    tt_group *all = join_by(store, rank, world, arg), *groups[THREADS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK_OK(tt_group_split(&groups[i], all, 0, 0));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&threads[i], NULL, busy, groups[i]));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        tt_destroy_process_group(groups[i]);
    }
    tt_destroy_process_group(all);
    return 0;
}

static void threads_have_groups_of_their_own(void **state) {
    (void)state;
    by_every_way(2, busy_body);
}

/* Join over memory and over TCP with all standard streams closed; what the program prints then reaches no descriptor of
 * ours, since all are 3 or more. */
static int join_without_streams(tt_store *given, int rank, int world, void *arg) {
    tt_store *store = NULL;
    tt_store_server *server = NULL;
    tt_group *group = NULL;
    char path[64], name[32], host[64];
    snprintf(host, sizeof host, "127.0.0.1");
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    CHECK_OK(tt_store_server_new(&server, NULL, 0));
    CHECK_OK(tt_tcp_store(&store, host, tt_store_server_port(server), .timeout_ms = PATIENCE_MS));
    CHECK_OK(tt_init_process_group(&group, .store = given, .rank = rank, .world_size = world, .transport = arg,
                                   .timeout_ms = PATIENCE_MS, .heartbeat_ms = CALM_MS));
    for (int fd = 0; fd < 3; fd++) {
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        CHECK(readlink(name, path, sizeof path) < 0);
    }
    float *x = NULL;
    CHECK_OK(tt_group_alloc((void **)&x, group, 4096));
    *x = 1;
    CHECK(write(STDOUT_FILENO, path, sizeof path) < 0); /* as a printf() would */
    CHECK_OK(tt_all_reduce(group, x, 1024, TT_F32, TT_SUM));
    CHECK(*x == (float)world);
    tt_destroy_process_group(group);
    tt_store_free(store);
    tt_store_server_free(server);
    return 0;
}

static void closed_streams_are_left_alone(void **state) {
    (void)state;
    with_ranks(2, join_without_streams, "shm");
    with_ranks(2, join_without_streams, "tcp");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(abort_meets_calls_under_way),
        cmocka_unit_test(threads_have_groups_of_their_own),
        cmocka_unit_test(counters_begin_again),
        cmocka_unit_test(what_nobody_heard_goes_with_its_group),
        cmocka_unit_test(names_of_groups_are_used_again),
        cmocka_unit_test(a_deadline_counts_behind_other_works),
        cmocka_unit_test(every_call_has_a_deadline),
        cmocka_unit_test(a_child_ends_its_copy_only),
        cmocka_unit_test(no_group_goes_while_others_are_asked),
        cmocka_unit_test(closed_streams_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
