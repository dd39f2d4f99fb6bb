/* tutti data: get, make and show data sets. */
#include "base/text/parse.h"
#include "cli/clean_end.h"
#include "cli/cli.h"
#include "cli/data/data_get.h"

#include <tutti/data.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int data_failed(void) {
    tt_report();
    return TT__EXIT_FAILED;
}

/* ---- digits ---- */

typedef struct digits_flags {
    const char *dir;
    int64_t train, test, seed;
    bool gzip;
} digits_flags;

static tt_status write_digits(const digits_flags *f, tt_tensor *x, const char *name) {
    char path[4096];
    int n = snprintf(path, sizeof path, "%s/%s%s", f->dir, name, f->gzip ? ".gz" : "");
    if (n >= (int)sizeof path) {
        tt__cli_error("data", "the path of %s is too long", name);
        return TT_ERR_INVALID;
    }
    tt_status status = tt_idx_write(x, path);
    if (status)
        tt_report();
    else
        tt__cli_print(stdout, "%s\n", path);
    return status;
}

/* Write `n` examples from `begin` on: images (N,28,28) and labels (N), both u8. */
static tt_status write_part(const digits_flags *f, tt_dataset *all, int64_t begin, int64_t n, const char *part) {
    TT_AUTO_SCOPE;
    char images[64], labels[64];
    snprintf(images, sizeof images, "%s-images-idx3-ubyte", part);
    snprintf(labels, sizeof labels, "%s-labels-idx1-ubyte", part);
    tt_tensor *x = tt_view(tt_narrow(tt_dataset_inputs(all), 0, begin, n), TT_SHAPE(n, 28, 28));
    tt_tensor *y = tt_to(tt_narrow(tt_dataset_targets(all), 0, begin, n), TT_U8);
    tt_status status = write_digits(f, x, images);
    return status ? status : write_digits(f, y, labels);
}

static int make_digits(const digits_flags *f) {
    tt__cli_end_cleanly();
    if (tt__data_folder_begin(f->dir))
        return TT__EXIT_FAILED;
    tt_dataset *all = tt_digits(f->train + f->test, (uint64_t)f->seed);
    if (!all)
        tt_report();
    bool ok = all && !write_part(f, all, 0, f->train, "train") && !write_part(f, all, f->train, f->test, "t10k");
    tt_dataset_free(all);
    tt__data_folder_end();
    return ok ? TT__EXIT_OK : TT__EXIT_FAILED;
}

/* ---- show ---- */

typedef struct show_flags {
    const char *path;
    int64_t count, start;
} show_flags;

/* Print two rows of pixels as one line, since letters are about twice as high as wide. */
static void print_line(const uint8_t *image, int64_t y, int64_t height, int64_t width) {
    static const char ramp[] = " .:-=+*#%@";
    const uint8_t *top = image + y * width, *bottom = y + 1 < height ? top + width : top;
    for (int64_t x = 0; x < width; x++)
        putchar(ramp[(top[x] + bottom[x]) * 9 / 510]);
    putchar('\n');
}

static void print_images(const tt_tensor *x, int64_t begin, int64_t end) {
    int64_t height = tt_tensor_size(x, 1), width = tt_tensor_size(x, 2);
    const uint8_t *pixels = tt_tensor_data(x);
    for (int64_t i = begin; i < end; i++) {
        printf("example %" PRId64 "\n", i);
        for (int64_t y = 0; y < height; y += 2)
            print_line(pixels + i * height * width, y, height, width);
    }
}

static int show_file(const show_flags *f) {
    tt_tensor *x;
    char text[128];
    if (tt_idx_read(&x, f->path))
        return data_failed();
    int64_t n = tt_tensor_size(x, 0), end = f->count < n - f->start ? f->start + f->count : n;
    if (f->start > 0 && f->start >= n) {
        tt_tensor_free(x);
        return tt__cli_usage_error("data",
                                   "--start: expected a number below the %" PRId64 " examples of %s, got %" PRId64, n,
                                   f->path, f->start);
    }
    bool bytes = tt_tensor_dtype(x) == TT_U8;
    tt__cli_print(stdout, "%s: %s\n", f->path, tt_tensor_describe(x, text, sizeof text));
    if (bytes && tt_tensor_dim(x) == 3)
        print_images(x, f->start, end);
    else if (bytes && tt_tensor_dim(x) == 1)
        for (int64_t i = f->start; i < end; i++)
            printf("example %" PRId64 ": %d\n", i, ((const uint8_t *)tt_tensor_data(x))[i]);
    tt_tensor_free(x);
    return TT__EXIT_OK;
}

/* ---- the command line ---- */

enum { TRAIN = 1, TEST, SEED, GZ, COUNT, START };

