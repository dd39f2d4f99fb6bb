/* A pipeline of calls: two workers have a half of a network each, and a third sends them micro-batches. The second half
 * fetches what it needs from the first one by a reference, and both are busy at once. Mirrors PyTorch's tutorial
 * "Distributed Pipeline Parallelism Using RPC":
 *
 *     def forward(self, xs):
 *         out_futures = []
 *         for x in iter(xs.split(self.split_size, dim=0)):
 *             x_rref = RRef(x)
 *             y_rref = self.p1_rref.remote().forward(x_rref)
 *             z_fut = self.p2_rref.rpc_async().forward(y_rref)
 *             out_futures.append(z_fut)
 *         return torch.cat(torch.futures.wait_all(out_futures))
 *
 *   tutti run --nproc-per-node=3 build/examples/rpc_pipeline
 *
 * Models whose parts are ranks of a group have tt_pipeline_new() (pipeline.c), which needs no third process. */
#include "flags.h"
#include "rpc_workers.h"

#include <pthread.h>

static const char program_name[] = "rpc_pipeline";

static const char usage[] = "usage: tutti run --nproc-per-node=3 rpc_pipeline [FLAGS]\n"
                            "\n"
                            "Rank 0 trains a network on digits, whose halves ranks 1 and 2 have.\n"
                            "\n"
                            "  --data FOLDER     digits, in MNIST's files; without: 2000 drawn ones\n"
                            "  --batches N       steps (20)\n"
                            "  --batch-size N    digits of a step (64)\n"
                            "  --splits N        micro-batches of a step, at most 64 (4)\n"
                            "  --lr X            learning rate (0.1)\n"
                            "  --help            this text\n";

enum { SHARDS = 2, SPLITS_MAX = 64, PARAMETERS_MAX = 8 };

typedef struct Options {
    const char *data;
    int64_t batches, batch_size, splits;
    double lr;
} Options;

/* ---- the functions of a worker with a half of the network ---- */

static pthread_mutex_t shard_lock = PTHREAD_MUTEX_INITIALIZER; /* a module runs in one thread at a time */

static tt_status make_shard(tt_rpc_call *call) {
    int64_t half = tt_rpc_arg_int(call, 0);
    tt_manual_seed((uint64_t)half);
    return tt_rpc_return_module(call, half == 0
                                          ? tt_nn_sequential(tt_nn_conv2d(1, 8, 3), tt_nn_relu(), tt_nn_max_pool2d(2))
                                          : tt_nn_sequential(tt_nn_conv2d(8, 16, 3), tt_nn_relu(), tt_nn_max_pool2d(2),
                                                             tt_nn_flatten(), tt_nn_linear(16 * 5 * 5, 10)));
}
TT_RPC_FUNCTION(make_shard, "(int half) -> any");

/* A tensor, or what a reference stands for: that is fetched from its owner. */
static tt_tensor *fetch_tensor(tt_rpc_call *call, int64_t index) {
    tt_rpc_value fetched;
    tt_rref *rref = tt_rpc_arg_rref(call, index);
    if (!rref)
        return tt_rpc_arg_tensor(call, index);
    return tt_rref_get(rref, &fetched, 0) ? NULL : tt_rpc_take_tensor(&fetched);
}

static tt_status run_shard(tt_rpc_call *call) {
    tt_module *shard = tt_rref_local_module(tt_rpc_arg_rref(call, 0));
    tt_tensor *x = fetch_tensor(call, 1);
    pthread_mutex_lock(&shard_lock);
    tt_tensor *y = tt_module_forward(shard, x);
    pthread_mutex_unlock(&shard_lock);
    return y ? tt_rpc_return(call, tt_rpc_tensor(y)) : tt_last_status();
}
TT_RPC_FUNCTION(run_shard, "(rref shard, any x) -> tensor");

/* ---- the worker that trains ---- */

typedef struct Trainer {
    const Options *options;
    tt_rpc *rpc;
    tt_remote_module *shard[SHARDS];
    tt_dist_optimizer *sgd;
} Trainer;

/* The calls of a step. */
typedef struct Calls {
    tt_rref *between[SPLITS_MAX];
    tt_future *out[SPLITS_MAX];
} Calls;

