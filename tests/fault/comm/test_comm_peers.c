/* Ranks that die, freeze or end without a word: the others learn who it was, within a bounded time, whatever they are
 * doing. */
#include "support/blow.h"

#include "base/build.h"
#include "base/process/proc_state.h"
#include "comm/rendezvous/stopped.h"
#include "comm/shared/process.h"
#include "comm/shared/shm_connect.h"
#include "net/job/job_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>

enum { LARGE = 3000000 };

typedef enum activity { IDLE_WAIT, SMALL, SYMMETRIC, PLAIN, ACTIVITIES } activity;
typedef enum fault { KILLED, STOPPED, EXITED, KILLED_WITH_CHILD, MAIN_THREAD_EXITED } fault;

typedef struct scene {
    activity activity;
    fault fault;
    int victim;
    const char *transport; /* NULL: shared memory */
} scene;

/* Works until something goes wrong; returns what. */
static tt_status work(tt_group *group, activity activity, float *symmetric, float *plain) {
    tt_status status = TT_OK;
    while (!status)
        switch (activity) {
        case SMALL:
            status = tt_all_reduce(group, plain, 2, TT_F32, TT_SUM);
            break;
        case SYMMETRIC:
            status = tt_all_reduce(group, symmetric, LARGE, TT_F32, TT_SUM);
            break;
        default:
            status = tt_all_reduce(group, plain, LARGE, TT_F32, TT_SUM);
        }
    return status;
}

/* What the last thread of a process calls before it ends. */
static void end_quietly(void) { _exit(0); }

/* The victim says when it is under way, so that the fault strikes in the middle of its work, or while the others wait
 * for it. */
static void be_victim(tt_store *store, tt_group *group, const scene *scene, float *symmetric, float *plain) {
    /* A child that lives on holds the victim's sockets; it takes over the store, too. */
    if (scene->fault == KILLED_WITH_CHILD && fork() != 0)
        for (;;)
            pause();
    tell_under_way(store);
    if (scene->fault == KILLED_WITH_CHILD) {
        static const char *const over[] = {"learned/0"};
        tt_ignore(tt_store_wait(store, over, 1, PATIENCE_MS)); /* the test may end first */
        _exit(0);
    }
    if (scene->fault == EXITED)
        _exit(0);
    if (scene->fault == MAIN_THREAD_EXITED) {
        CHECK(!atexit(end_quietly));
        pthread_exit(NULL);
    }
    if (scene->activity == IDLE_WAIT)
        for (;;)
            pause();
    work(group, scene->activity, symmetric, plain);
    _exit(1);
}

static int body(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    tt_group *group = join_watchful(store, rank, world, scene->transport);
    float *symmetric, *plain = calloc(LARGE, sizeof *plain);
    char who[40];
    CHECK_OK(tt_group_alloc((void **)&symmetric, group, LARGE * sizeof(float)));
    CHECK_OK(tt_barrier(group));
    if (rank == scene->victim)
        be_victim(store, group, scene, symmetric, plain);
    tt_status status = work(group, scene->activity, symmetric, plain);
    int64_t now = tt__now_ns();
    CHECK(status == TT_ERR_PEER);
    snprintf(who, sizeof who, scene->transport ? "rank %d (" : "rank %d (pid ", scene->victim);
    CHECK_TEXT(who);
    CHECK_TEXT(scene->fault == STOPPED ? "frozen" : scene->transport ? "is gone" : "ended");
    CHECK(tt_barrier(group) == TT_ERR_PEER);
    tt_destroy_process_group(group);
    free(plain);
    tell_learned(store, rank, now);
    return 0;
}

static int64_t limit_ms(fault fault) {
    return (fault == STOPPED || fault == MAIN_THREAD_EXITED ? BLOW_HEARTBEAT_MS + 500 : 1000) + leeway_ms();
}

