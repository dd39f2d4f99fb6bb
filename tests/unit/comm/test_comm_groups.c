/* Groups of a group's ranks, works, abort, and disagreements that no single group shows. */
#include "support/ranks.h"

#include "base/machine/clock.h"
#include "comm/native_group.h"

#include <pthread.h>

/* How ranks reach each other: all by memory; all by TCP; two "hosts" of neighbours. */
typedef enum way { SHM, TCP, BOTH, WAYS } way;

static tt_group *join_by(tt_store *store, int rank, int world, way way) {
    tt_group *group = NULL;
    if (way == BOTH)
        CHECK(!setenv("TT_HOST_ID", rank < (world + 1) / 2 ? "alpha" : "beta", 1));
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS, .transport = way == TCP ? "tcp" : "auto"));
    return group;
}

static void by_every_way(int world, rank_body body) {
    for (int way = 0; way < WAYS; way++)
        with_ranks(world, body, &way);
}

static int sum_of(tt_group *group, int x) {
    int32_t sum = x;
    CHECK_OK(tt_all_reduce(group, &sum, 1, TT_I32, TT_SUM));
    return sum;
}

/* ---- who is in */

static int subset_body(tt_store *store, int rank, int world, void *arg) {
    static const int ranks[] = {3, 1};
    const int *way = arg;
    tt_group *group = join_by(store, rank, world, (enum way) * way), *sub = group;
    CHECK_OK(tt_new_group(&sub, group, ranks, 2));
    CHECK((sub != NULL) == (rank == 1 || rank == 3));
    if (sub) {
        CHECK(tt_get_world_size(sub) == 2 && tt_get_rank(sub) == (rank == 1));
        CHECK(tt_get_global_rank(sub, 0) == 3 && tt_get_global_rank(sub, 1) == 1 && tt_get_global_rank(sub, 2) == -1);
        CHECK(tt_get_group_rank(sub, 3) == 0 && tt_get_group_rank(sub, 0) == -1);
        CHECK(!strcmp(tt_get_backend(sub), "native"));
        CHECK(sum_of(sub, rank) == 4);
        int32_t from = rank, all[2];
        CHECK_OK(tt_broadcast(sub, &from, 1, TT_I32, 0));
        CHECK(from == 3);
        CHECK_OK(tt_all_gather(sub, &(int32_t){rank}, all, 1, TT_I32));
        CHECK(all[0] == 3 && all[1] == 1);
    }
    CHECK(sum_of(group, 1) == world);
    tt_destroy_process_group(group); /* the child lives on */
    if (sub)
        CHECK(sum_of(sub, 1) == 2);
    tt_destroy_process_group(sub);
    return 0;
}

static void a_subset_is_a_group(void **state) {
    (void)state;
    by_every_way(4, subset_body);
}

/* Two colors, numbered backwards; one rank takes no part. And groups of groups, with symmetric memory of their own. */
static int split_body(tt_store *store, int rank, int world, void *arg) {
    const int *way = arg;
    tt_group *group = join_by(store, rank, world, (enum way) * way), *part = NULL, *pair = NULL;
    float *x = NULL;
    CHECK_OK(tt_group_split(&part, group, rank == 4 ? -1 : rank % 2, -rank));
    CHECK((part == NULL) == (rank == 4));
    if (part) {
        CHECK(tt_get_world_size(part) == 2 && tt_get_rank(part) == (rank < 2));
        CHECK(sum_of(part, rank) == 2 * (rank % 2) + 2);
        CHECK_OK(tt_group_alloc((void **)&x, part, 40000));
        for (int i = 0; i < 10000; i++)
            x[i] = (float)(rank + i);
        CHECK_OK(tt_all_reduce(part, x, 10000, TT_F32, TT_SUM));
        CHECK(x[0] == (float)(2 * (rank % 2) + 2) && x[9999] == x[0] + 2 * 9999);
        CHECK_OK(tt_group_split(&pair, part, rank, 0));
        CHECK(tt_get_world_size(pair) == 1);
        CHECK_OK(tt_all_reduce(pair, x, 10000, TT_F32, TT_SUM)); /* memory of another group of these ranks */
    }
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(part);
    tt_destroy_process_group(group);
    tt_destroy_process_group(pair);
    return 0;
}

static void a_group_is_divided(void **state) {
    (void)state;
    by_every_way(5, split_body);
}

