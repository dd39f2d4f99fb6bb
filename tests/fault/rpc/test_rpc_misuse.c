/* Programs that use workers wrongly: each gets one clear error where it is, and takes nobody else along. */
#include "support/worker_ranks.h"

#include "base/machine/clock.h"

#include <pthread.h>
#include <sys/resource.h>

enum { SHUTDOWN_MS = 300, AGES_S = 1000 };

static tt_rref *kept;
static tt_future *never; /* ends never, unless a test ends it */

/* ---- functions */

static tt_status add(tt_rpc_call *call) {
    return tt_rpc_return(call, tt_rpc_int(tt_rpc_arg_int(call, 0) + tt_rpc_arg_int(call, 1)));
}
TT_RPC_FUNCTION_NAMED(add, "misuse_add", "(int a, int b) -> int");

static tt_status ends_thread(tt_rpc_call *call) {
    (void)call;
    pthread_exit(NULL);
}
TT_RPC_FUNCTION(ends_thread, "()");

static tt_status frees_arguments(tt_rpc_call *call) {
    for (int64_t i = 0; i < tt_rpc_arg_count(call); i++)
        tt_rpc_value_free((tt_rpc_value *)(uintptr_t)tt_rpc_arg(call, i));
    return TT_OK;
}
TT_RPC_FUNCTION(frees_arguments, "(any... values)");

static tt_status returns_twice(tt_rpc_call *call) {
    CHECK_OK(tt_rpc_return(call, tt_rpc_int(1)));
    CHECK(tt_rpc_return(call, tt_rpc_int(2)) == TT_ERR_STATE);
    CHECK_TEXT("has a result already");
    tt_clear_error();
    return TT_OK;
}
TT_RPC_FUNCTION(returns_twice, "() -> int");

static tt_status returns_text(tt_rpc_call *call) { return tt_rpc_return(call, tt_rpc_text("three")); }
TT_RPC_FUNCTION(returns_text, "() -> int");

static tt_status fails_silently(tt_rpc_call *call) {
    (void)call;
    return TT_ERR_IO;
}
TT_RPC_FUNCTION(fails_silently, "()");

static tt_status returns_null(tt_rpc_call *call) {
    tt_ignore(tt_fail(TT_ERR_MISMATCH, "there is no such word"));
    return tt_rpc_return(call, tt_rpc_text(NULL));
}
TT_RPC_FUNCTION(returns_null, "(text? word) -> text");

static tt_status reads(tt_rpc_call *call) { return tt_rpc_return(call, *tt_rpc_arg(call, 0)); }
TT_RPC_FUNCTION(reads, "(text word) -> text");

static tt_status gives_back(tt_rpc_call *call) { return tt_rpc_return(call, *tt_rpc_arg(call, 0)); }
TT_RPC_FUNCTION(gives_back, "(any value) -> any");

static tt_status gives_back_first(tt_rpc_call *call) { return tt_rpc_return(call, tt_rpc_arg(call, 0)->list.items[0]); }
TT_RPC_FUNCTION(gives_back_first, "(list values) -> any");

static tt_status sleeps(tt_rpc_call *call) {
    (void)call;
    for (int i = 0; i < AGES_S; i++)
        sleep(1);
    return TT_OK;
}
TT_RPC_FUNCTION(sleeps, "()");

static tt_status replies_never(tt_rpc_call *call) { return tt_rpc_return_future(call, never); }
TT_RPC_FUNCTION(replies_never, "() -> int");

static tt_status replies_with_a_list(tt_rpc_call *call) { return tt_rpc_return_future(call, never); }
TT_RPC_FUNCTION(replies_with_a_list, "() -> list");

static tt_status keep(tt_rpc_call *call) {
    kept = tt_rref_share(tt_rpc_arg_rref(call, 0));
    return TT_OK;
}
TT_RPC_FUNCTION_NAMED(keep, "misuse_keep", "(rref value)");

static tt_status shuts_down(tt_rpc_call *call) {
    return tt_rpc_shutdown(tt_rpc_of_call(call), .at_once = true, .timeout_ms = 1);
}
TT_RPC_FUNCTION(shuts_down, "()");

