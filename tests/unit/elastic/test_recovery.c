/* What recovery is made of, in one process: the words in a recorder, what a launcher tells of rounds, parts and their
 * copies, a loader's share. Jobs that lose ranks are in tests/fault/elastic/test_elastic.c. */
#include "support/ranks.h"
#include "unit/data/data_cases.h"
#include "unit/expect.h"

#include "comm/record/recovery.h"
#include "data/loader/loader.h"
#include "elastic/elastic.h"
#include "elastic/job_rounds.h"
#include "net/net.h"

#include <tutti/tutti.h>

#include <sys/socket.h>
#include <unistd.h>

/* ---- words ---- */

static void all_recorders_show_the_words(void **state) {
    (void)state;
    static tt__recorder recorders[2], copy;
    tt__recovery words;
    tt__recovery_say((tt__recovery){.recovers = 1});
    for (int i = 0; i < 2; i++) {
        tt__recorder_init(&recorders[i], i, 2);
        tt__recovery_attach(&recorders[i]);
        assert_true(tt__recovery_read(&recorders[i], sizeof recorders[i], &words));
        assert_int_equal(words.recovers, 1);
    }
    assert_true(tt__recovery_is_on());
    tt__recovery_say((tt__recovery){1, 7, 3, 15});
    tt__recovery_detach(&recorders[1]);
    tt__recovery_say((tt__recovery){1, 8, 4, 0});
    assert_true(tt__recovery_read(&recorders[0], sizeof *recorders, &words));
    assert_true(words.recovers == 1 && words.wants_round == 8 && words.lost == 4 && words.stopped_by == 0);
    assert_true(tt__recorder_copy(&copy, &recorders[1])); /* what `tutti top` sees */
    assert_true(tt__recovery_read(&copy, sizeof copy, &words));
    assert_true(words.recovers == 1 && words.wants_round == 7 && words.lost == 3 && words.stopped_by == 15);
    tt__recovery_detach(&recorders[0]);
    tt__recovery_say((tt__recovery){0});
    assert_false(tt__recovery_is_on());
    assert_false(tt__recovery_read(NULL, 4096, &words));
    assert_false(tt__recovery_read(&copy, 100, &words)); /* of something older, and shorter */
}

/* ---- rounds ---- */

/* Two ends of a job's socket: the launcher's, and the rank's. */
static void make_ends(int ends[2]) { assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0); }

static void tell(int socket, tt__job_kind kind, const tt__job_round *round) {
    tt__job_packet packet = {.round = *round};
    assert_true(tt__job_send(socket, kind, &packet, -1));
}

static void a_round_is_read(void **state) {
    (void)state;
    const tt__stop_wish none = {0};
    tt__round_news news;
    tt__job_round told = {3, 1, 2, 29500, "host.example", "rank 1 (pid 7) was killed\nand more"};
    int ends[2];
    make_ends(ends);
    for (told.number = 2; told.number < 6; told.number += 3) { /* of a round before; one that was missed lies between */
        tell(ends[0], TT__JOB_WANTED, &told);
        tell(ends[0], TT__JOB_ROUND, &told);
    }
    assert_int_equal(tt__round_await(ends[1], &news, 3, PATIENCE_MS, &none), TT_OK);
    assert_int_equal(news.seat.round, 5);
    assert_int_equal(news.seat.world, 2);
    assert_int_equal(news.seat.rank, 1);
    assert_int_equal(news.seat.port, 29500);
    assert_string_equal(news.seat.host, "host.example");
    assert_string_equal(news.reason, "rank 1 (pid 7) was killed");
    told = (tt__job_round){7, -1, 1, 1, "::1", ""};
    tell(ends[0], TT__JOB_ROUND, &told);
    assert_int_equal(tt__round_await(ends[1], &news, 6, 0, &none), TT_OK); /* it is there already */
    assert_int_equal(news.seat.rank, -1);
    assert_string_equal(news.reason, "");
    close(ends[0]);
    tt__fail(TT_ERR_PEER, "rank 1 is lost");
    assert_int_equal(tt__round_await(ends[1], &news, 7, PATIENCE_MS, &none), TT_ERR_NET);
    expect_error(TT_ERR_NET, "while this rank waited for the job's next round, after rank 1 is lost: its launcher");
    close(ends[1]);
}

