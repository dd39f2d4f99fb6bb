/* Train a ResNet-18 on CIFAR-10, on any number of ranks. The twin of kuangliu's pytorch-cifar, main.py with its
 * ResNet18; docs/examples/resnet_cifar.md has the two side by side.
 *
 *   resnet_cifar --train-size 2000 --epochs 2                     images drawn on the spot, to try the program
 *   tutti data cifar10 DIR && resnet_cifar --data DIR             CIFAR-10
 *   tutti run --nproc-per-node=4 resnet_cifar --data DIR --workers 2 --metrics runs/first
 *   resnet_cifar --data DIR --resume resnet_cifar.safetensors       go on, also in the middle of an epoch
 *
 * Shapes: B batch, then channels and pixels: (B,3,32,32); 10 classes. */
#include "flags.h"
#include "job.h"
#include "training.h"

#include <math.h>

static const char program_name[] = "resnet_cifar";

static const char usage[] = "usage: resnet_cifar [FLAGS]\n"
                            "       tutti run --nproc-per-node=N resnet_cifar [FLAGS]\n"
                            "\n"
                            "Train a ResNet-18 for images of 32 x 32 (SGD with momentum 0.9 and weight decay 5e-4),\n"
                            "on images that are cropped and mirrored at random, on one rank or many.\n"
                            "\n"
                            "  --data DIR            read CIFAR-10's binary files, as `tutti data cifar10 DIR`\n"
                            "                        fetches them; without: images drawn on the spot\n"
                            "  --train-size N        train on the first N images; 0 = all of them (0)\n"
                            "  --test-size N         likewise for testing (0)\n"
                            "  --epochs N            train until N epochs since the start of training (200)\n"
                            "  --max-steps N         and at most until N steps; 0 = no limit (0)\n"
                            "  --batch-size N        images per rank and step; with --virtual-ranks\n"
                            "                        per virtual rank (128)\n"
                            "  --virtual-ranks N     train with the bits of N ranks, on fewer, too; 0 = off (0)\n"
                            "  --workers N           threads that prepare batches ahead, per rank (2)\n"
                            "  --lr X                the highest learning rate (0.1)\n"
                            "  --schedule NAME       cosine, which steps each epoch, or onecycle, each step (cosine)\n"
                            "  --save-every N        save a checkpoint every N epochs, and at the end; 0 = never (1)\n"
                            "  --save-every-steps N  and every N steps; 0 = not (0)\n"
                            "  --checkpoint FILE     where (resnet_cifar.safetensors)\n"
                            "  --resume FILE         go on from a checkpoint, with its seed; other flags as before\n"
                            "  --metrics DIR         write curves for `tutti plot` and TensorBoard there\n"
                            "  --device NAME         train there: cpu, cuda (a GPU for each rank), cuda:0 (cpu)\n"
                            "  --seed N              of weights, order, crops (0)\n"
                            "  --help                this text\n";

/* The drawn images: so many, and the test set's begin behind the training set's. */
enum { DRAWN_TRAIN = 50000, DRAWN_TEST = 10000 };

/* Test images are classified so many at a time. */
enum { TEST_BATCH = 100 };

typedef struct Options {
    const char *data, *schedule, *checkpoint, *resume, *metrics, *device;
    int64_t train_size, test_size, epochs, max_steps, batch_size, virtual_ranks, workers, save_every, save_every_steps,
        seed;
    double lr;
} Options;

/* The images as they are, those that are used, and these transformed. */
typedef struct Split {
    tt_dataset *images, *used, *transformed;
} Split;

typedef struct Run {
    tt_group *world;
    uint64_t seed; /* of order and crops: that of the checkpoint, if one is resumed */
    Split train, test;
    tt_sampler *sampler, *test_sampler;
    tt_loader *loader, *test_loader; /* the latter is NULL on a rank without test images */
    const tt_device *device;
    tt_module *net;
    tt_optimizer *sgd;
    tt_lr_scheduler *schedule;
    tt_summary_writer *metrics; /* rank 0's, if --metrics is given */
} Run;

/* ---- the command line ---- */