/* Lists are checked, and compared. */
static int refused_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    static const int twice[] = {0, 1, 0}, outside[] = {0, 9}, a[] = {0, 1}, b[] = {1, 2};
    tt_group *group = join_group(store, rank, world), *out = group;
    CHECK(tt_new_group(&out, group, twice, 3) == TT_ERR_INVALID && !out);
    CHECK_TEXT("rank 0 appears twice");
    CHECK(tt_new_group(&out, group, outside, 2) == TT_ERR_INVALID);
    CHECK_TEXT("got 9");
    CHECK(tt_new_group(&out, group, NULL, 2) == TT_ERR_INVALID);
    CHECK(tt_new_group(NULL, group, a, 2) == TT_ERR_INVALID);
    CHECK(sum_of(group, 1) == world);
    CHECK(tt_new_group(&out, group, rank ? a : b, 2) == TT_ERR_MISMATCH && !out);
    CHECK_TEXT("rank 0 called new_group(");
    CHECK_TEXT("of ranks 1, 2 while");
    CHECK_TEXT("of ranks 0, 1.");
    tt_destroy_process_group(group);
    return 0;
}

/* Calls that differ in nothing but a list. */
static int other_counts_body(tt_store *store, int rank, int world, void *arg) {
    const int *way = arg;
    tt_group *group = join_by(store, rank, world, (enum way) * way);
    int64_t counts[3] = {2, 7, rank == 1 ? 5 : 6};
    float x[7] = {0}, all[20];
    CHECK(tt_all_gather_v(group, x, all, counts, NULL, TT_F32) == TT_ERR_MISMATCH);
    CHECK_TEXT("rank 1 called all_gather_v(");
    CHECK_TEXT("with counts 2, 7, 5 (together 14)");
    CHECK_TEXT("with counts 2, 7, 6 (together 15)");
    tt_destroy_process_group(group);
    return 0;
}

static void bad_lists_are_refused(void **state) {
    (void)state;
    with_ranks(3, refused_body, NULL);
    by_every_way(3, other_counts_body);
}

/* What a group had is used again, once nobody can read it any more. */
static int many_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    for (int i = 0; i < 300; i++) {
        tt_group *sub = NULL;
        void *p;
        CHECK_OK(tt_group_split(&sub, group, 0, 0));
        CHECK_OK(tt_group_alloc(&p, sub, 100000));
        CHECK(((char *)p)[0] == 0 && ((char *)p)[99999] == 0);
        memset(p, 1, 100000);
        CHECK(sum_of(sub, i) == world * i);
        tt_destroy_process_group(sub);
    }
    CHECK_OK(tt_barrier(group));
    CHECK(group->native->world->heap.allocated < 20 * 100000); /* of those whose peers have not left yet */
    tt_destroy_process_group(group);
    return 0;
}

static void memory_of_groups_is_used_again(void **state) {
    (void)state;
    with_ranks(3, many_body, NULL);
}

/* ---- works */

/* Works of two groups, waited for in an order that no group has; some are forgotten at once. */
static int works_body(tt_store *store, int rank, int world, void *arg) {
    enum { N = 30000, WORKS = 6 };
    const int *way = arg;
    tt_group *group = join_by(store, rank, world, (enum way) * way), *other = NULL;
    CHECK_OK(tt_group_split(&other, group, 0, -rank));
    for (int round = 0; round < 10; round++) {
        float *x[WORKS];
        tt_work *works[WORKS];
        for (int i = 0; i < WORKS; i++) {
            CHECK((x[i] = calloc(N, sizeof(float))));
            x[i][N - 1] = (float)(rank + i);
            CHECK_OK(tt_all_reduce(i % 2 ? other : group, x[i], i % 3 ? N : N / N, TT_F32, TT_SUM, .work = &works[i]));
        }
        tt_work *forgotten;
        CHECK_OK(tt_barrier(group, .work = &forgotten));
        tt_work_free(forgotten);
        for (int i = 0; i < WORKS; i++) {
            int w = rank % 2 ? WORKS - 1 - i : (i + round) % WORKS;
            CHECK_OK(tt_work_wait(works[w]));
            CHECK(tt_work_is_completed(works[w]) && tt_work_source_rank(works[w]) == -1);
            CHECK_OK(tt_work_wait(works[w]));
            if (w % 3)
                CHECK(x[w][N - 1] == (float)((world * (world - 1) >> 1) + world * w));
        }
        CHECK_OK(tt_work_wait_all(works, WORKS));
        for (int i = 0; i < WORKS; i++) {
            tt_work_free(works[i]);
            free(x[i]);
        }
    }
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(other);
    tt_destroy_process_group(group);
    return 0;
}

