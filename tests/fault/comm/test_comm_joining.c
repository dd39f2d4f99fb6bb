/* Joining under difficulties. A rank that is lost when it has met one of the others: those that have not met it can
 * only wait for it, and that one waits for them. It is the only one to know, so it must tell. An ordinary user, of
 * whose descriptors the kernel lets only so many be on their way. Restarts, of which a store keeps old keys. */
#include "support/ranks.h"

#include "security/other_user.h"

#include "base/machine/clock.h"
#include "comm/native/native.h"
#include "comm/shared/shm_connect.h"
#include "net/local_socket.h"

#include <poll.h>
#include <sys/resource.h>

enum { WORLD = 4, MET = 2, LOST = 3, HEARTBEAT_MS = 2500, TOLD_MS = 1000 };

typedef struct scene {
    bool same_host; /* the two that meet share memory; else a connection joins them */
    bool frozen;    /* else it ends */
} scene;

static int64_t heartbeat_ms(const scene *scene) { return scene->frozen ? HEARTBEAT_MS : CALM_MS; }

static void set_up(const scene *scene, int rank) {
    char id[32];
    snprintf(id, sizeof id, "test-host-%d", scene->same_host && rank == LOST ? MET : rank);
    CHECK(!setenv("TT_HOST_ID", id, 1));
}

/* ---- the one that is lost: joining, as far as it comes */

static tt__world *first_half(tt_store *store, const scene *scene, tt__card cards[WORLD]) {
    tt__world *world;
    CHECK_OK(tt__world_make(&world, LOST, WORLD, heartbeat_ms(scene), &(tt__agent_store){0}));
    world->progress = tt__world_progress; /* which the thread of the links calls */
    CHECK_OK(tt__world_make_memory(world));
    CHECK_OK(tt__card_make(&cards[LOST], WORLD, "auto", NULL));
    CHECK_OK(tt__listen(&world->listener, WORLD, &cards[LOST]));
    CHECK_OK(tt__cards_exchange(
        &(tt__rendezvous){store, "tutti/0/1", LOST, WORLD, tt__deadline_ms(PATIENCE_MS), CALM_MS, NULL}, cards));
    world->hosts = scene->same_host ? WORLD - 1 : WORLD;
    for (int r = 0; r < WORLD; r++) {
        world->peers[r].host = scene->same_host && r == LOST ? MET : r;
        world->peers[r].local = r == LOST || (scene->same_host && r == MET);
    }
    return world;
}

static void meet_one(tt_store *store, const scene *scene, tt__world *world, const tt__card *cards) {
    static char texts[WORLD][TT__ADDRESSES_SIZE];
    const char *addresses[WORLD] = {0};
    CHECK_OK(tt__connect_all(world, cards, tt__deadline_ms(PATIENCE_MS)));
    CHECK_OK(tt__world_messages(world));
    CHECK_OK(tt__messages_listen(world->messages, true, texts[LOST]));
    CHECK_OK(tt__texts_exchange(
        &(tt__rendezvous){store, "tutti/0/1", LOST, WORLD, tt__deadline_ms(PATIENCE_MS), CALM_MS, NULL}, "net",
        sizeof texts[0], texts[0]));
    if (scene->same_host)
        return;
    addresses[MET] = texts[MET];
    CHECK_OK(tt__messages_open(world->messages, addresses, tt__deadline_ms(PATIENCE_MS)));
}

/* Does the one it has met wait for the others? Then it has looked at this one, and found nothing wrong. */
static bool is_waited_for(tt__world *world, const scene *scene) {
    uint32_t group, seq, record;
    int whom;
    tt__waiting waiting;
    if (scene->same_host)
        return tt__recorder_waiting(&world->peers[MET].control->recorder, &waiting);
    tt__world_lock(world);
    tt__messages_wait(world->messages, 10);
    bool waits = tt__remote_waiting(world->messages, MET, &group, &seq, &whom, &record);
    tt__world_unlock(world);
    return waits;
}

