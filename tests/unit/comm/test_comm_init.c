/* Joining: what the environment and options say, each mistake with one clear error; several groups one after the
 * other. */
#include "support/ranks.h"

#include "base/machine/clock.h"
#include "comm/rendezvous/rendezvous.h"
#include "store/signed.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sched.h>
#include <sys/random.h>

/* A port nobody listens on now. */
static int free_port(void) {
    tt_store_server *server = NULL;
    for (int tries = 0; tries < 1000 && !server; tries++) {
        uint16_t random;
        assert_int_equal(getrandom(&random, sizeof random, 0), sizeof random);
        int port =
            10000 +
            random %
                22000; /* below those that the system gives to whoever asks for any, which may be taken again at once */
        if (tt_store_server_new(&server, NULL, port))
            continue;
        tt_store_server_free(server);
        return port;
    }
    fail_msg("no port is free: %s", tt_last_error());
    return -1;
}

static void set_environment(const char *rank, const char *world, const char *host, const char *port) {
    const char *const names[] = {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"};
    const char *const values[] = {rank, world, host, port};
    unsetenv("TORCHELASTIC_USE_AGENT_STORE");
    unsetenv("TORCHELASTIC_RESTART_COUNT");
    for (int i = 0; i < 4; i++)
        if (!values[i])
            unsetenv(names[i]);
        else
            setenv(names[i], values[i], 1);
}

static void expect_error(tt_status want, const char *text, const char *more) {
    tt_group *group = (tt_group *)&want;
    assert_int_equal(tt_init_process_group(&group, .timeout_ms = PATIENCE_MS), want);
    assert_null(group);
    if (!strstr(tt_last_error(), text) || !strstr(tt_last_error(), more))
        fail_msg("expected \"%s\" and \"%s\" in: %s", text, more, tt_last_error());
}

static void each_variable_is_checked(void **state) {
    (void)state;
    static const struct {
        const char *rank, *world, *host, *port, *text, *more;
    } cases[] = {
        {NULL, "2", "localhost", "29500", "RANK", "not set"},
        {"", "2", "localhost", "29500", "RANK", "empty"},
        {"x", "2", "localhost", "29500", "RANK", "\"x\""},
        {"-1", "2", "localhost", "29500", "RANK", "\"-1\""},
        {"0", NULL, "localhost", "29500", "WORLD_SIZE", "not set"},
        {"0", "", "localhost", "29500", "WORLD_SIZE", "empty"},
        {"0", "0", "localhost", "29500", "WORLD_SIZE", "\"0\""},
        {"0", "two", "localhost", "29500", "WORLD_SIZE", "\"two\""},
        {"0", "2", NULL, "29500", "MASTER_ADDR", "not set"},
        {"0", "2", "", "29500", "MASTER_ADDR", "empty"},
        {"0", "2", "localhost", NULL, "MASTER_PORT", "not set"},
        {"0", "2", "localhost", "", "MASTER_PORT", "empty"},
        {"0", "2", "localhost", "70000", "MASTER_PORT", "\"70000\""},
        {"0", "2", "localhost", "29500x", "MASTER_PORT", "\"29500x\""},
        {"0", "2", "localhost", "0", "MASTER_PORT", "port 0"},
        {"2", "2", "localhost", "29500", "rank", "world of 2"},
        {"7", "2", "localhost", "29500", "0 to 1", "it is 7"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        set_environment(cases[i].rank, cases[i].world, cases[i].host, cases[i].port);
        expect_error(TT_ERR_INVALID, cases[i].text, cases[i].more);
    }
}

static void options_are_checked(void **state) {
    (void)state;
    static const struct {
        const char *method, *text;
    } cases[] = {
        {"file:///tmp/x", "file:///tmp/x"},
        {"tcp://localhost", "port is missing"},
        {"tcp://localhost:", "port is missing"},
        {"tcp://:29500?rank=0&world_size=2", "host is missing"},
        {"tcp://[::1?rank=0&world_size=2", "in brackets"},
        {"tcp://[::1:29500?rank=0&world_size=2", "in brackets"},
        {"tcp://[]:29500?rank=0&world_size=2", "in brackets"},
        {"tcp://::1?rank=0&world_size=2", "port is missing"},
        {"tcp://a:b:1?rank=0&world_size=2", "not in brackets"},
        {"tcp://localhost:x?rank=0&world_size=2", "port"},
        {"tcp://localhost:29500", "rank is missing"},
        {"tcp://localhost:29500?rank=0", "world size is missing"},
        {"tcp://localhost:29500?rank=a&world_size=2", "\"a\""},
        {"tcp://localhost:29500?rank=2&world_size=2", "world of 2"},
        {"tcp://localhost:0?rank=0&world_size=2", "port 0"},
    };
    tt_group *group;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        assert_int_equal(tt_init_process_group(&group, .init_method = cases[i].method), TT_ERR_INVALID);
        assert_non_null(strstr(tt_last_error(), cases[i].text));
    }
    assert_int_equal(tt_init_process_group(&group, .backend = "carrier-pigeons"), TT_ERR_UNSUPPORTED);
    assert_non_null(strstr(tt_last_error(), "carrier-pigeons"));
    assert_int_equal(tt_init_process_group(NULL), TT_ERR_INVALID);
    assert_int_equal(tt_init_process_group(&group, .world_size = -3), TT_ERR_INVALID);
}

/* A world of one meets nobody: no store is reached for, whatever the address. */
static void a_world_of_one_needs_no_store(void **state) {
    (void)state;
    tt_group *group = NULL;
    float x = 3;
    set_environment("0", "1", "192.0.2.1", "0");
    assert_int_equal(tt_init_process_group(&group), TT_OK);
    assert_int_equal(tt_get_world_size(group), 1);
    assert_int_equal(tt_all_reduce(group, &x, 1, TT_F32, TT_AVG), TT_OK);
    assert_true(x == 3);
    tt_destroy_process_group(group);
    assert_int_equal(tt_init_process_group(&group, .init_method = "tcp://192.0.2.1:0?rank=0&world_size=1"), TT_OK);
    tt_destroy_process_group(group);
}

static void a_port_in_use_is_named(void **state) {
    (void)state;
    tt_store_server *server = NULL;
    char port[16];
    assert_int_equal(tt_store_server_new(&server, NULL, 0), TT_OK);
    snprintf(port, sizeof port, "%d", tt_store_server_port(server));
    set_environment("0", "2", "127.0.0.1", port);
    expect_error(TT_ERR_NET, port, "in use");
    tt_store_server_free(server);
}

/* Rank 0 serves, nobody else comes: they are named. And nobody serves: the address is named. */
static void missing_ranks_are_named(void **state) {
    (void)state;
    char port[16];
    snprintf(port, sizeof port, "%d", free_port());
    set_environment("0", "4", "127.0.0.1", port);
    tt_group *group = NULL;
    int64_t start = tt__now_ms();
    assert_int_equal(tt_init_process_group(&group, .timeout_ms = 1000), TT_ERR_TIMEOUT);
    assert_true(tt__now_ms() - start < 3000 + leeway_ms());
    assert_non_null(strstr(tt_last_error(), "ranks 1-3 of 4 did not join"));
    set_environment("1", "4", "127.0.0.1", port);
    assert_int_not_equal(tt_init_process_group(&group, .timeout_ms = 300), TT_OK);
    assert_non_null(strstr(tt_last_error(), port));
}

/* Rank 1 never comes; just when rank 0's time is over, another gives up, so that nobody else waits. */
static void *give_up_at(void *arg) {
    const int64_t *when_ns = arg;
    tt_store *store = NULL;
    if (tt_tcp_store(&store, "127.0.0.1", (int)when_ns[1]))
        return NULL;
    while (tt__now_ns() < when_ns[0])
        sched_yield();
    tt__texts_give_up(store, "here", "net", 2);
    tt_store_free(store);
    return NULL;
}

static void who_gives_up_along_with_others_names_the_missing(void **state) {
    (void)state;
    enum { TIME_MS = 15, SIZE = 64, SPREAD_US = 3000, STEPS = 60 };
    for (int i = 0; i < STEPS; i++) {
        char texts[2][SIZE] = {"mine"};
        tt_store_server *server = NULL;
        tt_store *store = NULL;
        pthread_t thread;
        assert_int_equal(tt_store_server_new(&server, "127.0.0.1", 0), TT_OK);
        assert_int_equal(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(server)), TT_OK);
        int64_t deadline_ms = tt__deadline_ms(TIME_MS);
        int64_t when_ns[2] = {deadline_ms * 1000000 + (int64_t)i * SPREAD_US * 1000 / STEPS,
                              tt_store_server_port(server)};
        assert_int_equal(pthread_create(&thread, NULL, give_up_at, when_ns), 0);
        tt_status status = tt__texts_exchange(&(tt__rendezvous){store, "here", 0, 2, deadline_ms, CALM_MS, NULL}, "net",
                                              SIZE, texts[0]);
        if (status) {
            assert_int_equal(status, TT_ERR_TIMEOUT);
            assert_non_null(strstr(tt_last_error(), "rank 1 of 2 did not join within"));
        } else {
            assert_string_equal(texts[1], TT__GIVEN_UP);
        }
        pthread_join(thread, NULL);
        tt_store_free(store);
        tt_store_server_free(server);
    }
}

