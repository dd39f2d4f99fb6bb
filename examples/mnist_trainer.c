/* Train a digit classifier on any number of ranks. The twin of PyTorch's
 * examples/distributed/ddp-tutorial-series/multigpu_torchrun.py, with MNIST's data:
 *
 *   tutti run --nproc-per-node=2 mnist_trainer --lr 0.1           built-in digits, drawn on the spot
 *   tutti run --nproc-per-node=2 mnist_trainer --data DIR         MNIST's four files
 *   mnist_trainer --epochs 10 --resume checkpoint.safetensors     go on, alone
 *
 * B batch, 784 = 28 x 28 pixels, 512 hidden units, 10 classes. */
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

/* The built-in data: so many digits, of which the last are held out. */
enum { DIGITS = 24000, DIGITS_HELD_OUT = 4000, DIGITS_SEED = 1 };

/* Held-out examples are classified so many at a time. */
enum { TEST_BATCH = 200 };

typedef struct Options {
    const char *data, *images, *labels;
    int64_t holdout;
    int64_t epochs, batch_size, save_every;
    double lr, momentum;
    int64_t seed;
    const char *checkpoint, *resume;
} Options;

/* The data sets of training and testing. `all` is the set that `train` and `test` are parts of, if they are. */
typedef struct Data {
    tt_dataset *all, *train, *test;
} Data;

typedef struct Trainer {
    tt_group *world;
    int rank;
    tt_module *model; /* 784-512-10 */
    tt_module *ddp;   /* the model, with gradients averaged over the ranks */
    tt_optimizer *sgd;
    tt_sampler *sampler; /* this rank's share of each epoch */
    tt_loader *loader;
    tt_dataset *test_share; /* this rank's share of the held-out examples; NULL = none */
    tt_loader *test_loader;
    int64_t epochs, save_every;
    const char *checkpoint;
    tt_progress progress;
    bool bar; /* show a progress bar */
} Trainer;

/* Sums over examples. */
typedef struct Totals {
    double loss, correct, examples;
} Totals;

/* ---- the command line ---- */

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
                            "  --batch-size N     examples per rank and step (32)\n"
                            "  --lr X             learning rate (0.001)\n"
                            "  --momentum X       of SGD (0)\n"
                            "  --save-every N     save a checkpoint every N epochs, and after the last; 0 = never (2)\n"
                            "  --checkpoint FILE  where (checkpoint.safetensors)\n"
                            "  --resume FILE      go on from a checkpoint, with its epoch and sampler seed\n"
                            "  --seed N           of initial weights and of shuffling (0)\n"
                            "  --help             this text\n";

/* May this process print errors of the command line? With several ranks only the first one does. */
static bool speaks(void) {
    const char *rank = getenv("RANK");
    return !rank || !strcmp(rank, "0");
}

static bool parse_integer(const char *flag, const char *text, int64_t min, int64_t *value) {
    char *end;
    long long number = strtoll(text, &end, 10);
    if (*text && !*end && number >= min && number <= INT32_MAX) {
        *value = number;
        return true;
    }
    if (speaks())
        fprintf(stderr, "mnist_trainer: --%s: expected a whole number from %" PRId64 " to %d, got \"%s\"\n", flag, min,
                INT32_MAX, text);
    return false;
}

static bool parse_real(const char *flag, const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    if (*text && !*end && *value >= 0 && *value < 1e30)
        return true;
    if (speaks())
        fprintf(stderr, "mnist_trainer: --%s: expected a number of at least 0, got \"%s\"\n", flag, text);
    return false;
}

static bool set_option(Options *o, const char *name, const char *value) {
    const struct {
        const char *name;
        const char **text;
    } texts[] = {
        {"data", &o->data},     {"images", &o->images}, {"labels", &o->labels}, {"checkpoint", &o->checkpoint},
        {"resume", &o->resume},
    };
    const struct {
        const char *name;
        int64_t min;
        int64_t *number;
    } integers[] = {
        {"holdout", 0, &o->holdout},       {"epochs", 1, &o->epochs}, {"batch-size", 1, &o->batch_size},
        {"save-every", 0, &o->save_every}, {"seed", 0, &o->seed},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(name, texts[i].name))
            return *texts[i].text = value, true;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (!strcmp(name, integers[i].name))
            return parse_integer(name, value, integers[i].min, integers[i].number);
    return parse_real(name, value, !strcmp(name, "lr") ? &o->lr : &o->momentum);
}

static bool complain(const char *what, const char *text) {
    if (speaks())
        fprintf(stderr, "mnist_trainer: %s%s (see --help)\n", what, text);
    return false;
}

static bool check_options(const Options *o) {
    if (!o->images != !o->labels)
        return complain("--images and --labels go together", "");
    if (o->data && o->images)
        return complain("--data and --images exclude each other", "");
    if (o->holdout && !o->images)
        return complain("--holdout needs --images and --labels", "");
    return true;
}

