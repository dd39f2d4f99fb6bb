/* What a child of a rank can do with the groups that it inherits: end its copies. Every other call is refused at once,
 * and the parent's group does not notice. */
#include "support/hosts.h"
#include "support/ranks.h"

#include "comm/native_group.h"

enum { N = 300000 };

typedef struct belongings {
    tt_group *group;
    tt_work *reduction, *receive;
    float *x, *shared;
} belongings;

#define CHECK_REFUSED(call)                    \
    do {                                       \
        CHECK((call) == TT_ERR_STATE);         \
        CHECK_TEXT("was forked by rank 0 (");  \
        CHECK_TEXT("tt_init_process_group()"); \
    } while (0)

static void collectives_are_refused(const belongings *b) {
    tt_work *work = NULL;
    tt_group *group = b->group, *made = NULL;
    void *memory = NULL;
    CHECK_REFUSED(tt_barrier(group));
    CHECK_REFUSED(tt_monitored_barrier(group));
    CHECK_REFUSED(tt_all_reduce(group, b->x, 1, TT_F32, TT_SUM));
    CHECK_REFUSED(tt_all_reduce(group, b->shared, 1000, TT_F32, TT_SUM));
    CHECK_REFUSED(tt_all_reduce(group, b->x, 1000, TT_F32, TT_SUM, .work = &work));
    CHECK_REFUSED(tt_broadcast(group, b->x, 1, TT_F32, 0));
    CHECK_REFUSED(tt_all_gather(group, b->x, b->shared, 1, TT_F32));
    CHECK_REFUSED(tt_new_group(&made, group, ((int[]){0, 1}), 2));
    CHECK_REFUSED(tt_group_split(&made, group, 0, 0));
    CHECK_REFUSED(tt_group_alloc(&memory, group, 64));
    CHECK_REFUSED(tt_group_free(group, b->shared));
    CHECK(!work && !made && !memory);
}

static void messages_and_works_are_refused(const belongings *b) {
    tt_work *work = NULL;
    CHECK_REFUSED(tt_send(b->group, b->x, 1, TT_F32, 1));
    CHECK_REFUSED(tt_recv(b->group, b->x, 1, TT_F32, 1));
    CHECK_REFUSED(tt_isend(&work, b->group, b->x, 1, TT_F32, 1));
    CHECK_REFUSED(tt_work_wait(b->reduction));
    CHECK_REFUSED(tt_work_wait(b->receive));
    CHECK(!work && !tt_work_is_completed(b->reduction) && !tt_work_is_completed(b->receive));
}

static void own_group_works(void) {
    tt_group *own;
    float y = 3;
    CHECK_OK(tt_init_process_group(&own, .init_method = "tcp://127.0.0.1:1", .rank = 0, .world_size = 1));
    CHECK_OK(tt_all_reduce(own, &y, 1, TT_F32, TT_SUM));
    CHECK(y == 3);
    tt_destroy_process_group(own);
}

/* The lock was held when it was forked: whoever takes it waits for ever. */
static void be_child(const belongings *b) {
    alarm(20);
    collectives_are_refused(b);
    messages_and_works_are_refused(b);
    tt_group_abort(b->group, "a child's whim");
    CHECK_REFUSED(tt_barrier(b->group));
    own_group_works();
    tt_work_free(b->reduction);
    tt_destroy_process_group(b->group);
    CHECK(tt_work_wait(b->receive) == TT_ERR_STATE);
    tt_work_free(b->receive);
    _exit(0);
}

static void have_child(const belongings *b) {
    int ended;
    tt__world_lock(b->group->native->world);
    pid_t child = fork();
    if (!child)
        be_child(b);
    tt__world_unlock(b->group->native->world);
    CHECK(child > 0 && waitpid(child, &ended, 0) == child);
    CHECK(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}

static int body(tt_store *store, int rank, int world, void *arg) {
    static const char *const go[] = {"go"};
    hosts_enter(*(const enum hosts *)arg, rank);
    belongings b = {.group = join_group(store, rank, world), .x = calloc(N, sizeof *b.x)};
    float sent = 7, received = 0;
    CHECK(b.x);
    b.x[N - 1] = (float)rank + 1;
    CHECK_OK(tt_group_alloc((void **)&b.shared, b.group, 1000 * sizeof *b.shared));
    CHECK_OK(tt_barrier(b.group));
    if (rank == 1)
        CHECK_OK(tt_store_wait(store, go, 1, 20000));
    CHECK_OK(tt_irecv(&b.receive, b.group, &received, 1, TT_F32, 1 - rank));
    CHECK_OK(tt_all_reduce(b.group, b.x, N, TT_F32, TT_SUM, .work = &b.reduction));
    if (rank == 0) {
        have_child(&b);
        CHECK_OK(tt_store_set(store, go[0], "", 0));
    }
    CHECK_OK(tt_send(b.group, &sent, 1, TT_F32, 1 - rank));
    CHECK_OK(tt_work_wait(b.reduction));
    CHECK_OK(tt_work_wait(b.receive));
    CHECK(b.x[N - 1] == 3 && received == 7);
    tt_work_free(b.reduction);
    tt_work_free(b.receive);
    CHECK_OK(tt_barrier(b.group));
    tt_destroy_process_group(b.group);
    free(b.x);
    return 0;
}

static void a_child_can_only_end_its_copy(void **state) {
    (void)state;
    for (enum hosts hosts = HOSTS_ONE; hosts <= HOSTS_TCP; hosts++)
        with_ranks(2, body, &hosts);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_child_can_only_end_its_copy)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