/* The failure for which the rank wanted a round stays the error. */
static void a_round_may_not_come(void **state) {
    (void)state;
    int ends[2];
    tt__round_news news;
    const tt__stop_wish none = {0};
    make_ends(ends);
    tell(ends[0], TT__JOB_NO_ROUND, &(tt__job_round){.number = 3, .reason = "of an earlier one"});
    tell(ends[0], TT__JOB_NO_ROUND, &(tt__job_round){.number = 4, .reason = "no restarts are left"});
    tt_ignore(tt__fail(TT_ERR_PEER, "rank 1 is frozen"));
    assert_int_equal(tt__round_await(ends[1], &news, 3, PATIENCE_MS, &none), TT_ERR_PEER);
    assert_string_equal(tt_last_error(), "rank 1 is frozen; no round follows: no restarts are left");
    close(ends[0]);
    close(ends[1]);
}

static void nonsense_is_no_round(void **state) {
    (void)state;
    tt__job_round cases[] = {{3, 0, 0, 1, "h", ""},  {3, 2, 2, 1, "h", ""},     {3, -2, 2, 1, "h", ""},
                             {3, 0, -1, 1, "h", ""}, {3, 0, 2, 0, "h", ""},     {3, 0, 2, 70000, "h", ""},
                             {3, 0, 2, 1, "", ""},   {3, 0, 2, 1, "h...", "r"}, {3, 0, 2, -1, "h", "r"}};
    memset(cases[7].host, 'h', sizeof cases[7].host); /* it does not end */
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        tt__round_news news;
        tt_clear_error();
        assert_int_equal(tt__round_read(&news, &cases[i]), TT_ERR_PROTOCOL);
        expect_error(TT_ERR_PROTOCOL, "round 3 as the launcher tells it: expected");
    }
}

static void a_wanted_round_is_seen_once(void **state) {
    (void)state;
    int ends[2];
    make_ends(ends);
    const tt__job_round told = {.number = 4};
    assert_false(tt__round_wanted(ends[1], 3));
    tell(ends[0], TT__JOB_WANTED, &told);
    assert_true(tt__round_wanted(ends[1], 3));
    assert_false(tt__round_wanted(ends[1], 3));
    tell(ends[0], TT__JOB_WANTED, &told);
    assert_false(tt__round_wanted(ends[1], 4)); /* it has begun */
    close(ends[0]);
    assert_false(tt__round_wanted(ends[1], 3));
    assert_false(tt__round_wanted(-1, 3));
    close(ends[1]);
}

static void ends_of_a_round_are_its_own(void **state) {
    (void)state;
    char key[64];
    assert_string_equal(tt__ended_key(key, 7, 0), "tutti/ended/7");
    assert_string_equal(tt__ended_key(key, 7, 12), "tutti/ended/7/12");
}

static void a_seat_comes_before_the_environment(void **state) {
    (void)state;
    tt__seat seat;
    setenv("TT_ROUND", "nonsense", 1);
    assert_int_equal(tt__round_number(), 0);
    setenv("TT_ROUND", "4", 1);
    assert_int_equal(tt__round_number(), 4);
    assert_false(tt__round_seat(&seat));
    unsetenv("TT_ROUND");
    assert_int_equal(tt__round_number(), 0);
}

/* ---- a world of one ---- */

typedef struct shaky {
    int value, loads;
    bool fails;
} shaky;