/* Strike, and see when the others learned of it. */
static void play(int world, scene scene) {
    static const char *const under_way[] = {"victim"};
    ranks ranks;
    tt_store *store = NULL;
    start_ranks(&ranks, world, body, &scene);
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(ranks.server)), TT_OK);
    assert_int_equal(tt_store_wait(store, under_way, 1, PATIENCE_MS), TT_OK);
    pid_t victim = ranks.pid[scene.victim];
    int64_t struck = tt__now_ns(), limit = limit_ms(scene.fault) * 1000000;
    bool ends_itself = scene.fault == EXITED || scene.fault == MAIN_THREAD_EXITED;
    if (!ends_itself)
        kill(victim, scene.fault == STOPPED ? SIGSTOP : SIGKILL);
    for (int r = 0; r < world; r++)
        if (r != scene.victim) {
            int64_t took = learned_ns(store, r) - struck;
            assert_true(took < limit);
            assert_int_equal(end_of_rank(&ranks, r), 0);
        }
    if (scene.fault == STOPPED)
        kill(victim, SIGKILL);
    assert_int_equal(end_of_rank(&ranks, scene.victim), ends_itself ? 0 : 128 + SIGKILL);
    tt_store_free(store);
    tt_store_server_free(ranks.server);
}

static void killed_ranks_are_named(void **state) {
    (void)state;
    for (int activity = 0; activity < ACTIVITIES; activity++)
        for (int victim = 0; victim < 2; victim++)
            play(2, (scene){(enum activity)activity, KILLED, victim, NULL});
    play(4, (scene){SMALL, KILLED, 2, NULL});
    play(4, (scene){PLAIN, KILLED, 0, NULL});
}

static void a_child_of_the_dead_hides_nothing(void **state) {
    (void)state;
    play(2, (scene){IDLE_WAIT, KILLED_WITH_CHILD, 1, NULL});
    play(2, (scene){IDLE_WAIT, KILLED_WITH_CHILD, 1, "tcp"});
}

/* The engine's own thread would keep such a process alive, and beating. */
static void a_main_thread_that_leaves_is_a_rank_that_ended(void **state) {
    (void)state;
    if (TT__TSAN)
        skip(); /* the sanitizer's own thread keeps the process alive */
    play(2, (scene){IDLE_WAIT, MAIN_THREAD_EXITED, 1, "tcp"});
    play(2, (scene){IDLE_WAIT, MAIN_THREAD_EXITED, 1, NULL});
}

static void exited_ranks_are_named(void **state) {
    (void)state;
    play(2, (scene){IDLE_WAIT, EXITED, 0, NULL});
    play(3, (scene){SMALL, EXITED, 1, NULL});
}

static void frozen_ranks_are_named(void **state) {
    (void)state;
    play(2, (scene){IDLE_WAIT, STOPPED, 1, NULL});
    play(2, (scene){SYMMETRIC, STOPPED, 0, NULL});
    play(3, (scene){SMALL, STOPPED, 1, NULL});
}

/* A pause shorter than the heartbeat is none of our business. */
static int paused_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world); /* with a long heartbeat: the pause may last longer than meant */
    if (rank == 1) {
        char pid[24];
        int n = snprintf(pid, sizeof pid, "%d", (int)getpid());
        CHECK_OK(tt_store_set(store, "pid", pid, (size_t)n));
    }
    for (int64_t start = tt__now_ms(), more = 1; more;) {
        more = tt__now_ms() - start < 600;
        CHECK_OK(tt_all_reduce(group, &more, 1, TT_I64, TT_MAX));
    }
    tt_destroy_process_group(group);
    return 0;
}

static void a_short_pause_is_no_failure(void **state) {
    (void)state;
    ranks ranks;
    start_ranks(&ranks, 2, paused_body, NULL);
    tt_store *store = NULL;
    tt_store_value value;
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(ranks.server)), TT_OK);
    assert_int_equal(tt_store_get(store, "pid", &value), TT_OK);
    tt_store_value_free(&value);
    kill(ranks.pid[1], SIGSTOP);
    usleep(200000); /* the pause itself, well below the heartbeat */
    kill(ranks.pid[1], SIGCONT);
    tt_store_free(store);
    end_ranks(&ranks);
}

/* Wait until the process is stopped by a signal. */
static void await_stop(pid_t pid) {
    siginfo_t info;
    assert_int_equal(waitid(P_PID, (id_t)pid, &info, WSTOPPED), 0);
    assert_true(tt__proc_state(pid) == 'T');
}