static void works_are_waited_for_in_any_order(void **state) {
    (void)state;
    by_every_way(3, works_body);
}

/* A work that outlives its group, done or not. */
static int outliving_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    tt_work *done, *open = NULL;
    int32_t x = 1, y = 1;
    CHECK_OK(tt_all_reduce(group, &x, 1, TT_I32, TT_SUM, .work = &done));
    CHECK_OK(tt_work_wait(done));
    CHECK_OK(tt_barrier(group));
    if (rank == 0)
        CHECK_OK(tt_all_reduce(group, &y, 1, TT_I32, TT_SUM, .work = &open));
    tt_destroy_process_group(group);
    CHECK_OK(tt_work_wait(done));
    if (open)
        CHECK(tt_work_is_completed(open) && tt_work_wait(open) == TT_ERR_STATE);
    tt_work_free(done);
    tt_work_free(open);
    return 0;
}

static void works_outlive_their_group(void **state) {
    (void)state;
    with_ranks(2, outliving_body, NULL);
}

/* Rank 0 waits in A for rank 1, which waits for a work of B that rank 0 has begun: rank 0's waiting must carry B on. */
static int carried_body(tt_store *store, int rank, int world, void *arg) {
    enum { N = 300000 };
    const int *way = arg;
    tt_group *a = join_by(store, rank, world, (enum way) * way), *b = NULL;
    float *x = calloc(N, sizeof *x);
    tt_work *work;
    CHECK(x);
    CHECK_OK(tt_group_split(&b, a, 0, 0));
    for (int round = 0; round < 3; round++) {
        CHECK_OK(tt_all_reduce(b, x, N, TT_F32, TT_SUM, .work = &work));
        if (rank == 0)
            CHECK_OK(tt_barrier(a));
        CHECK_OK(tt_work_wait(work));
        if (rank != 0)
            CHECK_OK(tt_barrier(a));
        tt_work_free(work);
    }
    tt_destroy_process_group(b);
    tt_destroy_process_group(a);
    free(x);
    return 0;
}

static void waiting_carries_other_groups_on(void **state) {
    (void)state;
    by_every_way(2, carried_body);
}

/* ---- deadlines, abort */

static int call_timeout_body(tt_store *store, int rank, int world, void *arg) {
    static const char *const keys[] = {"over/0"};
    const int *way = arg;
    tt_group *group = join_by(store, rank, world, (enum way) * way);
    if (rank == 0) {
        int64_t start = tt__now_ms();
        tt_work *work;
        CHECK_OK(tt_barrier(group, .timeout_ms = 200, .work = &work));
        CHECK(tt_work_wait(work) == TT_ERR_TIMEOUT);
        CHECK_TEXT("rank 1");
        CHECK_TEXT("within 200 ms");
        CHECK(tt__now_ms() - start >= 200 && tt__now_ms() - start < 2000 + leeway_ms());
        tt_work_free(work);
        CHECK_OK(tt_store_set(store, keys[0], "", 0));
    } else {
        CHECK_OK(tt_store_wait(store, keys, 1, PATIENCE_MS));
        tt_status status = tt_barrier(group); /* to which rank 0 had come */
        if (!status)
            status = tt_barrier(group);
        CHECK(status == TT_ERR_TIMEOUT); /* rank 0 has failed, and says why */
        CHECK_TEXT("within 200 ms");
    }
    tt_destroy_process_group(group);
    return 0;
}

static void a_call_has_its_own_deadline(void **state) {
    (void)state;
    by_every_way(2, call_timeout_body);
}

static void *abort_soon(void *group) {
    usleep(100000); /* so that the others are asleep in their calls */
    tt_group_abort(group, "the loss is NaN");
    return NULL;
}