static void expect_in_child(tt_rpc *rpc, tt_rpc_call *call) {
    tt_rref *rref = NULL;
    tt_rpc_value value;
    tt_rpc_counts counts;
    CHECK(tt_rpc_sync(rpc, "worker0", "misuse_add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1))) == TT_ERR_STATE);
    CHECK_TEXT("was forked by worker");
    CHECK(!(rref = tt_rref_new(rpc, tt_rpc_int(1))) && tt_last_status() == TT_ERR_STATE);
    CHECK(tt_rpc_get_counts(rpc, &counts) == TT_ERR_STATE);
    CHECK(tt_rref_get(tt_rpc_arg_rref(call, 0), &value, 0) == TT_ERR_STATE);
    tt_rref_free(tt_rref_share(tt_rpc_arg_rref(call, 0)));
    CHECK(tt_rpc_shutdown(rpc) == TT_OK);
    _exit(0);
}

static tt_status forks(tt_rpc_call *call) {
    int status = 0;
    pid_t child = fork();
    if (!child) {
        alarm(60);
        expect_in_child(tt_rpc_of_call(call), call);
    }
    if (child < 0 || waitpid(child, &status, 0) != child || status)
        return tt_fail(TT_ERR_SYSTEM, "the child ended with %d", status);
    return TT_OK;
}
TT_RPC_FUNCTION(forks, "(rref value)");

/* Worker 0 calls worker 1, which calls worker 0, and so on. */
static tt_status nested(tt_rpc_call *call) {
    int64_t depth = tt_rpc_arg_int(call, 0);
    tt_rpc *rpc = tt_rpc_of_call(call);
    tt_status status = TT_OK;
    if (depth)
        status =
            tt_rpc_sync(rpc, NULL, "nested", .to_id = 1 - tt_rpc_id(rpc), .args = TT_RPC_ARGS(tt_rpc_int(depth - 1)));
    return status;
}
TT_RPC_FUNCTION(nested, "(int depth)");

/* ---- workers */

typedef struct scene {
    void (*fn)(tt_rpc *rpc, int rank);
    int max_threads;
    bool own_end; /* the function ends the worker itself */
} scene;

static int be_worker(tt_store *store, int rank, int world, void *arg) {
    const scene *scene = arg;
    const worker_options options = {NULL, CALM_MS, scene->max_threads};
    tt_group *group;
    CHECK(never = tt_future_new());
    tt_rpc *rpc = become_worker(store, rank, world, options, &group);
    scene->fn(rpc, rank);
    if (!scene->own_end)
        CHECK_OK(tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS));
    tt_rref_free(kept);
    tt_future_free(never);
    tt_destroy_process_group(group);
    return 0;
}

static void adds(tt_rpc *rpc, const char *whose) {
    tt_rpc_value sum;
    CHECK_OK(tt_rpc_sync(rpc, whose, "misuse_add", .args = TT_RPC_ARGS(tt_rpc_int(2), tt_rpc_int(3)), .result = &sum));
    CHECK(sum.integer == 5);
}

/* ---- functions that misbehave */

static void bad_functions(tt_rpc *rpc, int rank) {
    tt_rref *mine;
    if (rank)
        return;
    for (int i = 0; i < 40; i++) {
        CHECK(tt_rpc_sync(rpc, "worker1", "ends_thread") == TT_ERR_STATE);
        CHECK(!strcmp(tt_last_error(), "worker1 (id 1), ends_thread(): the function ended its thread: expected it to "
                                       "return"));
    }
    CHECK(mine = tt_rref_new(rpc, tt_rpc_text("mine")));
    CHECK_OK(tt_rpc_sync(rpc, "worker1", "frees_arguments",
                         .args = TT_RPC_ARGS(tt_rpc_text("a"), tt_rpc_bytes("b", 1), tt_rpc_rref(mine))));
    CHECK_OK(tt_rpc_sync(rpc, "worker1", "returns_twice"));
    CHECK(tt_rpc_sync(rpc, "worker1", "returns_text") == TT_ERR_INVALID);
    CHECK_TEXT("worker1 (id 1), returns_text(): ");
    CHECK(tt_rpc_sync(rpc, "worker1", "fails_silently") == TT_ERR_IO);
    CHECK_TEXT("worker1 (id 1), fails_silently(): the function failed");
    CHECK_OK(tt_rpc_sync(rpc, "worker1", "forks", .args = TT_RPC_ARGS(tt_rpc_rref(mine)), .timeout_ms = PATIENCE_MS));
    adds(rpc, "worker1");
    adds(rpc, "worker0");
    tt_rref_free(mine);
}

static void functions_break_nothing_but_their_call(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = bad_functions});
}

