/* Ranks on a network that misbehaves: all TCP connections between them go through a relay that is late, forwards single
 * bytes, falls silent, tears connections in the middle of a frame, or changes a bit. What is slow must still be right;
 * what is broken ends every rank's call in bounded time, by an error that names the right rank. */
#include "support/calls.h"
#include "support/inject.h"
#include "support/ranks.h"
#include "support/relay.h"

#include "base/machine/clock.h"

#include <stdatomic.h>
#include <sys/mman.h>

enum {
    WORLD = 3,
    VICTIM = 2,
    HEARTBEAT_MS = 2500, /* where silence is what is tested */
    SLACK_MS = 1000,
    MAX_BYTES = 100000,
    CALM_BYTES = 1000,
    /* a bit of every eighth byte: two handshake messages each way take 100 bytes, two sealed records some 100 more */
    FLIP_STEP = 8,
    FLIP_END = 208,
    FLIP_GAMES = 26, /* at a time: first those of the handshake, where the called rank waits out its time */
    FLIP_TIMEOUT_MS = 2500
};

/* What a rank tells the test, in shared memory. */
typedef struct testimony {
    _Atomic int under_way;
    tt_status status;
    int wrong; /* results that were */
    int64_t returned_ns;
    char text[1200];
} testimony;

typedef struct scene {
    int relay_port;
    int calls; /* then leave; 0: until one fails */
    int64_t timeout_ms, heartbeat_ms;
    const char *wire; /* TT_WIRE; NULL: plain */
    size_t max_bytes;
    uint64_t state;
    testimony *told;
} scene;

static tt_status make_calls(const scene *scene, tt_group *group, int rank, int *wrong) {
    uint64_t state = scene->state;
    void *send = malloc(drawn_bytes(WORLD, MAX_BYTES)), *recv = malloc(drawn_bytes(WORLD, MAX_BYTES));
    char text[128];
    tt_status status = TT_OK;
    CHECK(send && recv);
    for (int i = 0; !status && (!scene->calls || i < scene->calls); i++) {
        drawn call = drawn_call(&state, WORLD, scene->max_bytes);
        drawn_fill(&call, rank, WORLD, send, recv);
        status = drawn_make(group, &call, rank, WORLD, send, recv, NULL);
        if (!status && *drawn_check(&call, rank, WORLD, recv, text, sizeof text))
            ++*wrong;
    }
    free(send);
    free(recv);
    return status;
}

static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    testimony *mine = &scene->told[rank];
    tt_group *group = NULL;
    CHECK(!setenv("TT_TRANSPORT", "tcp", 1));
    if (scene->wire)
        CHECK(!setenv("TT_WIRE", scene->wire, 1) && !setenv("TT_SECRET", "0123456789abcdef0123456789abcdef", 1));
    inject_relay(scene->relay_port, tt_store_port(store), rank);
    tt_status status = tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world,
                                             .timeout_ms = scene->timeout_ms, .heartbeat_ms = scene->heartbeat_ms);
    if (!status)
        status = tt_barrier(group);
    atomic_store(&mine->under_way, 1);
    if (!status)
        status = make_calls(scene, group, rank, &mine->wrong);
    mine->returned_ns = tt__now_ns();
    mine->status = status;
    snprintf(mine->text, sizeof mine->text, "%s", status ? tt_last_error() : "");
    tt_destroy_process_group(group);
    return 0;
}

/* ---- playing */

