/* A parameter server that takes the gradients of all trainers at once: its function replies when the last of them has
 * come, and no thread waits meanwhile. Mirrors PyTorch's tutorial "Implementing Batch RPC Processing Using Asynchronous
 * Executions":
 *
 *     @staticmethod
 *     @rpc.functions.async_execution
 *     def update_and_fetch_model(ps_rref, grads):
 *         self = ps_rref.local_value()
 *         for p, g in zip(self.model.parameters(), grads):
 *             p.grad += g
 *         with self.lock:
 *             self.curr_update_size += 1
 *             fut = self.future_model
 *             if self.curr_update_size >= self.batch_update_size:
 *                 ...
 *                 self.optimizer.step()
 *                 fut.set_result(self.model)
 *                 self.future_model = torch.futures.Future()
 *         return fut
 *
 *   tutti run --nproc-per-node=3 build/examples/rpc_batch_server
 *
 * The server starts the trainers, too: it calls their function train() with a reference to itself. */
#include "flags.h"
#include "rpc_workers.h"

#include <pthread.h>

static const char program_name[] = "rpc_batch_server";

static const char usage[] =
    "usage: tutti run --nproc-per-node=N rpc_batch_server [FLAGS]\n"
    "\n"
    "Rank 0 has a model, and updates it when the gradients of all trainers, ranks 1 to N-1, have come. N: 2 to 64.\n"
    "\n"
    "  --data FOLDER     digits, in MNIST's files; without: 2000 drawn ones\n"
    "  --batches N       batches of each trainer (20)\n"
    "  --batch-size N    digits of a batch (32)\n"
    "  --lr X            learning rate (0.05)\n"
    "  --help            this text\n";

enum { PARAMETERS = 4, TRAINERS_MAX = 63 };

typedef struct Options {
    const char *data;
    int64_t batches, batch_size;
    double lr;
} Options;

static tt_module *make_net(void) {
    tt_manual_seed(0);
    return tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, 64), tt_nn_relu(), tt_nn_linear(64, 10));
}

/* ---- the server ---- */

typedef struct Server {
    pthread_mutex_t lock; /* of what follows */
    tt_module *net;
    tt_optimizer *sgd;
    int trainers, came;
    tt_future *updated; /* the next update: done when all trainers have come */
} Server;

static Server server = {.lock = PTHREAD_MUTEX_INITIALIZER};

static tt_rpc_value parameters_of(tt_module *module, tt_rpc_value values[PARAMETERS]) {
    for (int64_t p = 0; p < PARAMETERS; p++)
        values[p] = tt_rpc_tensor(tt_module_parameters(module)->tensors[p]);
    return tt_rpc_list(values, PARAMETERS);
}

/* Add a trainer's share to the gradients: a leaf's own backward pass does that. */
static tt_status add_gradients(const Server *s, const tt_rpc_value *gradients) {
    if (gradients->list.count != PARAMETERS)
        return tt_fail(TT_ERR_INVALID, "expected %d gradients, got %" PRId64, PARAMETERS, gradients->list.count);
    for (int64_t p = 0; p < PARAMETERS; p++) {
        tt_tensor *share = tt_scale(tt_rpc_value_tensor(&gradients->list.items[p]), 1.0 / s->trainers);
        if (!share || tt_backward(tt_module_parameters(s->net)->tensors[p], .gradient = share))
            return tt_last_status();
    }
    return TT_OK;
}

/* Step, and reply to all that wait. They have what they got before the next step changes it, as that waits for them. */
static tt_status step(Server *s) {
    tt_rpc_value values[PARAMETERS];
    tt_future *next = tt_future_new();
    if (!next || tt_optimizer_step(s->sgd) || tt_future_set_value(s->updated, parameters_of(s->net, values)))
        return tt_last_status();
    tt_optimizer_zero_grad(s->sgd);
    tt_future_free(s->updated);
    s->updated = next;
    s->came = 0;
    return TT_OK;
}

static tt_status add_and_step(Server *s, const tt_rpc_value *gradients, tt_future **updated) {
    pthread_mutex_lock(&s->lock);
    *updated = tt_future_share(s->updated);
    tt_status status = add_gradients(s, gradients);
    if (!status && ++s->came == s->trainers)
        status = step(s);
    pthread_mutex_unlock(&s->lock);
    return status;
}

static Server *server_of(const tt_rpc_call *call) {
    const tt_rpc_value *value = tt_rref_local(tt_rpc_arg_rref(call, 0));
    return value ? value->object.at : NULL;
}

static tt_status update(tt_rpc_call *call) {
    Server *s = server_of(call);
    tt_future *updated = NULL;
    tt_status status = s ? add_and_step(s, tt_rpc_arg(call, 1), &updated) : tt_last_status();
    if (!status)
        status = tt_rpc_return_future(call, updated);
    tt_future_free(updated);
    return status;
}
TT_RPC_FUNCTION(update, "(rref server, list gradients) -> list");