static tt_status shaky_save(void *user, tt_elastic_writer *writer) {
    const shaky *s = user;
    tt_elastic_write(writer, &s->value, sizeof s->value);
    return s->fails ? tt_fail(TT_ERR_IO, "no more") : TT_OK;
}

static tt_status shaky_load(void *user, const void *data, size_t size) {
    shaky *s = user;
    s->loads++;
    return size == sizeof s->value ? (memcpy(&s->value, data, size), TT_OK) : tt_fail(TT_ERR_FORMAT, "no int");
}

static int destroyed;
static void note_destroyed(void *user) {
    (void)user;
    destroyed++;
}

static tt_elastic *alone(void) {
    tt_elastic *e;
    assert_int_equal(tt_elastic_new(&e, .or_alone = true), TT_OK);
    return e;
}

static void commits_and_restores_have_an_order(void **state) {
    (void)state;
    static const tt_elastic_part_class cls = {.save = shaky_save, .load = shaky_load};
    tt_elastic *e = alone(), *second;
    shaky s = {.value = 1};
    int64_t position = 5;
    int signal = -1;
    assert_int_equal(tt_elastic_commits(e), -1);
    assert_int_equal(tt_elastic_new(&second, .or_alone = true), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "this process has one already");
    assert_null(second);
    assert_int_equal(tt_elastic_add(e, "position", &position, sizeof position), TT_OK);
    assert_int_equal(tt_elastic_add_part(e, "shaky", &cls, &s), TT_OK);
    assert_int_equal(tt_elastic_commit(e), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "expected a tt_elastic_restore() that succeeded before");
    assert_int_equal(tt_elastic_should_stop(e, &signal), TT_ERR_STATE);
    tt_clear_error();
    assert_int_equal(tt_elastic_restore(e), TT_OK);
    assert_int_equal(tt_elastic_commits(e), 0);
    assert_int_equal(s.loads, 1);
    assert_null(tt_elastic_changed(e));
    s.value = 2;
    assert_int_equal(tt_elastic_commit(e), TT_OK);
    assert_int_equal(tt_elastic_commits(e), 1);
    s.fails = true;
    assert_int_equal(tt_elastic_commit(e), TT_ERR_IO);
    setenv("TORCHELASTIC_ERROR_FILE", "recovery_error", 1);
    assert_int_equal(tt_elastic_restore(e), TT_ERR_IO); /* this rank's own error is mended by no other round, */
    unsetenv("TORCHELASTIC_ERROR_FILE");
    assert_int_equal(access("recovery_error", F_OK), -1); /* and is not another's fault */
    expect_error(TT_ERR_IO, "tt_elastic_commit: \"shaky\": no more");
    assert_int_equal(tt_elastic_commits(e), 1);
    assert_int_equal(tt_elastic_should_stop(e, &signal), TT_OK);
    assert_int_equal(signal, 0);
    assert_int_equal(tt_elastic_restore(e), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "there is nothing to recover from");
    tt_elastic_free(e);
}

static void parts_are_checked(void **state) {
    (void)state;
    tt_elastic *e = alone();
    tt_elastic_part_class cls = {.save = shaky_save, .destroy = note_destroyed};
    shaky s = {0};
    int x = 0;
    tt_clear_error();
    assert_int_equal(tt_elastic_add(NULL, "x", &x, sizeof x), TT_ERR_INVALID);
    tt_clear_error();
    assert_int_equal(tt_elastic_add(e, "x", NULL, 4), TT_ERR_INVALID);
    tt_clear_error();
    assert_int_equal(tt_elastic_add(e, "", &x, sizeof x), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "expected a name");
    assert_int_equal(tt_elastic_add(e, "x", &x, sizeof x), TT_OK);
    assert_int_equal(tt_elastic_add(e, "x", &x, sizeof x), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "there is a part \"x\" already");
    assert_int_equal(tt_elastic_add_part(e, "s", &cls, &s), TT_ERR_INVALID);
    expect_error(TT_ERR_INVALID, "the class has no load function");
    assert_int_equal(destroyed, 1);
    cls.load = shaky_load;
    assert_int_equal(tt_elastic_add_part(e, "s", &cls, &s), TT_OK);
    assert_int_equal(destroyed, 1);
    assert_int_equal(tt_elastic_restore(e), TT_OK);
    assert_int_equal(tt_elastic_add(e, "late", &x, sizeof x), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "before the first tt_elastic_restore()");
    tt_elastic_free(e);
    assert_int_equal(destroyed, 2);
}