/* A process that runs, for a moment, whenever it is continued, and is stopped in between. */
static pid_t start_stopping(void) {
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* where the test fails */
        for (;;)
            raise(SIGSTOP);
    }
    await_stop(pid);
    return pid;
}

static void continue_once(pid_t pid) {
    kill(pid, SIGCONT);
    await_stop(pid);
}

static void end_stopping(pid_t pid) {
    kill(pid, SIGKILL);
    assert_true(waitpid(pid, NULL, 0) == pid);
}

/* Every look sees the rank stopped, but it has run in between. */
static void short_stops_are_no_failure_however_many(void **state) {
    (void)state;
    enum { HEARTBEAT = 4000, BETWEEN = 500 };
    tt__peer peers[2] = {{.pid = getpid()}, {.pid = start_stopping()}};
    tt__world world = {.size = 2, .heartbeat_ms = HEARTBEAT, .peers = peers};
    int64_t now = 1000, all_looks = 20;
    for (int64_t look = 0; look < all_looks; look++, now += BETWEEN) {
        assert_int_equal(tt__check_stopped(&world, 1, now), TT_OK);
        world.last_check_ms = now;
        continue_once(peers[1].pid);
    }
    tt_status status = TT_OK;
    int64_t since = now;
    for (; !status && now < since + 2 * HEARTBEAT; now += BETWEEN) {
        status = tt__check_stopped(&world, 1, now);
        world.last_check_ms = now;
    }
    end_stopping(peers[1].pid);
    assert_int_equal(status, TT_ERR_PEER);
    assert_non_null(strstr(tt_last_error(), "is frozen: stopped by a signal for 3000 ms"));
}

/* Answer a rank's question as the launcher does: which rank is stopped. */
static void answer_as_launcher(int s, pid_t stopped) {
    tt__job_packet packet = {0};
    int memory, got;
    while (!(got = tt__job_receive(s, &packet, &memory)))
        usleep(1000);
    assert_true(got > 0 && packet.kind == TT__JOB_LIST);
    tt__job_packet info = {.info = {.world = 2}};
    tt__job_packet rank = {.rank = {.rank = 1, .pid = stopped, .stopped = true}};
    rank.rank.activity = tt__proc_activity(stopped);
    assert_true(tt__job_send(s, TT__JOB_INFO, &info, -1) && tt__job_send(s, TT__JOB_RANK, &rank, -1) &&
                tt__job_send(s, TT__JOB_END, &packet, -1));
}

/* The same of one that has not joined, as its launcher says. */
static void short_stops_before_joining_are_no_failure(void **state) {
    (void)state;
    enum { HEARTBEAT = 200 };
    char name[TT__JOB_NAME_SIZE];
    int listener, s = -1;
    tt__stopped stopped;
    pid_t pid = start_stopping();
    assert_int_equal(tt__job_socket_name(name), TT_OK);
    assert_int_equal(tt__job_socket_listen(&listener, name), TT_OK);
    setenv("TT_JOB_SOCKET", name, 1);
    assert_int_equal(tt__stopped_begin(&stopped, 2, HEARTBEAT), TT_OK);
    tt_status status = TT_OK;
    int64_t ran_ms = tt__now_ms(), calm_until = ran_ms + 2 * HEARTBEAT, given_up = calm_until + PATIENCE_MS;
    while (!status && tt__now_ms() < given_up) {
        bool asked = stopped.asked;
        tt__stopped_look(&stopped);
        if (s < 0)
            s = tt__job_socket_accept(listener);
        if (stopped.asked && !asked)
            answer_as_launcher(s, pid);
        tt__stopped_look(&stopped);
        status = tt__stopped_check(&stopped, 1);
        assert_true(!status || tt__now_ms() - ran_ms >= stopped.patience_ms);
        usleep(2000);
        if (tt__now_ms() < calm_until) {
            ran_ms = tt__now_ms();
            continue_once(pid);
        }
    }
    unsetenv("TT_JOB_SOCKET");
    tt__stopped_end(&stopped);
    close(s);
    close(listener);
    end_stopping(pid);
    assert_int_equal(status, TT_ERR_PEER);
    assert_non_null(strstr(tt_last_error(), "is frozen: stopped by a signal for "));
}