static bool parse_options(Options *o, int argc, char **argv) {
    *o = (Options){.schedule = "cosine",
                   .checkpoint = "resnet_cifar.safetensors",
                   .device = "cpu",
                   .epochs = 200,
                   .batch_size = 128,
                   .workers = 2,
                   .save_every = 1,
                   .lr = 0.1};
    const Flag flags[] = {
        {"data", .text = &o->data},
        {"train-size", .integer = &o->train_size},
        {"test-size", .integer = &o->test_size},
        {"epochs", .integer = &o->epochs, .min = 1},
        {"max-steps", .integer = &o->max_steps},
        {"batch-size", .integer = &o->batch_size, .min = 1},
        {"virtual-ranks", .integer = &o->virtual_ranks},
        {"workers", .integer = &o->workers},
        {"lr", .real = &o->lr},
        {"schedule", .text = &o->schedule},
        {"save-every", .integer = &o->save_every},
        {"save-every-steps", .integer = &o->save_every_steps},
        {"checkpoint", .text = &o->checkpoint},
        {"resume", .text = &o->resume},
        {"metrics", .text = &o->metrics},
        {"device", .text = &o->device},
        {"seed", .integer = &o->seed},
    };
    if (!parse_flags(flags, sizeof flags / sizeof *flags, usage, argc, argv))
        return false;
    if (strcmp(o->schedule, "cosine") && strcmp(o->schedule, "onecycle"))
        return complain("--schedule: expected cosine or onecycle, got ", o->schedule);
    return true;
}

/* ---- images ---- */

/* Scramble the bits of x (splitmix64). */
static uint64_t scramble(uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* Draw an image of CIFAR's shape, with noise: its class, the index modulo 10, is the number of horizontal stripes (five
 * numbers) and their color (two), which neither crops nor mirroring change. x (3,32,32) u8, y i64. `user` points to the
 * first image's number. */
static tt_status draw(void *user, int64_t index, void *x, void *y) {
    uint8_t *pixel = x;
    uint64_t state = scramble((uint64_t)(*(const int64_t *)user + index) + 1);
    int64_t label = index % 10;
    double phase = (double)(state % 1000) / 1000, stripes = (double)(label % 5) + 1.5;
    for (int channel = 0; channel < 3; channel++)
        for (int i = 0; i < 32 * 32; i++) {
            int row = i / 32;
            double wave = sin(6.283185307179586 * (phase + stripes * row / 32));
            double strength = (channel == 0) == (label < 5) ? 40 : 10;
            state += 0x9e3779b97f4a7c15u;
            *pixel++ = (uint8_t)(88 + strength * wave + (double)(scramble(state) % 80));
        }
    *(int64_t *)y = label;
    return TT_OK;
}

static tt_dataset *drawn_images(bool train) {
    static int64_t first_train = 0, first_test = DRAWN_TRAIN;
    return tt_dataset_from(train ? DRAWN_TRAIN : DRAWN_TEST, draw, tt_spec(TT_U8, TT_SHAPE(3, 32, 32)),
                           .y = tt_spec(TT_I64, TT_SCALAR), .user = train ? &first_train : &first_test,
                           .name = "drawn images");
}

/* ToTensor, then Normalize with the means and deviations of CIFAR-10's channels. */
static tt_transform *normalize(void) {
    static const double mean[] = {0.4914, 0.4822, 0.4465}, std[] = {0.2023, 0.1994, 0.2010};
    return tt_compose(tt_to_tensor(), tt_normalize_channels(mean, std, 3));
}

static tt_transform *augment(void) {
    return tt_compose(tt_random_crop(32, 32, .padding = 4), tt_random_horizontal_flip(0.5), normalize());
}

/* Read the images of training or testing, of which the first `limit` are used (0: all). */
static tt_status open_split(Split *s, const Options *o, bool train, int64_t limit, uint64_t seed) {
    s->images = o->data ? tt_cifar10(o->data, train) : drawn_images(train);
    int64_t size = tt_dataset_size(s->images);
    s->used = tt_subset(s->images, 0, limit > 0 && limit < size ? limit : size);
    s->transformed = s->used ? tt_dataset_transform(s->used, train ? augment() : normalize(), .seed = seed) : NULL;
    return s->transformed ? TT_OK : tt_last_status();
}

static void close_split(Split *s) {
    tt_dataset_free(s->transformed);
    tt_dataset_free(s->used);
    tt_dataset_free(s->images);
}

/* Loaders of this rank's shares. Each test image has exactly one rank. */
static tt_status open_loaders(Run *r, const Options *o) {
    int world = tt_get_world_size(r->world), rank = tt_get_rank(r->world);
    int64_t tests = tt_dataset_size(r->test.transformed);
    r->sampler = tt_distributed_sampler(tt_dataset_size(r->train.transformed), world, rank, .seed = r->seed,
                                        .virtual_ranks = (int)o->virtual_ranks);
    r->loader = tt_loader_new(r->train.transformed, o->batch_size, r->sampler, .workers = (int)o->workers);
    if (!r->loader)
        return tt_last_status();
    r->test_sampler = tt_distributed_sampler(tests, world, rank, .exact = true, .no_shuffle = true,
                                             .virtual_ranks = (int)o->virtual_ranks);
    r->test_loader = tt_loader_new(r->test.transformed, TEST_BATCH, r->test_sampler, .workers = (int)o->workers);
    return r->test_loader ? TT_OK : tt_last_status();
}