static const tt__flag digits_table[] = {
    {.name = "train", .id = TRAIN, .value = "N", .what = "training examples (default 60000)"},
    {.name = "test", .id = TEST, .value = "N", .what = "test examples, others than those (default 10000)"},
    {.name = "seed", .id = SEED, .value = "S", .what = "another seed, other digits (default 0)"},
    {.name = "gz", .id = GZ, .what = "compress: train-images-idx3-ubyte.gz and so on"},
    {0}};

static const tt__flag show_table[] = {
    {.name = "count", .id = COUNT, .letter = 'n', .value = "N", .what = "how many examples (default 2)"},
    {.name = "start", .id = START, .value = "I", .what = "from which on, counted from 0 (default 0)"},
    {0}};

static int digits_main(int argc, char **argv);
static int show_main(int argc, char **argv);

static const tt__command digits_command = {
    .name = "data digits",
    .what = "draw a data set of handwritten-looking digits",
    .usage = "DIR [--train N] [--test N] [--seed S] [--gz]",
    .text =
        "Draw a data set of handwritten-looking digits, 28 x 28 pixels, and write it to DIR (made if missing) as the "
        "four IDX files of MNIST, so that whatever reads MNIST reads it. Nothing is downloaded; the same seed gives "
        "the same digits everywhere.",
    .flags = digits_table,
    .offer = TT__OFFER_FOLDERS,
    .run = digits_main,
};

static const tt__command show_command = {
    .name = "data show",
    .what = "print what an IDX file, plain or .gz, holds",
    .usage = "FILE [--count N] [--start I]",
    .text = "Print what an IDX file, plain or .gz, holds; images are drawn with letters.",
    .flags = show_table,
    .offer = TT__OFFER_FILES,
    .run = show_main,
};

static const tt__command *const *data_parts(void) {
    static const tt__command *const parts[] = {&tt__cmd_data_mnist, &tt__cmd_data_cifar10, &tt__cmd_data_cifar100,
                                               &digits_command,     &show_command,         NULL};
    return parts;
}

static int data_main(int argc, char **argv) {
    if (argc < 2)
        return tt__cli_usage_error("data", "expected \"mnist\", \"cifar10\", \"cifar100\", \"digits\" or \"show\"");
    return tt__cli_dispatch(&tt__cmd_data, "command", argc, argv);
}

const tt__command tt__cmd_data = {
    .name = "data",
    .what = "download data sets, make a set of digits, look at IDX files",
    .usage = "COMMAND [ARGUMENTS]",
    .text = "Data sets to train on.",
    .notes = "Example:\n"
             "\n"
             "  tutti data mnist ./mnist\n"
             "  tutti data digits ./digits --train 20000 --test 2000\n"
             "  tutti data show ./digits/t10k-images-idx3-ubyte\n"
             "  tutti run --nproc-per-node=2 build/examples/mnist_trainer --data ./digits",
    .parts = data_parts,
    .run = data_main,
};

typedef struct flags {
    digits_flags digits;
    show_flags show;
} flags;

static tt_status set_flag(flags *f, int flag, const char *value) {
    static const int64_t most = 10000000; /* examples, 8 GB of pixels */
    switch (flag) {
    case TRAIN:
        return tt__parse_i64("--train", value, 1, most, &f->digits.train);
    case TEST:
        return tt__parse_i64("--test", value, 1, most, &f->digits.test);
    case SEED:
        return tt__parse_i64("--seed", value, 0, INT64_MAX, &f->digits.seed);
    case COUNT:
        return tt__parse_i64("--count", value, 1, INT64_MAX, &f->show.count);
    case START:
        return tt__parse_i64("--start", value, 0, INT64_MAX, &f->show.start);
    default:
        f->digits.gzip = true;
        return TT_OK;
    }
}

/* Parse the flags. Returns -1 to go on, else the exit code. `*path` is the one argument that is no flag. */
static int data_parse(const tt__command *command, flags *f, int argc, char **argv, const char **path) {
    tt__cli_normalise_flags(argc, argv);
    *path = tt__cli_take_word(command, &argc, argv);
    for (int id; (id = tt__cli_next_flag(command, argc, argv, NULL)) != -1;) {
        if (id == 'h' || id == '?')
            return id == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        if (set_flag(f, id, optarg))
            return tt__cli_usage_error(command->name, "%s", tt_last_error());
    }
    if (!*path)
        return tt__cli_usage_error(command->name, "expected a %s", command == &show_command ? "file" : "folder");
    return -1;
}

static int digits_main(int argc, char **argv) {
    flags f = {.digits = {.train = 60000, .test = 10000}};
    int code = data_parse(&digits_command, &f, argc, argv, &f.digits.dir);
    return code >= 0 ? code : make_digits(&f.digits);
}

static int show_main(int argc, char **argv) {
    flags f = {.show = {.count = 2}};
    int code = data_parse(&show_command, &f, argc, argv, &f.show.path);
    return code >= 0 ? code : show_file(&f.show);
}