/* A rank that ends because another one did must not be taken for the first failure. */
static int secondary_body(tt_store *store, int rank, int world, void *arg) {
    const char *path = arg;
    CHECK(!setenv("TORCHELASTIC_ERROR_FILE", path, 1));
    tt_group *group = join_watchful(store, rank, world, NULL);
    CHECK_OK(tt_barrier(group));
    if (rank == 1)
        _exit(0);
    CHECK(tt_barrier(group) == TT_ERR_PEER);
    tt_destroy_process_group(group);
    return 0;
}

static void who_ends_because_of_another_says_so(void **state) {
    (void)state;
    char path[] = "/tmp/tutti-secondary-XXXXXX", text[4096];
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    with_ranks(2, secondary_body, path);
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    unlink(path);
    assert_true(n > 0);
    text[n] = '\0';
    assert_non_null(strstr(text, "\"secondary\": true"));
    assert_non_null(strstr(text, "rank 1 (pid "));
}

/* Who failed in the group that another was made from may never have come to know of that other. */
static int ignorant_body(tt_store *store, int rank, int world, void *arg) {
    CHECK(!setenv("TT_TRANSPORT", arg, 1));
    tt_group *group = join_watchful(store, rank, world, NULL), *made;
    CHECK_OK(tt_group_split(&made, group, 0, 0));
    if (rank == 1) {
        tt_group_abort(group, "because");
        _exit(0);
    }
    CHECK(tt_barrier(made) == TT_ERR_ABORTED);
    CHECK_TEXT("rank 1 aborted the group: because");
    tt_destroy_process_group(made);
    tt_destroy_process_group(group);
    return 0;
}

static void who_failed_before_a_group_began_is_asked_why(void **state) {
    (void)state;
    with_ranks(2, ignorant_body, "auto");
    with_ranks(2, ignorant_body, "tcp");
}

/* A rank that dies while the others are still joining. */
static int joining_body(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = NULL;
    if (rank == world - 1) {
        static const char *const keys[] = {"tutti/0/1/rank/0"};
        CHECK_OK(tt_store_wait(store, keys, 1, PATIENCE_MS));
        _exit(0);
    }
    CHECK_OK(tt_store_barrier(store, "both", world - 1, PATIENCE_MS)); /* so that neither is late for the other */
    CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = 2000) ==
          TT_ERR_TIMEOUT);
    CHECK_TEXT("rank 2 of 3 did not join within");
    CHECK(!group);
    return 0;
}

static void a_rank_that_never_joins_is_named(void **state) {
    (void)state;
    with_ranks(3, joining_body, NULL);
}

/* A rank that has left its card and ends, or is stopped, before it meets the others. `reaped`: even its pid is gone by
 * then. */
typedef struct doorstep {
    fault fault;
    int victim;
    bool reaped;
} doorstep;

static void leave_card(tt_store *store, int rank, int world) {
    tt__card cards[8];
    int listener;
    CHECK_OK(tt__card_make(&cards[rank], world, "auto", NULL));
    CHECK_OK(tt__listen(&listener, world, &cards[rank]));
    CHECK(tt__cards_exchange(&(tt__rendezvous){store, "tutti/0/1", rank, world, tt__now_ms(), CALM_MS, NULL}, cards) ==
          TT_ERR_TIMEOUT);
}

static int doorstep_body(tt_store *store, int rank, int world, void *arg) {
    const doorstep *scene = arg;
    static const char *const go[] = {"go"};
    tt_group *group = NULL;
    char who[32];
    if (rank == scene->victim) {
        leave_card(store, rank, world);
        CHECK_OK(tt_store_set(store, "victim", "", 0));
        if (scene->fault == STOPPED)
            raise(SIGSTOP);
        _exit(0);
    }
    CHECK_OK(tt_store_wait(store, go, 1, PATIENCE_MS));
    int64_t start = tt__now_ms();
    CHECK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                .heartbeat_ms = BLOW_HEARTBEAT_MS) == TT_ERR_PEER);
    CHECK(!group && tt__now_ms() - start < limit_ms(scene->fault));
    snprintf(who, sizeof who, "rank %d (pid ", scene->victim);
    CHECK_TEXT(who);
    CHECK_TEXT(scene->fault == STOPPED ? "is frozen" : "ended while joining");
    return 0;
}

