/* Workers for tests of distributed autograd: their own leaves, and the functions that they call of each other. Each
 * test defines WORKERS, a prefix of the functions' names, before it includes this, as several tests share a program. */
#ifndef TESTS_SUPPORT_RPC_WORKERS_H
#define TESTS_SUPPORT_RPC_WORKERS_H

#include "support/ranks.h"

#include <time.h>
#include <tutti/functional.h>
#include <tutti/rpc_training.h>

enum { LEAVES = 3, SIZE = 3 };

typedef enum graph_op { OP_ADD, OP_MUL, OP_TANH, OP_LEAF, OP_MIX, OPS } graph_op;

static inline tt_tensor *make_leaf(int worker, int leaf) {
    tt_generator *random = tt_generator_new((uint64_t)(worker * 16 + leaf + 1));
    tt_tensor *x = tt_to(tt_randn(TT_SHAPE(SIZE), random), TT_F64);
    tt_generator_free(random);
    return tt_requires_grad_(x, true);
}

static tt_tensor *own_leaf[LEAVES]; /* this worker's */

static inline tt_tensor *compute(graph_op op, tt_tensor *a, tt_tensor *b, tt_tensor *leaf) {
    switch (op) {
    case OP_ADD:
        return tt_add(a, tt_scale(b, 0.5));
    case OP_MUL:
        return tt_mul(a, b);
    case OP_TANH:
        return tt_tanh(a);
    case OP_LEAF:
        return tt_mul(leaf, tt_tanh(a ? a : leaf));
    default:
        return tt_add(tt_mul(tt_tanh(a), leaf), tt_tanh(tt_add(b, leaf)));
    }
}

/* ---- what workers call */

static inline tt_tensor *tensor_of(const tt_rpc_value *value) {
    tt_rpc_value fetched;
    if (value->kind != TT_RPC_RREF)
        return tt_rpc_value_tensor(value);
    CHECK_OK(tt_rref_get(value->rref, &fetched, 0));
    return tt_rpc_take_tensor(&fetched);
}

static tt_status node_function(tt_rpc_call *call) {
    tt_tensor *a = tensor_of(tt_rpc_arg(call, 2)), *b = tensor_of(tt_rpc_arg(call, 3));
    tt_tensor *y = compute((graph_op)tt_rpc_arg_int(call, 0), a, b, own_leaf[tt_rpc_arg_int(call, 1)]);
    return y ? tt_rpc_return(call, tt_rpc_tensor(y)) : tt_last_status();
}
TT_RPC_FUNCTION_NAMED(node_function, WORKERS "node", "(int op, int leaf, any a, any b) -> tensor");

static tt_status contexts_function(tt_rpc_call *call) {
    return tt_rpc_return(call, tt_rpc_int(tt_dist_autograd_context_count(tt_rpc_of_call(call))));
}
TT_RPC_FUNCTION_NAMED(contexts_function, WORKERS "contexts", "() -> int");

/* ---- */

static inline void make_own_leaves(int rank) {
    TT_AUTO_SCOPE;
    for (int i = 0; i < LEAVES; i++)
        own_leaf[i] = tt_keep(make_leaf(rank, i));
}

static inline void free_own_leaves(void) {
    for (int i = 0; i < LEAVES; i++)
        tt_tensor_free(own_leaf[i]);
}

static inline tt_rpc *join_workers(tt_group *group, int rank) {
    tt_rpc *rpc = NULL;
    char name[16];
    snprintf(name, sizeof name, "worker%d", rank);
    make_own_leaves(rank);
    CHECK_OK(tt_rpc_init(&rpc, name, .group = group));
    return rpc;
}

static inline void leave_workers(tt_rpc *rpc) {
    CHECK_OK(tt_rpc_shutdown(rpc));
    free_own_leaves();
}

/* Contexts end soon everywhere. */
static inline void expect_no_contexts(tt_rpc *rpc, int world) {
    for (int w = 0; w < world; w++)
        for (int64_t begin = time(NULL);;) {
            tt_rpc_value count;
            CHECK_OK(tt_rpc_sync(rpc, NULL, WORKERS "contexts", .to_id = w, .result = &count));
            if (!count.integer)
                break;
            CHECK(time(NULL) - begin < PATIENCE_MS / 1000);
        }
}

static inline void expect_failed(tt_status got, tt_status status, const char *what) {
    if (got != status || !strstr(tt_last_error(), what))
        fprintf(stderr, "expected %s with \"%s\", got %s: %s\n", tt_status_name(status), what, tt_status_name(got),
                tt_last_error());
    CHECK(got == status && strstr(tt_last_error(), what));
    tt_clear_error();
}

static inline tt_tensor *call_node(tt_rpc *rpc, int to, graph_op op, tt_tensor *a) {
    tt_rpc_value args[4] = {tt_rpc_int(op), tt_rpc_int(0), tt_rpc_tensor(a), tt_rpc_tensor(a)}, result;
    CHECK_OK(tt_rpc_sync(rpc, NULL, WORKERS "node", .to_id = to, .args = {args, 4}, .result = &result));
    return tt_rpc_take_tensor(&result);
}

/* ---- an operator that fails, or worse */

typedef enum way_to_fail { FAILS, DIES, FREEZES } way_to_fail;

static tt_status bad_forward(tt_node *node, tt_tensor *const *in, tt_tensor **out) {
    *(int *)tt_node_state(node) = *(const int *)tt_node_arg(node);
    return (out[0] = tt_clone(in[0])) ? TT_OK : tt_last_status();
}

static tt_status bad_backward(tt_node *node) {
    int way = *(int *)tt_node_state(node);
    if (way == DIES)
        raise(SIGKILL);
    if (way == FREEZES)
        raise(SIGSTOP);
    return TT_ERR_NAN;
}

static const tt_function bad =
    TT_FUNCTION(.name = "bad_luck", .forward = bad_forward, .backward = bad_backward, .state_bytes = sizeof(int));

/* ---- a pass that worker 1 leads */

/* Compute a loss in a context that another worker began, and lead the backward pass over it. */
static tt_status lead_function(tt_rpc_call *call) {
    tt_rpc *rpc = tt_rpc_of_call(call);
    tt_tensor *y = call_node(rpc, (int)tt_rpc_arg_int(call, 0), OP_MIX, tt_rpc_arg_tensor(call, 1));
    tt_tensor *loss = tt_sum(tt_mul(y, own_leaf[0]));
    if (tt_rpc_arg_bool(call, 2))
        loss = tt_sum(tt_apply(&bad, &(int){DIES}, tt_mul(y, own_leaf[0])));
    return tt_dist_autograd_backward(rpc, tt_dist_autograd_current(), &loss, 1);
}
TT_RPC_FUNCTION_NAMED(lead_function, WORKERS "lead", "(int worker, tensor x, bool dies)");

static inline tt_status lead_on_worker1(tt_rpc *rpc, bool dies) {
    return tt_rpc_sync(rpc, "worker1", WORKERS "lead",
                       .args = TT_RPC_ARGS(tt_rpc_int(2), tt_rpc_tensor(own_leaf[1]), tt_rpc_bool(dies)));
}

#endif
