/* Workers that die, freeze or leave amid calls: every waiter gets an error that names them, soon, and nothing is
 * left. */
#include "support/worker_ranks.h"

#include "base/machine/clock.h"

#include <poll.h>
#include <sys/syscall.h>

enum { HEARTBEAT_MS = 2000, SOON_MS = 1000, REPLIES = 4, REPLY_BYTES = 48 << 20, AMID_NS = 5000000 };

/* ---- functions */

static tt_status die(tt_rpc_call *call) {
    (void)call;
    raise((int)tt_rpc_arg_int(call, 0));
    return TT_OK;
}
TT_RPC_FUNCTION(die, "(int signal)");

static tt_status add(tt_rpc_call *call) {
    return tt_rpc_return(call, tt_rpc_int(tt_rpc_arg_int(call, 0) + tt_rpc_arg_int(call, 1)));
}
TT_RPC_FUNCTION(add, "(int a, int b) -> int");

/* Reply with much, and die while that is on its way. */
static tt_status die_replying(tt_rpc_call *call) {
    static void *bytes;
    static timer_t timer;
    if (!bytes) {
        struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = (int)tt_rpc_arg_int(call, 0)};
        CHECK(bytes = calloc(1, REPLY_BYTES));
        CHECK(!timer_create(CLOCK_MONOTONIC, &event, &timer));
        CHECK(!timer_settime(timer, 0, &(struct itimerspec){.it_value.tv_nsec = AMID_NS}, NULL));
    }
    return tt_rpc_return(call, tt_rpc_bytes(bytes, REPLY_BYTES));
}
TT_RPC_FUNCTION(die_replying, "(int signal) -> bytes");

/* Kill the caller, wait until it is dead, and reply with much at once: often nobody has seen its end yet. */
static tt_status reply_to_the_dead(tt_rpc_call *call) {
    static uint8_t bytes[1 << 20];
    pid_t caller = (pid_t)tt_rpc_arg_int(call, 0);
    struct pollfd dead = {.fd = (int)syscall(SYS_pidfd_open, caller, 0), .events = POLLIN};
    CHECK(dead.fd >= 0 && !kill(caller, SIGKILL));
    CHECK(poll(&dead, 1, PATIENCE_MS) == 1);
    close(dead.fd);
    return tt_rpc_return(call, tt_rpc_bytes(bytes, sizeof bytes));
}
TT_RPC_FUNCTION(reply_to_the_dead, "(int caller) -> bytes");

/* Have a third worker die, and wait for it. */
static tt_status have_die(tt_rpc_call *call) {
    return tt_rpc_sync(tt_rpc_of_call(call), NULL, "die", .to_id = (int)tt_rpc_arg_int(call, 0),
                       .args = TT_RPC_ARGS(*tt_rpc_arg(call, 1)));
}
TT_RPC_FUNCTION(have_die, "(int whom, int signal)");

static tt_rref *kept;

static tt_status keep(tt_rpc_call *call) {
    kept = tt_rref_share(tt_rpc_arg_rref(call, 0));
    return TT_OK;
}
TT_RPC_FUNCTION(keep, "(rref value)");

static tt_status count_owned(tt_rpc_call *call) {
    tt_rpc_counts counts;
    tt_status status = tt_rpc_get_counts(tt_rpc_of_call(call), &counts);
    return status ? status : tt_rpc_return(call, tt_rpc_int(counts.owned));
}
TT_RPC_FUNCTION(count_owned, "() -> int");

/* ---- bodies */

typedef struct fault_case {
    const char *transport;
    int signal; /* that ends worker 2 */
    void (*fn)(tt_rpc *rpc, int rank, int signal);
} fault_case;

static int be_worker(tt_store *store, int rank, int world, void *arg) {
    const fault_case *what = arg;
    tt_group *group;
    tt_rpc *rpc = become_worker(store, rank, world, (worker_options){what->transport, HEARTBEAT_MS, 0}, &group);
    what->fn(rpc, rank, what->signal);
    tt_status status = tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS);
    CHECK(status == TT_ERR_PEER); /* a worker that made no calls learns of it here */
    CHECK_TEXT("worker2 (id 2)");
    tt_rref_free(kept); /* not before: keep() may be called at any time until then */
    tt_destroy_process_group(group);
    return 0;
}