static void be_lost(tt_store *store, const scene *scene) {
    tt__card cards[WORLD] = {0};
    tt__world *world = first_half(store, scene, cards);
    meet_one(store, scene, world, cards);
    while (!is_waited_for(world, scene))
        sched_yield();
    int64_t now = tt__now_ms();
    CHECK_OK(tt_store_set(store, "lost", &now, sizeof now));
    if (scene->frozen)
        raise(SIGSTOP);
    _exit(0);
}

/* ---- the others */

static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    tt_group *group = NULL;
    tt_store_value lost;
    set_up(scene, rank);
    if (rank == LOST)
        be_lost(store, scene);
    CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                .heartbeat_ms = heartbeat_ms(scene)) == TT_ERR_PEER);
    int64_t now = tt__now_ms(), then;
    CHECK(!group);
    CHECK_TEXT("rank 3 (");
    CHECK_OK(tt_store_get(store, "lost", &lost));
    memcpy(&then, lost.data, sizeof then);
    tt_store_value_free(&lost);
    CHECK(now - then < TOLD_MS + (scene->frozen ? HEARTBEAT_MS : 0) + leeway_ms());
    return 0;
}

static void play(scene scene) {
    ranks ranks;
    start_ranks(&ranks, WORLD, body, &scene);
    for (int r = 0; r < WORLD; r++)
        if (r != LOST)
            assert_int_equal(end_of_rank(&ranks, r), 0);
    kill(ranks.pid[LOST], SIGKILL);
    assert_int_equal(end_of_rank(&ranks, LOST), scene.frozen ? 128 + SIGKILL : 0);
    tt_store_server_free(ranks.server);
}

static void its_connection_tells(void **state) {
    (void)state;
    play((scene){.same_host = false, .frozen = false});
    play((scene){.same_host = false, .frozen = true});
}

static void its_host_tells(void **state) {
    (void)state;
    play((scene){.same_host = true, .frozen = false});
    play((scene){.same_host = true, .frozen = true});
}

/* ---- one that calls nobody: only its launcher knows that it has ended */

/* What a launcher leaves in its ranks' environment, and does when one of them has ended. */
static void be_launched(tt_store *store, int rank, int world) {
    be_rank_by_environment(store, rank, world, 0);
    CHECK(!setenv("TT_JOB_SOCKET", "tutti-job/none", 1));
}

static void launcher_notes(tt_store *store, int rank, const char *how) {
    char key[64];
    snprintf(key, sizeof key, "tutti/ended/%d", rank);
    CHECK_OK(tt_store_set(store, key, how, strlen(how)));
}

static void end_before_links(tt_store *store, const scene *scene) {
    static char texts[WORLD][TT__ADDRESSES_SIZE];
    tt__card cards[WORLD] = {0};
    tt__world *world = first_half(store, scene, cards);
    CHECK_OK(tt__world_messages(world));
    CHECK_OK(tt__messages_listen(world->messages, true, texts[LOST]));
    CHECK_OK(tt__texts_exchange(
        &(tt__rendezvous){store, "tutti/0/1", LOST, WORLD, tt__deadline_ms(PATIENCE_MS), CALM_MS, NULL}, "net",
        sizeof texts[0], texts[0]));
    launcher_notes(store, LOST, "signal 9 (SIGKILL)");
    raise(SIGKILL);
}

static int ended_body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    tt_group *group = NULL;
    set_up(scene, rank);
    be_launched(store, rank, world);
    if (rank == LOST)
        end_before_links(store, scene);
    int64_t began_ms = tt__now_ms();
    CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                .heartbeat_ms = CALM_MS) == TT_ERR_PEER);
    CHECK_TEXT("rank 3 ended with signal 9 (SIGKILL) before all had joined");
    CHECK(tt__now_ms() - began_ms < 10000); /* after 15 s it is missed by its silence */
    wait_for_all(store, world - 1);
    return 0;
}

