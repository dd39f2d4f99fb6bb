#include "data/datasets/cifar.h"

#include "base/args.h"
#include "base/error.h"
#include "data/datasets/dataset.h"
#include "data/files/whole_file.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- records ---- */

static size_t cifar_record_size(const tt__cifar_label *label) { return (size_t)label->labels + TT__CIFAR_IMAGE; }

tt_status tt__cifar_count(const tt__cifar_label *label, const char *name, uint64_t size, int64_t *count) {
    *count = (int64_t)(size / cifar_record_size(label));
    if (*count && size % cifar_record_size(label) == 0)
        return TT_OK;
    return tt__fail(TT_ERR_FORMAT, "%s: expected records of %zu bytes each, got %" PRIu64 " bytes in all", name,
                    cifar_record_size(label), size);
}

tt_status tt__cifar_split(const tt__cifar_label *label, const char *name, const uint8_t *records, int64_t count,
                          uint8_t *images, int64_t *labels) {
    for (int64_t i = 0; i < count; i++, records += cifar_record_size(label)) {
        labels[i] = records[label->which];
        if (labels[i] >= label->classes)
            return tt__fail(TT_ERR_FORMAT, "%s: image %" PRId64 ": expected a label from 0 to %d, got %" PRId64, name,
                            i, label->classes - 1, labels[i]);
        memcpy(images + i * TT__CIFAR_IMAGE, records + label->labels, TT__CIFAR_IMAGE);
    }
    return TT_OK;
}

/* ---- files ---- */

enum { MOST_FILES = 5, CIFAR_PATH = 4096 };

/* The files of one part of a set. */
typedef struct files {
    const char *who, *dir, *sub; /* `sub`: where they may lie below the directory */
    const char *const *names;
    int n;
    char paths[MOST_FILES][CIFAR_PATH];
    int64_t counts[MOST_FILES], total;
} files;

/* Are all there, in `dir` or its folder `sub`? */
static bool find_in(files *f, const char *sub) {
    for (int i = 0; i < f->n; i++) {
        int n = snprintf(f->paths[i], CIFAR_PATH, "%s/%s%s%s", f->dir, sub, *sub ? "/" : "", f->names[i]);
        if (n >= CIFAR_PATH || access(f->paths[i], F_OK))
            return false;
    }
    return true;
}

static tt_status find_files(files *f, const tt__cifar_label *label) {
    if (!find_in(f, "") && !find_in(f, f->sub))
        return tt__fail(TT_ERR_IO, "%s: expected %s%s%s in %s or %s/%s", f->who, f->names[0], f->n > 1 ? " to " : "",
                        f->n > 1 ? f->names[f->n - 1] : "", f->dir, f->dir, f->sub);
    for (int i = 0; i < f->n; i++) {
        int fd = -1;
        uint64_t size = 0;
        TT__TRY(tt__file_open(&fd, &size, f->paths[i]));
        close(fd);
        TT__TRY(tt__cifar_count(label, f->paths[i], size, &f->counts[i]));
        f->total += f->counts[i];
    }
    return TT_OK;
}

static tt_status read_files(const files *f, const tt__cifar_label *label, uint8_t *images, int64_t *labels) {
    for (int i = 0; i < f->n; i++) {
        tt__whole_file file;
        int64_t count = 0;
        TT__TRY(tt__whole_file_read(&file, f->paths[i], (uint64_t)f->counts[i] * cifar_record_size(label)));
        tt_status status = tt__cifar_count(label, f->paths[i], file.size, &count);
        if (!status && count != f->counts[i])
            status = tt__fail(TT_ERR_IO, "%s: it changes while it is read", f->paths[i]);
        if (!status)
            status = tt__cifar_split(label, f->paths[i], file.data, count, images, labels);
        tt__whole_file_free(&file);
        if (status)
            return status;
        images += count * TT__CIFAR_IMAGE;
        labels += count;
    }
    return TT_OK;
}

static tt_dataset *load_files(files *f, const tt__cifar_label *label) {
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
    return load_files(&f, &tt__cifar10_label);
}

tt_dataset *tt_cifar100_with(const tt_cifar100_args *args, size_t size) {
    static const char *const names[] = {"test.bin", "train.bin"};
    tt_cifar100_args a;
    TT__ARGS_COPY(a, args, size);
    files f = {.who = "tt_cifar100", .dir = a.dir, .sub = "cifar-100-binary", .names = &names[a.train], .n = 1};
    if (!a.dir)
        return tt__fail_null(TT_ERR_INVALID, "tt_cifar100: the directory is NULL");
    return load_files(&f, a.coarse ? &tt__cifar100_coarse : &tt__cifar100_fine);
}