static tt_status make_model(Trainer *t) {
    tt_rref **rrefs[SHARDS] = {0}, *params[PARAMETERS_MAX];
    int64_t counts[SHARDS] = {0}, count = 0;
    tt_status status = TT_OK;
    for (int i = 0; i < SHARDS && !status; i++) {
        status = tt_remote_module_new(&t->shard[i], t->rpc, i == 0 ? "worker1" : "worker2", "make_shard",
                                      .args = TT_RPC_ARGS(tt_rpc_int(i)));
        if (!status)
            status = tt_remote_module_parameters(t->shard[i], &rrefs[i], &counts[i]);
        for (int64_t p = 0; p < counts[i]; p++)
            params[count++] = rrefs[i][p];
    }
    if (!status)
        status = tt_dist_optimizer_new(&t->sgd, t->rpc, params, count, "sgd",
                                       .options = TT_OPTION_LIST({"lr", t->options->lr}));
    for (int i = 0; i < SHARDS; i++)
        tt_rrefs_free(rrefs[i], counts[i]);
    return status;
}

/* Send all micro-batches on their way; then wait for them. Returns the results, one below the other. */
static tt_tensor *forward(const Trainer *t, tt_tensor *x, Calls *calls) {
    tt_rref *first = tt_remote_module_rref(t->shard[0]), *second = tt_remote_module_rref(t->shard[1]);
    tt_tensor *parts[SPLITS_MAX], *out[SPLITS_MAX];
    int64_t n = t->options->splits;
    if (tt_split(parts, n, x, t->options->batch_size / n, 0))
        return NULL;
    for (int64_t i = 0; i < n; i++)
        if (tt_rref_remote(&calls->between[i], first, "run_shard", .args = TT_RPC_ARGS(tt_rpc_tensor(parts[i]))) ||
            tt_rref_async(&calls->out[i], second, "run_shard", .args = TT_RPC_ARGS(tt_rpc_rref(calls->between[i]))))
            return NULL;
    for (int64_t i = 0; i < n; i++) {
        if (tt_future_wait(calls->out[i], 0))
            return NULL;
        out[i] = tt_rpc_value_tensor(tt_future_value(calls->out[i]));
    }
    return tt_cat(out, n, 0);
}

static tt_status train_batch(const Trainer *t, int64_t context, const tt_batch *b, double *loss_value) {
    TT_AUTO_SCOPE;
    Calls calls = {0};
    tt_tensor *loss = tt_cross_entropy(forward(t, b->x, &calls), b->y);
    tt_status status = loss ? tt_dist_autograd_backward(t->rpc, context, &loss, 1) : tt_last_status();
    if (!status)
        status = tt_dist_optimizer_step(t->sgd, context);
    if (!status)
        status = tt_item(loss, loss_value);
    for (int i = 0; i < SPLITS_MAX; i++) {
        tt_future_free(calls.out[i]);
        tt_rref_free(calls.between[i]);
    }
    return status;
}

static tt_status train(const Trainer *t, tt_loader *digits) {
    for (int64_t i = 0; i < t->options->batches; i++) {
        tt_batch b;
        double loss;
        int64_t context;
        if (next_batch(digits, &b) || tt_dist_autograd_begin(&context, t->rpc) || train_batch(t, context, &b, &loss) ||
            tt_dist_autograd_end(t->rpc, context))
            return tt_last_status();
        printf("batch %" PRId64 ": loss %.6f\n", i, loss);
    }
    return TT_OK;
}

static tt_status be_trainer(Trainer *t) {
    const Options *o = t->options;
    if (o->splits > SPLITS_MAX || o->batch_size % o->splits)
        return tt_fail(TT_ERR_INVALID,
                       "--splits: expected at most %d, which divide --batch-size %" PRId64 ", got %" PRId64, SPLITS_MAX,
                       o->batch_size, o->splits);
    tt_loader *digits = open_batches(o->data, o->batch_size, 1, 0);
    tt_status status = digits ? make_model(t) : tt_last_status();
    if (!status)
        status = train(t, digits);
    tt_dist_optimizer_free(t->sgd);
    for (int i = 0; i < SHARDS; i++)
        tt_remote_module_free(t->shard[i]);
    tt_loader_free(digits);
    return status;
}

int main(int argc, char **argv) {
    Options o = {.batches = 20, .batch_size = 64, .splits = 4, .lr = 0.1};
    const Flag flags[] = {
        {"data", .text = &o.data},
        {"batches", .integer = &o.batches, .min = 1},
        {"batch-size", .integer = &o.batch_size, .min = 1},
        {"splits", .integer = &o.splits, .min = 1},
        {"lr", .real = &o.lr},
    };
    Trainer t = {.options = &o};
    tt_group *world = NULL;
    if (!parse_flags(flags, sizeof flags / sizeof *flags, usage, argc, argv))
        return 2;
    tt_status status = join_ranks(&world, 3, 3);
    if (!status)
        status = become_worker(&t.rpc, world, "master", "worker");
    if (!status && tt_get_rank(world) == 0)
        status = be_trainer(&t);
    return end_worker(t.rpc, world, status);
}