/* A NULL is told by the error that made it: as a result, as an argument, and by a reference. */
static void nulls(tt_rpc *rpc, int rank) {
    tt_rref *rref = NULL;
    tt_rpc_value value;
    if (rank)
        return;
    tt_clear_error();
    CHECK(tt_rpc_sync(rpc, "worker1", "reads", .args = TT_RPC_ARGS(tt_rpc_text(NULL))) == TT_ERR_INVALID);
    CHECK(!strcmp(tt_last_error(), "reads(text word) -> text: expected argument 0 to be text, got none"));
    CHECK(tt_rpc_sync(rpc, "worker1", "returns_null", .args = TT_RPC_ARGS(tt_rpc_none())) == TT_ERR_MISMATCH);
    CHECK(!strcmp(tt_last_error(), "worker1 (id 1), returns_null(): there is no such word"));
    CHECK(tt_rpc_sync(rpc, "worker1", "reads", .args = TT_RPC_ARGS(tt_rpc_text(NULL))) == TT_ERR_MISMATCH);
    CHECK_TEXT("expected argument 0 to be text, got none; the last error before: worker1 (id 1), returns_null(): ");
    CHECK_OK(tt_rpc_remote(&rref, rpc, "worker1", "returns_null", .args = TT_RPC_ARGS(tt_rpc_none())));
    CHECK(tt_rref_get(rref, &value, PATIENCE_MS) == TT_ERR_MISMATCH);
    CHECK(!strcmp(tt_last_error(), "worker1 (id 1): returns_null(): there is no such word"));
    tt_rref_free(rref);
    /* What is wrong by itself is not laid to an earlier error. */
    CHECK(tt_rpc_sync(rpc, "worker1", NULL) == TT_ERR_INVALID);
    CHECK_TEXT("expected the name of a function");
    CHECK(tt_rpc_sync(rpc, "worker1", "misuse_add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_none())) ==
          TT_ERR_INVALID);
    CHECK_TEXT("expected argument 1 to be int, got none");
}

static void a_null_is_told_by_what_made_it(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = nulls});
}

static tt_status same_value(tt_future *future, tt_rpc_value *out, void *user) {
    (void)user;
    *out = *tt_future_value(future);
    return TT_OK;
}

/* What a call or a future lends may be passed on as it is. */
static void lent_values(tt_rpc *rpc, int rank) {
    static char big[1 << 17];
    tt_rpc_value back, items[2], list;
    tt_rref *mine;
    tt_future *future, *same, *other = tt_future_new();
    if (rank) {
        tt_future_free(other);
        return;
    }
    CHECK(mine = tt_rref_new(rpc, tt_rpc_int(7)));
    items[0] = tt_rpc_bytes(big, sizeof big);
    items[1] = tt_rpc_rref(mine);
    list = tt_rpc_list(items, 2);
    CHECK_OK(tt_rpc_sync(rpc, "worker1", "gives_back", .args = TT_RPC_ARGS(list), .result = &back));
    CHECK(back.owned && back.list.count == 2 && back.list.items[0].bytes.size == sizeof big);
    tt_rpc_value_free(&back);
    CHECK_OK(tt_rpc_sync(rpc, "worker1", "gives_back_first", .args = TT_RPC_ARGS(list), .result = &back));
    CHECK(back.owned && back.bytes.size == sizeof big);
    tt_rpc_value_free(&back);
    CHECK_OK(tt_rpc_async(&future, rpc, "worker1", "gives_back", .args = TT_RPC_ARGS(list)));
    CHECK_OK(tt_future_then(&same, future, same_value, NULL));
    CHECK_OK(tt_future_wait(same, PATIENCE_MS));
    CHECK_OK(tt_future_set_value(other, tt_future_value(same)->list.items[0]));
    back = *tt_future_value(other);
    tt_rpc_value_free(&back); /* of what is lent there is nothing to free */
    CHECK(tt_future_value(other)->bytes.size == sizeof big && !((const char *)tt_future_value(other)->bytes.data)[1]);
    tt_future_free(future);
    tt_future_free(same);
    tt_future_free(other);
    tt_rref_free(mine);
}