static void check_time(int64_t since, int signal) {
    int64_t promised = signal == SIGSTOP ? HEARTBEAT_MS + SOON_MS : SOON_MS;
    CHECK(tt__now_ms() - since < promised + leeway_ms());
}

/* Worker 2 dies in a call of worker 0, while worker 1 has called it, too; calls to those that live go on. */
static void dies_in_a_call(tt_rpc *rpc, int rank, int signal) {
    int64_t since = tt__now_ms();
    tt_rpc_value sum;
    if (rank == 0) {
        CHECK(tt_rpc_sync(rpc, "worker2", "die", .args = TT_RPC_ARGS(tt_rpc_int(signal))) == TT_ERR_PEER);
        CHECK_TEXT("worker2 (id 2)");
        CHECK(tt_rpc_sync(rpc, "worker2", "add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1))) == TT_ERR_PEER);
        CHECK_TEXT("worker2 (id 2)");
        check_time(since, signal);
    } else if (rank == 1) {
        while (!tt_rpc_sync(rpc, "worker2", "add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1))))
            ;
        CHECK(tt_last_status() == TT_ERR_PEER);
        CHECK_TEXT("worker2 (id 2)");
        check_time(since, signal);
        CHECK_OK(tt_rpc_sync(rpc, "worker0", "add", .args = TT_RPC_ARGS(tt_rpc_int(2), tt_rpc_int(2)), .result = &sum));
        CHECK(sum.integer == 4);
    }
}

/* Worker 0 calls worker 1, which calls worker 2, which dies: the text has the whole path. */
static void dies_in_a_nested_call(tt_rpc *rpc, int rank, int signal) {
    int64_t since = tt__now_ms();
    if (rank)
        return;
    CHECK(tt_rpc_sync(rpc, "worker1", "have_die", .args = TT_RPC_ARGS(tt_rpc_int(2), tt_rpc_int(signal))) ==
          TT_ERR_PEER);
    CHECK_TEXT("worker1 (id 1), have_die(): worker worker2 (id 2)");
    check_time(since, signal);
}

/* A holder dies: the owner frees the value. An owner dies: its users are told. */
static void dies_with_references(tt_rpc *rpc, int rank, int signal) {
    tt_rref *mine, *theirs;
    tt_rpc_value value;
    tt_rpc_counts counts;
    if (rank)
        return;
    CHECK(mine = tt_rref_new(rpc, tt_rpc_int(7)));
    CHECK_OK(tt_rpc_sync(rpc, "worker2", "keep", .args = TT_RPC_ARGS(tt_rpc_rref(mine))));
    CHECK_OK(tt_rpc_remote(&theirs, rpc, "worker2", "add", .args = TT_RPC_ARGS(tt_rpc_int(3), tt_rpc_int(4))));
    CHECK_OK(tt_rref_get(theirs, &value, 0));
    CHECK(value.integer == 7);
    tt_rref_free(mine);
    CHECK_OK(tt_rpc_get_counts(rpc, &counts));
    CHECK(counts.owned == 1 && counts.held == 1);
    int64_t since = tt__now_ms();
    CHECK(tt_rpc_sync(rpc, "worker2", "die", .args = TT_RPC_ARGS(tt_rpc_int(signal))) == TT_ERR_PEER);
    CHECK(tt_rref_get(theirs, &value, 0) == TT_ERR_PEER);
    CHECK_TEXT("worker2 (id 2)");
    do
        CHECK_OK(tt_rpc_get_counts(rpc, &counts));
    while (counts.owned && tt__now_ms() - since < PATIENCE_MS);
    CHECK(!counts.owned && counts.held == 1 && !counts.calls);
    tt_rref_free(theirs);
}

/* Parts of replies come, or end, at the moment when their calls fail. */
static void dies_amid_replies(tt_rpc *rpc, int rank, int signal) {
    tt_future *futures[REPLIES];
    if (rank)
        return;
    int64_t since = tt__now_ms();
    for (int i = 0; i < REPLIES; i++)
        CHECK_OK(tt_rpc_async(&futures[i], rpc, "worker2", "die_replying", .args = TT_RPC_ARGS(tt_rpc_int(signal))));
    for (int i = 0; i < REPLIES; i++) {
        if (tt_future_wait(futures[i], 0)) {
            CHECK(tt_last_status() == TT_ERR_PEER);
            CHECK_TEXT("worker2 (id 2)");
        }
        tt_future_free(futures[i]);
    }
    CHECK(tt_rpc_sync(rpc, "worker2", "add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1))) == TT_ERR_PEER);
    check_time(since, signal);
}

static void dies_before_a_reply(tt_rpc *rpc, int rank, int signal) {
    (void)signal;
    if (rank != 2)
        return;
    CHECK(tt_rpc_sync(rpc, NULL, "reply_to_the_dead", .to_id = 0, .args = TT_RPC_ARGS(tt_rpc_int(getpid()))));
    CHECK(!"reached");
}

static void play_case(fault_case what) {
    ranks ranks;
    start_ranks(&ranks, 3, be_worker, &what);
    assert_int_equal(end_of_rank(&ranks, 0), 0);
    assert_int_equal(end_of_rank(&ranks, 1), 0);
    kill(ranks.pid[2], SIGKILL);
    assert_int_equal(end_of_rank(&ranks, 2), 128 + SIGKILL);
    tt_store_server_free(ranks.server);
}

static void play(void (*fn)(tt_rpc *rpc, int rank, int signal)) {
    static const char *const transports[] = {"shm", "tcp"};
    static const int signals[] = {SIGKILL, SIGSTOP};
    for (int i = 0; i < 4; i++)
        play_case((fault_case){transports[i / 2], signals[i % 2], fn});
}

static void callers_are_told(void **state) {
    (void)state;
    play(dies_in_a_call);
}

static void nested_callers_are_told_the_path(void **state) {
    (void)state;
    play(dies_in_a_nested_call);
}

static void references_end_or_are_lost(void **state) {
    (void)state;
    play(dies_with_references);
}

static void replies_that_end_half_way_end_their_calls_once(void **state) {
    (void)state;
    play(dies_amid_replies);
}

/* ---- who leaves because another was lost */

static int be_worker_that_leaves(tt_store *store, int rank, int world, void *arg) {
    const char *left = "worker1 has left";
    tt_group *group;
    tt_rpc *rpc = become_worker(store, rank, world, (worker_options){.transport = arg}, &group);
    if (rank == 2)
        raise(SIGKILL);
    if (rank == 0) {
        CHECK_OK(tt_store_wait(store, &left, 1, PATIENCE_MS));
        CHECK(tt_rpc_sync(rpc, "worker1", "count_owned") == TT_ERR_PEER);
        CHECK_TEXT("worker1 (id 1)");
        CHECK_TEXT("rank 1 left the group, after another was lost: rank 2");
    } else {
        while (!tt_rpc_sync(rpc, "worker2", "count_owned"))
            ;
    }
    tt_status status = tt_rpc_shutdown(rpc, .at_once = true);
    CHECK(!status || status == TT_ERR_PEER);
    tt_destroy_process_group(group);
    CHECK_OK(tt_store_set(store, left, "", 0));
    return 0;
}

/* A call whose reply could not be sent was freed, and ended a second time with the parts of the reply. */
static void replies_to_the_dead_end_their_calls_once(void **state) {
    (void)state;
    for (int i = 0; i < 8; i++)
        play_case((fault_case){"tcp", SIGKILL, dies_before_a_reply});
    play_case((fault_case){"shm", SIGKILL, dies_before_a_reply});
}

static void who_leaves_for_another_names_it(void **state) {
    static char *const transports[] = {"shm", "tcp"};
    (void)state;
    for (int t = 0; t < 2; t++) {
        ranks ranks;
        start_ranks(&ranks, 3, be_worker_that_leaves, transports[t]);
        for (int r = 0; r < 3; r++)
            assert_int_equal(end_of_rank(&ranks, r), r == 2 ? 128 + SIGKILL : 0);
        tt_store_server_free(ranks.server);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(callers_are_told),
        cmocka_unit_test(nested_callers_are_told_the_path),
        cmocka_unit_test(references_end_or_are_lost),
        cmocka_unit_test(replies_that_end_half_way_end_their_calls_once),
        cmocka_unit_test(replies_to_the_dead_end_their_calls_once),
        cmocka_unit_test(who_leaves_for_another_names_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