/* ---- texts that others may overwrite */

typedef struct forgery {
    tt_store *store;
    const char *right; /* what rank 1 writes once the forged text was refused; NULL: nothing */
    int refused;
} forgery;

static void on_refusal(tt_log_level level, const char *line, void *user) {
    forgery *f = user;
    tt__secret secret;
    if (level != TT_LOG_WARNING || !strstr(line, "\"here/net/1\" as the words of rank 1 is refused"))
        return;
    f->refused++;
    if (!f->right)
        return;
    assert_int_equal(tt__secret_load(&secret), TT_OK);
    const char *life = tt__store_life(f->store);
    assert_int_equal(tt__signed_set(f->store, &secret, "here/net/1", life, f->right, strlen(f->right)), TT_OK);
}

/* What somebody puts under rank 1's key. */
typedef struct said {
    const tt__secret *by;
    const char *key, *life; /* NULL: of this store */
    bool good, changed;
} said;

static const char theirs[] = "4711/0123/10.0.0.66";

static void put_said(tt_store *store, const said *said) {
    tt__bytes bytes = {0};
    tt__sign(&bytes, said->by, said->key, said->life ? said->life : tt__store_life(store), theirs, strlen(theirs));
    bytes.data[0] ^= said->changed;
    assert_int_equal(tt_store_set(store, "here/net/1", bytes.data, bytes.size), TT_OK);
    tt__bytes_free(&bytes);
}

