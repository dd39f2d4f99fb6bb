/* Distributed autograd against autograd in one process: random graphs over several workers, results that nobody uses
 * among them, and what else a pass may meet. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define WORKERS "graphs."

#include "support/far_device.h"
#include "support/rpc_workers.h"

enum { WORLD_MAX = 4, NODES_MAX = 16, GATE_GRAPHS = 40 };

/* ---- graphs */

/* How a node is computed: by a call of its worker, by a call that passes it on, on the caller, or where it stays. */
typedef enum graph_way { WAY_CALL, WAY_NESTED, WAY_LOCAL, WAY_REMOTE, WAYS } graph_way;

typedef struct graph_node {
    graph_op op;
    graph_way way;
    int worker, via, a, b, leaf;
} graph_node;

typedef struct graph {
    int world, count, roots, passes;
    graph_node node[NODES_MAX];
    int root[3];
} graph;

static uint64_t draw(uint64_t *state, int below) {
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (*state >> 33) % (uint64_t)below;
}

/* Node i's inputs are nodes before it; the first is a leaf of worker 0. */
static graph draw_graph(int world, uint64_t number) {
    uint64_t state = number * 1000003 + 17;
    graph g = {.world = world, .count = 4 + (int)draw(&state, NODES_MAX - 4), .roots = 1 + (int)draw(&state, 3)};
    g.passes = 1 + (draw(&state, 4) == 0);
    for (int i = 0; i < g.count; i++)
        g.node[i] = (graph_node){.op = i ? (graph_op)draw(&state, OPS) : OP_LEAF,
                                 .way = i ? (graph_way)draw(&state, WAYS) : WAY_LOCAL,
                                 .worker = (int)draw(&state, world),
                                 .via = (int)draw(&state, world),
                                 .a = i ? (int)draw(&state, i) : 0,
                                 .b = i ? (int)draw(&state, i) : 0,
                                 .leaf = (int)draw(&state, LEAVES)};
    for (int i = 0; i < g.roots; i++)
        g.root[i] = g.count - 1 - (int)draw(&state, 3);
    return g;
}

/* ---- what workers call */

/* Pass it on to another worker. */
static tt_status via_function(tt_rpc_call *call) {
    tt_rpc_value result;
    tt_status status = tt_rpc_sync(tt_rpc_of_call(call), NULL, WORKERS "node", .to_id = (int)tt_rpc_arg_int(call, 0),
                                   .args = {tt_rpc_arg(call, 1)->list.items, 4}, .result = &result);
    return status ? status : tt_rpc_return(call, result);
}
TT_RPC_FUNCTION_NAMED(via_function, WORKERS "via", "(int worker, list args) -> tensor");

/* The largest difference between the context's gradients of this worker's leaves and those of the graph in one
 * process. */
static double compare_graph(tt_rpc *rpc, int64_t context, int world, uint64_t number) {
    TT_AUTO_SCOPE;
    graph g = draw_graph(world, number);
    tt_tensor *leaf[WORLD_MAX][LEAVES], *node[NODES_MAX];
    double worst = 0;
    for (int w = 0; w < world; w++)
        for (int i = 0; i < LEAVES; i++)
            leaf[w][i] = make_leaf(w, i);
    for (int i = 0; i < g.count; i++) {
        const graph_node *n = &g.node[i];
        int worker = n->way == WAY_LOCAL ? 0 : n->worker;
        node[i] = compute(n->op, i ? node[n->a] : NULL, i ? node[n->b] : NULL, leaf[worker][n->leaf]);
    }
    for (int p = 0; p < g.passes; p++)
        for (int r = 0; r < g.roots; r++)
            CHECK_OK(tt_backward(tt_sum(node[g.root[r]]), .retain_graph = true));
    for (int i = 0; i < LEAVES; i++) {
        tt_tensor *expected = tt_grad(leaf[tt_rpc_id(rpc)][i]), *got = tt_dist_autograd_grad(rpc, context, own_leaf[i]);
        for (int k = 0; k < SIZE; k++) {
            double a = expected ? ((double *)tt_tensor_data(expected))[k] : 0;
            double b = got ? ((double *)tt_tensor_data(got))[k] : 0;
            worst = fmax(worst, fabs(a - b) / fmax(1, fabs(a)));
        }
        CHECK(!tt_grad(own_leaf[i]));
    }
    tt_clear_error(); /* a worker that took no part knows no context */
    return worst;
}