static void its_launcher_tells(void **state) {
    ranks ranks;
    scene scene = {0};
    (void)state;
    start_ranks(&ranks, WORLD, ended_body, &scene);
    for (int r = 0; r < WORLD; r++)
        assert_int_equal(end_of_rank(&ranks, r), r == LOST ? 128 + SIGKILL : 0);
    tt_store_server_free(ranks.server);
}

/* ---- ordinary users */

enum { FULL_HOST = 64, DESCRIPTORS = 256, FEW = 40 };

/* Root's processes may have any number on their way. */
static void be_ordinary_user(rlim_t descriptors) {
    CHECK(!setrlimit(RLIMIT_NOFILE, &(struct rlimit){descriptors, descriptors}));
    if (!geteuid())
        become_user(STRANGER);
}

static int join_as_user(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    be_ordinary_user(DESCRIPTORS);
    tt_group *group = join_group(store, rank, world);
    tt_destroy_process_group(group);
    return 0;
}

static void an_ordinary_users_ranks_join(void **state) {
    (void)state;
    with_ranks(world_is_tried(FULL_HOST) ? FULL_HOST : 16, join_as_user, NULL);
}

/* Another program of the user's does not receive what it is sent, for ever or until the ranks have been refused. */
static int crowd_the_way(tt_store *store, bool for_ever) {
    const char *cards[] = {"tutti/0/1/rank/0", "tutti/0/1/rank/1"};
    int ends[2];
    CHECK(!socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
    for (int i = 0; i < 2 * FEW; i++)
        CHECK(tt__send_packet(ends[0], "", 1, ends[0]));
    CHECK_OK(tt_store_set(store, "crowded", "", 0));
    CHECK_OK(tt_store_wait(store, cards, 2, PATIENCE_MS));
    poll(NULL, 0, 50);
    if (for_ever)
        wait_for_all(store, 3);
    return 0;
}

static int join_in_a_crowd(tt_store *store, int rank, int world, void *arg) {
    const bool *for_ever = arg;
    const char *crowded = "crowded";
    tt_group *group = NULL;
    be_ordinary_user(rank == 2 ? 4 * FEW : FEW);
    if (rank == 2)
        return crowd_the_way(store, *for_ever);
    CHECK_OK(tt_store_wait(store, &crowded, 1, PATIENCE_MS));
    tt_status status = tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world - 1,
                                             .timeout_ms = *for_ever ? 2000 : PATIENCE_MS, .heartbeat_ms = CALM_MS);
    if (!*for_ever) {
        CHECK_OK(status);
    } else {
        CHECK(status == (rank ? TT_ERR_SYSTEM : TT_ERR_PEER));
        CHECK_TEXT("can't hand rank 0 the memory of rank 1: for ");
    }
    if (*for_ever)
        wait_for_all(store, world);
    tt_destroy_process_group(group);
    return 0;
}

static void descriptors_on_their_way_are_waited_for(void **state) {
    bool for_ever = false;
    (void)state;
    with_ranks(3, join_in_a_crowd, &for_ever);
    for_ever = true;
    with_ranks(3, join_in_a_crowd, &for_ever);
}

/* ---- torchrun's agents keep their store, and each counts its own restarts */

#define OLD_MEETING "tutti/meeting/00000000000000aa"

/* An earlier attempt has left its keys: it had met, or had not yet. Rank 1 comes first, and reads them. */
static void find_old_meeting(tt_store *store, int rank, int world, bool had_met) {
    const char *read = OLD_MEETING "/here/1", *number = strrchr(OLD_MEETING, '/') + 1;
    char old[2 * 17] = "00000000000000aa\0"
                       "00000000000000bb";
    if (rank == 1) {
        CHECK_OK(tt_store_set(store, OLD_MEETING "/here/0", number, strlen(number)));
        if (had_met)
            CHECK_OK(tt_store_set(store, OLD_MEETING "/all", old, (size_t)world * 17));
        CHECK_OK(tt_store_set(store, "tutti/meeting", number, strlen(number)));
    }
    if (rank == 0)
        CHECK_OK(tt_store_wait(store, &read, 1, PATIENCE_MS));
}

