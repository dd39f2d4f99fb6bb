/* Data sets that are known by name: where they are, and what their files must be. */
#include "cli/data/data_get.h"

#include "base/error.h"
#include "base/files/planted.h"
#include "cli/clean_end.h"
#include "cli/cli.h"
#include "cli/data/download.h"
#include "cli/data/untar.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct known_set {
    const tt__command *command;
    const char *const *mirrors;
    const tt__remote_file *files; /* name NULL after the last */
    /* of an archive: its folder, and what is wanted of it; NULL: the files are what is wanted */
    const char *folder;
    const char *const *members;
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

/* ---- progress ---- */

/* One line that is written over, on a terminal only, and not more often than can be read. */
static void show_progress(const tt__remote_file *file, int64_t bytes) {
    static struct timespec last;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ms = (now.tv_sec - last.tv_sec) * 1000 + (now.tv_nsec - last.tv_nsec) / 1000000;
    if (ms < 100 && bytes < file->size)
        return;
    last = now;
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

/* All files are tried, also after one that failed. */
tt_status tt__data_folder_begin(const char *dir) {
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

void tt__data_folder_end(void) { tt__cli_remove_folder(); }

static int get_set(const known_set *set, const char *dir, const char *mirror) {
    const char *const own[] = {mirror, NULL};
    bool failed = false;
    int archive = -1;
    tt__cli_end_cleanly();
    if (tt__data_folder_begin(dir))
        return TT__EXIT_FAILED;
    for (const tt__remote_file *file = set->files; file->name; file++)
        failed |= get_file(set->folder ? &archive : NULL, file, mirror ? own : set->mirrors, dir) != TT_OK;
    if (!failed && set->folder && unpack_set(set, dir, archive)) {
        tt_report();
        failed = true;
    }
    if (archive >= 0)
        close(archive);
    tt__data_folder_end();
    return failed ? TT__EXIT_FAILED : TT__EXIT_OK;
}

/* ---- the command line ---- */

enum { MIRROR = 1 };

static const tt__flag get_table[] = {
    {.name = "mirror", .id = MIRROR, .value = "URL", .what = "folder to get the files from, instead of those known"},
    {0}};

#define NOTES                                                                                                         \
    "A file that is there already stays, if its checksum is right; one that is cut short is gone on with. Each file " \
    "is compared with its sha256 checksum before it gets its name. The addresses are http or https; proxies are "     \
    "taken "                                                                                                          \
    "from the environment."

static int run_get(const known_set *set, int argc, char **argv) {
    const char *mirror = NULL;
    tt__cli_normalise_flags(argc, argv);
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

static int mnist_main(int argc, char **argv) {
    static const known_set set = {&tt__cmd_data_mnist, mnist_mirrors, mnist_files, NULL, NULL};
    return run_get(&set, argc, argv);
}

static int cifar10_main(int argc, char **argv) {
    static const known_set set = {&tt__cmd_data_cifar10, cifar_mirrors, cifar10_files, "cifar-10-batches-bin",
                                  cifar10_members};
    return run_get(&set, argc, argv);
}

static int cifar100_main(int argc, char **argv) {
    static const known_set set = {&tt__cmd_data_cifar100, cifar_mirrors, cifar100_files, "cifar-100-binary",
                                  cifar100_members};
    return run_get(&set, argc, argv);
}

const tt__command tt__cmd_data_mnist = {
    .name = "data mnist",
    .what = "download MNIST",
    .usage = "DIR [--mirror URL]",
    .text = "Download MNIST's four files to DIR (made if missing).",
    .flags = get_table,
    .notes = NOTES,
    .offer = TT__OFFER_FOLDERS,
    .run = mnist_main,
};

const tt__command tt__cmd_data_cifar10 = {
    .name = "data cifar10",
    .what = "download CIFAR-10",
    .usage = "DIR [--mirror URL]",
    .text = "Download CIFAR-10's binary version to DIR (made if missing), and unpack it there.",
    .flags = get_table,
    .notes = NOTES,
    .offer = TT__OFFER_FOLDERS,
    .run = cifar10_main,
};

const tt__command tt__cmd_data_cifar100 = {
    .name = "data cifar100",
    .what = "download CIFAR-100",
    .usage = "DIR [--mirror URL]",
    .text = "Download CIFAR-100's binary version to DIR (made if missing), and unpack it there.",
    .flags = get_table,
    .notes = NOTES,
    .offer = TT__OFFER_FOLDERS,
    .run = cifar100_main,
};
