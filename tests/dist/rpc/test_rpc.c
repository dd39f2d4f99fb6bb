/* Calls, values, futures and references between the ranks of a group, on shared memory and on TCP. */
#include "support/worker_ranks.h"

#include <time.h>

enum { BIG = 3 << 20 };

/* ---- functions */

static tt_status add(tt_rpc_call *call) {
    return tt_rpc_return(call, tt_rpc_int(tt_rpc_arg_int(call, 0) + tt_rpc_arg_int(call, 1)));
}
TT_RPC_FUNCTION(add, "(int a, int b) -> int");

static tt_status echo(tt_rpc_call *call) {
    tt_rpc_value value;
    if (tt_rpc_take_arg(call, 0, &value))
        return tt_last_status();
    return tt_rpc_return(call, value);
}
TT_RPC_FUNCTION(echo, "(any value) -> any");

static tt_status fails(tt_rpc_call *call) {
    (void)call;
    return tt_fail(TT_ERR_IO, "the disk %s is on fire", "sda");
}
TT_RPC_FUNCTION(fails, "()");

static tt_status says_nothing(tt_rpc_call *call) {
    (void)call;
    return TT_OK;
}
TT_RPC_FUNCTION(says_nothing, "() -> int");

/* f(n) on this worker is f(n - 1) on the next one, plus 1. */
static tt_status nested(tt_rpc_call *call) {
    int64_t depth = tt_rpc_arg_int(call, 0);
    tt_rpc *rpc = tt_rpc_of_call(call);
    tt_rpc_value inner = tt_rpc_int(0);
    if (depth == -1)
        return tt_fail(TT_ERR_IO, "the bottom");
    if (depth) {
        tt_status status = tt_rpc_sync(rpc, NULL, "nested", .to_id = 1 - tt_rpc_id(rpc),
                                       .args = TT_RPC_ARGS(tt_rpc_int(depth - 1)), .result = &inner);
        if (status)
            return status;
    }
    return tt_rpc_return(call, tt_rpc_int(inner.integer + 1));
}
TT_RPC_FUNCTION(nested, "(int depth) -> int");

static tt_status add_later(tt_rpc_call *call) {
    tt_future *future;
    if (tt_rpc_async(&future, tt_rpc_of_call(call), NULL, "add", .to_id = tt_rpc_caller(call),
                     .args = TT_RPC_ARGS(tt_rpc_int(tt_rpc_arg_int(call, 0)), tt_rpc_int(1000))))
        return tt_last_status();
    tt_status status = tt_rpc_return_future(call, future);
    tt_future_free(future);
    return status;
}
TT_RPC_FUNCTION(add_later, "(int a) -> int");

static int counters_freed;

static void free_counter(void *at) {
    counters_freed++;
    free(at);
}

static tt_status make_counter(tt_rpc_call *call) {
    int64_t *counter = malloc(sizeof *counter);
    *counter = tt_rpc_arg_int(call, 0);
    return tt_rpc_return(call, tt_rpc_object(counter, free_counter, "counter"));
}
TT_RPC_FUNCTION(make_counter, "(int start) -> object");

static tt_status count_up(tt_rpc_call *call) {
    const tt_rpc_value *value = tt_rref_local(tt_rpc_arg_rref(call, 0));
    if (!value)
        return tt_last_status();
    int64_t *counter = value->object.at;
    return tt_rpc_return(call, tt_rpc_int(*counter += tt_rpc_arg_int(call, 1)));
}
TT_RPC_FUNCTION(count_up, "(rref counter, int by) -> int");

/* Use a reference that lies with another worker. */
static tt_status use_counter(tt_rpc_call *call) {
    tt_rpc_value count;
    tt_status status =
        tt_rref_sync(tt_rpc_arg_rref(call, 0), "count_up", .args = TT_RPC_ARGS(tt_rpc_int(10)), .result = &count);
    return status ? status : tt_rpc_return(call, count);
}
TT_RPC_FUNCTION(use_counter, "(rref counter) -> int");

/* ---- bodies */

typedef void (*worker_fn)(tt_rpc *rpc, int rank, int world);

typedef struct workers {
    worker_fn fn;
    const char *transport;
    int max_threads;
} workers;