static void play_doorstep(doorstep scene) {
    enum { WORLD = 4 };
    static const char *const under_way[] = {"victim"};
    ranks ranks;
    tt_store *store = NULL;
    start_ranks(&ranks, WORLD, doorstep_body, &scene);
    assert_int_equal(tt_tcp_store(&store, "127.0.0.1", tt_store_server_port(ranks.server)), TT_OK);
    assert_int_equal(tt_store_wait(store, under_way, 1, PATIENCE_MS), TT_OK);
    siginfo_t info;
    int how = scene.fault == STOPPED ? WSTOPPED : WEXITED;
    assert_int_equal(waitid(P_PID, (id_t)ranks.pid[scene.victim], &info, how | (scene.reaped ? 0 : WNOWAIT)), 0);
    assert_int_equal(tt_store_set(store, "go", "", 0), TT_OK);
    for (int r = 0; r < WORLD; r++)
        if (r != scene.victim)
            assert_int_equal(end_of_rank(&ranks, r), 0);
    if (scene.fault == STOPPED)
        kill(ranks.pid[scene.victim], SIGKILL);
    if (!scene.reaped)
        assert_int_equal(end_of_rank(&ranks, scene.victim), scene.fault == STOPPED ? 128 + SIGKILL : 0);
    tt_store_free(store);
    tt_store_server_free(ranks.server);
}

static void joining_does_not_wait_for_the_dead_or_frozen(void **state) {
    (void)state;
    for (int victim = 0; victim < 4; victim++) {
        play_doorstep((doorstep){EXITED, victim, false});
        play_doorstep((doorstep){EXITED, victim, true});
        play_doorstep((doorstep){STOPPED, victim, false});
    }
}

/* From here on the process may not ask who is at the other end of a Unix socket. */
static void forbid_peer_credentials(void) {
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_getsockopt, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])), /* its lower half */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SO_PEERCRED, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const struct sock_fprog program = {sizeof code / sizeof *code, code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program))
        _exit(0); /* this machine can't do that */
}

static int join_in_a_sandbox(tt_store *store, int rank, int world, void *arg) {
    const int *sandboxed = arg;
    tt_group *group;
    if (rank == *sandboxed)
        forbid_peer_credentials();
    tt_status status = tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world,
                                             .timeout_ms = PATIENCE_MS, .heartbeat_ms = CALM_MS);
    CHECK(status);
    if (rank == *sandboxed) {
        CHECK(status == TT_ERR_SYSTEM);
        CHECK_TEXT("getsockopt(SO_PEERCRED): Operation not permitted");
    }
    return 0;
}

/* Rank 1 calls, rank 0 is called. It was said that the other one's socket belonged to another user. */
static void who_may_not_ask_whom_it_meets_says_so(void **state) {
    (void)state;
    for (int rank = 0; rank < 2; rank++)
        with_ranks(2, join_in_a_sandbox, &rank);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(killed_ranks_are_named),
        cmocka_unit_test(a_child_of_the_dead_hides_nothing),
        cmocka_unit_test(a_main_thread_that_leaves_is_a_rank_that_ended),
        cmocka_unit_test(exited_ranks_are_named),
        cmocka_unit_test(frozen_ranks_are_named),
        cmocka_unit_test(a_short_pause_is_no_failure),
        cmocka_unit_test(short_stops_are_no_failure_however_many),
        cmocka_unit_test(short_stops_before_joining_are_no_failure),
        cmocka_unit_test(who_ends_because_of_another_says_so),
        cmocka_unit_test(who_failed_before_a_group_began_is_asked_why),
        cmocka_unit_test(a_rank_that_never_joins_is_named),
        cmocka_unit_test(who_may_not_ask_whom_it_meets_says_so),
        cmocka_unit_test(joining_does_not_wait_for_the_dead_or_frozen),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