static tt_status compare_function(tt_rpc_call *call) {
    return tt_rpc_return(call,
                         tt_rpc_float(compare_graph(tt_rpc_of_call(call), tt_rpc_arg_int(call, 0),
                                                    (int)tt_rpc_arg_int(call, 1), (uint64_t)tt_rpc_arg_int(call, 2))));
}
TT_RPC_FUNCTION_NAMED(compare_function, WORKERS "compare", "(int context, int world, int number) -> float");

/* ---- the worker that leads */

/* A node's value, where it is used: a tensor of this worker, or a reference. */
typedef struct graph_value {
    tt_tensor *tensor;
    tt_rref *rref;
} graph_value;

static tt_rpc_value as_argument(const graph_value *v) {
    return v->rref ? tt_rpc_rref(v->rref) : v->tensor ? tt_rpc_tensor(v->tensor) : tt_rpc_none();
}

static tt_tensor *as_tensor(graph_value *v) {
    tt_rpc_value fetched;
    if (!v->tensor && v->rref) {
        CHECK_OK(tt_rref_get(v->rref, &fetched, 0));
        v->tensor = tt_rpc_take_tensor(&fetched);
    }
    return v->tensor;
}

static graph_value run_node(tt_rpc *rpc, const graph_node *n, graph_value *a, graph_value *b) {
    graph_value none = {0}, y = {0};
    a = a ? a : &none;
    b = b ? b : &none;
    tt_rpc_value args[4] = {tt_rpc_int(n->op), tt_rpc_int(n->leaf), as_argument(a), as_argument(b)}, result;
    switch (n->way) {
    case WAY_LOCAL:
        y.tensor = compute(n->op, as_tensor(a), as_tensor(b), own_leaf[n->leaf]);
        break;
    case WAY_CALL:
        CHECK_OK(tt_rpc_sync(rpc, NULL, WORKERS "node", .to_id = n->worker, .args = {args, 4}, .result = &result));
        y.tensor = tt_rpc_take_tensor(&result);
        break;
    case WAY_NESTED:
        CHECK_OK(tt_rpc_sync(rpc, NULL, WORKERS "via", .to_id = n->via,
                             .args = TT_RPC_ARGS(tt_rpc_int(n->worker), tt_rpc_list(args, 4)), .result = &result));
        y.tensor = tt_rpc_take_tensor(&result);
        break;
    default:
        CHECK_OK(tt_rpc_remote(&y.rref, rpc, NULL, WORKERS "node", .to_id = n->worker, .args = {args, 4}));
        break;
    }
    return y;
}

static void compare_on_all(tt_rpc *rpc, int64_t context, int world, uint64_t number) {
    for (int w = 0; w < world; w++) {
        tt_rpc_value worst;
        CHECK_OK(tt_rpc_sync(rpc, NULL, WORKERS "compare", .to_id = w, .result = &worst,
                             .args = TT_RPC_ARGS(tt_rpc_int(context), tt_rpc_int(world), tt_rpc_int((int64_t)number))));
        if (!(worst.number <= 1e-10))
            fprintf(stderr, "graph %llu over %d workers: worker %d is off by %g\n", (unsigned long long)number, world,
                    w, worst.number);
        CHECK(worst.number <= 1e-10);
    }
}