static void seeds_differ(void **state) {
    (void)state;
    tt_elastic *e = alone();
    uint64_t seen[40];
    assert_int_equal(tt_elastic_restore(e), TT_OK);
    for (int i = 0; i < 40; i++) {
        seen[i] = tt_elastic_step_seed(e, (uint64_t)(i % 2));
        assert_int_equal(seen[i], tt_elastic_step_seed(e, (uint64_t)(i % 2)));
        for (int j = 0; j < i; j++)
            assert_int_not_equal(seen[i], seen[j]);
        if (i % 2)
            assert_int_equal(tt_elastic_commit(e), TT_OK);
    }
    tt_elastic_free(e);
}

/* ---- a training program's parts ---- */

static void a_wrapper_needs_its_group(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_elastic *e = alone();
    tt_module *model = tt_nn_linear(2, 2), *ddp = tt_elastic_ddp(e, "model", model);
    tt_tensor *x = tt_ones(TT_SHAPE(1, 2), TT_F32);
    assert_non_null(ddp);
    assert_null(tt_elastic_ddp(e, "again", ddp));
    expect_error(TT_ERR_INVALID, "the module is already wrapped");
    assert_null(tt_module_forward(ddp, x));
    expect_error(TT_ERR_STATE, "tt_elastic_restore() gives it one");
    tt_clear_error();
    assert_int_equal(tt_elastic_restore(e), TT_OK);
    assert_int_equal(tt_backward(tt_sum(tt_module_forward(ddp, x))), TT_OK);
    assert_non_null(tt_ddp_reducer(ddp));
    tt_module_free(ddp); /* before the job's end */
    tt_elastic_free(e);
    tt_module_free(model);
}

static void a_wrapper_may_outlive_the_job(void **state) {
    (void)state;
    TT_AUTO_SCOPE;
    tt_elastic *e = alone();
    tt_module *model = tt_nn_linear(2, 2), *ddp = tt_elastic_ddp(e, "model", model);
    tt_tensor *x = tt_ones(TT_SHAPE(1, 2), TT_F32);
    assert_int_equal(tt_elastic_restore(e), TT_OK);
    assert_int_equal(tt_backward(tt_sum(tt_module_forward(ddp, x))), TT_OK);
    tt_elastic_free(e);
    const float *grad = tt_tensor_f32(tt_grad(tt_module_parameters(model)->tensors[1]));
    assert_true(grad && grad[0] == 1); /* in memory of its own again */
    tt_module_free(ddp);
    tt_module_free(model);
}

static void only_shared_orders_are_kept(void **state) {
    (void)state;
    tt_elastic *e = alone();
    tt_dataset *set = numbered(10);
    tt_loader *loader = tt_loader_new(set, 2, tt_shuffled());
    assert_int_equal(tt_elastic_add_loader(e, "loader", loader), TT_ERR_UNSUPPORTED);
    expect_error(TT_ERR_UNSUPPORTED, "\"loader\": expected a loader of the sampler that ranks share");
    tt_loader_free(loader);
    tt_dataset_free(set);
    tt_elastic_free(e);
}

/* Read an epoch of both; they are the same. */
static void assert_same_epoch(tt_loader *a, tt_loader *b) {
    for (int more = 1; more;) {
        tt_batch of_a, of_b;
        more = tt_loader_next(a, &of_a);
        assert_int_equal(more, tt_loader_next(b, &of_b));
        assert_int_equal(of_a.size, of_b.size);
        if (more)
            assert_memory_equal(of_a.indices, of_b.indices, (size_t)of_a.size * sizeof *of_a.indices);
    }
}