/* Exchange texts as rank 0. */
static tt_status exchange_with(const said *said, const char *right, char texts[2][64]) {
    tt_store_server *server = NULL;
    forgery f = {.right = right};
    tt_store *store = NULL;
    assert_int_equal(tt_store_server_new(&server, "127.0.0.1", 0), TT_OK);
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(server)), TT_OK);
    assert_int_equal(tt_tcp_store(&f.store, "127.0.0.1", tt_store_server_port(server)), TT_OK);
    put_said(store, said);
    tt_set_log(on_refusal, &f);
    tt_status status = tt__texts_exchange(
        &(tt__rendezvous){store, "here", 0, 2, tt__deadline_ms(right ? PATIENCE_MS : 200), CALM_MS, NULL}, "net", 64,
        texts[0]);
    tt_set_log(NULL, NULL);
    assert_int_equal(f.refused, !said->good || said->changed);
    tt_store_free(f.store);
    tt_store_free(store);
    tt_store_server_free(server);
    return status;
}

/* Only what was written with the job's secret, for this key, in the life of this store is taken. */
static void forged_texts_are_refused(void **state) {
    (void)state;
    char texts[2][64] = {"mine"}, old[64];
    tt__secret secret, other;
    tt_store *store = NULL;
    setenv("TT_SECRET", "0123456789abcdef0123456789abcdef", 1);
    assert_int_equal(tt__secret_load(&secret), TT_OK);
    tt__secret_from(&other, "another secret that is long enough", 34);
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", 0, .is_server = true), TT_OK);
    snprintf(old, sizeof old, "%s", tt__store_life(store));
    tt_store_free(store);
    said cases[] = {{NULL, "", NULL, .good = false},
                    {&other, "here/net/1", NULL, .good = false},
                    {&secret, "here/net/0", NULL, .good = false},
                    {&secret, "here/rank/1", NULL, .good = false},
                    {&secret, "here/net/1", "", .good = false},
                    {&secret, "here/net/1", old, .good = false},
                    {&secret, "here/net/1", NULL, .good = true}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt_status status = exchange_with(&cases[i], NULL, texts);
        assert_int_equal(status, cases[i].good ? TT_OK : TT_ERR_AUTH);
        if (status)
            assert_non_null(strstr(tt_last_error(), "rank 0 refuses the words of rank 1: what the store holds under "
                                                    "\"here/net/1\" was not written with this job's secret"));
        else
            assert_string_equal(texts[1], theirs);
        assert_int_equal(exchange_with(&cases[i], "from rank 1", texts), TT_OK);
        assert_string_equal(texts[1], cases[i].good ? theirs : "from rank 1");
        cases[i].changed = true;
        assert_int_equal(exchange_with(&cases[i], NULL, texts), TT_ERR_AUTH);
    }
    unsetenv("TT_SECRET");
}