static void run_graph(tt_rpc *rpc, int world, uint64_t number) {
    TT_AUTO_SCOPE;
    graph g = draw_graph(world, number);
    graph_value value[NODES_MAX];
    tt_tensor *root[3];
    int64_t context;
    CHECK_OK(tt_dist_autograd_begin(&context, rpc));
    for (int i = 0; i < g.count; i++)
        value[i] = run_node(rpc, &g.node[i], i ? &value[g.node[i].a] : NULL, i ? &value[g.node[i].b] : NULL);
    for (int r = 0; r < g.roots; r++)
        root[r] = tt_sum(as_tensor(&value[g.root[r]]));
    for (int p = 0; p < g.passes; p++)
        CHECK_OK(tt_dist_autograd_backward(rpc, context, root, g.roots, .retain_graph = p + 1 < g.passes));
    compare_on_all(rpc, context, world, number);
    for (int i = 0; i < g.count; i++)
        tt_rref_free(value[i].rref);
    CHECK_OK(tt_dist_autograd_end(rpc, context));
}

/* ---- */

static int graph_count(void) {
    const char *given = getenv("TT_RPC_GRAPHS");
    return given ? atoi(given) : GATE_GRAPHS;
}

static void graphs(tt_group *group, int rank, void *user) {
    int world = *(int *)user;
    tt_rpc *rpc = join_workers(group, rank);
    if (!rank) {
        for (int i = 0; i < graph_count(); i++)
            run_graph(rpc, world, (uint64_t)i);
        expect_no_contexts(rpc, world);
    }
    leave_workers(rpc);
}

static void random_graphs(void **state) {
    (void)state;
    for (int world = 2; world <= WORLD_MAX; world++)
        assert_int_equal(run_ranks(world, graphs, &world), 0);
}

/* All workers lead passes at once, each in contexts of its own. */
static void all_lead(tt_group *group, int rank, void *user) {
    (void)user;
    tt_rpc *rpc = join_workers(group, rank);
    TT_AUTO_SCOPE;
    for (int i = 0; i < 10; i++) {
        TT_AUTO_SCOPE;
        int64_t context;
        tt_rpc_value args[4] = {tt_rpc_int(OP_MIX), tt_rpc_int(0), tt_rpc_tensor(own_leaf[1]),
                                tt_rpc_tensor(own_leaf[2])};
        tt_tensor *loss = NULL;
        CHECK_OK(tt_dist_autograd_begin(&context, rpc));
        for (int w = 0; w < 3; w++) {
            tt_rpc_value result;
            CHECK_OK(tt_rpc_sync(rpc, NULL, WORKERS "node", .to_id = w, .args = {args, 4}, .result = &result));
            tt_tensor *part = tt_sum(tt_rpc_take_tensor(&result));
            loss = loss ? tt_add(loss, part) : part;
        }
        CHECK_OK(tt_dist_autograd_backward(rpc, context, &loss, 1));
        tt_tensor *leaf[3], *here = NULL;
        for (int w = 0; w < 3; w++)
            leaf[w] = make_leaf(w, 0);
        tt_tensor *a = make_leaf(rank, 1), *b = make_leaf(rank, 2);
        for (int w = 0; w < 3; w++) {
            tt_tensor *part = tt_sum(compute(OP_MIX, a, b, leaf[w]));
            here = here ? tt_add(here, part) : part;
        }
        CHECK_OK(tt_backward(here));
        for (int k = 0; k < SIZE; k++) {
            const double *got = tt_tensor_data(tt_dist_autograd_grad(rpc, context, own_leaf[1]));
            CHECK(fabs(got[k] - ((double *)tt_tensor_data(tt_grad(a)))[k]) < 1e-10);
        }
        CHECK_OK(tt_dist_autograd_end(rpc, context));
    }
    leave_workers(rpc);
}

static void passes_of_all_workers_at_once(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, all_lead, NULL), 0);
}

/* ---- refusals */

/* What came can be used again, but not what it was computed from. */
static void refuse_second_pass(tt_rpc *rpc, int64_t context) {
    tt_rpc_value args[4] = {tt_rpc_int(OP_TANH), tt_rpc_int(0), tt_rpc_tensor(own_leaf[1]), tt_rpc_none()}, result;
    CHECK_OK(tt_rpc_sync(rpc, NULL, WORKERS "node", .to_id = 1, .args = {args, 4}, .result = &result));
    tt_tensor *came = tt_rpc_value_tensor(&result), *first = tt_sum(came), *second = tt_sum(tt_tanh(came));
    CHECK_OK(tt_dist_autograd_backward(rpc, context, &first, 1));
    expect_failed(tt_dist_autograd_backward(rpc, context, &second, 1), TT_ERR_STATE, "retain_graph");
    tt_rpc_value_free(&result);
}