/* A loader that is given another share reads what one reads that was made for it; also with larger batches than there
 * was room for, and in the middle of an epoch. */
static void a_share_changes(void **state) {
    (void)state;
    for (int workers = 0; workers < 2; workers++)
        for (int to = 1; to <= 5; to++) {
            tt_dataset *set = numbered(23);
            tt_sampler *s = tt_distributed_sampler(23, 4, 1, .seed = 6),
                       *t = tt_distributed_sampler(23, to, to - 1, .seed = 6);
            tt_loader *a = tt_loader_new(set, 8, s, .workers = workers), *b = tt_loader_new(set, 8, t);
            tt_batch batch;
            tt_sampler_set_epoch(s, 2);
            tt_sampler_set_epoch(t, 2);
            assert_int_equal(tt_loader_next(a, &batch), 1);
            assert_int_equal(tt__loader_share(a, to, to - 1), TT_OK);
            assert_int_equal(tt_loader_batches(a), tt_loader_batches(b));
            assert_int_equal(tt_sampler_size(s), tt_sampler_size(t));
            assert_same_epoch(a, b);
            tt_sampler_set_epoch(s, 3);
            tt_sampler_set_epoch(t, 3);
            assert_same_epoch(a, b);
            tt_loader_free(a);
            tt_loader_free(b);
            tt_sampler_free(s);
            tt_sampler_free(t);
            tt_dataset_free(set);
        }
}

/* ---- nobody who replaces a rank ---- */

static int loses_its_peer(tt_store *store, int rank, int world, void *arg) {
    tt_elastic *e;
    (void)arg;
    be_rank_by_environment(store, rank, world, *(const int *)arg);
    CHECK_OK(tt_elastic_new(&e, .timeout_ms = PATIENCE_MS, .heartbeat_ms = CALM_MS));
    CHECK_OK(tt_elastic_restore(e));
    if (rank == 0) {
        CHECK(tt_barrier(tt_elastic_group(e)) == TT_ERR_PEER);
        CHECK(tt_elastic_restore(e) == TT_ERR_UNSUPPORTED);
        CHECK_TEXT("nobody can replace a lost rank here");
        CHECK_TEXT("before this: rank 1");
    }
    tt_elastic_free(e);
    return 0;
}

static void without_a_launcher_it_fails_at_once(void **state) {
    (void)state;
    tt_store_server *server;
    assert_int_equal(tt_store_server_new(&server, NULL, 0), TT_OK);
    int port = tt_store_server_port(server);
    tt_store_server_free(server);
    with_ranks(2, loses_its_peer, &port);
}

/* ---- one that is disabled ---- */

/* It begins with rank 0's state, asks for no copies, and what comes after is as in any group. */
static int goes_without(tt_store *store, int rank, int world, void *arg) {
    static const tt_elastic_part_class cls = {.save = shaky_save, .load = shaky_load};
    struct sigaction at_term;
    shaky s = {.value = 7 + rank};
    tt_elastic *e;
    int signal = -1;
    be_rank_by_environment(store, rank, world, *(const int *)arg);
    CHECK_OK(tt_elastic_new(&e, .timeout_ms = PATIENCE_MS, .heartbeat_ms = CALM_MS, .stop_on_signals = true,
                            .disabled = true));
    CHECK(!sigaction(SIGTERM, NULL, &at_term) && at_term.sa_handler == SIG_DFL);
    CHECK_OK(tt_elastic_add_part(e, "shaky", &cls, &s));
    CHECK(tt_elastic_commit(e) == TT_ERR_STATE);
    CHECK_OK(tt_elastic_restore(e));
    CHECK(s.value == 7 && s.loads == 1);
    s.fails = true; /* if it were asked */
    CHECK_OK(tt_elastic_commit(e));
    CHECK_OK(tt_elastic_should_stop(e, &signal));
    CHECK(signal == 0 && tt_elastic_commits(e) == 1);
    if (rank == 0) {
        CHECK(tt_barrier(tt_elastic_group(e)) == TT_ERR_PEER);
        CHECK(tt_elastic_restore(e) == TT_ERR_PEER);
        CHECK_TEXT("rank 1 left the group");
        CHECK(s.loads == 1);
    }
    tt_elastic_free(e);
    return 0;
}

