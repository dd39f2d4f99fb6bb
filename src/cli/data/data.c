/* tutti data: get, make and show data sets. */
#include "cli/data/data.h"

#include "base/error.h"
#include "base/files/planted.h"
#include "base/machine/clock.h"
#include "base/text/parse.h"
#include "cli/cli.h"

#include <tutti/data.h>

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int get_main(int argc, char **argv);

/* ---- sets that are known by name: where they are, and what their files must be */

enum { MIRROR = 1 };

static const tt__flag get_table[] = {
    TT__VALUE("mirror", MIRROR, "URL", "folder to get the files from, instead of those known"), {0}};

#define NOTES                                                                                                         \
    "A file that is there already stays, if its checksum is right; one that is cut short is gone on with. Each file " \
    "is compared with its sha256 checksum before it gets its name. The addresses are http or https; proxies are "     \
    "taken from the environment."

static const tt__command mnist_command = {
    .name = "data mnist",
    .what = "download MNIST",
    .usage = "DIR [--mirror URL]",
    .text = "Download MNIST's four files to DIR (made if missing).",
    .flags = get_table,
    .notes = NOTES,
    .offer = TT__OFFER_FOLDERS,
    .run = get_main,
};

static const tt__command cifar10_command = {
    .name = "data cifar10",
    .what = "download CIFAR-10",
    .usage = "DIR [--mirror URL]",
    .text = "Download CIFAR-10's binary version to DIR (made if missing), and unpack it there.",
    .flags = get_table,
    .notes = NOTES,
    .offer = TT__OFFER_FOLDERS,
    .run = get_main,
};

static const tt__command cifar100_command = {
    .name = "data cifar100",
    .what = "download CIFAR-100",
    .usage = "DIR [--mirror URL]",
    .text = "Download CIFAR-100's binary version to DIR (made if missing), and unpack it there.",
    .flags = get_table,
    .notes = NOTES,
    .offer = TT__OFFER_FOLDERS,
    .run = get_main,
};

typedef struct known_set {
    const tt__command *command;
    const char *const *mirrors;
    const tt__remote_file *files; /* name NULL after the last */
    const char *folder;           /* of an archive, which the one file is; NULL: the files themselves are wanted */
    const char *const *members;   /* files of that folder that are wanted; NULL after the last */
} known_set;

static const char *const mnist_mirrors[] = {"https://ossci-datasets.s3.amazonaws.com/mnist",
                                            "https://storage.googleapis.com/cvdf-datasets/mnist", NULL};
static const char *const cifar_mirrors[] = {"https://www.cs.toronto.edu/~kriz", NULL};