static void lent_values_may_be_passed_on(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = lent_values});
}

/* ---- shutdown */

/* Worker 1 shuts down while its functions run, sleep for ages, or reply never. */
static void ends_while_functions_run(tt_rpc *rpc, int rank) {
    tt_future *asleep, *never_done;
    tt_rpc_counts counts;
    if (rank == 0) {
        CHECK_OK(tt_rpc_async(&never_done, rpc, "worker1", "replies_never"));
        CHECK_OK(tt_rpc_async(&asleep, rpc, "worker1", "sleeps"));
        CHECK(tt_rpc_shutdown(rpc, .timeout_ms = SHUTDOWN_MS) == TT_ERR_TIMEOUT);
        CHECK(tt_future_wait(asleep, PATIENCE_MS) == TT_ERR_STATE && tt_future_wait(never_done, 1) == TT_ERR_STATE);
        tt_future_free(asleep);
        tt_future_free(never_done);
        return;
    }
    do
        CHECK_OK(tt_rpc_get_counts(rpc, &counts));
    while (counts.served < 2);
    int64_t since = tt__now_ms();
    CHECK(tt_rpc_shutdown(rpc, .timeout_ms = SHUTDOWN_MS) == TT_ERR_TIMEOUT);
    CHECK_TEXT("sleeps() for worker worker0 (id 0)");
    CHECK(tt__now_ms() - since < SHUTDOWN_MS + 2000 + leeway_ms());
    CHECK(tt_rpc_shutdown(rpc) == TT_ERR_STATE);
    CHECK(tt_rpc_get_counts(rpc, &counts) == TT_ERR_STATE);
}

static void shutdown_ends_and_names_functions_that_run(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = ends_while_functions_run, .own_end = true});
}

/* Its reply never comes, and its caller goes without waiting: nobody is kept. */
static void forgets_shutdown(tt_rpc *rpc, int rank) {
    if (rank)
        _exit(0);
    CHECK(tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS) == TT_ERR_PEER);
    CHECK_TEXT("worker worker1 (id 1): rank 1 (pid ");
    CHECK_TEXT(" ended, without waiting in tt_rpc_shutdown()");
}

static void who_forgets_shutdown_is_told_so(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = forgets_shutdown, .own_end = true});
}

static void goes_while_reply_is_due(tt_rpc *rpc, int rank) {
    tt_future *never_done;
    if (rank == 0) {
        CHECK_OK(tt_rpc_async(&never_done, rpc, "worker1", "replies_never"));
        adds(rpc, "worker1");
        CHECK_OK(tt_rpc_shutdown(rpc, .at_once = true));
        CHECK(tt_future_wait(never_done, 1) == TT_ERR_STATE);
        CHECK_TEXT("worker worker0 was shut down");
        tt_future_free(never_done);
    } else {
        tt_status status = tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS);
        CHECK(!status || (status == TT_ERR_PEER && strstr(tt_last_error(), "worker0")));
    }
}

static void calls_of_those_that_left_keep_nobody(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = goes_while_reply_is_due, .own_end = true});
}

/* A future that a call replies with ends in one thread, which encodes a long reply, while another shuts the worker
 * down: both decide about the call at the same time. */
static void *end_with_a_long_list(void *unused) {
    (void)unused;
    enum { LONG = 2000000 };
    tt_rpc_value *items = calloc(LONG, sizeof *items);
    CHECK(items);
    CHECK_OK(tt_future_set_value(never, (tt_rpc_value){.kind = TT_RPC_LIST, .owned = true, .list = {items, LONG}}));
    return NULL;
}

static void ends_as_a_reply_is_encoded(tt_rpc *rpc, int rank) {
    tt_future *reply;
    tt_rpc_counts counts = {0};
    pthread_t ends;
    (void)rank;
    CHECK_OK(tt_rpc_async(&reply, rpc, "worker0", "replies_with_a_list"));
    adds(rpc, "worker0"); /* the call before has begun */
    CHECK(!pthread_create(&ends, NULL, end_with_a_long_list, NULL));
    while (!tt_future_is_done(never))
        CHECK_OK(tt_rpc_get_counts(rpc, &counts));
    CHECK_OK(tt_rpc_shutdown(rpc, .at_once = true));
    CHECK(tt_future_is_done(reply));
    CHECK(!pthread_join(ends, NULL));
    tt_future_free(reply);
}

