/* Train a digit classifier on any number of ranks. The twin of PyTorch's
 * examples/distributed/ddp-tutorial-series/multigpu_torchrun.py, with MNIST's data:
 *
 *   tutti run --nproc-per-node=2 mnist_trainer --lr 0.1           built-in digits, drawn on the spot
 *   tutti run --nproc-per-node=2 mnist_trainer --data DIR         MNIST's four files
 *   mnist_trainer --epochs 10 --resume checkpoint.safetensors     go on, alone
 *   tutti run --nproc-per-node=2 mnist_trainer --elastic          go on when a rank is lost, without a restart
 *   tutti run --nproc-per-node=gpu mnist_trainer --device cuda    on all GPUs
 *
 * B batch, 784 = 28 x 28 pixels, 512 hidden units, 10 classes. */
#include "mnist_program.h"

#include <time.h>
#include <unistd.h>

static const char usage[] = "usage: mnist_trainer [FLAGS]\n"
                            "       tutti run --nproc-per-node=N mnist_trainer [FLAGS]\n"
                            "\n"
                            "Train a 784-512-10 network on handwritten digits, on one rank or many.\n"
                            "\n"
                            "  --data DIR         read MNIST's four files (plain or .gz) from DIR\n"
                            "  --images FILE      read one IDX file of images and\n"
                            "  --labels FILE      one of labels (plain or .gz), of which\n"
                            "  --holdout N        the last N examples are the test set (0)\n"
                            "                     without data: built-in digits, drawn on the spot\n"
                            "  --epochs N         train until N epochs since the start of training (5)\n"
                            "  --batch-size N     examples per rank and step; with --virtual-ranks\n"
                            "                     per virtual rank (32)\n"
                            "  --virtual-ranks N  train with the bits of N ranks, on fewer, too; 0 = off (0)\n"
                            "  --lr X             learning rate (0.001)\n"
                            "  --momentum X       of SGD (0)\n"
                            "  --save-every N     save a checkpoint every N epochs, and after the last; 0 = never (2)\n"
                            "  --checkpoint FILE  where (checkpoint.safetensors)\n"
                            "  --resume FILE      go on from a checkpoint, with its epoch and sampler seed\n"
                            "  --metrics DIR      write curves for `tutti plot` and TensorBoard there\n"
                            "  --seed N           of initial weights and of shuffling (0)\n"
                            "  --workers N        threads that make batches ahead (0)\n"
                            "  --device NAME      train there: cpu, cuda (a GPU for each rank), cuda:0 (cpu)\n"
                            "  --elastic          survive the loss of ranks, and stop together (SIGTERM, SIGUSR1)\n"
                            "  --help             this text\n";

static const Program mnist_program = {"mnist_trainer",
                                      usage,
                                      "momentum",
                                      {.epochs = 5,
                                       .batch_size = 32,
                                       .save_every = 2,
                                       .lr = 1e-3,
                                       .checkpoint = "checkpoint.safetensors",
                                       .device = "cpu"},
                                      "elastic"};

typedef struct Trainer {
    tt_elastic *job;
    int stop; /* the signal for which all ranks stop */
    const tt_device *device;
    tt_module *model; /* 784-512-10 */
    tt_module *ddp;   /* the model, with gradients averaged over the ranks */
    tt_optimizer *sgd;
    tt_sampler *sampler; /* this rank's share of each epoch */
    tt_loader *loader;
    tt_sampler *test_sampler; /* this rank's share of the held-out examples; NULL = none */
    tt_loader *test_loader;
    int64_t epochs, save_every;
    const char *checkpoint;
    tt_summary_writer *metrics; /* rank 0's, if --metrics is given */
    tt_progress progress;
    bool bar; /* show a progress bar */
} Trainer;

/* Sums over examples. */
typedef struct Totals {
    double loss, correct, examples;
} Totals;

