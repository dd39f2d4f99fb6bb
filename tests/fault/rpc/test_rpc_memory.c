/* A worker has no memory for something, anywhere in a call or in the reply to it: each allocation of the caller, and
 * each of the callee, fails in turn. The caller gets an error, or nothing but the result; both workers go on. */
#include "support/inject.h"
#include "support/ranks.h"

#include "tensor/core/pool.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <tutti/functional.h>
#include <tutti/rpc_training.h>

enum { LONG = 3000, LARGE = 100000, MANY = 20, WORST = 3 };

/* ---- what is called */

static tt_status echo(tt_rpc_call *call) {
    tt_rpc_value value;
    tt_status status = tt_rpc_take_arg(call, 0, &value);
    return status ? status : tt_rpc_return(call, value);
}
TT_RPC_FUNCTION_NAMED(echo, "memory.echo", "(any value) -> any");

static tt_status fails(tt_rpc_call *call) {
    (void)call;
    return tt_future_wait(NULL, 0);
}
TT_RPC_FUNCTION_NAMED(fails, "memory.fail", "()");

static tt_status make(tt_rpc_call *call) {
    tt_rpc_value value;
    tt_status status = tt_rpc_take_arg(call, 0, &value);
    tt_rref *rref = status ? NULL : tt_rref_new(tt_rpc_of_call(call), value);
    status = rref ? tt_rpc_return(call, tt_rpc_rref(rref)) : tt_last_status();
    tt_rref_free(rref);
    return status;
}
TT_RPC_FUNCTION_NAMED(make, "memory.make", "(any value) -> rref");

static tt_status twice(tt_future *future, tt_rpc_value *out, void *user) {
    (void)user;
    const tt_rpc_value *value = tt_future_value(future);
    if (!value)
        return tt_last_status();
    *out = tt_rpc_int(2 * value->integer);
    return TT_OK;
}

static tt_status later(tt_rpc_call *call) {
    tt_future *first, *then;
    tt_status status = tt_rpc_async(&first, tt_rpc_of_call(call), NULL, "memory.echo", .to_id = tt_rpc_caller(call),
                                    .args = TT_RPC_ARGS(tt_rpc_int(4)));
    if (status)
        return status;
    status = tt_future_then(&then, first, twice, NULL);
    tt_future_free(first);
    if (!status) {
        status = tt_rpc_return_future(call, then);
        tt_future_free(then);
    }
    return status;
}
TT_RPC_FUNCTION_NAMED(later, "memory.later", "() -> int");

static tt_tensor *leaf;

static tt_status times_leaf(tt_rpc_call *call) {
    tt_tensor *y = tt_mul(tt_rpc_arg_tensor(call, 0), leaf);
    return y ? tt_rpc_return(call, tt_rpc_tensor(y)) : tt_last_status();
}
TT_RPC_FUNCTION_NAMED(times_leaf, "memory.times_leaf", "(tensor x) -> tensor");

static tt_status give_leaf(tt_rpc_call *call) { return tt_rpc_return(call, tt_rpc_tensor(leaf)); }
TT_RPC_FUNCTION_NAMED(give_leaf, "memory.leaf", "() -> tensor");

static tt_status make_module(tt_rpc_call *call) { return tt_rpc_return_module(call, tt_nn_linear(3, 3)); }
TT_RPC_FUNCTION_NAMED(make_module, "memory.module", "() -> any");

static tt_status counts(tt_rpc_call *call) {
    tt_rpc_counts n;
    tt_status status = tt_rpc_get_counts(tt_rpc_of_call(call), &n);
    int64_t these = 1 + (tt_rpc_caller(call) == tt_rpc_id(tt_rpc_of_call(call))); /* of this call */
    return status ? status : tt_rpc_return(call, tt_rpc_int(n.owned + n.held + n.calls + n.serving - these + n.bytes));
}
TT_RPC_FUNCTION_NAMED(counts, "memory.counts", "() -> int");

/* ---- what is done */

static tt_status echoed(tt_rpc *rpc, tt_rpc_value value) {
    tt_rpc_value result;
    tt_status status = tt_rpc_sync(rpc, "worker1", "memory.echo", .args = TT_RPC_ARGS(value), .result = &result);
    tt_rpc_value_free(&result);
    return status;
}

static tt_status call_small(tt_rpc *rpc) { return echoed(rpc, tt_rpc_int(3)); }

static tt_status call_long(tt_rpc *rpc) {
    char text[LONG];
    memset(text, 'x', sizeof text - 1);
    text[LONG - 1] = '\0';
    tt_rpc_value pair[2] = {tt_rpc_text("key"), tt_rpc_text(text)}, list[2] = {tt_rpc_map(pair, 2), tt_rpc_none()};
    return echoed(rpc, tt_rpc_list(list, 2));
}