static void a_reply_and_the_end_may_come_at_once(void **state) {
    (void)state;
    with_ranks(1, be_worker, &(scene){.fn = ends_as_a_reply_is_encoded, .own_end = true});
}

static void *shut_down_too(void *arg) {
    static const char *const texts[] = {"another thread shuts worker", "was shut down already"};
    tt_status status = tt_rpc_shutdown(arg, .timeout_ms = PATIENCE_MS);
    CHECK(!status || status == TT_ERR_STATE);
    CHECK(!status || strstr(tt_last_error(), texts[0]) || strstr(tt_last_error(), texts[1]));
    return (void *)(intptr_t)(status != TT_OK);
}

static void two_threads_end(tt_rpc *rpc, int rank) {
    pthread_t other;
    void *refused;
    (void)rank;
    CHECK(!pthread_create(&other, NULL, shut_down_too, rpc));
    bool first_refused = shut_down_too(rpc);
    CHECK(!pthread_join(other, &refused));
    CHECK(first_refused != (refused != NULL));
}

static void one_of_two_threads_shuts_down(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = two_threads_end, .own_end = true});
}

static void uses_after_the_end(tt_rpc *rpc, int rank) {
    tt_rref *mine, *theirs;
    tt_rpc_value value;
    tt_future *future;
    int id;
    char name[8];
    CHECK(mine = tt_rref_new(rpc, tt_rpc_int(7)));
    CHECK_OK(tt_rpc_remote(&theirs, rpc, rank ? "worker0" : "worker1", "misuse_add",
                           .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1))));
    if (!rank) {
        CHECK(tt_rpc_sync(rpc, "worker0", "shuts_down") == TT_ERR_STATE);
        CHECK_TEXT("a function that worker worker0 runs can't shut it down");
    }
    CHECK_OK(tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS));
    CHECK(tt_rpc_sync(rpc, "worker1", "misuse_add") == TT_ERR_STATE);
    CHECK_TEXT("tt_rpc_sync: the worker (tt_rpc) was shut down");
    CHECK(tt_rpc_async(&future, rpc, "worker1", "misuse_add") == TT_ERR_STATE && !future);
    CHECK(tt_rpc_remote(&kept, rpc, "worker1", "misuse_add") == TT_ERR_STATE && !kept);
    CHECK(tt_rpc_find_worker(rpc, "worker1", &id) == TT_ERR_STATE);
    CHECK(tt_rpc_worker_name(rpc, 0, name, sizeof name) == TT_ERR_STATE);
    CHECK(!tt_rref_new(rpc, tt_rpc_int(1)) && tt_last_status() == TT_ERR_STATE);
    CHECK(tt_rpc_shutdown(rpc) == TT_ERR_STATE);
    CHECK(tt_rref_get(theirs, &value, 0) == TT_ERR_STATE);
    CHECK_TEXT("the worker that had the reference was shut down");
    CHECK(tt_rref_sync(theirs, "misuse_add") == TT_ERR_STATE);
    tt_rref_free(tt_rref_share(mine));
    tt_rref_free(mine);
    tt_rref_free(theirs);
}

static void nothing_works_after_the_end(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = uses_after_the_end, .own_end = true});
}

/* ---- references */

static void misused_references(tt_rpc *rpc, int rank) {
    tt_rref *theirs;
    tt_rpc_value value;
    if (rank)
        return;
    CHECK_OK(tt_rpc_remote(&theirs, rpc, "worker1", "misuse_add", .args = TT_RPC_ARGS(tt_rpc_int(1), tt_rpc_int(1))));
    CHECK(!tt_rref_local(theirs) && tt_last_status() == TT_ERR_STATE);
    CHECK_TEXT("the value lies with the worker with the id 1");
    CHECK_OK(tt_rref_get(theirs, &value, 0));
    tt_rref_free(theirs);
    tt_clear_error(); /* what is made of nothing keeps the first error */
    CHECK(tt_rref_get(NULL, &value, 0) == TT_ERR_INVALID);
    CHECK(!tt_rref_local(NULL) && tt_last_status() == TT_ERR_INVALID);
    CHECK(tt_rref_sync(NULL, "misuse_add") == TT_ERR_INVALID);
    CHECK(tt_rpc_sync(rpc, "worker1", "misuse_keep", .args = TT_RPC_ARGS(tt_rpc_rref(NULL))) == TT_ERR_INVALID);
    tt_rref_free(NULL);
}