static bool parse_options(Options *o, int argc, char **argv) {
    static const struct option flags[] = {
        {"data", 1, 0, 0},       {"images", 1, 0, 0},
        {"labels", 1, 0, 0},     {"holdout", 1, 0, 0},
        {"epochs", 1, 0, 0},     {"batch-size", 1, 0, 0},
        {"lr", 1, 0, 0},         {"momentum", 1, 0, 0},
        {"save-every", 1, 0, 0}, {"checkpoint", 1, 0, 0},
        {"resume", 1, 0, 0},     {"seed", 1, 0, 0},
        {"help", 0, 0, 'h'},     {0},
    };
    *o = (Options){.epochs = 5, .batch_size = 32, .save_every = 2, .lr = 1e-3, .checkpoint = "checkpoint.safetensors"};
    opterr = 0;
    for (int c, i; (c = getopt_long(argc, argv, ":h", flags, &i)) != -1;) {
        if (c == 'h') {
            if (speaks())
                fputs(usage, stdout);
            exit(EXIT_SUCCESS);
        }
        if (c == ':')
            return complain("a value is missing after ", argv[optind - 1]);
        if (c == '?')
            return complain("unknown flag ", argv[optind - 1]);
        if (!set_option(o, flags[i].name, optarg))
            return false;
    }
    if (optind < argc)
        return complain("expected flags only, got ", argv[optind]);
    return check_options(o);
}

/* ---- data ---- */

/* Split d->all: the last `holdout` examples are for testing. */
static tt_status split(Data *d, int64_t holdout) {
    int64_t n = tt_dataset_size(d->all);
    if (!d->all)
        return tt_last_status();
    if (holdout >= n) {
        if (speaks())
            fprintf(stderr,
                    "mnist_trainer: --holdout %" PRId64 " leaves none of the %" PRId64 " examples to train on\n",
                    holdout, n);
        return TT_ERR_INVALID;
    }
    d->train = tt_subset(d->all, 0, n - holdout);
    if (holdout)
        d->test = tt_subset(d->all, n - holdout, n);
    return d->train && (d->test || !holdout) ? TT_OK : tt_last_status();
}

static tt_status load_data(Data *d, const Options *o) {
    if (o->data) {
        d->train = tt_mnist(o->data, true);
        d->test = d->train ? tt_mnist(o->data, false) : NULL;
        return d->test ? TT_OK : tt_last_status();
    }
    if (o->images) {
        d->all = tt_image_dataset(o->images, o->labels);
        return split(d, o->holdout);
    }
    d->all = tt_digits(DIGITS, DIGITS_SEED);
    return split(d, DIGITS_HELD_OUT);
}

/* ToTensor, then Normalize((0.1307,), (0.3081,)). */
static tt_status prepare_data(Data *d, const Options *o) {
    tt_status status = load_data(d, o);
    if (!status)
        status = tt_dataset_normalize(d->train, 0.1307, 0.3081);
    if (!status && d->test)
        status = tt_dataset_normalize(d->test, 0.1307, 0.3081);
    return status;
}

static void free_data(Data *d) {
    tt_dataset_free(d->train);
    tt_dataset_free(d->test);
    tt_dataset_free(d->all);
}

/* ---- the trainer ---- */

/* Join the job. Without a launcher this process is a world of its own. */
static tt_status join(Trainer *t) {
    bool launched = getenv("RANK") || getenv("WORLD_SIZE");
    tt_status status =
        launched ? tt_init_process_group(&t->world)
                 : tt_init_process_group(&t->world, .init_method = "tcp://localhost:0", .rank = 0, .world_size = 1);
    t->rank = tt_get_rank(t->world);
    return status;
}

/* Take this rank's part of the held-out examples. */
static tt_status share_test_set(Trainer *t, tt_dataset *test) {
    int64_t n = tt_dataset_size(test), world = tt_get_world_size(t->world);
    int64_t begin = n * t->rank / world, end = n * (t->rank + 1) / world;
    if (begin == end)
        return TT_OK;
    t->test_share = tt_subset(test, begin, end);
    if (!t->test_share || tt_dataset_normalize(t->test_share, 0.1307, 0.3081))
        return tt_last_status();
    t->test_loader = tt_loader_new(t->test_share, TEST_BATCH, tt_in_order());
    return t->test_loader ? TT_OK : tt_last_status();
}

static tt_status make_model(Trainer *t, const Options *o) {
    tt_manual_seed((uint64_t)o->seed);
    t->model = tt_nn_sequential(tt_nn_flatten(), tt_nn_linear(784, 512), tt_nn_relu(), tt_nn_linear(512, 10));
    if (!t->model)
        return tt_last_status();
    t->sgd = tt_sgd(tt_module_parameters(t->model), o->lr, .momentum = o->momentum);
    if (!t->sgd)
        return tt_last_status();
    if (t->rank == 0 && o->save_every > 0 && tt_checkpoint_can_save(o->checkpoint))
        return tt_last_status();
    t->progress = (tt_progress)TT_PROGRESS(.sampler_seed = (uint64_t)o->seed);
    if (o->resume && (tt_checkpoint_load(o->resume, t->model, t->sgd, &t->progress) ||
                      tt_optimizer_set_option(t->sgd, TT_ALL_GROUPS, "lr", o->lr))) /* the flag's, not the file's */
        return tt_last_status();
    t->ddp = tt_ddp(t->model, t->world);
    return t->ddp ? TT_OK : tt_last_status();
}