/* ---- the step ---- */

/* Of training and of testing. Convolutions are faster on images whose channels lie last in memory. */
static tt_tensor *step(tt_trainer *t, const tt_batch *b, void *user) {
    const Run *r = user;
    tt_tensor *x = tt_to_memory_format(tt_to_device(b->x, r->device), TT_CHANNELS_LAST);
    tt_tensor *y = tt_module_forward(tt_trainer_model(t), x);
    return y && !count_correct(t, y, b) ? tt_cross_entropy(y, tt_to_device(b->y, r->device)) : NULL;
}

/* ---- the run ---- */

static tt_lr_scheduler *new_schedule(const Run *r, const Options *o) {
    if (!strcmp(o->schedule, "cosine"))
        return tt_cosine_annealing_lr(r->sgd, o->epochs);
    return tt_one_cycle_lr(r->sgd, o->lr, o->epochs * tt_loader_batches(r->loader));
}

static tt_status set_up(Run *r, const Options *o) {
    if (shuffling_seed(&r->seed, o->seed, o->resume) || open_split(&r->train, o, true, o->train_size, r->seed) ||
        open_split(&r->test, o, false, o->test_size, r->seed) || open_loaders(r, o))
        return tt_last_status();
    tt_manual_seed((uint64_t)o->seed);
    r->device = find_device(o->device);
    r->net = tt_model_resnet18(10, .small_input = true);
    if (!r->device || !r->net || tt_module_to_device(r->net, r->device))
        return tt_last_status();
    r->sgd = tt_sgd(tt_module_parameters(r->net), o->lr, .momentum = 0.9, .weight_decay = 5e-4);
    r->schedule = new_schedule(r, o);
    if (!r->schedule)
        return tt_last_status();
    if (o->metrics && tt_get_rank(r->world) == 0 && !(r->metrics = tt_summary_writer_new(o->metrics)))
        return tt_last_status();
    return TT_OK;
}

static void introduce(const Run *r, const Options *o) {
    int world = tt_get_world_size(r->world);
    if (tt_get_rank(r->world) != 0)
        return;
    printf("%" PRId64 " images and %" PRId64 " held out%s, %d rank%s, batches of %" PRId64 " a rank, %" PRId64
           " worker%s\n",
           tt_dataset_size(r->train.used), tt_dataset_size(r->test.used), o->data ? "" : ", drawn on the spot", world,
           world == 1 ? "" : "s", o->batch_size, o->workers, o->workers == 1 ? "" : "s");
    fflush(stdout);
}

static tt_status train(Run *r, const Options *o) {
    bool each_epoch = !strcmp(o->schedule, "cosine");
    return tt_trainer_run(
        r->net, r->sgd, r->loader, step, .user = r, .group = r->world, .sampler = r->sampler,
        .virtual_ranks = (int)o->virtual_ranks, .epochs = o->epochs, .max_steps = o->max_steps,
        .scheduler = r->schedule, .scheduler_when = each_epoch ? TT_TRAINER_EACH_EPOCH : TT_TRAINER_EACH_STEP,
        .eval_loader = r->test_loader, .checkpoint = o->save_every || o->save_every_steps ? o->checkpoint : NULL,
        .save_every = o->save_every, .save_every_steps = o->save_every_steps, .resume = o->resume,
        .stop_on_signals = true, .metrics = r->metrics, .display = tt_trainer_console, .display_user = stdout);
}

static void tear_down(Run *r) {
    tt_summary_writer_free(r->metrics);
    tt_lr_scheduler_free(r->schedule);
    tt_optimizer_free(r->sgd);
    tt_module_free(r->net);
    tt_loader_free(r->test_loader);
    tt_loader_free(r->loader);
    tt_sampler_free(r->test_sampler);
    tt_sampler_free(r->sampler);
    close_split(&r->test);
    close_split(&r->train);
    tt_destroy_process_group(r->world);
}

int main(int argc, char **argv) {
    Options options;
    Run run = {0};
    if (!parse_options(&options, argc, argv))
        return 2;
    tt_status status = join_job(&run.world);
    if (!status)
        status = set_up(&run, &options);
    if (!status) {
        introduce(&run, &options);
        status = train(&run, &options);
    }
    if (!status)
        status = flush_output();
    if (status)
        tt_report();
    tear_down(&run);
    return status ? EXIT_FAILURE : EXIT_SUCCESS;
}