/* train() of a trainer has ended: if it failed, those that wait for its gradients fail, too. */
static void trainer_ended(tt_future *trained, void *user) {
    Server *s = user;
    if (tt_future_value(trained)) /* else its error is this thread's last one */
        return;
    pthread_mutex_lock(&s->lock);
    tt_ignore(tt_future_set_error(s->updated));
    pthread_mutex_unlock(&s->lock);
}

/* Call train() of all trainers, and wait for all. */
static tt_status start_trainers(tt_rpc *rpc, Server *s) {
    tt_future *trained[TRAINERS_MAX] = {0};
    tt_rref *self = tt_rref_new(rpc, tt_rpc_object(s, NULL, "server"));
    tt_status status = self ? TT_OK : tt_last_status();
    for (int i = 0; i < s->trainers && !status; i++) {
        status = tt_rpc_async(&trained[i], rpc, NULL, "train", .to_id = i + 1, .args = TT_RPC_ARGS(tt_rpc_rref(self)));
        if (!status)
            status = tt_future_add_callback(trained[i], trainer_ended, s);
    }
    status = wait_for_calls(trained, s->trainers, status);
    tt_rref_free(self);
    return status;
}

static tt_status be_server(tt_rpc **rpc, tt_group *world, const Options *o) {
    Server *s = &server;
    s->trainers = tt_get_world_size(world) - 1;
    s->net = make_net();
    s->sgd = tt_sgd(tt_module_parameters(s->net), o->lr, .momentum = 0.9);
    s->updated = tt_future_new();
    tt_status status = s->sgd && s->updated ? become_worker(rpc, world, "ps", "trainer") : tt_last_status();
    return status ? status : start_trainers(*rpc, s);
}

static void free_server(Server *s) {
    tt_future_free(s->updated);
    tt_optimizer_free(s->sgd);
    tt_module_free(s->net);
}

/* ---- a trainer ---- */

/* Made before the server calls train(). */
static struct {
    tt_module *net;
    tt_loader *digits;
    int64_t batches;
} trainer;

static tt_status load(const tt_rpc_value *list) {
    for (int64_t p = 0; p < PARAMETERS; p++)
        if (tt_copy(tt_module_parameters(trainer.net)->tensors[p], tt_rpc_value_tensor(&list->list.items[p])))
            return tt_last_status();
    return TT_OK;
}

/* Give the server the gradients of a batch, and take the model that comes of all trainers'. */
static tt_status train_batch(tt_rref *server, const tt_batch *b, double *loss_value) {
    TT_AUTO_SCOPE;
    const tt_named_tensors *all = tt_module_parameters(trainer.net);
    tt_rpc_value gradients[PARAMETERS], updated;
    tt_tensor *loss = tt_cross_entropy(tt_module_forward(trainer.net, b->x), b->y);
    for (int64_t p = 0; p < PARAMETERS; p++)
        tt_zero_grad(all->tensors[p]);
    if (tt_backward(loss) || tt_item(loss, loss_value))
        return tt_last_status();
    for (int64_t p = 0; p < PARAMETERS; p++)
        gradients[p] = tt_rpc_tensor(tt_grad(all->tensors[p]));
    if (tt_rref_sync(server, "update", .args = TT_RPC_ARGS(tt_rpc_list(gradients, PARAMETERS)), .result = &updated))
        return tt_last_status();
    tt_status status = load(&updated);
    tt_rpc_value_free(&updated);
    return status;
}

static tt_status train(tt_rpc_call *call) {
    for (int64_t i = 0; i < trainer.batches; i++) {
        tt_batch b;
        double loss;
        if (next_batch(trainer.digits, &b) || train_batch(tt_rpc_arg_rref(call, 0), &b, &loss))
            return tt_last_status();
        printf("%s, batch %" PRId64 ": loss %.6f\n", tt_rpc_name(tt_rpc_of_call(call)), i, loss);
    }
    return TT_OK;
}
TT_RPC_FUNCTION(train, "(rref server)");

static tt_status be_trainer(tt_rpc **rpc, tt_group *world, const Options *o) {
    trainer.net = make_net(); /* the server's, from the same seed */
    trainer.digits = open_batches(o->data, o->batch_size, tt_get_world_size(world) - 1, tt_get_rank(world) - 1);
    trainer.batches = o->batches;
    return trainer.net && trainer.digits ? become_worker(rpc, world, "ps", "trainer") : tt_last_status();
}

int main(int argc, char **argv) {
    Options o = {.batches = 20, .batch_size = 32, .lr = 0.05};
    const Flag flags[] = {
        {"data", .text = &o.data},
        {"batches", .integer = &o.batches, .min = 1},
        {"batch-size", .integer = &o.batch_size, .min = 1},
        {"lr", .real = &o.lr},
    };
    tt_rpc *rpc = NULL;
    tt_group *world = NULL;
    if (!parse_flags(flags, sizeof flags / sizeof *flags, usage, argc, argv))
        return 2;
    tt_status status = join_ranks(&world, 2, TRAINERS_MAX + 1);
    if (!status)
        status = tt_get_rank(world) ? be_trainer(&rpc, world, &o) : be_server(&rpc, world, &o);
    int code = end_worker(rpc, world, status);
    free_server(&server);
    tt_loader_free(trainer.digits);
    tt_module_free(trainer.net);
    return code;
}