static tt_status call_large(tt_rpc *rpc) {
    static char bytes[LARGE];
    tt_rpc_value pair[2] = {tt_rpc_bytes(bytes, LARGE), tt_rpc_bytes(bytes, LARGE)};
    return echoed(rpc, tt_rpc_list(pair, 2));
}

static tt_status call_apart(tt_rpc *rpc) {
    static tt_rpc_value items[LARGE];
    return echoed(rpc, tt_rpc_list(items, LARGE));
}

static tt_status call_failing(tt_rpc *rpc) {
    tt_status status = tt_rpc_sync(rpc, "worker1", "memory.fail");
    return status == TT_ERR_INVALID ? TT_OK : status; /* its text may not have had the memory */
}

static tt_status call_unknown(tt_rpc *rpc) {
    tt_status status = tt_rpc_sync(rpc, "worker1", "memory.nothing");
    return status == TT_ERR_NOT_FOUND ? TT_OK : status;
}

static tt_status call_many(tt_rpc *rpc) {
    tt_future *futures[MANY] = {0}, *all = NULL, *then = NULL;
    tt_status status = TT_OK;
    int count = 0;
    while (count < MANY && !status)
        if (!(status =
                  tt_rpc_async(&futures[count], rpc, "worker1", "memory.echo", .args = TT_RPC_ARGS(tt_rpc_int(count)))))
            count++;
    if (!status)
        status = tt_future_collect_all(&all, futures, count);
    if (!status)
        status = tt_future_then(&then, futures[0], twice, NULL);
    if (!status)
        status = tt_future_wait(all, 0);
    if (!status)
        status = tt_future_wait(then, 0);
    for (int i = 0; i < count; i++) {
        tt_ignore(tt_future_wait(futures[i], 0));
        tt_future_free(futures[i]);
    }
    tt_future_free(then);
    tt_future_free(all);
    return status;
}

static tt_status call_later(tt_rpc *rpc) { return tt_rpc_sync(rpc, "worker1", "memory.later"); }

static tt_status call_remote(tt_rpc *rpc) {
    static char bytes[LARGE];
    tt_rref *rref;
    tt_rpc_value value;
    tt_status status =
        tt_rpc_remote(&rref, rpc, "worker1", "memory.echo", .args = TT_RPC_ARGS(tt_rpc_bytes(bytes, LARGE)));
    if (status)
        return status;
    status = tt_rref_get(rref, &value, 0);
    tt_rpc_value_free(&value);
    tt_rref_free(rref);
    return status;
}

static tt_status give_references(tt_rpc *rpc) {
    tt_rref *mine = tt_rref_new(rpc, tt_rpc_text("mine"));
    tt_rpc_value theirs = tt_rpc_none(), refs[MANY];
    if (!mine)
        return tt_last_status();
    tt_status status =
        tt_rpc_sync(rpc, "worker1", "memory.make", .args = TT_RPC_ARGS(tt_rpc_rref(mine)), .result = &theirs);
    for (int i = 0; i < MANY; i++)
        refs[i] = tt_rpc_rref(i % 2 && !status ? theirs.rref : mine);
    if (!status)
        status = echoed(rpc, tt_rpc_list(refs, MANY));
    tt_rpc_value_free(&theirs);
    tt_rref_free(mine);
    return status;
}

static tt_status call_tensors(tt_rpc *rpc) {
    TT_AUTO_SCOPE;
    tt_tensor *small = tt_ones(TT_SHAPE(3), TT_F32), *large = tt_ones(TT_SHAPE(LARGE), TT_F32);
    tt_tensor *view = large ? tt_transpose(tt_reshape(large, TT_SHAPE(100, -1)), 0, 1) : NULL;
    if (!small || !view)
        return tt_last_status();
    tt_rpc_value all[3] = {tt_rpc_tensor(small), tt_rpc_tensor(large), tt_rpc_tensor(view)};
    return echoed(rpc, tt_rpc_list(all, 3));
}

static tt_status remote_product(tt_rpc *rpc, tt_tensor **out) {
    tt_rpc_value result;
    tt_status status =
        tt_rpc_sync(rpc, "worker1", "memory.times_leaf", .args = TT_RPC_ARGS(tt_rpc_tensor(leaf)), .result = &result);
    *out = status ? NULL : tt_rpc_take_tensor(&result);
    return *out ? TT_OK : tt_last_status();
}

