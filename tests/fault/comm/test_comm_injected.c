/* Calls into the system that fail: in a life of some ranks (join, compute together, leave) the nth call of one of them,
 * for every n until nothing is left to fail; over shared memory, TCP, TLS, and both shared memory and TCP. Each life
 * must end in bounded time, with success or an error that has a text on each rank and names the one to blame, and leave
 * no block, descriptor, mapping or thread behind. Also: bytes that come and go one at a time, and waits that are
 * interrupted, are no failures at all.
 *
 * Without TT_STORM_CASES lives are skipped, as TT_STORM_SEED has it, so that half a minute is enough. */
#include "support/hosts.h"
#include "support/inject.h"
#include "support/leftovers.h"
#include "support/ranks.h"
#include "support/storm.h"

#include "base/machine/clock.h"

/* A rank that waits for one that failed without a word waits this long. */
enum { SHORT_MS = 250, LIMIT_MS = 8000, LARGE = 300000 };

typedef struct scene {
    enum hosts hosts;
    int world;
    bool tls;
    unsigned classes;
    int victim;
    long rounds; /* about how many lives in the lean form */
} scene;

/* ---- a life */

/* A small and a large message to the next rank, from the one before. */
static tt_status pass(tt_group *group, float *out, float *in) {
    int rank = tt_get_rank(group), size = tt_get_world_size(group);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    const tt_p2p_op ops[] = {
        tt_send_op(out, 10, TT_F32, next, .tag = 1),
        tt_recv_op(in, 10, TT_F32, before, .tag = 1),
        tt_send_op(out + 10, LARGE - 10, TT_F32, next, .tag = 2),
        tt_recv_op(in + 10, LARGE - 10, TT_F32, before, .tag = 2),
    };
    return tt_batch_isend_irecv(group, ops, 4);
}

static tt_status compute(tt_group *group, void *shared, float *plain) {
    tt_work *works[3] = {NULL};
    float x[4] = {1, 2, 3, 4};
    tt_status status = tt_barrier(group);
    if (!status)
        status = tt_all_reduce(group, x, 4, TT_F32, TT_SUM);
    if (!status)
        status = tt_all_reduce(group, plain, LARGE, TT_F32, TT_SUM);
    if (!status)
        status = tt_broadcast(group, shared, LARGE, TT_F32, 1);
    if (!status)
        status = pass(group, plain, shared);
    for (int i = 0; i < 3 && !status; i++)
        status = tt_all_reduce(group, (float *)shared + 1000 * i, 1000, TT_F32, TT_SUM, .work = &works[i]);
    tt_status waited = tt_work_wait_all(works, 3);
    for (int i = 0; i < 3; i++)
        tt_work_free(works[i]);
    return status ? status : waited;
}

/* The same in a group of the first and the last. */
static tt_status compute_apart(tt_group *group, void *shared, float *plain) {
    tt_group *pair = NULL;
    tt_status status = tt_new_group(&pair, group, ((int[]){tt_get_world_size(group) - 1, 0}), 2);
    if (!status && pair)
        status = compute(pair, shared, plain);
    tt_destroy_process_group(pair);
    return status;
}

/* `port`: of the store, under `prefix`. */
static tt_status live(int port, const char *prefix, int rank, int world, int64_t patience_ms, float *plain) {
    tt_store *store = NULL, *prefixed = NULL;
    tt_group *group = NULL;
    void *shared = NULL;
    tt_status status = tt_tcp_store(&store, "127.0.0.1", port, .timeout_ms = patience_ms);
    if (!status)
        status = tt_prefix_store(&prefixed, prefix, store);
    if (!status) {
        status = tt_init_process_group(&group, .store = prefixed, .rank = rank, .world_size = world,
                                       .timeout_ms = patience_ms, .heartbeat_ms = CALM_MS);
        CHECK((status == TT_OK) == (group != NULL));
    }
    if (!status)
        status = tt_group_alloc(&shared, group, LARGE * sizeof(float));
    if (!status)
        status = compute(group, shared, plain);
    if (!status)
        status = compute_apart(group, shared, plain);
    tt_destroy_process_group(group);
    tt_store_free(prefixed);
    tt_store_free(store);
    return status;
}

/* ---- what is left behind */

static void check_left(const holdings *before, long blocks, long n, const char *struck) {
    char left[160];
    compare_holdings(before, left, sizeof left);
    if (!*left && inject_live_blocks() == blocks)
        return;
    fprintf(stderr, "call %ld (%s) failed: blocks %ld -> %ld %s\n", n, struck ? struck : "none", blocks,
            inject_live_blocks(), left);
    CHECK(!"nothing is left behind");
}

/* ---- rounds */