static int counting_body(tt_store *store, int rank, int world, void *arg) {
    const bool *had_met = arg;
    char restarts[12];
    be_rank_by_environment(store, rank, world, 0);
    if (had_met)
        find_old_meeting(store, rank, world, *had_met);
    for (int attempt = 0; attempt < 3; attempt++) {
        tt_group *group = NULL;
        float x = 1;
        snprintf(restarts, sizeof restarts, "%d", rank ? attempt : 0);
        setenv("TORCHELASTIC_RESTART_COUNT", restarts, 1);
        CHECK_OK(tt_init_process_group(&group, .timeout_ms = PATIENCE_MS));
        CHECK_OK(tt_all_reduce(group, &x, 1, TT_F32, TT_SUM));
        CHECK(x == (float)world);
        CHECK_OK(tt_barrier(group));
        tt_destroy_process_group(group);
    }
    return 0;
}

static void restarts_that_nodes_count_apart_are_no_matter(void **state) {
    (void)state;
    bool had_met = false;
    with_ranks(3, counting_body, NULL);
    with_ranks(2, counting_body, &had_met);
    had_met = true;
    with_ranks(2, counting_body, &had_met);
}

/* Somebody who has not the secret says instead of rank 0 that all have come to that meeting: he has read the number
 * that rank 1 has left there. */
static void say_all_came(tt_store *store) {
    tt_store_value own;
    char all[2 * 17] = "00000000000000aa";
    CHECK_OK(tt_store_get(store, OLD_MEETING "/here/1", &own));
    memcpy(all + 17, own.data, 16);
    tt_store_value_free(&own);
    CHECK_OK(tt_store_set(store, OLD_MEETING "/all", all, sizeof all));
    CHECK_OK(tt_store_set(store, "said", "", 0));
}

static int forged_meeting_body(tt_store *store, int rank, int world, void *arg) {
    const char *said = "said";
    tt_group *group = NULL;
    (void)arg;
    if (rank == 2) {
        CHECK_OK(tt_store_set(store, "tutti/meeting", "00000000000000aa", 16));
        say_all_came(store);
        wait_for_all(store, world);
        return 0;
    }
    be_rank_by_environment(store, rank, world - 1, 0);
    CHECK(!setenv("TT_SECRET", "0123456789abcdef0123456789abcdef", 1) && !setenv("TORCHELASTIC_RESTART_COUNT", "0", 1));
    if (!rank)
        CHECK_OK(tt_store_wait(store, &said, 1, PATIENCE_MS));
    CHECK_OK(tt_init_process_group(&group, .store = store, .timeout_ms = PATIENCE_MS));
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(group);
    wait_for_all(store, world);
    return 0;
}

/* Ranks of torchrun meet in a store that asks for no secret. */
static void nobody_else_says_that_all_ranks_of_torchrun_came(void **state) {
    (void)state;
    with_ranks(3, forged_meeting_body, NULL);
}

static int lonely_body(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    (void)arg;
    be_rank_by_environment(store, rank, world, 0);
    setenv("TORCHELASTIC_RESTART_COUNT", "1", 1);
    if (rank == 1)
        return 0;
    CHECK(tt_init_process_group(&group, .timeout_ms = 200) == TT_ERR_TIMEOUT);
    if (rank == 0)
        CHECK_TEXT("rank 1 of 3 did not join");
    else
        CHECK_TEXT("rank 0 of 3 did not say within");
    return 0;
}

static void absent_ranks_of_torchrun_are_named(void **state) {
    (void)state;
    with_ranks(3, lonely_body, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(its_connection_tells),
        cmocka_unit_test(its_host_tells),
        cmocka_unit_test(its_launcher_tells),
        cmocka_unit_test(an_ordinary_users_ranks_join),
        cmocka_unit_test(descriptors_on_their_way_are_waited_for),
        cmocka_unit_test(restarts_that_nodes_count_apart_are_no_matter),
        cmocka_unit_test(nobody_else_says_that_all_ranks_of_torchrun_came),
        cmocka_unit_test(absent_ranks_of_torchrun_are_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
