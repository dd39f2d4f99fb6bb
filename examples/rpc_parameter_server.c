/* A parameter server: one worker has the model, the others train it on their own batches by calling that worker's
 * functions. Distributed autograd takes the gradients back to the server, the distributed optimizer makes the step
 * there. Mirrors PyTorch's tutorial "Implementing a Parameter Server Using Distributed RPC Framework":
 *
 *     opt = DistributedOptimizer(optim.SGD, param_rrefs, lr=0.03)
 *     for data, target in train_loader:
 *         with dist_autograd.context() as context_id:
 *             output = rpc.rpc_sync("ps", forward, args=(data,))
 *             loss = F.cross_entropy(output, target)
 *             dist_autograd.backward(context_id, [loss])
 *             opt.step(context_id)
 *
 *   tutti run --nproc-per-node=3 build/examples/rpc_parameter_server
 *
 * In the tutorial a trainer steps whenever it is ready, so that no two runs have the same losses. Here trainers wait
 * for each other before and after their steps. */
#include "flags.h"
#include "rpc_workers.h"

#include <pthread.h>

static const char program_name[] = "rpc_parameter_server";

static const char usage[] = "usage: tutti run --nproc-per-node=N rpc_parameter_server [FLAGS]\n"
                            "\n"
                            "Rank 0 has a model; ranks 1 to N-1 train it, by calling functions of rank 0. N: 2 to 64.\n"
                            "\n"
                            "  --data FOLDER     digits, in MNIST's files; without: 2000 drawn ones\n"
                            "  --batches N       steps of each trainer (20)\n"
                            "  --batch-size N    digits of a step (32)\n"
                            "  --lr X            learning rate (0.03)\n"
                            "  --help            this text\n";

enum { PARAMETERS = 4 };

typedef struct Options {
    const char *data;
    int64_t batches, batch_size;
    double lr;
} Options;

/* ---- the server ---- */

static tt_module *net;
static pthread_mutex_t net_lock = PTHREAD_MUTEX_INITIALIZER; /* a module runs in one thread at a time */

static tt_status forward(tt_rpc_call *call) {
    pthread_mutex_lock(&net_lock);
    tt_tensor *y = tt_module_forward(net, tt_rpc_arg_tensor(call, 0));
    pthread_mutex_unlock(&net_lock);
    return y ? tt_rpc_return(call, tt_rpc_tensor(y)) : tt_last_status();
}
TT_RPC_FUNCTION(forward, "(tensor x) -> tensor");

/* References to the parameters, which stay here. */
static tt_status parameters(tt_rpc_call *call) {
    tt_rref *rrefs[PARAMETERS];
    tt_rpc_value values[PARAMETERS];
    for (int64_t p = 0; p < PARAMETERS; p++) {
        rrefs[p] = tt_rref_new(tt_rpc_of_call(call), tt_rpc_tensor(tt_module_parameters(net)->tensors[p]));
        values[p] = tt_rpc_rref(rrefs[p]);
    }
    tt_status status = tt_rpc_return(call, tt_rpc_list(values, PARAMETERS));
    for (int64_t p = 0; p < PARAMETERS; p++)
        tt_rref_free(rrefs[p]);
    return status;
}
TT_RPC_FUNCTION(parameters, "() -> list");

/* ---- a trainer ---- */

typedef struct Trainer {
    tt_rpc *rpc;
    tt_group *trainers;
    tt_dist_optimizer *sgd;
} Trainer;

/* Make the optimizer of the server's parameters. */
static tt_status make_optimizer(Trainer *t, double lr) {
    tt_rpc_value list;
    tt_rref *rrefs[PARAMETERS];
    tt_status status = tt_rpc_sync(t->rpc, "ps", "parameters", .result = &list);
    if (status)
        return status;
    for (int64_t p = 0; p < PARAMETERS; p++)
        rrefs[p] = list.list.items[p].rref;
    status = tt_dist_optimizer_new(&t->sgd, t->rpc, rrefs, PARAMETERS, "sgd", .options = TT_OPTION_LIST({"lr", lr}));
    tt_rpc_value_free(&list);
    return status;
}

/* A step on a batch: in its context the gradients are no other trainer's. */
static tt_status train_batch(const Trainer *t, int64_t context, const tt_batch *b, double *loss_value) {
    TT_AUTO_SCOPE;
    tt_rpc_value output;
    if (tt_rpc_sync(t->rpc, "ps", "forward", .args = TT_RPC_ARGS(tt_rpc_tensor(b->x)), .result = &output))
        return tt_last_status();
    tt_tensor *loss = tt_cross_entropy(tt_rpc_take_tensor(&output), b->y);
    if (tt_dist_autograd_backward(t->rpc, context, &loss, 1) || tt_barrier(t->trainers) ||
        tt_dist_optimizer_step(t->sgd, context) || tt_barrier(t->trainers))
        return tt_last_status();
    return tt_item(loss, loss_value);
}

static tt_status train(const Trainer *t, tt_loader *digits, int64_t batches) {
    for (int64_t i = 0; i < batches; i++) {
        tt_batch b;
        double loss;
        int64_t context;
        if (next_batch(digits, &b) || tt_dist_autograd_begin(&context, t->rpc) || train_batch(t, context, &b, &loss) ||
            tt_dist_autograd_end(t->rpc, context))
            return tt_last_status();
        printf("%s, batch %" PRId64 ": loss %.6f\n", tt_rpc_name(t->rpc), i, loss);
    }
    return TT_OK;
}

static tt_status be_trainer(Trainer *t, const Options *o) {
    tt_loader *digits = open_batches(o->data, o->batch_size, tt_get_world_size(t->trainers), tt_get_rank(t->trainers));
    tt_status status = digits ? make_optimizer(t, o->lr) : tt_last_status();
    if (!status)
        status = train(t, digits, o->batches);
    tt_dist_optimizer_free(t->sgd);
    tt_loader_free(digits);
    return status;
}

/* ---- both ---- */

static tt_status work(Trainer *t, tt_group *world, const Options *o) {
    bool server = tt_get_rank(world) == 0;
    if (tt_group_split(&t->trainers, world, server ? -1 : 0, 0))
        return tt_last_status();
    tt_manual_seed(0);
    if (server && !(net = tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, 64), tt_nn_relu(), tt_nn_linear(64, 10))))
        return tt_last_status();
    tt_status status = become_worker(&t->rpc, world, "ps", "trainer");
    return status || server ? status : be_trainer(t, o);
}

int main(int argc, char **argv) {
    Options o = {.batches = 20, .batch_size = 32, .lr = 0.03};
    const Flag flags[] = {
        {"data", .text = &o.data},
        {"batches", .integer = &o.batches, .min = 1},
        {"batch-size", .integer = &o.batch_size, .min = 1},
        {"lr", .real = &o.lr},
    };
    Trainer t = {0};
    tt_group *world = NULL;
    if (!parse_flags(flags, sizeof flags / sizeof *flags, usage, argc, argv))
        return 2;
    tt_status status = join_ranks(&world, 2, 64);
    if (!status)
        status = work(&t, world, &o);
    int code = end_worker(t.rpc, world, status);
    tt_module_free(net);
    return code;
}