static tt_group *world_of(const Trainer *t) { return tt_elastic_group(t->job); }

static int rank_of(const Trainer *t) { return tt_get_rank(world_of(t)); }

/* ---- the trainer ---- */

static tt_status make_model(Trainer *t, const Options *o) {
    tt_manual_seed((uint64_t)o->seed);
    t->model = tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, 512), tt_nn_relu(), tt_nn_linear(512, 10));
    if (!t->model || tt_module_to_device(t->model, t->device))
        return tt_last_status();
    t->sgd = tt_sgd(tt_module_parameters(t->model), o->lr, .momentum = o->factor);
    if (!t->sgd)
        return tt_last_status();
    if (rank_of(t) == 0 && o->save_every > 0 && tt_checkpoint_can_save(o->checkpoint))
        return tt_last_status();
    t->progress = (tt_progress)TT_PROGRESS(.sampler_seed = (uint64_t)o->seed);
    if (o->resume && (tt_checkpoint_load(o->resume, t->model, t->sgd, &t->progress) ||
                      tt_optimizer_set_option(t->sgd, TT_ALL_GROUPS, "lr", o->lr))) /* the flag's, not the file's */
        return tt_last_status();
    t->ddp = tt_elastic_ddp(t->job, "model", t->model, .virtual_ranks = (int)o->virtual_ranks);
    return t->ddp ? TT_OK : tt_last_status();
}

static tt_status set_up(Trainer *t, const Data *d, const Options *o) {
    t->epochs = o->epochs;
    t->save_every = o->save_every;
    t->checkpoint = o->checkpoint;
    t->bar = rank_of(t) == 0 && isatty(STDOUT_FILENO);
    t->device = find_device(o->device);
    tt_status status = t->device ? make_model(t, o) : tt_last_status();
    if (status)
        return status;
    t->sampler = tt_distributed_sampler(tt_dataset_size(d->train), tt_get_world_size(world_of(t)), rank_of(t),
                                        .seed = t->progress.sampler_seed, .virtual_ranks = (int)o->virtual_ranks);
    if (!t->sampler)
        return tt_last_status();
    t->loader = tt_loader_new(d->train, o->batch_size, t->sampler, .workers = (int)o->workers,
                              .pin_memory = t->device != TT_CPU ? t->device : NULL);
    if (!t->loader)
        return tt_last_status();
    if (o->metrics && rank_of(t) == 0 && !(t->metrics = tt_summary_writer_new(o->metrics)))
        return tt_last_status();
    if (t->metrics && o->resume && tt_summary_writer_purge(t->metrics, t->progress.epoch + 1))
        return tt_last_status();
    if (share_test_set(world_of(t), d, o, &t->test_sampler, &t->test_loader))
        return tt_last_status();
    if (tt_elastic_add_optimizer(t->job, "optimizer", t->sgd) || tt_elastic_add_loader(t->job, "loader", t->loader) ||
        (t->test_loader && tt_elastic_add_loader(t->job, "test", t->test_loader)) ||
        tt_elastic_add(t->job, "epoch", &t->progress.epoch, sizeof t->progress.epoch))
        return tt_last_status();
    return tt_elastic_restore(t->job);
}

static void tear_down(Trainer *t) {
    tt_summary_writer_free(t->metrics);
    tt_loader_free(t->test_loader);
    tt_sampler_free(t->test_sampler);
    tt_loader_free(t->loader);
    tt_sampler_free(t->sampler);
    tt_module_free(t->ddp);
    tt_optimizer_free(t->sgd);
    tt_module_free(t->model);
    tt_elastic_free(t->job);
}

