/* What the programs that train on digits share: their command line, their data, joining a job. A program sets
 * `mnist_program`, and includes this once.
 *
 * 784 = 28 x 28 pixels, 10 classes. */
#ifndef EXAMPLES_MNIST_PROGRAM_H
#define EXAMPLES_MNIST_PROGRAM_H

#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/tutti.h>

#include "job.h"
#include "speaks.h"

/* The built-in data: so many digits, of which the last are held out. */
enum { DIGITS = 24000, DIGITS_HELD_OUT = 4000, DIGITS_SEED = 1 };

/* Held-out examples are classified so many at a time. */
enum { TEST_BATCH = 200 };

typedef struct Options {
    const char *data, *images, *labels;
    int64_t holdout;
    int64_t epochs, batch_size, virtual_ranks, save_every, workers;
    double lr;
    double factor; /* the program's own flag */
    int64_t seed;
    const char *checkpoint, *resume, *metrics, *device;
    bool elastic;
} Options;

/* A program's name, its --help, the name of its own flag, and what flags are when they are not given; "elastic" where
 * it has that flag. */
typedef struct Program {
    const char *name, *usage, *factor_flag;
    Options defaults;
    const char *elastic_flag;
} Program;

static const Program mnist_program;

/* The data sets of training and testing. `all` is the set that `train` and `test` are parts of, if they are. */
typedef struct Data {
    tt_dataset *all, *train, *test;
} Data;

/* ---- the command line ---- */

static bool parse_integer(const char *flag, const char *text, int64_t min, int64_t *value) {
    char *end;
    long long number = strtoll(text, &end, 10);
    if (*text && !*end && number >= min && number <= INT32_MAX) {
        *value = number;
        return true;
    }
    if (speaks())
        fprintf(stderr, "%s: --%s: expected a whole number from %" PRId64 " to %d, got \"%s\"\n", mnist_program.name,
                flag, min, INT32_MAX, text);
    return false;
}

static bool parse_real(const char *flag, const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    if (*text && !*end && *value >= 0 && *value < 1e30)
        return true;
    if (speaks())
        fprintf(stderr, "%s: --%s: expected a number of at least 0, got \"%s\"\n", mnist_program.name, flag, text);
    return false;
}

static bool set_option(Options *o, const char *name, const char *value) {
    const struct {
        const char *name;
        const char **text;
    } texts[] = {
        {"data", &o->data},     {"images", &o->images},   {"labels", &o->labels}, {"checkpoint", &o->checkpoint},
        {"resume", &o->resume}, {"metrics", &o->metrics}, {"device", &o->device},
    };
    const struct {
        const char *name;
        int64_t min;
        int64_t *number;
    } integers[] = {
        {"holdout", 0, &o->holdout},
        {"epochs", 1, &o->epochs},
        {"batch-size", 1, &o->batch_size},
        {"save-every", 0, &o->save_every},
        {"seed", 0, &o->seed},
        {"workers", 0, &o->workers},
        {"virtual-ranks", 0, &o->virtual_ranks},
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (!strcmp(name, texts[i].name))
            return *texts[i].text = value, true;
    for (size_t i = 0; i < sizeof integers / sizeof *integers; i++)
        if (!strcmp(name, integers[i].name))
            return parse_integer(name, value, integers[i].min, integers[i].number);
    return parse_real(name, value, !strcmp(name, "lr") ? &o->lr : &o->factor);
}

static bool complain(const char *what, const char *text) {
    if (speaks())
        fprintf(stderr, "%s: %s%s (see --help)\n", mnist_program.name, what, text);
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

/* False: wrong flags, which were told. --help prints and ends the process. */
static bool parse_options(Options *o, int argc, char **argv) {
    const struct option flags[] = {
        {"data", 1, 0, 0},
        {"images", 1, 0, 0},
        {"labels", 1, 0, 0},
        {"holdout", 1, 0, 0},
        {"epochs", 1, 0, 0},
        {"batch-size", 1, 0, 0},
        {"virtual-ranks", 1, 0, 0},
        {"lr", 1, 0, 0},
        {mnist_program.factor_flag, 1, 0, 0},
        {"save-every", 1, 0, 0},
        {"checkpoint", 1, 0, 0},
        {"resume", 1, 0, 0},
        {"metrics", 1, 0, 0},
        {"seed", 1, 0, 0},
        {"workers", 1, 0, 0},
        {"device", 1, 0, 0},
        {"help", 0, 0, 'h'},
        {mnist_program.elastic_flag, 0, 0, 'e'},
        {0},
    };
    *o = mnist_program.defaults;
    opterr = 0;
    for (int c, i; (c = getopt_long(argc, argv, ":h", flags, &i)) != -1;) {
        if (c == 'h') {
            if (speaks())
                fputs(mnist_program.usage, stdout);
            exit(EXIT_SUCCESS);
        }
        if (c == 'e') {
            o->elastic = true;
            continue;
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
            fprintf(stderr, "%s: --holdout %" PRId64 " leaves none of the %" PRId64 " examples to train on\n",
                    mnist_program.name, holdout, n);
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
        if (d->all && !tt_dataset_size(d->all))
            return tt_fail(TT_ERR_INVALID, "%s: it has no images", o->images);
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

/* Make a loader of this rank's part of the held-out examples, each of which one rank has; NULL if none are held out. */
static tt_status share_test_set(tt_group *world, const Data *d, const Options *o, tt_sampler **sampler,
                                tt_loader **loader) {
    if (!d->test)
        return TT_OK;
    *sampler = tt_distributed_sampler(tt_dataset_size(d->test), tt_get_world_size(world), tt_get_rank(world),
                                      .exact = true, .no_shuffle = true, .virtual_ranks = (int)o->virtual_ranks);
    *loader = tt_loader_new(d->test, TEST_BATCH, *sampler);
    return *loader ? TT_OK : tt_last_status();
}

static void introduce(tt_group *world, const Data *d, const Options *o) {
    if (tt_get_rank(world) != 0)
        return;
    printf("%" PRId64 " examples and %" PRId64 " held out, %d rank%s, batches of %" PRId64 " a %srank\n",
           tt_dataset_size(d->train), d->test ? tt_dataset_size(d->test) : 0, tt_get_world_size(world),
           tt_get_world_size(world) == 1 ? "" : "s", o->batch_size, o->virtual_ranks ? "virtual " : "");
    fflush(stdout);
}

#endif