static tt_status set_up(Trainer *t, const Data *d, const Options *o) {
    t->epochs = o->epochs;
    t->save_every = o->save_every;
    t->checkpoint = o->checkpoint;
    t->bar = t->rank == 0 && isatty(STDOUT_FILENO);
    tt_status status = make_model(t, o);
    if (status)
        return status;
    t->sampler = tt_distributed_sampler(tt_dataset_size(d->train), tt_get_world_size(t->world), t->rank,
                                        .seed = t->progress.sampler_seed);
    if (!t->sampler)
        return tt_last_status();
    t->loader = tt_loader_new(d->train, o->batch_size, t->sampler);
    if (!t->loader)
        return tt_last_status();
    return d->test ? share_test_set(t, d->test) : TT_OK;
}

static void tear_down(Trainer *t) {
    tt_loader_free(t->test_loader);
    tt_dataset_free(t->test_share);
    tt_loader_free(t->loader);
    tt_sampler_free(t->sampler);
    tt_module_free(t->ddp);
    tt_optimizer_free(t->sgd);
    tt_module_free(t->model);
    tt_destroy_process_group(t->world);
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
    const int64_t *guess = tt_tensor_i64(tt_argmax(logits, 1)), *label = tt_tensor_i64(b->y);
    if (tt_item(loss, &value) || !guess || !label)
        return tt_last_status();
    for (int64_t i = 0; i < b->size; i++)
        totals->correct += guess[i] == label[i];
    totals->loss += value * (double)b->size;
    totals->examples += (double)b->size;
    return TT_OK;
}

static tt_status train_batch(Trainer *t, const tt_batch *b, Totals *totals) {
    TT_AUTO_SCOPE;
    tt_optimizer_zero_grad(t->sgd);
    tt_tensor *logits = tt_module_forward(t->ddp, b->x);
    tt_tensor *loss = tt_cross_entropy(logits, b->y);
    if (tt_backward(loss) || tt_optimizer_step(t->sgd))
        return tt_last_status();
    return add_to(totals, logits, loss, b);
}

static tt_status test_batch(Trainer *t, const tt_batch *b, Totals *totals) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *logits = tt_module_forward(t->model, b->x);
    tt_tensor *loss = tt_cross_entropy(logits, b->y);
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
    tt_status status = tt_all_reduce(t->world, sums, 3, TT_F64, TT_SUM);
    *totals = (Totals){sums[0], sums[1], sums[2]};
    return status;
}

static tt_status train_epoch(Trainer *t, Totals *totals) {
    int64_t batches = tt_loader_batches(t->loader), done = 0;
    int more;
    double drawn = 0;
    tt_batch b;
    tt_sampler_set_epoch(t->sampler, t->progress.epoch);
    while ((more = tt_loader_next(t->loader, &b)) > 0) {
        tt_status status = train_batch(t, &b, totals);
        if (status)
            return status;
        done++;
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
    if (t->rank != 0)
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

/* Save on rank 0; the others' parameters are the same. */
static tt_status save(const Trainer *t, bool last) {
    bool due = t->save_every > 0 && (last || t->progress.epoch % t->save_every == 0);
    if (!due || t->rank != 0)
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
        if (!status)
            status = test(t, &tested);
        if (status) {
            if (t->bar)
                printf("\n"); /* what is wrong gets a line of its own */
            return status;
        }
        t->progress.epoch++;
        print_epoch(t, &trained, &tested, elapsed);
        status = save(t, t->progress.epoch == t->epochs);
        if (status)
            return status;
    }
    return TT_OK;
}

static void introduce(const Trainer *t, const Data *d, const Options *o) {
    if (t->rank != 0)
        return;
    printf("%" PRId64 " examples and %" PRId64 " held out, %d rank%s, batches of %" PRId64 " a rank\n",
           tt_dataset_size(d->train), d->test ? tt_dataset_size(d->test) : 0, tt_get_world_size(t->world),
           tt_get_world_size(t->world) == 1 ? "" : "s", o->batch_size);
    if (o->resume)
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
    tt_status status = join(&trainer);
    if (!status)
        status = prepare_data(&data, &options);
    if (!status)
        status = set_up(&trainer, &data, &options);
    if (!status) {
        introduce(&trainer, &data, &options);
        status = train(&trainer);
    }
    if (status)
        tt_report();
    tear_down(&trainer);
    free_data(&data);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