/* ---- one epoch ---- */

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* logits (B,10), loss the mean over the batch */
static tt_status add_to(Totals *totals, tt_tensor *logits, tt_tensor *loss, const tt_batch *b) {
    double value;
    const int64_t *guess = tt_tensor_i64(tt_to_device(tt_argmax(logits, 1), TT_CPU)), *label = tt_tensor_i64(b->y);
    if (tt_item(loss, &value) || !guess || !label)
        return tt_last_status();
    for (int64_t i = 0; i < b->size; i++)
        totals->correct += guess[i] == label[i];
    totals->loss += value * (double)b->size;
    totals->examples += (double)b->size;
    return TT_OK;
}

/* One of a step's batches: with virtual ranks, a rank has several. */
static tt_status train_batch(Trainer *t, const tt_batch *b, bool first, bool last, Totals *totals) {
    TT_AUTO_SCOPE;
    if (first)
        tt_optimizer_zero_grad(t->sgd);
    tt_tensor *logits = tt_module_forward(t->ddp, tt_to_device(b->x, t->device));
    tt_tensor *loss = tt_cross_entropy(logits, tt_to_device(b->y, t->device));
    if (tt_backward(loss) || (last && tt_optimizer_step(t->sgd)))
        return tt_last_status();
    return add_to(totals, logits, loss, b);
}

/* A step has been made: it is kept in case a rank is lost. */
static tt_status end_step(Trainer *t) {
    tt_status status = tt_elastic_commit(t->job);
    return status ? status : tt_elastic_should_stop(t->job, &t->stop);
}

static tt_status test_batch(Trainer *t, const tt_batch *b, Totals *totals) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *logits = tt_module_forward(t->model, tt_to_device(b->x, t->device));
    tt_tensor *loss = tt_cross_entropy(logits, tt_to_device(b->y, t->device));
    return loss ? add_to(totals, logits, loss, b) : tt_last_status();
}

static void show_bar(int64_t epoch, int64_t done, int64_t all, const Totals *totals) {
    enum { WIDTH = 40 };
    static const char marks[] = "========================================";
    int filled = (int)(done * WIDTH / all);
    printf("\rEpoch %" PRId64 " [%.*s%*s] %3d %%  loss %.4f", epoch, filled, marks, WIDTH - filled, "",
           (int)(done * 100 / all), totals->loss / totals->examples);
    fflush(stdout);
}

/* Add up the sums of all ranks. */
static tt_status add_ranks(Trainer *t, Totals *totals) {
    double sums[] = {totals->loss, totals->correct, totals->examples};
    tt_status status = tt_all_reduce(world_of(t), sums, 3, TT_F64, TT_SUM);
    *totals = (Totals){sums[0], sums[1], sums[2]};
    return status;
}

static tt_status train_epoch(Trainer *t, Totals *totals) {
    int64_t batches = tt_loader_batches(t->loader), done = 0, parts = tt_ddp_shards(t->ddp, NULL);
    int more = 0;
    double drawn = 0;
    tt_batch b;
    tt_sampler_set_epoch(t->sampler, t->progress.epoch);
    while (!t->stop && (more = tt_loader_next(t->loader, &b)) > 0) {
        bool first = done % parts == 0, last = ++done % parts == 0;
        if (train_batch(t, &b, first, last, totals) || (last && end_step(t)))
            return tt_last_status();
        tt_publish_progress(done, totals->loss / totals->examples, .steps = batches, .epoch = t->progress.epoch + 1,
                            .epochs = t->epochs, .samples = b.size);
        if (t->bar && seconds() - drawn > 0.1) {
            show_bar(t->progress.epoch + 1, done, batches, totals);
            drawn = seconds();
        }
    }
    return more < 0 ? tt_last_status() : add_ranks(t, totals);
}

static tt_status test(Trainer *t, Totals *totals) {
    tt_batch b;
    int more = 0;
    while (t->test_loader && (more = tt_loader_next(t->test_loader, &b)) > 0) {
        tt_status status = test_batch(t, &b, totals);
        if (status)
            return status;
    }
    return more < 0 ? tt_last_status() : add_ranks(t, totals);
}