/* Ranks that meet by the environment alone. */
static int env_body(tt_store *store, int rank, int world, void *arg) {
    be_rank_by_environment(store, rank, world, *(const int *)arg);
    for (int round = 0; round < 20; round++) {
        tt_group *group = NULL, *second = NULL;
        int32_t x = rank + 1;
        CHECK_OK(tt_init_process_group(&group, .timeout_ms = PATIENCE_MS));
        if (round % 4 == 0) /* two groups at a time */
            CHECK_OK(tt_init_process_group(&second, .timeout_ms = PATIENCE_MS));
        CHECK(tt_get_rank(group) == rank);
        CHECK_OK(tt_all_reduce(group, &x, 1, TT_I32, TT_SUM));
        CHECK(x == world * (world + 1) / 2);
        if (second)
            CHECK_OK(tt_barrier(second));
        tt_destroy_process_group(group); /* whoever served may be gone at once */
        tt_destroy_process_group(second);
    }
    return 0;
}

static void groups_follow_each_other(void **state) {
    (void)state;
    int agent = 0, own = free_port();
    with_ranks(2, env_body, &agent);
    with_ranks(3, env_body, &agent);
    with_ranks(3, env_body, &own);
}

/* What the library calls to leave the store that it connected to is not counted. */
static int first_call_body(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = NULL;
    float x = 1;
    (void)arg;
    be_rank_by_environment(store, rank, world, 0);
    CHECK_OK(tt_init_process_group(&group, .timeout_ms = PATIENCE_MS));
    CHECK((rank ? tt_barrier(group) : tt_all_reduce(group, &x, 1, TT_F32, TT_SUM)) == TT_ERR_MISMATCH);
    CHECK_TEXT("call 1 of the group differs: rank 1 called barrier() at test_comm_init.c:");
    tt_destroy_process_group(group);
    return 0;
}

static void the_programs_first_call_is_number_1(void **state) {
    (void)state;
    with_ranks(2, first_call_body, NULL);
}

static int tcp_body(tt_store *store, int rank, int world, void *arg) {
    char url[80];
    tt_group *group = NULL;
    (void)store;
    snprintf(url, sizeof url, "tcp://127.0.0.1:%d?world_size=%d&rank=%d", *(int *)arg, world, rank);
    CHECK_OK(tt_init_process_group(&group, .init_method = url, .timeout_ms = PATIENCE_MS));
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(group);
    return 0;
}

static void tcp_addresses_work(void **state) {
    (void)state;
    int port = free_port();
    with_ranks(3, tcp_body, &port);
}

/* Ranks of a launcher, which serves a store of its own, meet elsewhere, as the program says. */
static int own_place_body(tt_store *store, int rank, int world, void *arg) {
    be_rank_by_environment(store, rank, world, 0);
    return tcp_body(store, rank, world, arg);
}

/* The launcher's own place is not served again; by another name it is taken for another place. */
static int launchers_place_body(tt_store *store, int rank, int world, void *arg) {
    int port = tt_store_port(store);
    char url[80];
    tt_group *group = NULL;
    (void)arg;
    be_rank_by_environment(store, rank, world, 0);
    if (rank == 0) {
        snprintf(url, sizeof url, "tcp://localhost:%d", port);
        CHECK(tt_init_process_group(&group, .init_method = url, .world_size = world, .timeout_ms = 100));
        CHECK_TEXT("TORCHELASTIC_USE_AGENT_STORE=True says that a launcher serves a store at MASTER_ADDR");
    }
    return tcp_body(store, rank, world, &port);
}

