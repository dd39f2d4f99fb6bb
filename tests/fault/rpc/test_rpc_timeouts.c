/* Calls that are given up at any moment, with large arguments and results on their way; replies that can't be sent. */
#include "support/ranks.h"

#include <tutti/rpc.h>

enum { BURSTS = 40, CALLS = 32, SIZE = 1 << 20 };

static tt_status echo(tt_rpc_call *call) {
    tt_rpc_value value;
    tt_status status = tt_rpc_take_arg(call, 0, &value);
    return status ? status : tt_rpc_return(call, value);
}
TT_RPC_FUNCTION_NAMED(echo, "timeouts.echo", "(any value) -> any");

static char zeros[SIZE];

static tt_status give_bytes(tt_rpc_call *call) { return tt_rpc_return(call, tt_rpc_bytes(zeros, SIZE)); }
TT_RPC_FUNCTION_NAMED(give_bytes, "timeouts.give_bytes", "() -> bytes");

static tt_rref *foreign; /* of another tt_rpc of this process */

static tt_status give_foreign(tt_rpc_call *call) { return tt_rpc_return(call, tt_rpc_rref(foreign)); }
TT_RPC_FUNCTION_NAMED(give_foreign, "timeouts.give_foreign", "() -> rref");

static tt_status count_served(tt_rpc_call *call) {
    tt_rpc_counts counts;
    tt_status status = tt_rpc_get_counts(tt_rpc_of_call(call), &counts);
    return status ? status : tt_rpc_return(call, tt_rpc_int(counts.serving - 1));
}
TT_RPC_FUNCTION_NAMED(count_served, "timeouts.count_served", "() -> int");

/* Each is given up after another time: before it is sent, while its argument or its result is on its way, or not. */
static void burst(tt_rpc *rpc, int shift) {
    tt_future *futures[CALLS];
    for (int i = 0; i < CALLS; i++) {
        tt_rpc_value bytes = tt_rpc_bytes(zeros, SIZE);
        CHECK_OK(tt_rpc_async(&futures[i], rpc, "worker1", i % 2 ? "timeouts.echo" : "timeouts.give_bytes",
                              .args = {&bytes, i % 2}, .timeout_ms = 1 + (i + shift) % 12));
    }
    for (int i = 0; i < CALLS; i++) {
        tt_status status = tt_future_wait(futures[i], 0);
        CHECK(!status || status == TT_ERR_TIMEOUT);
        tt_future_free(futures[i]);
    }
}

static int give_up(tt_store *store, int rank, int world, void *transport) {
    tt_group *group = NULL;
    tt_rpc *rpc;
    tt_rpc_value left = tt_rpc_int(1);
    CHECK_OK(tt_init_process_group(&group, .store = store, .rank = rank, .world_size = world, .timeout_ms = PATIENCE_MS,
                                   .heartbeat_ms = CALM_MS, .transport = transport));
    CHECK_OK(tt_rpc_init(&rpc, rank ? "worker1" : "worker0", .group = group, .join_timeout_ms = PATIENCE_MS));
    for (int i = 0; i < BURSTS && !rank; i++)
        burst(rpc, i);
    while (!rank && left.integer) /* the alarm ends one that goes on */
        CHECK_OK(tt_rpc_sync(rpc, "worker1", "timeouts.count_served", .result = &left));
    CHECK_OK(tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS));
    tt_destroy_process_group(group);
    return 0;
}

static void calls_may_be_given_up_at_any_moment(void **state) {
    (void)state;
    with_ranks(2, give_up, "shm");
    with_ranks(2, give_up, "tcp");
}

/* The result is a value that its worker can give, in a place where it can't. */
static int give_what_cannot_be_sent(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join_group(store, rank, world);
    tt_rpc *rpc, *other;
    char name[20];
    (void)arg;
    snprintf(name, sizeof name, "worker%d", rank);
    CHECK_OK(tt_rpc_init(&other, name, .store = store));
    CHECK(foreign = tt_rref_new(other, tt_rpc_int(1))); /* before calls can come */
    CHECK_OK(tt_rpc_init(&rpc, name, .group = group, .join_timeout_ms = PATIENCE_MS));
    for (int to = 0; to < world && !rank; to++) {
        CHECK(tt_rpc_sync(rpc, NULL, "timeouts.give_foreign", .to_id = to, .timeout_ms = PATIENCE_MS) == TT_ERR_STATE);
        CHECK_TEXT("timeouts.give_foreign(): a reference of a worker that was shut down, or of another one");
    }
    CHECK_OK(tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS));
    tt_rref_free(foreign);
    CHECK_OK(tt_rpc_shutdown(other, .timeout_ms = PATIENCE_MS));
    tt_destroy_process_group(group);
    return 0;
}

static void a_result_that_cannot_be_sent_is_an_error(void **state) {
    (void)state;
    with_ranks(2, give_what_cannot_be_sent, NULL);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_may_be_given_up_at_any_moment),
        cmocka_unit_test(a_result_that_cannot_be_sent_is_an_error),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