static void print_epoch(const Trainer *t, const Totals *train, const Totals *tested, double elapsed) {
    if (rank_of(t) != 0)
        return;
    if (t->bar)
        printf("\r\033[K");
    printf("Epoch %" PRId64 ", loss %.4f, accuracy %.2f %%", t->progress.epoch, train->loss / train->examples,
           100 * train->correct / train->examples);
    if (tested->examples > 0)
        printf(", held-out loss %.4f, held-out accuracy %.2f %%", tested->loss / tested->examples,
               100 * tested->correct / tested->examples);
    printf(", %.0f samples/s\n", train->examples / elapsed);
    fflush(stdout);
}

static tt_status log_epoch(const Trainer *t, const Totals *train, const Totals *tested) {
    const struct {
        const char *tag;
        const Totals *of;
        double sum;
    } means[] = {{"train/loss", train, train->loss},
                 {"train/accuracy", train, train->correct},
                 {"eval/loss", tested, tested->loss},
                 {"eval/accuracy", tested, tested->correct}};
    for (size_t i = 0; i < sizeof means / sizeof *means && t->metrics; i++)
        if (means[i].of->examples > 0 &&
            tt_summary_writer_add_scalar(t->metrics, means[i].tag, means[i].sum / means[i].of->examples,
                                         t->progress.epoch))
            return tt_last_status();
    return TT_OK;
}

/* Save on rank 0; the others' parameters are the same. */
static tt_status save(const Trainer *t, bool last) {
    bool due = t->save_every > 0 && (last || t->progress.epoch % t->save_every == 0);
    if (!due || rank_of(t) != 0)
        return TT_OK;
    tt_status status = tt_checkpoint_save(t->checkpoint, t->ddp, t->sgd, &t->progress);
    if (!status)
        printf("Epoch %" PRId64 ", checkpoint saved at %s\n", t->progress.epoch, t->checkpoint);
    fflush(stdout);
    return status;
}

static tt_status train(Trainer *t) {
    while (t->progress.epoch < t->epochs) {
        Totals trained = {0}, tested = {0};
        double start = seconds();
        tt_status status = train_epoch(t, &trained);
        double elapsed = seconds() - start;
        if (!status && t->stop)
            return save(t, true);
        if (!status)
            status = test(t, &tested);
        if (status && !tt_elastic_restore(t->job))
            continue;
        if (status) {
            if (t->bar)
                printf("\n"); /* what is wrong gets a line of its own */
            return status;
        }
        t->progress.epoch++;
        print_epoch(t, &trained, &tested, elapsed);
        status = log_epoch(t, &trained, &tested);
        if (!status)
            status = save(t, t->progress.epoch == t->epochs);
        if (status)
            return status;
    }
    return TT_OK;
}

static void tell_resumed(const Trainer *t, const Options *o) {
    if (rank_of(t) != 0 || !o->resume)
        return;
    printf("Resumed after epoch %" PRId64 " from %s%s\n", t->progress.epoch, o->resume,
           t->progress.epoch < o->epochs ? "" : ": nothing left to train");
    fflush(stdout);
}

int main(int argc, char **argv) {
    Options options;
    Data data = {0};
    Trainer trainer = {0};
    if (!parse_options(&options, argc, argv))
        return 2;
    tt_status status =
        tt_elastic_new(&trainer.job, .or_alone = true, .stop_on_signals = true, .disabled = !options.elastic);
    if (!status)
        status = prepare_data(&data, &options);
    if (!status)
        status = set_up(&trainer, &data, &options);
    if (!status) {
        introduce(world_of(&trainer), &data, &options);
        tell_resumed(&trainer, &options);
        status = train(&trainer);
    }
    if (!status)
        status = flush_output();
    if (status)
        tt_report();
    tear_down(&trainer);
    free_data(&data);
    return status ? EXIT_FAILURE : trainer.stop ? 128 + trainer.stop : EXIT_SUCCESS;
}