static int abort_body(tt_store *store, int rank, int world, void *arg) {
    const int *way = arg;
    tt_group *group = join_by(store, rank, world, (enum way) * way);
    pthread_t thread;
    if (rank == 1)
        CHECK(!pthread_create(&thread, NULL, abort_soon, group));
    int64_t start = tt__now_ms();
    tt_status status = TT_OK;
    if (rank == 2) { /* comes when all is over; the others are at the first barrier, but not at a second */
        static const char *const keys[] = {"aborted/0", "aborted/1"};
        CHECK_OK(tt_store_wait(store, keys, 2, PATIENCE_MS));
        status = tt_barrier(group);
    }
    if (!status)
        status = tt_barrier(group);
    CHECK(status == TT_ERR_ABORTED);
    CHECK_TEXT("rank 1 aborted the group: the loss is NaN");
    char key[32];
    snprintf(key, sizeof key, "aborted/%d", rank);
    CHECK_OK(tt_store_set(store, key, "", 0));
    CHECK(tt__now_ms() - start < 5000 + leeway_ms());
    CHECK(tt_barrier(group) == TT_ERR_ABORTED);
    if (rank == 1)
        pthread_join(thread, NULL);
    tt_destroy_process_group(group);
    return 0;
}

/* Rank 0 names all that are missing, and goes on; those that came learn it from rank 0, and those that come too late,
 * too. */
static int monitored_body(tt_store *store, int rank, int world, void *arg) {
    static const char *const over[] = {"over"}, *const there[] = {"there"};
    const int *way = arg;
    tt_group *group = join_by(store, rank, world, (enum way) * way);
    for (int i = 0; i < 3; i++) {
        CHECK_OK(tt_monitored_barrier(group));
        CHECK(sum_of(group, 1) == world);
    }
    if (rank == 1 || rank == 3)
        CHECK_OK(tt_store_wait(store, over, 1, PATIENCE_MS));
    if (rank == 2)
        CHECK_OK(tt_store_set(store, there[0], "", 0));
    else
        CHECK_OK(tt_store_wait(store, there, 1, PATIENCE_MS)); /* or rank 2 might be late, too */
    int64_t start = tt__now_ms();
    CHECK(tt_monitored_barrier(group, .timeout_ms = rank ? PATIENCE_MS : 1000) == TT_ERR_TIMEOUT);
    CHECK_TEXT("ranks 1, 3 did not come to monitored_barrier() within 1000 ms");
    CHECK(tt__now_ms() - start < 3000 + leeway_ms());
    if (rank == 0) {
        CHECK(!group->failed);
        CHECK_OK(tt_store_set(store, over[0], "", 0));
    } else {
        CHECK(tt_barrier(group) == TT_ERR_TIMEOUT);
    }
    char key[32];
    static const char *const all[] = {"through/0", "through/1", "through/2", "through/3"};
    snprintf(key, sizeof key, "through/%d", rank);
    CHECK_OK(tt_store_set(store, key, "", 0));
    CHECK_OK(tt_store_wait(store, all, 4, PATIENCE_MS));
    tt_destroy_process_group(group);
    return 0;
}

static void a_monitored_barrier_names_all_missing(void **state) {
    (void)state;
    by_every_way(4, monitored_body);
}

/* ---- disagreements across groups */

typedef struct circle {
    way way;
} circle;

/* Rank r calls a barrier with its right neighbour, whose own call is with the next one: nobody ever meets anybody. */
static int circle_body(tt_store *store, int rank, int world, void *arg) {
    const circle *circle = arg;
    tt_group *group = join_by(store, rank, world, circle->way), *mine = NULL;
    for (int r = 0; r < world; r++) {
        int ranks[] = {r, (r + 1) % world};
        tt_group *pair = NULL;
        CHECK_OK(tt_new_group(&pair, group, ranks, 2));
        if (r == rank)
            mine = pair;
        if (pair)
            CHECK(sum_of(pair, 1) == 2);
    }
    int64_t start = tt__now_ms();
    tt_status status = tt_barrier(world == 2 && rank == 0 ? group : mine);
    CHECK(status == TT_ERR_MISMATCH || status == TT_ERR_PEER); /* the first to see it ends the rest */
    CHECK(tt__now_ms() - start < (circle->way == SHM ? 1000 : 5000) + leeway_ms());
    if (status == TT_ERR_MISMATCH) {
        CHECK_TEXT("ranks wait for each other");
        CHECK_TEXT("rank 0 waits for rank 1 in call");
        CHECK_TEXT("waits for rank 0 in call");
        CHECK_TEXT("barrier() at test_comm_groups.c:");
    }
    _exit(0); /* groups of the peers' are still in use */
}

static void ranks_that_wait_for_each_other_are_named(void **state) {
    (void)state;
    for (int world = 2; world <= 4; world++)
        with_ranks(world, circle_body, &(circle){.way = SHM});
}