/* Patience is so short here that a rank that waits for a CPU is given up on, too, and rightly named. */
static bool gave_up(const char *text) {
    return strstr(text, " did not ") &&
           (strstr(text, " within ") || strstr(text, " in time") || strstr(text, " ms that were left"));
}

/* Who failed is told by the failure itself, not by its silence: heartbeats are rare here. Who fails before a group is
 * whole is not known in it; there the others see each other leave. */
static bool names(int rank, const char *text) {
    char who[24];
    snprintf(who, sizeof who, "rank %d", rank);
    return strstr(text, who) || strstr(text, "ranks ") || strstr(text, "has left the job") || gave_up(text);
}

static void check_blame(const scene *scene, int rank, tt_status status, long n) {
    CHECK(!status || tt_last_error()[0]);
    if (status != TT_ERR_PEER || rank == scene->victim || names(scene->victim, tt_last_error()))
        return;
    fprintf(stderr, "call %ld of rank %d failed, and rank %d says: %s\n", n, scene->victim, rank, tt_last_error());
    CHECK(!"who failed is named");
}

static tt_status round_of(tt_store *store, const scene *scene, int rank, long n, float *plain, const char **struck) {
    char prefix[32];
    bool armed = n >= 0 && rank == scene->victim;
    snprintf(prefix, sizeof prefix, "round/%ld", n);
    tt_clear_error();
    holdings before = look_at_holdings();
    long blocks = inject_live_blocks();
    int64_t start = tt__now_ms();
    inject_arm(armed ? scene->classes : 0, n);
    tt_status status = live(tt_store_port(store), prefix, rank, scene->world, n < 0 ? PATIENCE_MS : SHORT_MS, plain);
    *struck = inject_disarm();
    check_blame(scene, rank, status, n);
    int64_t took = tt__now_ms() - start;
    if (took > LIMIT_MS + leeway_ms())
        fprintf(stderr, "call %ld (%s): took %lld ms\n", n, *struck ? *struck : "none", (long long)took);
    CHECK(took <= LIMIT_MS + leeway_ms());
    check_left(&before, blocks, n, *struck);
    return status;
}

/* When all have ended it: did the victim's call number n exist? A life that ended before that, because the machine is
 * busy, says nothing. */
static bool goes_on(tt_store *store, const scene *scene, int rank, long n, const char *struck, tt_status status) {
    char key[32], over[32];
    tt_store_value value;
    snprintf(key, sizeof key, "struck/%ld", n);
    if (rank == scene->victim)
        CHECK_OK(tt_store_set(store, key, struck || status ? "more" : "end", 4));
    snprintf(over, sizeof over, "over/%ld", n);
    CHECK_OK(tt_store_barrier(store, over, scene->world, 0));
    CHECK_OK(tt_store_get(store, key, &value));
    bool more = !strcmp(value.data, "more");
    tt_store_value_free(&value);
    return more;
}

static int lives(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    const char *struck;
    uint64_t state = storm_case(0);
    long calls = 0, stride = 1;
    float *plain = calloc(LARGE, sizeof *plain);
    CHECK(plain && world == scene->world);
    hosts_enter(scene->hosts, rank);
    alarm(storm_number("TT_STORM_CASES", 0) ? 3600 : (unsigned)test_seconds() * 4 / 5);
    /* Whole lives first: what is made once for all is made, and the calls are counted. */
    for (long n = -3; n < 0; n++)
        CHECK_OK(round_of(store, scene, rank, n, plain, &struck));
    for (long n = 0;; n += 1 + (long)storm_below(&state, (size_t)stride)) {
        tt_status status = round_of(store, scene, rank, n, plain, &struck);
        if (!goes_on(store, scene, rank, n, struck, status))
            break;
        calls++;
        if (!storm_number("TT_STORM_CASES", 0) && calls > scene->rounds / 2)
            stride = 1 + n;
    }
    CHECK(calls > 5); /* the stand-ins were really called */
    if (rank == scene->victim && getenv("TT_STORM_TELL"))
        fprintf(stderr, "%s%s, classes %u, rank %d: %ld lives\n", hosts_name(scene->hosts), scene->tls ? ", TLS" : "",
                scene->classes, rank, calls);
    free(plain);
    return 0;
}

enum { MEMORY = INJECT_MEMORY | INJECT_MAPPINGS, SOCKETS = INJECT_SOCKETS | INJECT_SYSTEM };

static void act(scene *scene, int (*body)(tt_store *store, int rank, int world, void *arg)) {
    if (!hosts_wanted(scene->hosts))
        return;
    if (scene->tls) {
        setenv("TT_TLS", "1", 1);
        setenv("TT_SECRET", "the secret of this test's job", 1);
    }
    with_ranks(scene->world, body, scene);
    unsetenv("TT_TLS");
    unsetenv("TT_SECRET");
}