static void references_are_used_where_they_are(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = misused_references});
}

/* ---- threads */

static void deep_calls_with_few_threads(tt_rpc *rpc, int rank) {
    static const int depths[] = {2, 16, 100, 1000};
    if (rank)
        return;
    for (int i = 0; i < 4; i++) {
        int64_t since = tt__now_ms();
        tt_status status = tt_rpc_sync(rpc, "worker1", "nested", .args = TT_RPC_ARGS(tt_rpc_int(depths[i])));
        CHECK(!status == (i == 0)); /* worker 1 has four threads, of which each waits for a call of worker 0 */
        CHECK(!status || strstr(tt_last_error(), "worker worker1") || strstr(tt_last_error(), "worker worker0"));
        CHECK(tt__now_ms() - since < 10000 + leeway_ms());
        adds(rpc, "worker1");
    }
}

static void deadlocks_of_few_threads_are_found(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = deep_calls_with_few_threads, .max_threads = 4});
}

/* ---- joining */

static void expect_no_worker(tt_group *group, tt_rpc_init_args args, tt_status expected, const char *text) {
    tt_rpc *rpc = NULL;
    args.out = &rpc;
    args.group = args.store ? NULL : group;
    CHECK(tt_rpc_init_with(&args, sizeof args) == expected && !rpc);
    CHECK_TEXT(text);
}

static int bad_beginnings(tt_store *store, int rank, int world, void *arg) {
    static const char *const bad[] = {"", "a b", "a/b", "gr\xc3\xbc\xc3\x9f\x65", "a\nb", NULL};
    char longer[200];
    tt_group *group = join_group(store, rank, world), *none = NULL;
    tt_rpc *rpc = NULL, *again = NULL;
    (void)arg;
    memset(longer, 'x', sizeof longer - 1);
    longer[sizeof longer - 1] = '\0';
    for (int i = 0; i < 6; i++)
        expect_no_worker(group, (tt_rpc_init_args){.name = bad[i]}, TT_ERR_INVALID, "a worker's name");
    expect_no_worker(group, (tt_rpc_init_args){.name = longer}, TT_ERR_INVALID, "a worker's name");
    expect_no_worker(NULL, (tt_rpc_init_args){.name = "w"}, TT_ERR_INVALID, "got neither");
    expect_no_worker(group, (tt_rpc_init_args){.name = "w", .threads = -1}, TT_ERR_INVALID, "0 or more");
    expect_no_worker(group, (tt_rpc_init_args){.name = "w", .max_threads = -1}, TT_ERR_INVALID, "0 or more");
    expect_no_worker(group, (tt_rpc_init_args){.name = "same"}, TT_ERR_EXISTS, "are both called same");
    CHECK(tt_rpc_register("late", "()", add) == TT_ERR_STATE);
    CHECK_TEXT("registered after the first tt_rpc_init()");
    CHECK_OK(tt_rpc_init(&rpc, rank ? "b" : "a", .group = group, .join_timeout_ms = PATIENCE_MS));
    CHECK(tt_rpc_init(&again, rank ? "d" : "c", .group = group, .join_timeout_ms = PATIENCE_MS) == TT_ERR_STATE);
    CHECK_TEXT("is a worker of the group already");
    CHECK(!again && !none);
    if (rank == 0) { /* alone: the other does not come */
        CHECK(tt_rpc_init(&again, "e", .group = group, .join_timeout_ms = AGES_S * 1000) == TT_ERR_STATE && !again);
        CHECK_TEXT("expected tt_rpc_shutdown() first");
    }
    adds(rpc, rank ? "a" : "b");
    CHECK_OK(tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS));
    CHECK_OK(tt_rpc_init(&rpc, rank ? "b" : "a", .group = group, .join_timeout_ms = PATIENCE_MS));
    adds(rpc, rank ? "a" : "b");
    CHECK_OK(tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS));
    tt_future_free(never);
    tt_destroy_process_group(group);
    return 0;
}

