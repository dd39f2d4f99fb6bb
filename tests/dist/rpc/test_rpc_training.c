/* Optimizers and modules of other workers, against those of one process; workers that die in a pass or a step. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define WORKERS "training."

#include "support/rpc_workers.h"

static tt_status make_linear(tt_rpc_call *call) {
    tt_manual_seed((uint64_t)tt_rpc_arg_int(call, 0));
    return tt_rpc_return_module(call, tt_nn_linear(SIZE, 2));
}
TT_RPC_FUNCTION_NAMED(make_linear, WORKERS "make_linear", "(int seed) -> any");

static tt_status make_number(tt_rpc_call *call) { return tt_rpc_return(call, tt_rpc_int(1)); }
TT_RPC_FUNCTION_NAMED(make_number, WORKERS "make_number", "() -> int");

/* ---- optimizers and modules */

static double local_loss(const char *kind, int steps, tt_tensor *x) {
    TT_AUTO_SCOPE;
    double loss = 0;
    tt_manual_seed(1);
    tt_module *first = tt_nn_linear(SIZE, 2);
    tt_manual_seed(2);
    tt_module *second = tt_nn_linear(SIZE, 2);
    tt_optimizer *o[2];
    tt_module *m[2] = {first, second};
    for (int i = 0; i < 2; i++)
        o[i] = !strcmp(kind, "sgd") ? tt_sgd(tt_module_parameters(m[i]), 0.1, .momentum = 0.9, .nesterov = true)
                                    : tt_adam(tt_module_parameters(m[i]), 0.1);
    for (int s = 0; s < steps; s++) {
        TT_AUTO_SCOPE;
        tt_tensor *y = tt_add(tt_module_forward(first, x), tt_tanh(tt_module_forward(second, x)));
        tt_tensor *error = tt_mean(tt_mul(y, y));
        for (int i = 0; i < 2; i++)
            tt_optimizer_zero_grad(o[i]);
        CHECK_OK(tt_backward(error));
        for (int i = 0; i < 2; i++)
            CHECK_OK(tt_optimizer_step(o[i]));
        CHECK_OK(tt_item(error, &loss));
    }
    for (int i = 0; i < 2; i++) {
        tt_optimizer_free(o[i]);
        tt_module_free(m[i]);
    }
    return loss;
}

static double remote_loss(tt_rpc *rpc, const char *kind, int steps, tt_tensor *x) {
    tt_remote_module *m[2];
    tt_rref *all[4], **params;
    tt_dist_optimizer *optimizer;
    double loss = 0;
    for (int i = 0; i < 2; i++) {
        int64_t count;
        CHECK_OK(tt_remote_module_new(&m[i], rpc, i ? "worker2" : "worker1", WORKERS "make_linear",
                                      .args = TT_RPC_ARGS(tt_rpc_int(i + 1))));
        CHECK_OK(tt_remote_module_parameters(m[i], &params, &count));
        CHECK(count == 2);
        all[2 * i] = tt_rref_share(params[0]);
        all[2 * i + 1] = tt_rref_share(params[1]);
        tt_rrefs_free(params, count);
    }
    const tt_option *options = !strcmp(kind, "sgd") ? TT_OPTION_LIST({"nesterov", 1}, {"momentum", 0.9}, {"lr", 0.1})
                                                    : TT_OPTION_LIST({"lr", 0.1});
    CHECK_OK(tt_dist_optimizer_new(&optimizer, rpc, all, 4, kind, .options = options));
    for (int s = 0; s < steps; s++) {
        TT_AUTO_SCOPE;
        int64_t context;
        CHECK_OK(tt_dist_autograd_begin(&context, rpc));
        tt_tensor *y = tt_add(tt_remote_module_forward(m[0], x), tt_tanh(tt_remote_module_forward(m[1], x)));
        tt_tensor *error = tt_mean(tt_mul(y, y));
        CHECK_OK(tt_dist_autograd_backward(rpc, context, &error, 1));
        CHECK_OK(tt_dist_optimizer_step(optimizer, context));
        CHECK_OK(tt_dist_autograd_end(rpc, context));
        CHECK_OK(tt_item(error, &loss));
    }
    CHECK_OK(tt_remote_module_train(m[0], false));
    tt_dist_optimizer_free(optimizer);
    for (int i = 0; i < 4; i++)
        tt_rref_free(all[i]);
    for (int i = 0; i < 2; i++)
        tt_remote_module_free(m[i]);
    return loss;
}