static void refuse_passes(tt_rpc *rpc) {
    TT_AUTO_SCOPE;
    int64_t context, other;
    CHECK_OK(tt_dist_autograd_begin(&context, rpc));
    expect_failed(tt_dist_autograd_begin(&other, rpc), TT_ERR_STATE, "already");
    tt_tensor *y = call_node(rpc, 1, OP_MIX, own_leaf[1]), *loss = tt_sum(y), *plain = tt_ones(TT_SCALAR, TT_F64);
    expect_failed(tt_dist_autograd_backward(rpc, context, &loss, 0), TT_ERR_INVALID, "expected roots");
    expect_failed(tt_dist_autograd_backward(rpc, context, &y, 1), TT_ERR_SHAPE, "one element");
    expect_failed(tt_dist_autograd_backward(rpc, context, &plain, 1), TT_ERR_STATE, "requires a gradient");
    expect_failed(tt_dist_autograd_backward(rpc, context, &loss, 1, .create_graph = true), TT_ERR_UNSUPPORTED,
                  "second derivative");
    expect_failed(tt_dist_autograd_backward(rpc, 7, &loss, 1), TT_ERR_NOT_FOUND, "knows no context 7");
    CHECK_OK(tt_dist_autograd_backward(rpc, context, &loss, 1));
    refuse_second_pass(rpc, context);
    CHECK_OK(tt_dist_autograd_end(rpc, context));
    expect_failed(tt_dist_autograd_end(rpc, context), TT_ERR_NOT_FOUND, "has ended");
    CHECK(!tt_dist_autograd_grad(rpc, context, own_leaf[0]));
    tt_clear_error();
}

static void refuse(tt_group *group, int rank, void *user) {
    (void)user;
    tt_rpc *rpc = join_workers(group, rank);
    if (!rank) {
        refuse_passes(rpc);
        expect_no_contexts(rpc, 2);
    }
    leave_workers(rpc);
}

static void bad_input_is_refused(void **state) {
    (void)state;
    assert_int_equal(run_ranks(2, refuse, NULL), 0);
}

/* ---- other ways to lead and to compute */

static void expect_gradient(tt_rpc *rpc, int64_t context, tt_tensor *leaf, tt_tensor *expected) {
    tt_tensor *grad = tt_dist_autograd_grad(rpc, context, leaf);
    CHECK(grad && expected && tt_tensor_device(grad) == tt_tensor_device(leaf));
    grad = tt_to_device(grad, TT_CPU);
    for (int k = 0; k < SIZE; k++)
        CHECK(fabs(((double *)tt_tensor_data(grad))[k] - ((double *)tt_tensor_data(expected))[k]) < 1e-10);
}

static void another_worker_leads(tt_rpc *rpc) {
    TT_AUTO_SCOPE;
    int64_t context;
    CHECK_OK(tt_dist_autograd_begin(&context, rpc));
    CHECK_OK(lead_on_worker1(rpc, false));
    tt_tensor *x = make_leaf(0, 1);
    CHECK_OK(tt_backward(tt_sum(tt_mul(compute(OP_MIX, x, x, make_leaf(2, 0)), make_leaf(1, 0)))));
    expect_gradient(rpc, context, own_leaf[1], tt_grad(x));
    CHECK_OK(tt_dist_autograd_end(rpc, context));
}

static tt_tensor *tanh_of(void *arg, tt_tensor *const *in, int64_t n) {
    (void)n;
    return tt_mul(tt_tanh(in[0]), arg ? arg : in[0]);
}