static tt_status pass_in(tt_rpc *rpc, int64_t context, tt_dist_optimizer *optimizer) {
    TT_AUTO_SCOPE;
    tt_tensor *y, *loss;
    tt_status status = remote_product(rpc, &y);
    if (!status && !(loss = tt_mean(tt_mul(y, leaf))))
        status = tt_last_status();
    if (!status)
        status = tt_dist_autograd_backward(rpc, context, &loss, 1);
    if (!status && !tt_dist_autograd_grad(rpc, context, leaf))
        status = tt_last_status() ? tt_last_status() : TT_ERR_STATE;
    if (!status && optimizer)
        status = tt_dist_optimizer_step(optimizer, context);
    return status;
}

static tt_status run_pass(tt_rpc *rpc) {
    int64_t context;
    tt_status status = tt_dist_autograd_begin(&context, rpc);
    if (status)
        return status;
    status = pass_in(rpc, context, NULL);
    tt_ignore(tt_dist_autograd_end(rpc, context));
    return status;
}

static tt_status step(tt_rpc *rpc) {
    tt_rref *params[2] = {tt_rref_new(rpc, tt_rpc_tensor(leaf)), NULL};
    tt_dist_optimizer *optimizer = NULL;
    int64_t context;
    tt_status status = params[0] ? tt_rpc_remote(&params[1], rpc, "worker1", "memory.leaf") : tt_last_status();
    if (!status)
        status = tt_dist_optimizer_new(&optimizer, rpc, params, 2, "adam", .options = TT_OPTION_LIST({"lr", 1e-3}));
    if (!status && !(status = tt_dist_autograd_begin(&context, rpc))) {
        status = pass_in(rpc, context, optimizer);
        tt_ignore(tt_dist_autograd_end(rpc, context));
    }
    tt_dist_optimizer_free(optimizer);
    tt_rref_free(params[0]);
    tt_rref_free(params[1]);
    return status;
}

static tt_status use_module(tt_rpc *rpc) {
    TT_AUTO_SCOPE;
    tt_remote_module *module = NULL;
    tt_rref **params;
    int64_t count;
    tt_tensor *x = tt_ones(TT_SHAPE(2, 3), TT_F32);
    tt_status status = x ? tt_remote_module_new(&module, rpc, "worker1", "memory.module") : tt_last_status();
    if (!status && !tt_remote_module_forward(module, x))
        status = tt_last_status();
    if (!status && !(status = tt_remote_module_parameters(module, &params, &count)))
        tt_rrefs_free(params, count);
    tt_remote_module_free(module);
    return status;
}

typedef struct deed {
    const char *name;
    tt_status (*run)(tt_rpc *rpc);
    bool any_error; /* what a failure leads to may be the error: a context that is not known, a value not made */
} deed;

static const deed deeds[] = {
    {"a small call", call_small, false},
    {"a long call", call_long, false},
    {"a large call", call_large, false},
    {"a value apart", call_apart, false},
    {"a call that fails", call_failing, false},
    {"an unknown function", call_unknown, false},
    {"many calls", call_many, false},
    {"a late reply", call_later, false},
    {"a remote call", call_remote, true},
    {"references", give_references, false},
    {"tensors", call_tensors, false},
    {"a pass", run_pass, true},
    {"a step", step, true},
    {"a module", use_module, true},
};

/* ---- the rounds */

typedef struct scene {
    const deed *deed;
    long *next;          /* allocation to fail; shared */
    int victim, ends[2]; /* worker 0 tells worker 1 when, by a socket: no memory is needed for that */
} scene;

/* Serve worker 0, and let allocations fail when it says so. */
static void obey(int from) {
    long nth;
    while (read(from, &nth, sizeof nth) == sizeof nth) {
        bool struck = true;
        if (nth < 0)
            struck = inject_disarm();
        else
            inject_arm(INJECT_MEMORY, nth);
        CHECK(write(from, &struck, sizeof struck) == sizeof struck);
    }
}

static bool tell(const scene *s, long nth) {
    bool struck;
    if (!s->victim) {
        if (nth >= 0)
            inject_arm(INJECT_MEMORY, nth);
        return nth >= 0 || inject_disarm();
    }
    CHECK(write(s->ends[0], &nth, sizeof nth) == sizeof nth);
    CHECK(read(s->ends[0], &struck, sizeof struck) == sizeof struck);
    return struck;
}

static int64_t ask(tt_rpc *rpc, const char *to, const char *what) {
    tt_rpc_value count = tt_rpc_int(-1);
    if (tt_rpc_sync(rpc, to, what, .result = &count, .timeout_ms = PATIENCE_MS))
        return -1;
    return count.integer;
}

