/* Image sets in IDX files, and MNIST's file names. */
#include <tutti/data.h>

#include "base/error.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* ---- two files ---- */

static tt_status read_checked(tt_tensor **out, const char *path, int ndim, const char *expected) {
    TT__TRY(tt_idx_read(out, path));
    if ((*out)->dtype == TT_U8 && (*out)->shape.ndim == ndim)
        return TT_OK;
    tt__fail(TT_ERR_FORMAT, "%s: expected %s, got %s", path, expected, TT__DESCRIBE(*out));
    tt_tensor_free(*out);
    *out = NULL;
    return TT_ERR_FORMAT;
}

/* Make a data set of images (N,H,W) and labels (N): inputs (N,1,H,W) and targets (N) i64. */
static tt_dataset *dataset_from(const tt_tensor *images, const tt_tensor *labels) {
    const int64_t *size = images->shape.dim;
    tt_tensor *inputs = tt_keep(tt__view("tt_image_dataset", images, TT_SHAPE(size[0], 1, size[1], size[2])));
    tt_tensor *targets = tt_keep(tt__to("tt_image_dataset", labels, TT_I64));
    if (inputs && targets)
        return tt_tensor_dataset(inputs, targets);
    tt_tensor_free(inputs);
    tt_tensor_free(targets);
    return NULL;
}

tt_dataset *tt_image_dataset(const char *images_path, const char *labels_path) {
    tt_tensor *images = NULL, *labels = NULL;
    tt_dataset *dataset = NULL;
    if (!images_path || !labels_path)
        return tt__fail_null(TT_ERR_INVALID, "tt_image_dataset: the path of the %s is NULL",
                             images_path ? "labels" : "images");
    if (read_checked(&images, images_path, 3, "images (N, height, width) of u8") ||
        read_checked(&labels, labels_path, 1, "labels (N) of u8"))
        goto out;
    if (images->shape.dim[0] != labels->shape.dim[0])
        tt__fail(TT_ERR_FORMAT, "%s has %" PRId64 " images, but %s has %" PRId64 " labels", images_path,
                 images->shape.dim[0], labels_path, labels->shape.dim[0]);
    else
        dataset = dataset_from(images, labels);
out:
    tt_tensor_free(images);
    tt_tensor_free(labels);
    return dataset;
}

/* ---- canonical names ---- */

enum { PATH_SIZE = 4096 };

/* "DIR/SUB/NAME" or "DIR/SUB/NAME.gz", whichever is there, plain first. */
static bool find_image_file(char *path, const char *dir, const char *sub, const char *name) {
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        int n = snprintf(path, PATH_SIZE, "%s/%s%s%s", dir, sub, name, endings[i]);
        if (n < PATH_SIZE && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

tt_dataset *tt_mnist(const char *dir, bool train) {
    static const char *const subs[] = {"", "MNIST/raw/", "raw/"};
    const char *images_name = train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
    const char *labels_name = train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
    char images[PATH_SIZE], labels[PATH_SIZE];
    if (!dir)
        return tt__fail_null(TT_ERR_INVALID, "tt_mnist: the directory is NULL");
    for (size_t i = 0; i < sizeof subs / sizeof *subs; i++)
        if (find_image_file(images, dir, subs[i], images_name) && find_image_file(labels, dir, subs[i], labels_name))
            return tt_image_dataset(images, labels);
    return tt__fail_null(TT_ERR_IO, "tt_mnist: expected %s and %s, plain or with .gz, in %s, %s/MNIST/raw or %s/raw",
                         images_name, labels_name, dir, dir, dir);
}