/* What came is found inside a segment that is computed again if it is an input of it, and else refused. */
static void recomputed(tt_rpc *rpc) {
    TT_AUTO_SCOPE;
    int64_t context;
    tt_rpc_value args[4] = {tt_rpc_int(OP_TANH), tt_rpc_int(0), tt_rpc_tensor(own_leaf[1]), tt_rpc_none()}, result;
    tt_tensor *x = make_leaf(0, 1), *y = tt_tanh(x);
    CHECK_OK(tt_backward(tt_sum(tt_mul(tt_tanh(y), y))));
    for (int hidden = 0; hidden < 2; hidden++) {
        CHECK_OK(tt_dist_autograd_begin(&context, rpc));
        CHECK_OK(tt_rpc_sync(rpc, NULL, WORKERS "node", .to_id = 1, .args = {args, 4}, .result = &result));
        tt_tensor *came = tt_rpc_value_tensor(&result);
        tt_tensor *loss = tt_sum(hidden ? tt_recompute(tanh_of, came, own_leaf[2]) : tt_recompute(tanh_of, NULL, came));
        tt_status status = tt_dist_autograd_backward(rpc, context, &loss, 1);
        if (hidden)
            expect_failed(status, TT_ERR_UNSUPPORTED, "a tensor from worker 1 is used inside of tt_recompute()");
        else
            expect_gradient(rpc, context, own_leaf[1], tt_grad(x));
        CHECK_OK(tt_dist_autograd_end(rpc, context));
        tt_rpc_value_free(&result);
    }
}

/* What leaves from a device comes back to it. */
static void from_a_far_device(tt_rpc *rpc) {
    TT_AUTO_SCOPE;
    int64_t context;
    const tt_device *far = far_device();
    tt_tensor *x = tt_requires_grad_(tt_to_device(tt_full(TT_SHAPE(2), TT_F32, 1), far), true);
    tt_rpc_value args[4] = {tt_rpc_int(OP_TANH), tt_rpc_int(0), tt_rpc_tensor(x), tt_rpc_none()}, result;
    CHECK_OK(tt_dist_autograd_begin(&context, rpc));
    CHECK_OK(tt_rpc_sync(rpc, NULL, WORKERS "node", .to_id = 1, .args = {args, 4}, .result = &result));
    tt_tensor *y = tt_rpc_take_tensor(&result), *loss = tt_sum(y);
    CHECK(tt_tensor_device(y) == TT_CPU && fabs(tt_tensor_f32(y)[1] - tanh(1)) < 1e-6);
    CHECK_OK(tt_dist_autograd_backward(rpc, context, &loss, 1));
    tt_tensor *grad = tt_dist_autograd_grad(rpc, context, x);
    CHECK(tt_tensor_device(grad) == far);
    CHECK(fabs(tt_tensor_f32(tt_to_device(grad, TT_CPU))[1] - (1 - tanh(1) * tanh(1))) < 1e-6);
    CHECK_OK(tt_dist_autograd_end(rpc, context));
}

/* What is sent where nothing is recorded needs no gradient, and neither does what comes of it. */
static void unrecorded(tt_rpc *rpc) {
    TT_AUTO_SCOPE;
    int64_t context;
    CHECK_OK(tt_dist_autograd_begin(&context, rpc));
    bool before = tt_no_grad_begin();
    tt_tensor *y = call_node(rpc, 1, OP_TANH, tt_detach(own_leaf[1]));
    tt_no_grad_end(before);
    CHECK(!tt_requires_grad(y));
    CHECK_OK(tt_dist_autograd_end(rpc, context));
}

static void other_ways(tt_group *group, int rank, void *user) {
    (void)user;
    tt_rpc *rpc = join_workers(group, rank);
    if (!rank) {
        another_worker_leads(rpc);
        recomputed(rpc);
        from_a_far_device(rpc);
        unrecorded(rpc);
        expect_no_contexts(rpc, 3);
    }
    leave_workers(rpc);
}

static void other_ways_to_lead_and_compute(void **state) {
    (void)state;
    assert_int_equal(run_ranks(3, other_ways, NULL), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_graphs),
        cmocka_unit_test(passes_of_all_workers_at_once),
        cmocka_unit_test(bad_input_is_refused),
        cmocka_unit_test(other_ways_to_lead_and_compute),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