static void a_launchers_store_is_at_its_own_place(void **state) {
    (void)state;
    int port = free_port();
    with_ranks(2, own_place_body, &port);
    with_ranks(2, launchers_place_body, NULL);
}

/* A store that speaks the older dialect lacks some calls; joining does without. */
static int old_dialect_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_store *old = NULL;
    CHECK_OK(tt_tcp_store(&old, "127.0.0.1", tt_store_port(store), .dialect = TT_STORE_TORCH_1_13));
    tt_group *group = join_group(old, rank, world);
    CHECK_OK(tt_barrier(group));
    tt_destroy_process_group(group);
    tt_store_free(old);
    return 0;
}

static void the_older_store_dialect_works(void **state) {
    (void)state;
    with_ranks(2, old_dialect_body, NULL);
}

/* A store of one's own, and the rest from the environment: the address is not asked for. */
static int own_store_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    char rank_text[12], world_text[12];
    tt_group *group = NULL;
    snprintf(rank_text, sizeof rank_text, "%d", rank);
    snprintf(world_text, sizeof world_text, "%d", world);
    set_environment(rank_text, world_text, NULL, NULL);
    CHECK_OK(tt_init_process_group(&group, .store = store, .timeout_ms = PATIENCE_MS));
    CHECK(tt_get_rank(group) == rank && tt_get_world_size(group) == world);
    tt_destroy_process_group(group);
    return 0;
}

static void a_store_of_ones_own_needs_no_address(void **state) {
    (void)state;
    with_ranks(2, own_store_body, NULL);
}

static int mismatched_body(tt_store *store, int rank, int world, void *arg) {
    static const char *const keys[] = {"tutti/0/1/rank/0"};
    tt_group *group = NULL;
    const bool *wide = arg; /* has rank 0 the larger world? */
    int own = *wide ? world + 1 - rank : world + rank;
    if (rank)
        CHECK_OK(tt_store_wait(store, keys, 1, PATIENCE_MS));
    CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = own, .timeout_ms = PATIENCE_MS));
    CHECK(tt_last_status() == TT_ERR_MISMATCH); /* also on the one that waits for a rank 2 */
    CHECK_TEXT(rank && *wide ? "rank 0 was started for a world of 3, rank 1 for a world of 2"
               : rank        ? "rank 0 was started for a world of 2, rank 1 for a world of 3"
               : *wide       ? "rank 1 was started for a world of 2, rank 0 for a world of 3"
                             : "rank 1 was started for a world of 3, rank 0 for a world of 2");
    return 0;
}

static void world_sizes_are_compared(void **state) {
    (void)state;
    for (int wide = 0; wide < 2; wide++)
        with_ranks(2, mismatched_body, &(bool){wide});
}

static int other_host_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = NULL;
    CHECK(!setenv("TT_HOST_ID", rank == 1 ? "beta" : "alpha", 1));
    CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .transport = "shm") ==
          TT_ERR_UNSUPPORTED);
    CHECK_TEXT("alpha");
    CHECK_TEXT("beta");
    return 0;
}

static void memory_is_not_shared_between_hosts(void **state) {
    (void)state;
    with_ranks(2, other_host_body, NULL);
}

/* Without a secret, a rank that only calls itself another host is not connected to where a launcher has started all
 * ranks here. */
static int elsewhere_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = NULL;
    CHECK(!setenv("WORLD_SIZE", "2", 1) && !setenv("LOCAL_WORLD_SIZE", "2", 1));
    CHECK(rank ? !setenv("TT_HOST_ID", "elsewhere", 1) : !unsetenv("TT_HOST_ID"));
    tt_status status =
        tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS);
    CHECK(rank ? status : status == TT_ERR_AUTH);
    CHECK_TEXT("elsewhere");
    CHECK_TEXT("TT_HOST_ID");
    return 0;
}

static void strangers_are_not_elsewhere(void **state) {
    (void)state;
    with_ranks(2, elsewhere_body, NULL);
}

/* A card that no Tutti of this version wrote. */
static int stranger_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = NULL;
    if (rank == 1) {
        CHECK_OK(tt_store_set(store, "tutti/0/1/rank/1", "\033[31mhello\n\xff", 12));
        return 0;
    }
    CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS) ==
          TT_ERR_PROTOCOL);
    CHECK_TEXT("rank 1");
    CHECK_TEXT("got \"?[31mhello??\""); /* does nothing to a terminal */
    return 0;
}