/* A thread that has a group of its own, and lives on. */
typedef struct bystander {
    tt_group *group;
    pthread_mutex_t lock;
    pthread_cond_t wakes;
    bool has_called;
} bystander;

static void *stand_by(void *arg) {
    bystander *b = arg;
    CHECK_OK(tt_barrier(b->group));
    pthread_mutex_lock(&b->lock);
    b->has_called = true;
    pthread_cond_broadcast(&b->wakes);
    for (;;) /* to the end of the process */
        pthread_cond_wait(&b->wakes, &b->lock);
    return NULL;
}

/* Ranks that wait for each other are named although there are other threads, which use other groups, and groups that
 * nobody has used yet. */
static int circle_beside_threads_body(tt_store *store, int rank, int world, void *arg) {
    const int *way = arg;
    bystander b = {.lock = PTHREAD_MUTEX_INITIALIZER, .wakes = PTHREAD_COND_INITIALIZER};
    tt_group *group = join_by(store, rank, world, (enum way) * way), *other = NULL, *unused = NULL;
    pthread_t thread;
    CHECK_OK(tt_group_split(&b.group, group, 0, 0));
    CHECK_OK(tt_group_split(&unused, group, 0, 0));
    CHECK_OK(tt_group_split(&other, group, 0, 0));
    CHECK(!pthread_create(&thread, NULL, stand_by, &b));
    pthread_mutex_lock(&b.lock);
    while (!b.has_called)
        pthread_cond_wait(&b.wakes, &b.lock);
    pthread_mutex_unlock(&b.lock);
    CHECK(sum_of(other, 1) == world && sum_of(group, 1) == world);
    int64_t start = tt__now_ms();
    tt_status status = tt_barrier(rank ? other : group);
    CHECK(status == TT_ERR_MISMATCH || status == TT_ERR_PEER); /* the first to see it ends the rest */
    CHECK(tt__now_ms() - start < 5000 + leeway_ms());
    if (status == TT_ERR_MISMATCH)
        CHECK_TEXT("ranks wait for each other: rank ");
    _exit(0); /* groups of the peers' are still in use */
}

static void other_threads_hide_no_circle(void **state) {
    (void)state;
    by_every_way(2, circle_beside_threads_body);
}

/* Two threads, a group each, in opposite order on the two ranks; each waits long before the other's calls. */
typedef struct user {
    tt_group *group;
    int first_ms, calls;
} user;

static void *use_group(void *arg) {
    const user *user = arg;
    usleep((useconds_t)user->first_ms * 1000); /* nobody may take this for a disagreement */
    for (int i = 0; i < user->calls; i++)
        CHECK(sum_of(user->group, i) == 2 * i);
    return NULL;
}

static int threads_body(tt_store *store, int rank, int world, void *arg) {
    const int *way = arg;
    tt_group *a = join_by(store, rank, world, (enum way) * way), *b = NULL;
    CHECK_OK(tt_group_split(&b, a, 0, 0));
    user users[] = {{a, rank ? 700 : 0, 400}, {b, rank ? 0 : 700, 400}};
    pthread_t thread;
    CHECK(!pthread_create(&thread, NULL, use_group, &users[1]));
    use_group(&users[0]);
    CHECK(!pthread_join(thread, NULL));
    tt_destroy_process_group(b);
    tt_destroy_process_group(a);
    return 0;
}

static void threads_with_groups_of_their_own_are_no_circle(void **state) {
    (void)state;
    by_every_way(2, threads_body);
}

static void abort_ends_every_wait(void **state) {
    (void)state;
    by_every_way(3, abort_body);
}

/* One rank leaves as soon as it is in, and is on its way into the next group while the other may still be entering. */
static int hasty_body(tt_store *store, int rank, int world, void *arg) {
    const int *way = arg;
    tt_group *job = join_by(store, rank, world, (enum way) * way), *made = NULL;
    for (int round = 0; round < 40; round++) {
        CHECK_OK(tt_new_group(&made, job, ((int[]){0, 1}), 2));
        if (rank == 1) {
            CHECK(tt_barrier(made) == TT_ERR_PEER);
            CHECK_TEXT("rank 0 left the group after call 0");
        }
        tt_destroy_process_group(made);
    }
    tt_destroy_process_group(job);
    return 0;
}

static void who_leaves_at_once_is_named(void **state) {
    (void)state;
    by_every_way(3, hasty_body);
}