static void train(tt_group *group, int rank, void *user) {
    (void)user;
    tt_rpc *rpc = join_workers(group, rank);
    if (!rank) {
        TT_AUTO_SCOPE;
        tt_generator *random = tt_generator_new(5);
        tt_tensor *x = tt_randn(TT_SHAPE(4, SIZE), random);
        tt_generator_free(random);
        CHECK(fabs(remote_loss(rpc, "sgd", 10, x) - local_loss("sgd", 10, x)) < 1e-5);
        CHECK(fabs(remote_loss(rpc, "adam", 10, x) - local_loss("adam", 10, x)) < 1e-5);
        expect_no_contexts(rpc, 3);
    }
    leave_workers(rpc);
}

static void training_is_that_of_one_process(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, train, NULL), 0);
}

/* ---- refusals */

static void refuse_optimizers(tt_rpc *rpc) {
    tt_dist_optimizer *o = NULL;
    tt_rref *leaf = tt_rref_new(rpc, tt_rpc_tensor(own_leaf[0])), *number = tt_rref_new(rpc, tt_rpc_int(3));
    expect_failed(tt_dist_optimizer_new(&o, rpc, &leaf, 0, "sgd"), TT_ERR_INVALID, "expected parameters");
    expect_failed(tt_dist_optimizer_new(&o, rpc, &leaf, 1, "sdg"), TT_ERR_NOT_FOUND, "there are sgd, adam");
    expect_failed(tt_dist_optimizer_new(&o, rpc, &number, 1, "sgd"), TT_ERR_INVALID, "got int");
    expect_failed(tt_dist_optimizer_new(&o, rpc, &leaf, 1, "sgd", .options = TT_OPTION_LIST({"rate", 1})),
                  TT_ERR_NOT_FOUND, "has no option \"rate\"");
    expect_failed(tt_dist_optimizer_new(&o, rpc, &leaf, 1, "sgd", .options = TT_OPTION_LIST({"lr", -1})),
                  TT_ERR_INVALID, "lr");
    CHECK(!o);
    CHECK_OK(tt_dist_optimizer_new(&o, rpc, &leaf, 1, "sgd"));
    CHECK_OK(tt_dist_optimizer_set_option(o, "lr", 0.5));
    expect_failed(tt_dist_optimizer_step(o, 99), TT_ERR_NOT_FOUND, "knows no context 99");
    tt_dist_optimizer_free(o);
    tt_rref_free(leaf);
    tt_rref_free(number);
}

static void refuse_modules(tt_rpc *rpc) {
    tt_remote_module *m = NULL;
    expect_failed(tt_remote_module_new(&m, rpc, "nobody", WORKERS "make_linear", .args = TT_RPC_ARGS(tt_rpc_int(1))),
                  TT_ERR_NOT_FOUND, "nobody");
    expect_failed(tt_remote_module_new(&m, rpc, "worker1", WORKERS "make_number"), TT_ERR_INVALID,
                  "a reference to a module");
    expect_failed(tt_remote_module_new(&m, rpc, "worker1", WORKERS "make_linear"), TT_ERR_INVALID,
                  WORKERS "make_linear");
    CHECK(!m && !tt_remote_module_rref(NULL) && !tt_remote_module_forward(NULL, own_leaf[0]));
    CHECK_OK(tt_remote_module_new(&m, rpc, "worker1", WORKERS "make_linear", .args = TT_RPC_ARGS(tt_rpc_int(1))));
    CHECK(!tt_remote_module_forward(m, own_leaf[0])); /* f64 */
    CHECK_TEXT("worker1");
    tt_clear_error();
    expect_failed(tt_rref_local_module(tt_remote_module_rref(m)) ? TT_OK : tt_last_status(), TT_ERR_STATE, "");
    tt_remote_module_free(m);
}

static void refuse_training(tt_group *group, int rank, void *user) {
    (void)user;
    tt_rpc *rpc = join_workers(group, rank);
    if (!rank) {
        TT_AUTO_SCOPE;
        refuse_optimizers(rpc);
        refuse_modules(rpc);
    }
    leave_workers(rpc);
}