static void strange_cards_are_refused(void **state) {
    (void)state;
    with_ranks(2, stranger_body, NULL);
}

/* Let rank 1 come when rank 0 has said that it waits for it. */
static void on_notice(tt_log_level level, const char *line, void *user) {
    if (level == TT_LOG_INFO && strstr(line, "waiting for rank 1 of 2 to join, for 0.2 s (start all ranks"))
        CHECK_OK(tt_store_set(user, "noticed", "1", 1));
}

static int late_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    static const char *const keys[] = {"noticed"};
    tt_group *group = NULL;
    if (rank)
        CHECK_OK(tt_store_wait(store, keys, 1, PATIENCE_MS));
    else
        tt_set_log(on_notice, store);
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS));
    tt_set_log(NULL, NULL);
    tt_destroy_process_group(group);
    return 0;
}

static void for_whom_it_waits_is_told(void **state) {
    (void)state;
    with_ranks(2, late_body, NULL);
}

/* The first one leaves its card, as if it waited for the others. */
static int twin_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    static const char key[] = "tutti/0/1/rank/1", *const told[] = {"told"}, *const there[] = {key};
    tt_group *group = NULL;
    tt__card card;
    int64_t joined;
    if (!rank) {
        char text[512];
        CHECK_OK(tt__card_make(&card, world + 1, "auto", NULL));
        snprintf(text, sizeof text, "tutti 4 %d %ld %s %s %s socket nonce auto -", world + 1, card.pid, card.host_id,
                 card.pid_space, card.hostname);
        CHECK_OK(tt_store_add(store, "tutti/0/groups/1", 1, &joined));
        CHECK_OK(tt_store_set(store, key, text, strlen(text)));
        CHECK_OK(tt_store_wait(store, told, 1, PATIENCE_MS));
        return 0;
    }
    CHECK_OK(tt_store_wait(store, there, 1, PATIENCE_MS));
    CHECK(tt_init_process_group(&group, .store = store, .rank = 1, .world_size = world + 1,
                                .timeout_ms = PATIENCE_MS) == TT_ERR_STATE);
    CHECK_TEXT("rank 1 was started twice: process ");
    CHECK_OK(tt_store_set(store, "told", "1", 1));
    return 0;
}

static void a_rank_that_is_started_twice_is_told(void **state) {
    (void)state;
    with_ranks(2, twin_body, NULL);
}

static void an_unknown_cpu_level_is_refused(void **state) {
    (void)state;
    tt_group *group = NULL;
    setenv("TT_CPU_LEVEL", "bogus", 1);
    assert_int_equal(tt_init_process_group(&group, .init_method = "tcp://localhost:0", .rank = 0, .world_size = 1),
                     TT_ERR_INVALID);
    unsetenv("TT_CPU_LEVEL");
    assert_non_null(strstr(tt_last_error(), "TT_CPU_LEVEL: expected base"));
}

int main(void) {
    setenv("TT_WAIT_NOTICE", "0.2", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_variable_is_checked),
        cmocka_unit_test(options_are_checked),
        cmocka_unit_test(a_world_of_one_needs_no_store),
        cmocka_unit_test(a_port_in_use_is_named),
        cmocka_unit_test(missing_ranks_are_named),
        cmocka_unit_test(who_gives_up_along_with_others_names_the_missing),
        cmocka_unit_test(forged_texts_are_refused),
        cmocka_unit_test(groups_follow_each_other),
        cmocka_unit_test(the_programs_first_call_is_number_1),
        cmocka_unit_test(tcp_addresses_work),
        cmocka_unit_test(a_launchers_store_is_at_its_own_place),
        cmocka_unit_test(the_older_store_dialect_works),
        cmocka_unit_test(a_store_of_ones_own_needs_no_address),
        cmocka_unit_test(an_unknown_cpu_level_is_refused),
        cmocka_unit_test(world_sizes_are_compared),
        cmocka_unit_test(memory_is_not_shared_between_hosts),
        cmocka_unit_test(strangers_are_not_elsewhere),
        cmocka_unit_test(strange_cards_are_refused),
        cmocka_unit_test(for_whom_it_waits_is_told),
        cmocka_unit_test(a_rank_that_is_started_twice_is_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