static int be_worker(tt_store *store, int rank, int world, void *arg) {
    const workers *what = arg;
    const worker_options options = {what->transport, CALM_MS, what->max_threads};
    tt_group *group;
    tt_rpc *rpc = become_worker(store, rank, world, options, &group);
    what->fn(rpc, rank, world);
    CHECK_OK(tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS));
    tt_destroy_process_group(group);
    return 0;
}

static void on_all_wires(int world, worker_fn fn) {
    static const char *const transports[] = {"shm", "tcp"};
    for (int i = 0; i < 2; i++)
        with_ranks(world, be_worker, &(workers){fn, transports[i], 0});
}

/* ---- calls */

static void small_calls(tt_rpc *rpc, int rank, int world) {
    for (int to = 0; to < world; to++)
        for (int i = 0; i < 50; i++) {
            tt_rpc_value sum;
            char name[20];
            snprintf(name, sizeof name, "worker%d", to);
            CHECK_OK(
                tt_rpc_sync(rpc, name, "add", .args = TT_RPC_ARGS(tt_rpc_int(i), tt_rpc_int(rank)), .result = &sum));
            CHECK(sum.kind == TT_RPC_INT && sum.integer == i + rank);
        }
}

static void calls_give_results(void **state) {
    (void)state;
    on_all_wires(2, small_calls);
    on_all_wires(4, small_calls);
}

static void is_echoed(tt_rpc *rpc, int to, tt_rpc_value value, tt_rpc_value *back) {
    CHECK_OK(tt_rpc_sync(rpc, NULL, "echo", .to_id = to, .args = TT_RPC_ARGS(value), .result = back));
    CHECK(back->kind == value.kind);
}

static void all_kinds(tt_rpc *rpc, int rank, int world) {
    static unsigned char big[BIG];
    static const size_t sizes[] = {0, 1, 100, 8 << 10, (8 << 10) + 1, 60000, 70000, BIG};
    tt_rpc_value back;
    for (size_t i = 0; i < BIG; i++)
        big[i] = (unsigned char)(i * 31 + i / 1000 + (size_t)rank);
    for (int to = 0; to < world; to++) {
        is_echoed(rpc, to, tt_rpc_none(), &back);
        is_echoed(rpc, to, tt_rpc_bool(true), &back);
        CHECK(back.boolean);
        is_echoed(rpc, to, tt_rpc_float(-0.1), &back);
        CHECK(back.number == -0.1);
        is_echoed(rpc, to, tt_rpc_text("Gr\xc3\xbc\xc3\x9f\x65"), &back);
        CHECK(!strcmp(back.bytes.data, "Gr\xc3\xbc\xc3\x9f\x65") && back.bytes.size == 7);
        tt_rpc_value_free(&back);
        for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
            is_echoed(rpc, to, tt_rpc_bytes(big, sizes[i]), &back);
            CHECK(back.bytes.size == sizes[i] && !memcmp(back.bytes.data, big, sizes[i]));
            tt_rpc_value_free(&back);
        }
        tt_rpc_value map[] = {tt_rpc_text("lr"), tt_rpc_float(0.5), tt_rpc_text("data"), tt_rpc_bytes(big, 100000)};
        tt_rpc_value inner[] = {tt_rpc_int(-7), tt_rpc_map(map, 4), tt_rpc_bytes(big, 20000)};
        is_echoed(rpc, to, tt_rpc_list(inner, 3), &back);
        const tt_rpc_value *data = tt_rpc_map_get(&back.list.items[1], "data");
        CHECK(back.list.count == 3 && back.list.items[0].integer == -7 && data && data->bytes.size == 100000);
        CHECK(!memcmp(data->bytes.data, big, 100000) && !tt_rpc_map_get(&back.list.items[1], "no"));
        tt_rpc_value_free(&back);
    }
    /* So many that they are no packet, and no parts. */
    enum { MANY = 20000 };
    tt_rpc_value *many = calloc(MANY, sizeof *many);
    for (int i = 0; i < MANY; i++)
        many[i] = i % 2 ? tt_rpc_int(i) : tt_rpc_text("a text");
    is_echoed(rpc, (rank + 1) % world, tt_rpc_list(many, MANY), &back);
    CHECK(back.list.count == MANY && back.list.items[MANY - 1].integer == MANY - 1);
    tt_rpc_value_free(&back);
    free(many);
}