static void bad_input_is_refused(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, refuse_training, NULL), 0);
}

static tt_status bad_function(tt_rpc_call *call) {
    int way = (int)tt_rpc_arg_int(call, 0);
    tt_tensor *y = tt_apply(&bad, &way, tt_mul(own_leaf[0], tt_rpc_arg_tensor(call, 1)));
    return y ? tt_rpc_return(call, tt_rpc_tensor(y)) : tt_last_status();
}
TT_RPC_FUNCTION_NAMED(bad_function, WORKERS "bad", "(int way, tensor x) -> tensor");

/* ---- passes that fail */

static tt_tensor *call_bad(tt_rpc *rpc, int to, way_to_fail way, tt_tensor *x) {
    tt_rpc_value result;
    CHECK_OK(tt_rpc_sync(rpc, NULL, WORKERS "bad", .to_id = to, .args = TT_RPC_ARGS(tt_rpc_int(way), tt_rpc_tensor(x)),
                         .result = &result));
    return tt_rpc_take_tensor(&result);
}

static void fail_pass(tt_rpc *rpc, way_to_fail way) {
    TT_AUTO_SCOPE;
    int64_t context;
    CHECK_OK(tt_dist_autograd_begin(&context, rpc));
    tt_tensor *first = call_node(rpc, 1, OP_MIX, own_leaf[1]), *second = call_bad(rpc, 2, way, first);
    tt_tensor *loss = tt_sum(call_node(rpc, 1, OP_MUL, second));
    tt_status status = tt_dist_autograd_backward(rpc, context, &loss, 1);
    if (way == FAILS)
        expect_failed(status, TT_ERR_NAN, "worker2 (id 2)");
    else
        expect_failed(status, TT_ERR_PEER, "worker2");
    tt_tensor *after = tt_sum(call_node(rpc, 1, OP_MIX, own_leaf[2])); /* the context itself goes on */
    CHECK_OK(tt_dist_autograd_backward(rpc, context, &after, 1));
    CHECK_OK(tt_dist_autograd_end(rpc, context));
}

static int failing_pass(tt_store *store, int rank, int world, void *arg) {
    way_to_fail way = *(way_to_fail *)arg;
    tt_group *group = join_group(store, rank, world);
    tt_rpc *rpc = join_workers(group, rank);
    if (!rank) {
        fail_pass(rpc, way);
        expect_no_contexts(rpc, way == FAILS ? world : 2);
    }
    tt_ignore(tt_rpc_shutdown(rpc)); /* somebody is lost, who is named */
    tt_destroy_process_group(group);
    return 0;
}

static void a_pass_ends_with_its_worker(void **state) {
    (void)state;
    for (way_to_fail way = FAILS; way <= DIES; way++) {
        ranks ranks;
        start_ranks(&ranks, 3, failing_pass, &way);
        int end[3];
        for (int r = 0; r < 3; r++)
            end[r] = end_of_rank(&ranks, r);
        tt_store_server_free(ranks.server);
        assert_int_equal(end[0], 0);
        assert_int_equal(end[1], 0);
        assert_int_equal(end[2], way == DIES ? 128 + SIGKILL : 0);
    }
}

/* Worker 1 leads a pass and dies; others are free for the next one when they have heard of it. */
static int leader_dies(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    tt_rpc *rpc = join_workers(group, rank);
    if (!rank) {
        TT_AUTO_SCOPE;
        int64_t context;
        tt_status status = TT_ERR_STATE;
        CHECK_OK(tt_dist_autograd_begin(&context, rpc));
        expect_failed(lead_on_worker1(rpc, true), TT_ERR_PEER, "worker1");
        for (int64_t begin = time(NULL); status == TT_ERR_STATE && time(NULL) - begin < PATIENCE_MS / 1000;) {
            tt_tensor *loss = tt_sum(call_node(rpc, 2, OP_MIX, own_leaf[2]));
            status = tt_dist_autograd_backward(rpc, context, &loss, 1);
        }
        CHECK_OK(status);
        CHECK_OK(tt_dist_autograd_end(rpc, context));
    }
    tt_ignore(tt_rpc_shutdown(rpc));
    tt_destroy_process_group(group);
    return 0;
}