static void play(scene scene) { act(&scene, lives); }

static void on_one_host(void **state) {
    (void)state;
    for (int victim = 0; victim < 2; victim++) {
        play((scene){HOSTS_ONE, 2, false, MEMORY, victim, 10});
        play((scene){HOSTS_ONE, 2, false, SOCKETS, victim, 10});
    }
}

/* Rank 0 is called, rank 1 calls and is called, rank 2 calls. */
static void over_tcp(void **state) {
    (void)state;
    play((scene){HOSTS_TCP, 3, false, MEMORY, 1, 10});
    play((scene){HOSTS_TCP, 2, false, SOCKETS, 0, 10});
    play((scene){HOSTS_TCP, 3, false, SOCKETS, 1, 10});
}

static void over_tls(void **state) {
    (void)state;
    play((scene){HOSTS_TCP, 2, true, MEMORY | SOCKETS, 1, 10});
}

static void on_two_hosts(void **state) {
    (void)state;
    play((scene){HOSTS_PAIRS, 4, false, MEMORY, 2, 10});
    play((scene){HOSTS_PAIRS, 4, false, SOCKETS, 1, 10});
}

/* ---- a group that can't be made */

static int memberless(tt_store *store, int rank, int world, void *arg) {
    hosts_enter(*(const enum hosts *)arg, rank);
    tt_group *group = join_group(store, rank, world), *made = NULL;
    CHECK_OK(tt_barrier(group));
    for (int before = 0; before < 3; before++) { /* of the answers; of the group, and what it has */
        inject_arm(rank == 1 ? INJECT_MEMORY : 0, before);
        tt_status status = tt_group_split(&made, group, 0, 0);
        inject_disarm();
        CHECK(status == TT_ERR_MEMORY && !made);
        CHECK_TEXT("no memory for a group of 3 ranks");
        CHECK(rank == 1 || strstr(tt_last_error(), "rank 1: "));
    }
    CHECK_OK(tt_group_split(&made, group, 0, 0));
    CHECK_OK(tt_barrier(made));
    tt_destroy_process_group(made);
    tt_destroy_process_group(group);
    return 0;
}

static void who_can_not_be_in_a_new_group_says_why(void **state) {
    (void)state;
    for (enum hosts hosts = HOSTS_ONE; hosts <= HOSTS_PAIRS; hosts++)
        if (hosts_wanted(hosts))
            with_ranks(3, memberless, &hosts);
}

/* ---- no failures */

static int whole_life(tt_store *store, int rank, int world, void *arg) {
    float *plain = calloc(LARGE, sizeof *plain);
    CHECK(plain);
    hosts_enter(((const scene *)arg)->hosts, rank);
    inject_interruptions(3);
    tt_group *group = join_group(store, rank, world);
    for (int i = 0; i < LARGE; i++)
        plain[i] = (float)(rank + 1);
    inject_one_byte(true);
    float x[4] = {1, 2, 3, 4};
    /* Little of it: on a busy machine each byte may wait for a CPU. */
    for (int i = 0; i < 5; i++)
        CHECK_OK(tt_all_reduce(group, x, 4, TT_F32, TT_MAX, .timeout_ms = 3 * PATIENCE_MS));
    CHECK_OK(tt_all_reduce(group, plain, 100, TT_F32, TT_SUM, .timeout_ms = 3 * PATIENCE_MS));
    inject_one_byte(false);
    CHECK(plain[0] == 3 && plain[99] == 3 && plain[100] == (float)(rank + 1));
    CHECK_OK(tt_all_reduce(group, plain, LARGE, TT_F32, TT_MAX, .timeout_ms = 3 * PATIENCE_MS));
    CHECK(plain[99] == 3 && plain[LARGE - 1] == 2);
    inject_interruptions(0);
    tt_destroy_process_group(group);
    free(plain);
    return 0;
}

static void pieces_and_interruptions_are_no_failures(void **state) {
    (void)state;
    scene scenes[] = {{HOSTS_ONE, 2, false, 0, 0, 0}, {HOSTS_TCP, 2, false, 0, 0, 0}, {HOSTS_TCP, 2, true, 0, 0, 0}};
    for (int i = 0; i < 3; i++)
        act(&scenes[i], whole_life);
}

int main(void) {
    storm_begin();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(on_one_host),
        cmocka_unit_test(over_tcp),
        cmocka_unit_test(over_tls),
        cmocka_unit_test(on_two_hosts),
        cmocka_unit_test(who_can_not_be_in_a_new_group_says_why),
        cmocka_unit_test(pieces_and_interruptions_are_no_failures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