/* Nothing is left, of calls and references. */
static bool comes_to(tt_rpc *rpc, const char *to, const char *what) {
    for (int64_t begin = time(NULL);;) {
        int64_t left = ask(rpc, to, what);
        if (left <= 0 || time(NULL) - begin > PATIENCE_MS / 1000) {
            if (left)
                fprintf(stderr, "%s of %s: %lld (%s)\n", what, to, (long long)left, left < 0 ? tt_last_error() : "");
            return !left;
        }
    }
}

static bool link_ended; /* for want of memory: both workers know */

static bool play_round(tt_rpc *rpc, const scene *s, long nth, bool *struck) {
    tt_clear_error();
    tell(s, nth);
    alarm(PATIENCE_MS / 1000 * 3);
    tt_status status = s->deed->run(rpc);
    *struck = tell(s, -1);
    char text[1000];
    snprintf(text, sizeof text, "%s", status ? tt_last_error() : "");
    bool well = !status || (*struck && (status == TT_ERR_MEMORY || s->deed->any_error) && *text);
    link_ended =
        tt_rpc_sync(rpc, "worker1", "memory.counts", .timeout_ms = PATIENCE_MS) && strstr(tt_last_error(), "no memory");
    for (int w = 0; w < 2 && !link_ended; w++)
        well &= comes_to(rpc, w ? "worker1" : "worker0", "memory.counts");
    if (!well)
        fprintf(stderr, "%s, allocation %ld of worker %d: %s: %s\n", s->deed->name, nth, s->victim,
                tt_status_name(status), text);
    return well;
}

static long playing;
static const char *playing_what;
static void say_where(int signal) {
    char text[200];
    (void)signal;
    int n = snprintf(text, sizeof text, "HANGS: %s allocation %ld\n", playing_what, playing);
    if (write(2, text, (size_t)n)) {
    }
    _exit(9);
}

static int fail_each(tt_rpc *rpc, scene *s) {
    bool struck = true;
    int bad = 0;
    signal(SIGALRM, say_where);
    playing_what = s->deed->name;
    for (int warm = 0; warm < 5; warm++)
        CHECK(play_round(rpc, s, 1L << 40, &struck) && !struck);
    long nth = *s->next;
    for (struck = true; struck && bad < WORST && !link_ended; nth++) {
        playing = nth;
        bad += !play_round(rpc, s, nth, &struck);
    }
    alarm(PATIENCE_MS / 1000 * 3);
    *s->next = struck ? nth : -1;
    return bad;
}

static int be_worker(tt_store *store, int rank, int world, void *arg) {
    scene *s = arg;
    tt_group *group = join_group(store, rank, world);
    tt_rpc *rpc;
    int bad = 0;
    tt_manual_seed(1);
    {
        TT_AUTO_SCOPE;
        CHECK(leaf = tt_keep(tt_requires_grad_(tt_ones(TT_SHAPE(3), TT_F32), true)));
    }
    CHECK_OK(tt_rpc_init(&rpc, rank ? "worker1" : "worker0", .group = group, .join_timeout_ms = PATIENCE_MS));
    close(s->ends[!rank]);
    if (rank)
        obey(s->ends[1]);
    else
        bad = fail_each(rpc, s);
    close(s->ends[rank]);
    tt_status left = tt_rpc_shutdown(rpc, .timeout_ms = PATIENCE_MS);
    CHECK(!left || strstr(tt_last_error(), "no memory"));
    tt_tensor_free(leaf);
    tt_destroy_process_group(group);
    return bad;
}

/* Each round goes on where the last one was when its link ended. */
static int play_deed(const deed *deed, int victim, long *next) {
    int bad = 0;
    for (*next = 0; *next >= 0 && !bad;) {
        scene s = {.deed = deed, .victim = victim, .next = next};
        ranks ranks;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, s.ends), 0);
        start_ranks(&ranks, 2, be_worker, &s);
        close(s.ends[0]);
        close(s.ends[1]);
        bad += count_bad_ranks(&ranks) != 0;
    }
    return bad;
}

static void play(int victim) {
    int bad = 0;
    long *next = mmap(NULL, sizeof *next, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_ptr_not_equal(next, MAP_FAILED);
    for (size_t i = 0; i < sizeof deeds / sizeof *deeds; i++)
        bad += play_deed(&deeds[i], victim, next);
    munmap(next, sizeof *next);
    assert_int_equal(bad, 0);
}

static void callers_have_no_memory(void **state) {
    (void)state;
    play(0);
}

static void callees_have_no_memory(void **state) {
    (void)state;
    play(1);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(callers_have_no_memory),
                                       cmocka_unit_test(callees_have_no_memory)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