static tt_status die(tt_rpc_call *call) {
    (void)call;
    raise(SIGKILL);
    return TT_OK;
}
TT_RPC_FUNCTION_NAMED(die, WORKERS "die", "()");

/* A worker with parameters dies: the step names it, and the other has made its own. */
static int stepper_dies(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    tt_rpc *rpc = join_workers(group, rank);
    if (!rank) {
        TT_AUTO_SCOPE;
        int64_t context;
        tt_remote_module *m;
        tt_rref *params[2], **of_module;
        int64_t count;
        tt_dist_optimizer *sgd;
        CHECK_OK(tt_remote_module_new(&m, rpc, "worker1", WORKERS "make_linear", .args = TT_RPC_ARGS(tt_rpc_int(1))));
        CHECK_OK(tt_remote_module_parameters(m, &of_module, &count));
        params[0] = of_module[0];
        params[1] = tt_rref_new(rpc, tt_rpc_tensor(own_leaf[0]));
        CHECK_OK(tt_dist_optimizer_new(&sgd, rpc, params, 2, "sgd", .options = TT_OPTION_LIST({"lr", 1})));
        CHECK_OK(tt_dist_autograd_begin(&context, rpc));
        tt_tensor *loss = tt_sum(own_leaf[0]);
        CHECK_OK(tt_dist_autograd_backward(rpc, context, &loss, 1));
        double before = ((double *)tt_tensor_data(own_leaf[0]))[0];
        expect_failed(tt_rpc_sync(rpc, "worker1", WORKERS "die"), TT_ERR_PEER, "worker1");
        expect_failed(tt_dist_optimizer_step(sgd, context), TT_ERR_PEER, "worker1");
        CHECK(((double *)tt_tensor_data(own_leaf[0]))[0] == before - 1);
        CHECK_OK(tt_dist_autograd_end(rpc, context));
        tt_dist_optimizer_free(sgd);
        tt_rrefs_free(of_module, count);
        tt_rref_free(params[1]);
        tt_remote_module_free(m);
    }
    tt_ignore(tt_rpc_shutdown(rpc));
    tt_destroy_process_group(group);
    return 0;
}

/* Worker 1 begins a context, which worker 2 knows, and dies. */
static tt_status begin_and_die(tt_rpc_call *call) {
    int64_t context;
    tt_rpc *rpc = tt_rpc_of_call(call);
    CHECK_OK(tt_dist_autograd_begin(&context, rpc));
    call_node(rpc, 2, OP_MIX, own_leaf[1]);
    raise(SIGKILL);
    return TT_OK;
}
TT_RPC_FUNCTION_NAMED(begin_and_die, WORKERS "begin_and_die", "()");

static int owner_dies(tt_store *store, int rank, int world, void *arg) {
    (void)arg;
    tt_group *group = join_group(store, rank, world);
    tt_rpc *rpc = join_workers(group, rank);
    if (!rank) {
        expect_failed(tt_rpc_sync(rpc, "worker1", WORKERS "begin_and_die"), TT_ERR_PEER, "worker1");
        for (int64_t begin = time(NULL);;) {
            tt_rpc_value count;
            CHECK_OK(tt_rpc_sync(rpc, "worker2", WORKERS "contexts", .result = &count));
            if (!count.integer)
                break;
            CHECK(time(NULL) - begin < PATIENCE_MS / 1000);
        }
    }
    tt_ignore(tt_rpc_shutdown(rpc));
    tt_destroy_process_group(group);
    return 0;
}

/* Worker 1 of three is killed; the others end well. */
static void expect_worker1_killed(rank_body body) {
    ranks ranks;
    start_ranks(&ranks, 3, body, NULL);
    assert_int_equal(end_of_rank(&ranks, 0), 0);
    assert_int_equal(end_of_rank(&ranks, 1), 128 + SIGKILL);
    assert_int_equal(end_of_rank(&ranks, 2), 0);
    tt_store_server_free(ranks.server);
}

static void what_the_dead_leave_is_ended(void **state) {
    (void)state;
    expect_worker1_killed(owner_dies);
    expect_worker1_killed(leader_dies);
    expect_worker1_killed(stepper_dies);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(training_is_that_of_one_process),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(a_pass_ends_with_its_worker),
        cmocka_unit_test(what_the_dead_leave_is_ended),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