static void beginnings_that_cannot_be_are_refused(void **state) {
    (void)state;
    with_ranks(2, bad_beginnings, NULL);
}

static int bad_registrations(tt_store *store, int rank, int world, void *arg) {
    tt_group *group = join_group(store, rank, world);
    tt_rpc *rpc = NULL;
    (void)arg;
    CHECK(tt_rpc_register("a b", "()", add) == TT_ERR_INVALID);
    CHECK(tt_rpc_register("", "()", add) == TT_ERR_INVALID);
    CHECK(tt_rpc_register(NULL, "()", add) == TT_ERR_INVALID);
    CHECK(tt_rpc_register("x", NULL, add) == TT_ERR_INVALID);
    CHECK(tt_rpc_register("x", "()", NULL) == TT_ERR_INVALID);
    CHECK(tt_rpc_register("x", "(integer a)", add) == TT_ERR_INVALID);
    CHECK_TEXT("the function x");
    CHECK(tt_rpc_register("misuse_add", "()", add) == TT_ERR_STATE);
    CHECK_TEXT("two functions are registered as misuse_add");
    tt_rpc_register_at_load("misuse_add", "()", add);
    CHECK(tt_rpc_init(&rpc, "w", .group = group) == TT_ERR_STATE);
    CHECK_TEXT("two functions are registered as misuse_add");
    tt_destroy_process_group(group);
    return 0;
}

static void functions_that_cannot_be_are_refused(void **state) {
    (void)state;
    with_ranks(1, bad_registrations, NULL);
}

/* ---- processes with little */

static rlim_t mapped_bytes(void) {
    unsigned long pages = 0;
    FILE *statm = fopen("/proc/self/statm", "r");
    CHECK(statm && fscanf(statm, "%lu", &pages) == 1);
    fclose(statm);
    return (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE);
}

/* Without descriptors, and with little memory: an error, not a crash; what was begun goes on. */
static void little_memory(tt_rpc *rpc, int rank) {
    enum { BYTES = 256 << 20 };
    static const struct rlimit few = {3, 3};
    char *big = rank ? NULL : calloc(1, BYTES);
    CHECK(rank || big);
    CHECK(!setrlimit(RLIMIT_NOFILE, &few));
    close(1);
    if (rank && !getenv("TT_SANITIZED"))
        CHECK(!setrlimit(RLIMIT_AS, &(struct rlimit){mapped_bytes() + (128 << 20), RLIM_INFINITY}));
    CHECK_OK(tt_rpc_sync(rpc, rank ? "worker0" : "worker1", "misuse_add",
                         .args = TT_RPC_ARGS(tt_rpc_int(2), tt_rpc_int(3))));
    if (!rank && !getenv("TT_SANITIZED")) {
        CHECK(tt_rpc_sync(rpc, "worker1", "frees_arguments", .args = TT_RPC_ARGS(tt_rpc_bytes(big, BYTES))) ==
              TT_ERR_MEMORY);
        CHECK_TEXT("worker1 (id 1), frees_arguments(): no memory");
    }
    adds(rpc, "worker1");
    free(big);
}

static void workers_with_little_say_so(void **state) {
    (void)state;
    with_ranks(2, be_worker, &(scene){.fn = little_memory});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(functions_break_nothing_but_their_call),
        cmocka_unit_test(a_null_is_told_by_what_made_it),
        cmocka_unit_test(lent_values_may_be_passed_on),
        cmocka_unit_test(shutdown_ends_and_names_functions_that_run),
        cmocka_unit_test(who_forgets_shutdown_is_told_so),
        cmocka_unit_test(calls_of_those_that_left_keep_nobody),
        cmocka_unit_test(a_reply_and_the_end_may_come_at_once),
        cmocka_unit_test(one_of_two_threads_shuts_down),
        cmocka_unit_test(nothing_works_after_the_end),
        cmocka_unit_test(references_are_used_where_they_are),
        cmocka_unit_test(deadlocks_of_few_threads_are_found),
        cmocka_unit_test(beginnings_that_cannot_be_are_refused),
        cmocka_unit_test(functions_that_cannot_be_are_refused),
        cmocka_unit_test(workers_with_little_say_so),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
