/* Train a convolutional net on handwritten digits, on any number of ranks. The twin of PyTorch's
 * examples/mnist/main.py, the basic MNIST example, with checkpoints and ranks besides; docs/examples/mnist_convnet.md
 * has the two side by side.
 *
 *   mnist_convnet                                                 built-in digits, drawn on the spot
 *   mnist_convnet --data DIR                                      MNIST's four files
 *   tutti run --nproc-per-node=2 mnist_convnet --data DIR --metrics runs/first
 *   tutti plot runs/first                                         its curves
 *
 * Shapes: B batch, then channels and pixels. */
#include "mnist_program.h"
#include "training.h"

static const char usage[] =
    "usage: mnist_convnet [FLAGS]\n"
    "       tutti run --nproc-per-node=N mnist_convnet [FLAGS]\n"
    "\n"
    "Train PyTorch's basic MNIST net (two convolutions, dropout; Adadelta, StepLR) on one rank\n"
    "or many.\n"
    "\n"
    "  --data DIR         read MNIST's four files (plain or .gz) from DIR\n"
    "  --images FILE      read one IDX file of images and\n"
    "  --labels FILE      one of labels (plain or .gz), of which\n"
    "  --holdout N        the last N examples are the test set (0)\n"
    "                     without data: built-in digits, drawn on the spot\n"
    "  --epochs N         train until N epochs since the start of training (14)\n"
    "  --batch-size N     examples per rank and step; with --virtual-ranks per virtual rank (64)\n"
    "  --virtual-ranks N  train with the bits of N ranks, on fewer, too; 0 = off (0)\n"
    "  --lr X             learning rate of Adadelta (1)\n"
    "  --gamma X          what the rate is multiplied with after each epoch (0.7)\n"
    "  --save-every N     save a checkpoint every N epochs, and after the last; 0 = never (2)\n"
    "  --checkpoint FILE  where (mnist_convnet.safetensors)\n"
    "  --resume FILE      go on from a checkpoint, with its rates and sampler seed\n"
    "  --metrics DIR      write curves for `tutti plot` and TensorBoard there\n"
    "  --seed N           of initial weights, shuffling and dropout (0)\n"
    "  --workers N        threads that make batches ahead (0)\n"
    "  --device NAME      train there: cpu, cuda (a GPU for each rank), cuda:0 (cpu)\n"
    "  --help             this text\n";

static const Program mnist_program = {"mnist_convnet",
                                      usage,
                                      "gamma",
                                      {.epochs = 14,
                                       .batch_size = 64,
                                       .save_every = 2,
                                       .lr = 1,
                                       .factor = 0.7,
                                       .checkpoint = "mnist_convnet.safetensors",
                                       .device = "cpu"},
                                      NULL};

typedef struct Run {
    tt_group *world;
    const tt_device *device;
    tt_module *net;
    tt_optimizer *adadelta;
    tt_lr_scheduler *step_lr;
    uint64_t seed;       /* of shuffling and dropout */
    tt_sampler *sampler; /* this rank's share of each epoch */
    tt_loader *loader;
    tt_sampler *test_sampler; /* this rank's share of the held-out examples; NULL = none */
    tt_loader *test_loader;
    tt_summary_writer *metrics; /* rank 0's, if --metrics is given */
} Run;

/* ---- the net ---- */

/* Shapes: x (B,1,28,28), conv1 (B,32,26,26), conv2 (B,64,24,24), pool (B,64,12,12), flatten (B,9216), fc1 (B,128), fc2
 * (B,10). Parameters have the names that they have in Python. */
static tt_module *new_net(void) {
    return tt_nn_sequential_named(
        {"conv1", tt_nn_conv2d(1, 32, 3)}, {"relu1", tt_nn_relu()}, {"conv2", tt_nn_conv2d(32, 64, 3)},
        {"relu2", tt_nn_relu()}, {"pool", tt_nn_max_pool2d(2)}, {"dropout1", tt_nn_dropout(0.25)},
        {"flatten", tt_nn_flatten()}, {"fc1", tt_nn_linear(9216, 128)}, {"relu3", tt_nn_relu()},
        {"dropout2", tt_nn_dropout(0.5)}, {"fc2", tt_nn_linear(128, 10)}, {"log_softmax", tt_nn_log_softmax(1)});
}

/* Of training and of testing. */
static tt_tensor *step(tt_trainer *t, const tt_batch *b, void *user) {
    const Run *r = user;
    tt_tensor *y = tt_module_forward(tt_trainer_model(t), tt_to_device(b->x, r->device));
    return y && !count_correct(t, y, b) ? tt_nll_loss(y, tt_to_device(b->y, r->device)) : NULL;
}

/* ---- the run ---- */

static tt_status set_up(Run *r, const Data *d, const Options *o) {
    tt_manual_seed((uint64_t)o->seed);
    r->net = new_net();
    r->device = find_device(o->device);
    if (!r->net || !r->device || tt_module_to_device(r->net, r->device))
        return tt_last_status();
    r->adadelta = tt_adadelta(tt_module_parameters(r->net), o->lr);
    r->step_lr = tt_step_lr(r->adadelta, 1, .gamma = o->factor);
    if (!r->step_lr || shuffling_seed(&r->seed, o->seed, o->resume))
        return tt_last_status();
    r->sampler = tt_distributed_sampler(tt_dataset_size(d->train), tt_get_world_size(r->world), tt_get_rank(r->world),
                                        .seed = r->seed, .virtual_ranks = (int)o->virtual_ranks);
    r->loader = tt_loader_new(d->train, o->batch_size, r->sampler, .workers = (int)o->workers);
    if (!r->loader)
        return tt_last_status();
    if (o->metrics && tt_get_rank(r->world) == 0 && !(r->metrics = tt_summary_writer_new(o->metrics)))
        return tt_last_status();
    return share_test_set(r->world, d, o, &r->test_sampler, &r->test_loader);
}

static tt_status train(Run *r, const Options *o) {
    return tt_trainer_run(r->net, r->adadelta, r->loader, step, .user = r, .group = r->world, .sampler = r->sampler,
                          .virtual_ranks = (int)o->virtual_ranks, .epochs = o->epochs, .scheduler = r->step_lr,
                          .eval_loader = r->test_loader, .step_seed = r->seed + 1,
                          .checkpoint = o->save_every ? o->checkpoint : NULL, .save_every = o->save_every,
                          .resume = o->resume, .stop_on_signals = true, .metrics = r->metrics,
                          .display = tt_trainer_console, .display_user = stdout);
}

static void tear_down(Run *r) {
    tt_summary_writer_free(r->metrics);
    tt_loader_free(r->test_loader);
    tt_sampler_free(r->test_sampler);
    tt_loader_free(r->loader);
    tt_sampler_free(r->sampler);
    tt_lr_scheduler_free(r->step_lr);
    tt_optimizer_free(r->adadelta);
    tt_module_free(r->net);
    tt_destroy_process_group(r->world);
}

int main(int argc, char **argv) {
    Options options;
    Data data = {0};
    Run run = {0};
    if (!parse_options(&options, argc, argv))
        return 2;
    tt_status status = join_job(&run.world);
    if (!status)
        status = prepare_data(&data, &options);
    if (!status)
        status = set_up(&run, &data, &options);
    if (!status) {
        introduce(run.world, &data, &options);
        status = train(&run, &options);
    }
    if (!status)
        status = flush_output();
    if (status)
        tt_report();
    tear_down(&run);
    free_data(&data);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