static void pass_ms(int64_t ms) {
    nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* Play `scene` with the network as `before` from the beginning, and as `after` once all ranks are under way. Returns
 * when that was. */
static int64_t play(scene *scene, relay_how before, relay_how after, int caller, int64_t amount) {
    relay relay;
    ranks ranks;
    memset(scene->told, 0, WORLD * sizeof *scene->told);
    relay_start(&relay);
    scene->relay_port = relay.port;
    relay_tell(&relay, -1, before, amount);
    start_ranks(&ranks, WORLD, body, scene);
    for (int r = 0; r < WORLD; r++)
        while (!atomic_load(&scene->told[r].under_way))
            pass_ms(1);
    int64_t struck = tt__now_ns();
    if (after != before)
        relay_tell(&relay, caller, after, amount);
    int bad = count_bad_ranks(&ranks);
    relay_stop(&relay);
    assert_int_equal(bad, 0);
    return struck;
}

static void print_testimony(const scene *scene, int64_t struck) {
    for (int r = 0; r < WORLD; r++)
        fprintf(stderr, "rank %d: %s after %.1f ms, %d wrong results: %s\n", r, tt_status_name(scene->told[r].status),
                (double)(scene->told[r].returned_ns - struck) / 1e6, scene->told[r].wrong, scene->told[r].text);
}

static bool all_right(const scene *scene) {
    for (int r = 0; r < WORLD; r++)
        if (scene->told[r].status || scene->told[r].wrong)
            return false;
    return true;
}

/* The victim's links are broken, so the others name it, and it names another. */
static bool rightly_named(const scene *scene, int64_t struck, int64_t limit_ms) {
    for (int r = 0; r < WORLD; r++) {
        const testimony *told = &scene->told[r];
        bool named = r == VICTIM ? strstr(told->text, "rank 0 ") || strstr(told->text, "rank 1 ")
                                 : strstr(told->text, "rank 2 ") != NULL;
        if (told->status != TT_ERR_PEER || !named || told->returned_ns - struck > (limit_ms + leeway_ms()) * 1000000)
            return false;
    }
    return true;
}

static scene new_scene(long number) {
    scene scene = {
        .max_bytes = MAX_BYTES, .timeout_ms = PATIENCE_MS, .heartbeat_ms = CALM_MS, .state = storm_case(number)};
    scene.told = mmap(NULL, WORLD * sizeof *scene.told, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(scene.told != MAP_FAILED);
    return scene;
}

static void end_scene(scene *scene) { munmap(scene->told, WORLD * sizeof *scene->told); }

/* ---- what is slow is right */

static void slow_is_right(relay_how how, int64_t amount, const char *wire) {
    scene scene = new_scene(how);
    scene.calls = 6;
    scene.max_bytes = CALM_BYTES;
    scene.wire = wire;
    int64_t struck = play(&scene, how, how, -1, amount);
    if (!all_right(&scene)) {
        print_testimony(&scene, struck);
        fail_msg("a slow network is no failure");
    }
    end_scene(&scene);
}

static void single_bytes(void **state) {
    (void)state;
    slow_is_right(RELAY_CHOP, 0, NULL);
    slow_is_right(RELAY_CHOP, 0, "sealed");
    slow_is_right(RELAY_CHOP, 0, "tls");
}

static void late_bytes(void **state) {
    (void)state;
    slow_is_right(RELAY_DELAY, 15, NULL);
}

/* ---- what is broken is named */

static void broken_is_named(relay_how how, long fallback, int64_t limit_ms) {
    long cases = storm_cases(fallback);
    for (long i = 0; i < cases; i++) {
        uint64_t state = storm_case(i + 1000 * (long)how);
        int64_t amount = (int64_t)storm_below(&state, i % 2 ? 200000 : 300);
        scene scene = new_scene(i);
        if (storm_skips(i))
            continue;
        if (how == RELAY_STALL)
            scene.heartbeat_ms = HEARTBEAT_MS;
        int64_t struck = play(&scene, RELAY_FORWARD, how, VICTIM, amount);
        if (!rightly_named(&scene, struck, limit_ms)) {
            print_testimony(&scene, struck);
            fail_msg("case %ld (seed %ld), after %lld bytes", i, storm_number("TT_STORM_SEED", 1), (long long)amount);
        }
        end_scene(&scene);
    }
}

static void torn_streams(void **state) {
    (void)state;
    broken_is_named(RELAY_TEAR, 6, SLACK_MS);
}

static void stalled_streams(void **state) {
    (void)state;
    broken_is_named(RELAY_STALL, 4, HEARTBEAT_MS + SLACK_MS);
}

/* ---- a wrong bit */

/* Nothing guards plain TCP but its own checksums, so a result may be wrong, or a rank waits until its time is over; but
 * nobody crashes or hangs. A sealed wire and TLS let nothing wrong through. */
static void wrong_bits(void **state) {
    (void)state;
    static const char *const wires[] = {NULL, "sealed", "tls", "sealed"};
    long cases = storm_cases(4);
    for (long i = 0; i < cases; i++) {
        uint64_t random = storm_case(i + 5000);
        scene scene = new_scene(i);
        scene.wire = wires[i % 4];
        scene.calls = 40;
        scene.timeout_ms = 10000;
        scene.heartbeat_ms = HEARTBEAT_MS;
        if (storm_skips(i))
            continue;
        int64_t struck = play(&scene, RELAY_FORWARD, RELAY_FLIP, VICTIM, (int64_t)storm_below(&random, 2000));
        int wrong = 0;
        for (int r = 0; r < WORLD; r++)
            wrong += scene.told[r].wrong;
        if (scene.wire && wrong) {
            print_testimony(&scene, struck);
            fail_msg("case %ld (seed %ld)", i, storm_number("TT_STORM_SEED", 1));
        }
        end_scene(&scene);
    }
}

/* ---- a wrong bit of the handshake and of the first sealed records, at each place */

static int sum_until_it_fails(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    testimony *mine = &scene->told[rank];
    tt_group *group = NULL;
    CHECK(!setenv("TT_TRANSPORT", "tcp", 1) && !setenv("TT_WIRE", "sealed", 1));
    CHECK(!setenv("TT_SECRET", "0123456789abcdef0123456789abcdef", 1));
    inject_relay(scene->relay_port, tt_store_port(store), rank);
    tt_status status = tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world,
                                             .timeout_ms = scene->timeout_ms, .heartbeat_ms = scene->heartbeat_ms);
    for (int i = 0; !status && i < 1000; i++) {
        float x = 1;
        status = tt_all_reduce(group, &x, 1, TT_F32, TT_SUM);
        mine->wrong += !status && x != (float)world;
    }
    mine->status = status;
    snprintf(mine->text, sizeof mine->text, "%s", status ? tt_last_error() : "");
    tt_destroy_process_group(group);
    return 0;
}

/* Both ranks fail, name each other unless their time was over, and had no wrong sum before. */
static bool flip_was_noticed(const scene *scene) {
    bool noticed = true;
    for (int r = 0; r < 2; r++) {
        const testimony *told = &scene->told[r];
        bool named = told->status == TT_ERR_TIMEOUT || strstr(told->text, r ? "rank 0" : "rank 1");
        noticed = noticed && told->status && named && !told->wrong;
    }
    return noticed;
}

static pid_t start_flip_game(relay_how how, int64_t at) {
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid)
        return pid;
    relay relay;
    ranks ranks;
    scene scene = new_scene(0);
    scene.timeout_ms = FLIP_TIMEOUT_MS;
    relay_start(&relay);
    relay_tell(&relay, -1, how, at);
    scene.relay_port = relay.port;
    start_ranks(&ranks, 2, sum_until_it_fails, &scene);
    int64_t began = tt__now_ms();
    bool ended_well = !count_bad_ranks(&ranks);
    bool in_time = tt__now_ms() - began < 2 * FLIP_TIMEOUT_MS + SLACK_MS + leeway_ms();
    bool right = ended_well && in_time && flip_was_noticed(&scene);
    relay_stop(&relay);
    for (int r = 0; r < 2 && !right; r++)
        fprintf(stderr, "byte %d of what rank 1 %s: rank %d: %s, %d wrong sums: %s\n", (int)at,
                how == RELAY_FLIP_SAID ? "says" : "hears", r, tt_status_name(scene.told[r].status), scene.told[r].wrong,
                scene.told[r].text);
    _exit(right ? 0 : 1);
}

static void each_wrong_bit_is_noticed(void **state) {
    (void)state;
    enum { GAMES = 2 * FLIP_END / FLIP_STEP };
    pid_t games[GAMES];
    int bad = 0;
    for (int first = 0; first < GAMES; first += FLIP_GAMES) {
        for (int i = first; i < first + FLIP_GAMES; i++)
            games[i] = start_flip_game(i % 2 ? RELAY_FLIP_SAID : RELAY_FLIP_HEARD, (int64_t)(i / 2) * FLIP_STEP);
        for (int i = first; i < first + FLIP_GAMES; i++) {
            int status = 0;
            assert_int_equal(waitpid(games[i], &status, 0), games[i]);
            bad += status != 0;
        }
    }
    assert_int_equal(bad, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(single_bytes),    cmocka_unit_test(late_bytes), cmocka_unit_test(torn_streams),
        cmocka_unit_test(stalled_streams), cmocka_unit_test(wrong_bits), cmocka_unit_test(each_wrong_bit_is_noticed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