static void a_disabled_one_recovers_nothing(void **state) {
    (void)state;
    tt_store_server *server;
    assert_int_equal(tt_store_server_new(&server, NULL, 0), TT_OK);
    int port = tt_store_server_port(server);
    tt_store_server_free(server);
    with_ranks(2, goes_without, &port);
}

/* Ranks that register different things. */
static int registers_something(tt_store *store, int rank, int world, void *arg) {
    tt_elastic *e;
    int64_t x = rank, y[2] = {0};
    const char *what = arg;
    be_rank_by_environment(store, rank, world, 0);
    CHECK_OK(tt_elastic_new(&e, .timeout_ms = PATIENCE_MS, .heartbeat_ms = CALM_MS));
    bool other = rank == 1;
    CHECK_OK(tt_elastic_add(e, other && !strcmp(what, "name") ? "y" : "x", &x, sizeof x));
    if (strcmp(what, "more") == 0 ? other : strcmp(what, "fewer") == 0 ? !other : false)
        CHECK_OK(tt_elastic_add(e, "more", &x, sizeof x));
    if (!strcmp(what, "size"))
        CHECK_OK(tt_elastic_add(e, "y", y, other ? 16 : 8));
    tt_status status = tt_elastic_restore(e);
    if (other) {
        CHECK(status == TT_ERR_MISMATCH);
        CHECK_TEXT(strcmp(what, "size") == 0 ? "\"y\": expected 16 bytes, got 8 of another rank"
                                             : "this rank registered ");
    } else {
        CHECK_OK(status);
        CHECK(x == 0);
    }
    tt_elastic_free(e);
    return 0;
}

static void ranks_that_register_different_parts_are_told(void **state) {
    (void)state;
    static char *const cases[] = {"name", "more", "fewer", "size"};
    for (size_t i = 0; i < 4; i++)
        with_ranks(2, registers_something, cases[i]);
}

/* ---- rounds of groups of another kind */

static void rounds_without_a_launcher_are_none(void **state) {
    (void)state;
    tt__job_rounds *rounds;
    int round = -1;
    unsetenv("TT_JOB_SOCKET");
    assert_int_equal(tt__job_rounds_begin(&rounds, 0, 2, &round), TT_OK);
    assert_null(rounds);
    assert_int_equal(round, 0);
    tt__job_rounds_end(rounds);
    assert_false(tt__recovery_is_on());
}

/* The launcher's side, within this process. */
static int accepted(int listener) {
    int fd = tt__job_socket_accept(listener), attached = -1;
    tt__job_packet packet;
    assert_true(fd >= 0);
    for (bool awaits = false; !awaits;) {
        assert_true(tt__job_receive(fd, &packet, &attached) > 0);
        awaits = packet.kind == TT__JOB_AWAITS;
        if (attached >= 0)
            close(attached);
        attached = -1;
    }
    return fd;
}

