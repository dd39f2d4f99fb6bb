/* CIFAR-10 and CIFAR-100 from their binary files: records of one label (CIFAR-10) or two (CIFAR-100: superclass,
 * class), then the 32 x 32 reds, greens and blues of an image. */
#include "base/args.h"
#include "base/error.h"
#include "data/datasets/dataset.h"
#include "data/files/whole_file.h"
#include "tensor/core/tensor.h"

#include <tutti/datasets.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { CIFAR_IMAGE = 3 * 32 * 32 };

/* ---- the classes, in the order of their labels ---- */

static const char *const ten[] = {"airplane", "automobile", "bird",  "cat",  "deer",
                                  "dog",      "frog",       "horse", "ship", "truck"};

static const char *const fine[] = {
    "apple",      "aquarium_fish", "baby",         "bear",       "beaver",      "bed",         "bee",
    "beetle",     "bicycle",       "bottle",       "bowl",       "boy",         "bridge",      "bus",
    "butterfly",  "camel",         "can",          "castle",     "caterpillar", "cattle",      "chair",
    "chimpanzee", "clock",         "cloud",        "cockroach",  "couch",       "crab",        "crocodile",
    "cup",        "dinosaur",      "dolphin",      "elephant",   "flatfish",    "forest",      "fox",
    "girl",       "hamster",       "house",        "kangaroo",   "keyboard",    "lamp",        "lawn_mower",
    "leopard",    "lion",          "lizard",       "lobster",    "man",         "maple_tree",  "motorcycle",
    "mountain",   "mouse",         "mushroom",     "oak_tree",   "orange",      "orchid",      "otter",
    "palm_tree",  "pear",          "pickup_truck", "pine_tree",  "plain",       "plate",       "poppy",
    "porcupine",  "possum",        "rabbit",       "raccoon",    "ray",         "road",        "rocket",
    "rose",       "sea",           "seal",         "shark",      "shrew",       "skunk",       "skyscraper",
    "snail",      "snake",         "spider",       "squirrel",   "streetcar",   "sunflower",   "sweet_pepper",
    "table",      "tank",          "telephone",    "television", "tiger",       "tractor",     "train",
    "trout",      "tulip",         "turtle",       "wardrobe",   "whale",       "willow_tree", "wolf",
    "woman",      "worm"};

static const char *const coarse[] = {"aquatic_mammals",
                                     "fish",
                                     "flowers",
                                     "food_containers",
                                     "fruit_and_vegetables",
                                     "household_electrical_devices",
                                     "household_furniture",
                                     "insects",
                                     "large_carnivores",
                                     "large_man-made_outdoor_things",
                                     "large_natural_outdoor_scenes",
                                     "large_omnivores_and_herbivores",
                                     "medium_mammals",
                                     "non-insect_invertebrates",
                                     "people",
                                     "reptiles",
                                     "small_mammals",
                                     "trees",
                                     "vehicles_1",
                                     "vehicles_2"};

_Static_assert(sizeof ten / sizeof *ten == 10 && sizeof fine / sizeof *fine == 100, "a class lacks its name");
_Static_assert(sizeof coarse / sizeof *coarse == 20, "a superclass lacks its name");

/* Where a label is in a record, and what it may be. */
typedef struct cifar_label {
    int labels, which; /* labels in a record, and the index of the wanted one */
    int classes;
    const char *const *names; /* of the classes */
} cifar_label;

static const cifar_label cifar10_label = {1, 0, 10, ten};
static const cifar_label cifar100_coarse = {2, 0, 20, coarse}, cifar100_fine = {2, 1, 100, fine};

/* ---- records ---- */

static size_t cifar_record_size(const cifar_label *label) { return (size_t)label->labels + CIFAR_IMAGE; }

/* Count the records in `size` bytes. TT_ERR_FORMAT: there are none, or the last one is cut off. */
static tt_status cifar_count(const cifar_label *label, const char *name, uint64_t size, int64_t *count) {
    *count = (int64_t)(size / cifar_record_size(label));
    if (*count && size % cifar_record_size(label) == 0)
        return TT_OK;
    return tt__fail(TT_ERR_FORMAT, "%s: expected records of %zu bytes each, got %" PRIu64 " bytes in all", name,
                    cifar_record_size(label), size);
}

/* Split `count` records into images and labels. TT_ERR_FORMAT: a label is out of range. */
static tt_status cifar_split(const cifar_label *label, const char *name, const uint8_t *records, int64_t count,
                             uint8_t *images, int64_t *labels) {
    for (int64_t i = 0; i < count; i++, records += cifar_record_size(label)) {
        labels[i] = records[label->which];
        if (labels[i] >= label->classes)
            return tt__fail(TT_ERR_FORMAT, "%s: image %" PRId64 ": expected a label from 0 to %d, got %" PRId64, name,
                            i, label->classes - 1, labels[i]);
        memcpy(images + i * CIFAR_IMAGE, records + label->labels, CIFAR_IMAGE);
    }
    return TT_OK;
}