static const tt__remote_file mnist_files[] = {
    {"train-images-idx3-ubyte.gz", "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422},
    {"train-labels-idx1-ubyte.gz", "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881},
    {"t10k-images-idx3-ubyte.gz", "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877},
    {"t10k-labels-idx1-ubyte.gz", "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542},
    {0}};
static const tt__remote_file cifar10_files[] = {
    {"cifar-10-binary.tar.gz", "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd", 170052171}, {0}};
static const tt__remote_file cifar100_files[] = {
    {"cifar-100-binary.tar.gz", "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec", 168513733}, {0}};
static const char *const cifar10_members[] = {"data_batch_1.bin",
                                              "data_batch_2.bin",
                                              "data_batch_3.bin",
                                              "data_batch_4.bin",
                                              "data_batch_5.bin",
                                              "test_batch.bin",
                                              NULL};
static const char *const cifar100_members[] = {"train.bin", "test.bin", NULL};

static const known_set sets[] = {
    {&mnist_command, mnist_mirrors, mnist_files, NULL, NULL},
    {&cifar10_command, cifar_mirrors, cifar10_files, "cifar-10-batches-bin", cifar10_members},
    {&cifar100_command, cifar_mirrors, cifar100_files, "cifar-100-binary", cifar100_members},
};

/* ---- getting one */

/* Print a line over the last one, at most ten times a second. */
static void show_progress(const tt__remote_file *file, int64_t bytes) {
    static int64_t last_ms;
    int64_t now_ms = tt__now_ms();
    if (now_ms - last_ms < 100 && bytes < file->size)
        return;
    last_ms = now_ms;
    fprintf(stderr, "\r%s: %3d %%%s", file->name, (int)(100 * bytes / file->size),
            bytes == file->size ? "\r\x1b[K" : "");
    fflush(stderr);
}

static tt_status get_file(int *fd, const tt__remote_file *file, const char *const *mirrors, const char *dir) {
    tt__download_end end = TT__WAS_THERE;
    tt_status status = tt__download(&end, fd, file, mirrors, dir, isatty(STDERR_FILENO) ? show_progress : NULL);
    if (status)
        tt_report();
    else
        tt__cli_print(stdout, "%s/%s%s\n", dir, file->name, end == TT__WAS_THERE ? ": is there already" : "");
    fflush(stdout);
    return status;
}

/* Unpack the archive that `fd` is. */
static tt_status unpack_set(const known_set *set, const char *dir, int fd) {
    char archive[4096];
    if (snprintf(archive, sizeof archive, "%s/%s", dir, set->files[0].name) >= (int)sizeof archive)
        return tt__fail(TT_ERR_INVALID, "%s: its path is too long", set->files[0].name);
    TT__TRY(tt__untar(fd, archive, dir, set->folder, set->members));
    for (int i = 0; set->members[i]; i++)
        tt__cli_print(stdout, "%s/%s/%s\n", dir, set->folder, set->members[i]);
    return TT_OK;
}

/* Make the folder, unless it is there; a command that brings nothing removes it again. `dir` must stay. An error is
 * printed. */
static tt_status data_folder_begin(const char *dir) {
    tt_status status = tt__cli_make_folder(dir);
    char *whole = status ? NULL : realpath(dir, NULL);
    if (!status)
        status = whole ? tt__check_folder(whole) : tt__fail_errno(TT_ERR_IO, errno, "can't find the folder %s", dir);
    free(whole);
    if (!status)
        return TT_OK;
    tt__cli_remove_folder();
    tt__cli_error("data", "%s", tt_last_error());
    return status;
}

/* Get all files of a set; the others are tried also after one that failed. */
static int get_set(const known_set *set, const char *dir, const char *mirror) {
    const char *const own[] = {mirror, NULL};
    bool failed = false;
    int archive = -1;
    tt__cli_end_cleanly();
    if (data_folder_begin(dir))
        return TT__EXIT_FAILED;
    for (const tt__remote_file *file = set->files; file->name; file++)
        failed |= get_file(set->folder ? &archive : NULL, file, mirror ? own : set->mirrors, dir) != TT_OK;
    if (!failed && set->folder && unpack_set(set, dir, archive)) {
        tt_report();
        failed = true;
    }
    if (archive >= 0)
        close(archive);
    tt__cli_remove_folder();
    return failed ? TT__EXIT_FAILED : TT__EXIT_OK;
}

static int get_main(int argc, char **argv) {
    const known_set *set = sets;
    const char *mirror = NULL;
    while (strcmp(tt__cli_last_word(set->command->name), argv[0]) != 0)
        set++;
    const char *dir = tt__cli_take_word(set->command, &argc, argv);
    for (int id; (id = tt__cli_next_flag(set->command, argc, argv, NULL)) != -1;) {
        if (id == 'h' || id == '?')
            return id == 'h' ? TT__EXIT_OK : TT__EXIT_USAGE;
        mirror = optarg;
    }
    if (!dir)
        return tt__cli_usage_error(set->command->name, "expected a folder");
    if (mirror && strncmp(mirror, "http://", 7) && strncmp(mirror, "https://", 8))
        return tt__cli_usage_error(set->command->name,
                                   "--mirror: expected an address http://... or https://..., got \"%s\"", mirror);
    return get_set(set, dir, mirror);
}

/* ---- digits */

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
    if (data_folder_begin(f->dir))
        return TT__EXIT_FAILED;
    tt_dataset *all = tt_digits(f->train + f->test, (uint64_t)f->seed);
    if (!all)
        tt_report();
    bool ok = all && !write_part(f, all, 0, f->train, "train") && !write_part(f, all, f->train, f->test, "t10k");
    tt_dataset_free(all);
    tt__cli_remove_folder();
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
    if (tt_idx_read(&x, f->path)) {
        tt_report();
        return TT__EXIT_FAILED;
    }
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
    TT__VALUE("train", TRAIN, "N", "training examples (default 60000)"),
    TT__VALUE("test", TEST, "N", "test examples, others than those (default 10000)"),
    TT__VALUE("seed", SEED, "S", "another seed, other digits (default 0)"),
    TT__SWITCH("gz", GZ, "compress: train-images-idx3-ubyte.gz and so on"),
    {0}};

static const tt__flag show_table[] = {TT__VALUE("count", COUNT, "N", "how many examples (default 2)", .letter = 'n'),
                                      TT__VALUE("start", START, "I", "from which on, counted from 0 (default 0)"),
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
    static const tt__command *const parts[] = {&mnist_command,  &cifar10_command, &cifar100_command,
                                               &digits_command, &show_command,    NULL};
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