static void rounds_of_other_groups_are_told(void **state) {
    (void)state;
    tt__job_rounds *rounds, *more;
    tt__job_place place;
    char name[TT__JOB_NAME_SIZE];
    int listener, round;
    assert_int_equal(tt__job_socket_name(name), TT_OK);
    assert_int_equal(tt__job_socket_listen(&listener, name), TT_OK);
    setenv("TT_JOB_SOCKET", name, 1);
    assert_int_equal(tt__job_rounds_begin(&rounds, 2, 3, &round), TT_OK);
    assert_non_null(rounds);
    assert_int_equal(tt__job_rounds_begin(&more, 2, 3, &round), TT_ERR_STATE);
    expect_error(TT_ERR_STATE, "has rounds already");
    assert_true(tt__recovery_is_on());
    int launcher = accepted(listener);

    assert_false(tt__job_rounds_wanted(rounds) || tt__job_rounds_in_vain(rounds));
    tell(launcher, TT__JOB_WANTED, &(tt__job_round){.number = 1});
    assert_true(tt__job_rounds_in_vain(rounds));
    tt__job_rounds_joining(rounds);
    assert_int_equal(tt__net_interrupted(), TT_ERR_ABORTED);
    tt__job_rounds_joined(rounds, true);
    assert_int_equal(tt__net_interrupted(), TT_OK);
    assert_true(tt__job_rounds_wanted(rounds) && !tt__job_rounds_wanted(rounds));

    tell(launcher, TT__JOB_ROUND, &(tt__job_round){4, 1, 2, 29500, "::1", "rank 0 is lost"});
    tt__fail(TT_ERR_PEER, "rank 0 (pid 7) ended");
    assert_int_equal(tt__job_rounds_next(rounds, PATIENCE_MS, &place), TT_OK);
    assert_true(place.round == 4 && place.rank == 1 && place.world == 2 && place.port == 29500);
    assert_string_equal(place.host, "::1");
    assert_string_equal(place.reason, "rank 0 is lost");
    assert_int_equal(tt__recovery_said().wants_round, 1);
    assert_int_equal(tt__recovery_said().lost, 1); /* 1 + the rank */
    close(launcher);

    launcher = accepted(listener); /* it has shown itself as the rank that it is now */
    tt__job_rounds_joining(rounds);
    tt__job_rounds_joined(rounds, false);
    close(launcher);
    launcher = accepted(listener);
    tell(launcher, TT__JOB_ROUND, &(tt__job_round){5, -1, 1, 29500, "::1", "only one is needed"});
    assert_int_equal(tt__job_rounds_next(rounds, PATIENCE_MS, &place), TT_ERR_PEER);
    expect_error(TT_ERR_PEER, "without this process, which was rank 1 of 2");
    assert_int_equal(tt__job_rounds_next(rounds, 0, &place), TT_ERR_TIMEOUT);
    expect_error(TT_ERR_TIMEOUT, "no round within 0 ms");
    tt__job_rounds_end(rounds);
    assert_false(tt__recovery_is_on());
    close(launcher);
    close(listener);
    unsetenv("TT_JOB_SOCKET");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rounds_without_a_launcher_are_none),
        cmocka_unit_test(all_recorders_show_the_words),
        cmocka_unit_test(a_round_is_read),
        cmocka_unit_test(a_round_may_not_come),
        cmocka_unit_test(nonsense_is_no_round),
        cmocka_unit_test(a_wanted_round_is_seen_once),
        cmocka_unit_test(ends_of_a_round_are_its_own),
        cmocka_unit_test(a_seat_comes_before_the_environment),
        cmocka_unit_test(commits_and_restores_have_an_order),
        cmocka_unit_test(parts_are_checked),
        cmocka_unit_test(seeds_differ),
        cmocka_unit_test(a_wrapper_needs_its_group),
        cmocka_unit_test(a_wrapper_may_outlive_the_job),
        cmocka_unit_test(only_shared_orders_are_kept),
        cmocka_unit_test(a_share_changes),
        cmocka_unit_test(without_a_launcher_it_fails_at_once),
        cmocka_unit_test(a_disabled_one_recovers_nothing),
        cmocka_unit_test(ranks_that_register_different_parts_are_told),
        cmocka_unit_test(rounds_of_other_groups_are_told), /* last: the process has moved to another seat then */
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