/* Numbers of calls in errors count the program's own: not the library's barrier at the end of joining, nor the two
 * agreements of one allocation, nor those of a reducer. */
static int counted_body(tt_store *store, int rank, int world, void *arg) {
    const int *way = arg;
    tt_group *group = join_by(store, rank, world, (enum way) * way), *made = NULL;
    float x = 1, *memory = NULL;
    CHECK_OK(tt_group_alloc((void **)&memory, group, sizeof x)); /* call 1 */
    CHECK_OK(tt_new_group(&made, group, ((int[]){0, 1}), 2));    /* call 2 */
    CHECK_OK(tt_all_reduce_with(                                 /* not the program's */
                                &(tt_all_reduce_args){
                                    .group = group, .buf = &x, .count = 1, .dtype = TT_F32, .file = "tt_any_name"},
                                offsetof(tt_all_reduce_args, tt_end)));
    CHECK_OK(tt_barrier(group)); /* call 3 */
    CHECK((rank ? tt_barrier(group) : tt_all_reduce(group, &x, 1, TT_F32, TT_SUM)) == TT_ERR_MISMATCH);
    CHECK_TEXT("call 4 of the group differs: rank 1 called barrier() at test_comm_groups.c:");
    CHECK_OK(tt_barrier(made));
    if (rank == 0) {
        CHECK(tt_barrier(made) == TT_ERR_PEER);
        CHECK_TEXT("left the group after call 1, while rank 0 waits for it in call 2, barrier() at ");
    }
    tt_destroy_process_group(made);
    tt_destroy_process_group(group);
    return 0;
}

static void errors_number_the_programs_calls(void **state) {
    (void)state;
    by_every_way(2, counted_body);
}

/* ---- small stacks */

typedef struct small_rank {
    tt_store *store;
    int rank, world, way;
} small_rank;

static void *live_in_a_small_stack(void *arg) {
    const small_rank *r = arg;
    const int ranks[] = {2, 0, 1};
    uint16_t x[300] = {0};
    tt_group *group = join_by(r->store, r->rank, r->world, (way)r->way), *sub = NULL, *half = NULL;
    CHECK_OK(tt_new_group(&sub, group, ranks, 3));
    CHECK_OK(tt_group_split(&half, group, r->rank % 2, r->rank));
    CHECK_OK(tt_all_reduce(sub, x, 300, TT_F16, TT_AVG));
    CHECK(x[299] == 0 && sum_of(half, 1) == (r->rank % 2 ? 1 : 2));
    tt_destroy_process_group(half);
    tt_destroy_process_group(sub);
    tt_destroy_process_group(group);
    return arg;
}

/* As in a program that began under `ulimit -s 64`. */
static int small_stack_body(tt_store *store, int rank, int world, void *arg) {
    pthread_t thread;
    pthread_attr_t attr;
    small_rank r = {store, rank, world, *(const int *)arg};
    CHECK(!pthread_attr_init(&attr) && !pthread_attr_setstacksize(&attr, 64 << 10));
    CHECK(!pthread_create(&thread, &attr, live_in_a_small_stack, &r) && !pthread_join(thread, NULL));
    return pthread_attr_destroy(&attr);
}

static void a_small_stack_is_enough(void **state) {
    (void)state;
    if (!getenv("TT_SANITIZED")) /* whose frames take more */
        by_every_way(3, small_stack_body);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_threads_hide_no_circle),
        cmocka_unit_test(errors_number_the_programs_calls),
        cmocka_unit_test(a_subset_is_a_group),
        cmocka_unit_test(a_group_is_divided),
        cmocka_unit_test(bad_lists_are_refused),
        cmocka_unit_test(memory_of_groups_is_used_again),
        cmocka_unit_test(works_are_waited_for_in_any_order),
        cmocka_unit_test(works_outlive_their_group),
        cmocka_unit_test(waiting_carries_other_groups_on),
        cmocka_unit_test(a_call_has_its_own_deadline),
        cmocka_unit_test(abort_ends_every_wait),
        cmocka_unit_test(a_monitored_barrier_names_all_missing),
        cmocka_unit_test(ranks_that_wait_for_each_other_are_named),
        cmocka_unit_test(threads_with_groups_of_their_own_are_no_circle),
        cmocka_unit_test(who_leaves_at_once_is_named),
        cmocka_unit_test(a_small_stack_is_enough),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