static void values_of_all_kinds_travel(void **state) {
    (void)state;
    on_all_wires(2, all_kinds);
}

static void bad_calls(tt_rpc *rpc, int rank, int world) {
    (void)world;
    const char *other = rank ? "worker0" : "worker1";
    char expected[100];
    tt_rpc_value deep[40];
    CHECK(tt_rpc_sync(rpc, other, "fails") == TT_ERR_IO);
    snprintf(expected, sizeof expected, "%s (id %d), fails(): the disk sda is on fire", other, 1 - rank);
    CHECK(!strcmp(tt_last_error(), expected));
    CHECK(tt_rpc_sync(rpc, other, "says_nothing") == TT_ERR_INVALID);
    CHECK_TEXT("returned nothing, and its signature says int");
    CHECK(tt_rpc_sync(rpc, "nobody", "add") == TT_ERR_NOT_FOUND);
    CHECK_TEXT("there is no worker nobody");
    CHECK_TEXT("worker0, worker1");
    CHECK(tt_rpc_sync(rpc, other, "subtract") == TT_ERR_NOT_FOUND);
    CHECK_TEXT("has no function subtract; it has add, ");
    CHECK(tt_rpc_sync(rpc, other, "add", .args = TT_RPC_ARGS(tt_rpc_int(1))) == TT_ERR_INVALID);
    CHECK_TEXT("add(int a, int b) -> int: expected 2 arguments, got 1");
    CHECK(tt_rpc_sync(rpc, other, "add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_text("2"))) == TT_ERR_INVALID);
    CHECK_TEXT("expected argument 1 to be int, got text");
    CHECK(tt_rpc_sync(rpc, other, "echo", .args = TT_RPC_ARGS(tt_rpc_object(rpc, NULL, "thing"))) == TT_ERR_INVALID);
    CHECK_TEXT("argument 0 is an object (thing), which stays in its process");
    for (int i = 0; i < 40; i++)
        deep[i] = tt_rpc_list(i ? &deep[i - 1] : NULL, i != 0);
    CHECK(tt_rpc_sync(rpc, other, "echo", .args = TT_RPC_ARGS(deep[39])) == TT_ERR_INVALID);
    CHECK_TEXT("nested deeper than 32");
    CHECK(tt_rpc_sync(rpc, NULL, "add", .to_id = 77) == TT_ERR_INVALID);
    CHECK(tt_rpc_sync(rpc, NULL, "fails", .to_id = 77) == TT_ERR_NOT_FOUND);
    CHECK_TEXT("there is no worker with the id 77");
    CHECK(tt_rpc_sync(rpc, NULL, "nested", .to_id = 1 - rank, .args = TT_RPC_ARGS(tt_rpc_int(2))) == TT_OK);
    CHECK(tt_rpc_sync(rpc, NULL, "nested", .to_id = 1 - rank, .args = TT_RPC_ARGS(tt_rpc_int(-1))) == TT_ERR_IO);
}

static void bad_calls_are_one_clear_error(void **state) {
    (void)state;
    on_all_wires(2, bad_calls);
}

/* ---- futures */

static int called_back;

static void note_callback(tt_future *future, void *user) {
    CHECK(tt_future_is_done(future) && tt_future_value(future));
    CHECK(tt_future_wait(future, 0) == TT_OK);
    CHECK(tt_rpc_sync(user, NULL, "add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(2))) == TT_ERR_STATE);
    __atomic_fetch_add(&called_back, 1, __ATOMIC_RELAXED);
}

static tt_status double_it(tt_future *future, tt_rpc_value *out, void *user) {
    const tt_rpc_value *value = tt_future_value(future);
    (void)user;
    if (!value)
        return tt_last_status();
    *out = tt_rpc_int(2 * value->integer);
    return TT_OK;
}

static void many_at_once(tt_rpc *rpc, int rank, int world) {
    enum { CALLS = 300 };
    tt_future *calls[CALLS], *all, *twice;
    called_back = 0;
    for (int i = 0; i < CALLS; i++) {
        CHECK_OK(tt_rpc_async(&calls[i], rpc, NULL, i % 2 ? "add_later" : "nested", .to_id = (rank + 1) % world,
                              .args = TT_RPC_ARGS(tt_rpc_int(i % 2 ? i : 0))));
        CHECK_OK(tt_future_add_callback(calls[i], note_callback, rpc));
    }
    CHECK_OK(tt_future_then(&twice, calls[7], double_it, NULL));
    CHECK_OK(tt_future_collect_all(&all, calls, CALLS));
    CHECK_OK(tt_future_wait(all, PATIENCE_MS));
    const tt_rpc_value *values = tt_future_value(all);
    CHECK(values && values->list.count == CALLS);
    for (int i = 0; i < CALLS; i++)
        CHECK(values->list.items[i].integer == (i % 2 ? i + 1000 : 1));
    CHECK_OK(tt_future_wait(twice, PATIENCE_MS));
    CHECK(tt_future_value(twice)->integer == 2014);
    for (int i = 0; i < CALLS; i++)
        tt_future_free(calls[i]);
    tt_future_free(all);
    tt_future_free(twice);
    CHECK(__atomic_load_n(&called_back, __ATOMIC_RELAXED) == CALLS);
}

static void note_error(tt_future *future, void *user) {
    CHECK(!tt_future_value(future));
    *(tt_status *)user = tt_last_status();
}

/* A future that everybody lets go: what follows from it ends, too. */
static void a_future_is_given_up(void **state) {
    (void)state;
    tt_future *future = tt_future_new(), *then = NULL;
    tt_status status = TT_OK;
    CHECK_OK(tt_future_then(&then, future, double_it, NULL));
    CHECK_OK(tt_future_add_callback(future, note_error, &status));
    tt_future_free(future);
    CHECK(status == TT_ERR_STATE && tt_future_is_done(then));
    CHECK(tt_future_wait(then, 0) == TT_ERR_STATE);
    CHECK_TEXT("the future was given up before it was done");
    tt_future_free(then);
}

static void futures_end_and_call_back(void **state) {
    (void)state;
    on_all_wires(2, many_at_once);
    on_all_wires(3, many_at_once);
}

static void deep_calls(tt_rpc *rpc, int rank, int world) {
    static const int depths[] = {1, 16, 100, 1000};
    tt_rpc_value depth;
    (void)world;
    for (size_t i = 0; i < 4; i++) {
        CHECK_OK(tt_rpc_sync(rpc, NULL, "nested", .to_id = 1 - rank, .args = TT_RPC_ARGS(tt_rpc_int(depths[i])),
                             .result = &depth));
        CHECK(depth.integer == depths[i] + 1);
    }
}

static void nested_calls_are_served(void **state) {
    (void)state;
    on_all_wires(2, deep_calls);
}

/* Calls of each other that take all threads there may be: found, and the error says who waits for whom. */
static void circular_calls(tt_rpc *rpc, int rank, int world) {
    static const int depths[] = {16, 100, 1000};
    tt_rpc_value depth;
    (void)world;
    for (size_t i = 0; i < 3 && rank == 0; i++) {
        CHECK(tt_rpc_sync(rpc, "worker1", "nested", .args = TT_RPC_ARGS(tt_rpc_int(depths[i])), .result = &depth) ==
              TT_ERR_MISMATCH);
        CHECK_TEXT("calls wait for each other, and none can go on: worker worker");
        CHECK_TEXT("nested(), which waits for one of its threads, which all wait in calls like these");
    }
    for (size_t i = 0; i < 3 && rank == 0; i++) { /* all is as before */
        CHECK_OK(tt_rpc_sync(rpc, "worker1", "nested", .args = TT_RPC_ARGS(tt_rpc_int(3)), .result = &depth));
        CHECK(depth.integer == 4);
    }
}

static void cycles_are_found(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(workers){circular_calls, "shm", 2});
    with_ranks(2, be_worker, &(workers){circular_calls, "tcp", 4});
}

/* ---- references */

/* Nothing tells when what tt_rpc_remote() was given has been sent: it may be another's memory by then. */
static void remote_takes_its_own_bytes(tt_rpc *rpc, int owner) {
    unsigned char *given = malloc(BIG), *expected = malloc(BIG);
    tt_rpc_value back;
    tt_rref *kept;
    memset(given, 1, BIG);
    memset(expected, 1, BIG);
    CHECK_OK(tt_rpc_remote(&kept, rpc, NULL, "echo", .to_id = owner, .args = TT_RPC_ARGS(tt_rpc_bytes(given, BIG))));
    memset(given, 2, BIG);
    CHECK_OK(tt_rref_get(kept, &back, PATIENCE_MS));
    CHECK(back.bytes.size == BIG && !memcmp(back.bytes.data, expected, BIG));
    tt_rpc_value_free(&back);
    tt_rref_free(kept);
    free(given);
    free(expected);
}

static void references(tt_rpc *rpc, int rank, int world) {
    int owner = (rank + 1) % world, third = (rank + 2) % world;
    tt_rref *counter, *local, *number, *bad;
    tt_rpc_value value;
    counters_freed = 0;
    CHECK_OK(tt_rpc_remote(&counter, rpc, NULL, "make_counter", .to_id = owner, .args = TT_RPC_ARGS(tt_rpc_int(5))));
    CHECK(tt_rref_owner(counter) == owner && !tt_rref_is_owner(counter) && !tt_rref_local(counter));
    CHECK_TEXT("the value lies with the worker");
    CHECK_OK(tt_rref_sync(counter, "count_up", .args = TT_RPC_ARGS(tt_rpc_int(1)), .result = &value));
    CHECK(value.integer == 6);
    CHECK_OK(tt_rpc_sync(rpc, NULL, "use_counter", .to_id = third, .args = TT_RPC_ARGS(tt_rpc_rref(counter)),
                         .result = &value));
    CHECK(value.integer == 16);
    CHECK(tt_rref_get(counter, &value, 0) == TT_ERR_INVALID);
    CHECK_TEXT("an object (counter) stays in its process");
    tt_rref_free(counter);

    CHECK(local = tt_rref_new(rpc, tt_rpc_text("mine")));
    CHECK(tt_rref_is_owner(local) && !strcmp(tt_rref_local(local)->bytes.data, "mine"));
    CHECK_OK(tt_rref_get(local, &value, 0));
    tt_rpc_value_free(&value);
    CHECK_OK(tt_rpc_sync(rpc, NULL, "echo", .to_id = owner, .args = TT_RPC_ARGS(tt_rpc_rref(local)), .result = &value));
    CHECK(value.kind == TT_RPC_RREF && value.rref == local);
    tt_rpc_value_free(&value);
    tt_rref_free(local);

    CHECK_OK(
        tt_rpc_remote(&number, rpc, NULL, "add", .to_id = owner, .args = TT_RPC_ARGS(tt_rpc_int(20), tt_rpc_int(22))));
    CHECK_OK(tt_rref_get(number, &value, PATIENCE_MS));
    CHECK(value.integer == 42);
    tt_rref_free(number);
    remote_takes_its_own_bytes(rpc, owner);
    CHECK_OK(tt_rpc_remote(&bad, rpc, NULL, "fails", .to_id = owner));
    CHECK(tt_rref_get(bad, &value, PATIENCE_MS) == TT_ERR_IO);
    CHECK_TEXT("the disk sda is on fire");
    tt_rref_free(bad);
}

/* All are let go: nobody has one any more. */
static void nothing_is_left(tt_rpc *rpc, int rank, int world) {
    tt_rpc_counts counts;
    references(rpc, rank, world);
    time_t since = time(NULL);
    do {
        CHECK_OK(tt_rpc_get_counts(rpc, &counts));
        CHECK(time(NULL) - since < PATIENCE_MS / 1000);
    } while (counts.owned + counts.held);
    CHECK(counts.calls == 0 && counts.bytes == 0);
}

static void references_count_and_end(void **state) {
    (void)state;
    on_all_wires(3, nothing_is_left);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_give_results),
        cmocka_unit_test(values_of_all_kinds_travel),
        cmocka_unit_test(bad_calls_are_one_clear_error),
        cmocka_unit_test(futures_end_and_call_back),
        cmocka_unit_test(a_future_is_given_up),
        cmocka_unit_test(nested_calls_are_served),
        cmocka_unit_test(cycles_are_found),
        cmocka_unit_test(references_count_and_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