/* ---- files ---- */

enum { MOST_FILES = 5, CIFAR_PATH = 4096 };

/* The files of one part of a set. */
typedef struct files {
    const char *who, *dir, *sub; /* `sub`: a folder of the directory that may have them instead */
    const char *const *names;
    int n;
    char paths[MOST_FILES][CIFAR_PATH];
    int64_t counts[MOST_FILES], total;
} files;

/* Are all files in `dir`, or in its folder `sub` if that is not ""? Sets their paths. */
static bool find_in(files *f, const char *sub) {
    for (int i = 0; i < f->n; i++) {
        int n = snprintf(f->paths[i], CIFAR_PATH, "%s/%s%s%s", f->dir, sub, *sub ? "/" : "", f->names[i]);
        if (n >= CIFAR_PATH || access(f->paths[i], F_OK))
            return false;
    }
    return true;
}

static tt_status find_files(files *f, const cifar_label *label) {
    if (!find_in(f, "") && !find_in(f, f->sub))
        return tt__fail(TT_ERR_IO, "%s: expected %s%s%s in %s or %s/%s", f->who, f->names[0], f->n > 1 ? " to " : "",
                        f->n > 1 ? f->names[f->n - 1] : "", f->dir, f->dir, f->sub);
    for (int i = 0; i < f->n; i++) {
        int fd = -1;
        uint64_t size = 0;
        TT__TRY(tt__file_open(&fd, &size, f->paths[i]));
        close(fd);
        TT__TRY(cifar_count(label, f->paths[i], size, &f->counts[i]));
        f->total += f->counts[i];
    }
    return TT_OK;
}

static tt_status read_files(const files *f, const cifar_label *label, uint8_t *images, int64_t *labels) {
    for (int i = 0; i < f->n; i++) {
        tt__whole_file file;
        int64_t count = 0;
        TT__TRY(tt__whole_file_read(&file, f->paths[i], (uint64_t)f->counts[i] * cifar_record_size(label)));
        tt_status status = cifar_count(label, f->paths[i], file.size, &count);
        if (!status && count != f->counts[i])
            status = tt__fail(TT_ERR_IO, "%s: it changes while it is read", f->paths[i]);
        if (!status)
            status = cifar_split(label, f->paths[i], file.data, count, images, labels);
        tt__whole_file_free(&file);
        if (status)
            return status;
        images += count * CIFAR_IMAGE;
        labels += count;
    }
    return TT_OK;
}

static tt_dataset *load_files(files *f, const cifar_label *label) {
    if (find_files(f, label))
        return NULL;
    tt_tensor *x = tt_keep(tt__tensor_new(f->who, TT_SHAPE(f->total, 3, 32, 32), TT_U8));
    tt_tensor *y = tt_keep(tt__tensor_new(f->who, TT_SHAPE(f->total), TT_I64));
    if (!x || !y || read_files(f, label, x->data, y->data)) {
        tt_tensor_free(x);
        tt_tensor_free(y);
        return NULL;
    }
    tt_dataset *d = tt_tensor_dataset(x, y);
    if (d) {
        d->classes = label->names;
        d->class_count = label->classes;
    }
    return d;
}

/* ---- the two sets ---- */

tt_dataset *tt_cifar10(const char *dir, bool train) {
    static const char *const train_files[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                              "data_batch_4.bin", "data_batch_5.bin"};
    static const char *const test_files[] = {"test_batch.bin"};
    files f = {.who = "tt_cifar10", .dir = dir, .sub = "cifar-10-batches-bin"};
    if (!dir)
        return tt__fail_null(TT_ERR_INVALID, "tt_cifar10: the directory is NULL");
    f.names = train ? train_files : test_files;
    f.n = train ? 5 : 1;
    return load_files(&f, &cifar10_label);
}

tt_dataset *tt_cifar100_with(const tt_cifar100_args *args, size_t size) {
    static const char *const names[] = {"test.bin", "train.bin"};
    tt_cifar100_args a;
    TT__ARGS_COPY(a, args, size);
    files f = {.who = "tt_cifar100", .dir = a.dir, .sub = "cifar-100-binary", .names = &names[a.train], .n = 1};
    if (!a.dir)
        return tt__fail_null(TT_ERR_INVALID, "tt_cifar100: the directory is NULL");
    return load_files(&f, a.coarse ? &cifar100_coarse : &cifar100_fine);
}
