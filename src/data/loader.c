/* The loader: batches gathered into two tensors that are made once. */
#include "data/convert_kernels.h"
#include "data/dataset.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct tt_loader {
    tt_dataset *dataset;
    tt_sampler *sampler; /* or NULL: in order */
    int64_t batch_size;
    int64_t examples; /* per epoch, without what drop_last leaves out */
    int64_t at;       /* the next one */
    tt_tensor *x;     /* (batch_size, ...) */
    tt_tensor *y;     /* (batch_size, ...) or NULL */
};

/* ---- making ---- */

static tt_status check(const tt_loader_args *a) {
    if (!a->dataset) /* the reason it could not be made says more than we could */
        return tt_last_status() ? tt_last_status() : tt__fail(TT_ERR_INVALID, "tt_loader_new: the data set is NULL");
    if (a->batch_size < 1)
        return tt__fail(TT_ERR_INVALID, "tt_loader_new: batch_size: expected at least 1, got %" PRId64, a->batch_size);
    if (a->sampler && tt__sampler_dataset_size(a->sampler) != tt_dataset_size(a->dataset))
        return tt__fail(TT_ERR_INVALID,
                        "tt_loader_new: the sampler is for a data set of %" PRId64
                        " examples, but this one has %" PRId64,
                        tt__sampler_dataset_size(a->sampler), tt_dataset_size(a->dataset));
    return TT_OK;
}

/* Room for `n` rows of `like`, held by the loader. */
static tt_tensor *batch_tensor(const tt_tensor *like, int64_t n, tt_dtype dtype) {
    tt_shape shape = like->shape;
    shape.dim[0] = n;
    tt_tensor *x = tt__tensor_new("tt_loader_new", shape, dtype);
    return x && tt__tensor_adopt(x, "a loader") == TT_OK ? x : NULL;
}

/* Batches are never larger than the epoch, so no memory is taken for what can't come. */
static tt_status allocate(tt_loader *loader) {
    const tt_tensor *inputs = loader->dataset->inputs, *targets = loader->dataset->targets;
    int64_t n = loader->batch_size < loader->examples ? loader->batch_size : loader->examples;
    loader->x = batch_tensor(inputs, n, inputs->dtype == TT_U8 ? TT_F32 : inputs->dtype);
    if (loader->x && targets)
        loader->y = batch_tensor(targets, n, targets->dtype);
    return loader->x && (loader->y || !targets) ? TT_OK : tt_last_status();
}

tt_loader *tt_loader_with(const tt_loader_args *args, size_t size) {
    tt_loader_args a;
    TT__ARGS_COPY(a, args, size);
    if (check(&a))
        return NULL;
    tt_loader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return tt__fail_null(TT_ERR_MEMORY, "tt_loader_new: out of memory");
    loader->dataset = a.dataset;
    loader->sampler = a.sampler;
    loader->batch_size = a.batch_size;
    loader->examples = a.sampler ? tt_sampler_size(a.sampler) : tt_dataset_size(a.dataset);
    if (a.drop_last)
        loader->examples -= loader->examples % a.batch_size;
    if (allocate(loader)) {
        tt_loader_free(loader);
        return NULL;
    }
    return loader;
}

void tt_loader_free(tt_loader *loader) {
    if (!loader)
        return;
    tt__tensor_disown(loader->x);
    tt__tensor_disown(loader->y);
    free(loader);
}

int64_t tt_loader_batches(const tt_loader *loader) {
    return loader ? loader->examples / loader->batch_size + (loader->examples % loader->batch_size != 0) : 0;
}

/* ---- batches ---- */

/* The examples of an epoch, as rows of inputs or of targets: number i is row order[i], or i without an order. */
typedef struct rows {
    const char *data;
    size_t bytes; /* of a row */
    const int64_t *order;
    int64_t count;
} rows;

static rows rows_of(const tt_loader *loader, const tt_tensor *x) {
    return (rows){.data = x->data,
                  .bytes = (size_t)(x->numel / x->shape.dim[0]) * tt_dtype_size(x->dtype),
                  .order = loader->sampler ? tt_sampler_indices(loader->sampler) : NULL,
                  .count = loader->examples};
}

static const char *row(const rows *r, int64_t i) { return r->data + (size_t)(r->order ? r->order[i] : i) * r->bytes; }

/* Shuffled rows come from anywhere in memory: without asking ahead, waiting for it costs more than the work does. The hardware sees to the
 * rest of a long row by itself. */
static void prefetch(const rows *r, int64_t i) {
    enum { AHEAD = 2, LINE = 64, MOST = 1024 };
    if (!r->order || i + AHEAD >= r->count)
        return;
    const char *next = row(r, i + AHEAD);
    for (size_t at = 0; at < r->bytes && at < MOST; at += LINE)
        __builtin_prefetch(next + at);
}

static void gather_rows(tt_tensor *to, const rows *from, int64_t first, int64_t n) {
    char *out = to->data;
    for (int64_t i = first; i < first + n; i++, out += from->bytes) {
        prefetch(from, i);
        memcpy(out, row(from, i), from->bytes);
    }
}

static void gather_u8(tt_tensor *to, const rows *from, int64_t first, int64_t n, const tt_dataset *normalization) {
    const tt__convert_kernels *kernels = TT__LEVEL_CHOOSE(tt__convert_kernels);
    float *out = to->data;
    for (int64_t i = first; i < first + n; i++, out += from->bytes) {
        const uint8_t *in = (const uint8_t *)row(from, i);
        prefetch(from, i);
        if (normalization)
            kernels->normalize(out, in, from->bytes, normalization->mean, normalization->std);
        else
            kernels->plain(out, in, from->bytes);
    }
}

/* The next n examples. There is at least one, so the data set is not empty. */
static void gather(tt_loader *loader, int64_t n) {
    rows inputs = rows_of(loader, loader->dataset->inputs);
    if (loader->dataset->inputs->dtype == TT_U8)
        gather_u8(loader->x, &inputs, loader->at, n, tt__dataset_normalization(loader->dataset));
    else
        gather_rows(loader->x, &inputs, loader->at, n);
    if (loader->y) {
        rows targets = rows_of(loader, loader->dataset->targets);
        gather_rows(loader->y, &targets, loader->at, n);
    }
}

bool tt_loader_next(tt_loader *loader, tt_batch *batch) {
    if (!loader || !batch) {
        tt__fail(TT_ERR_INVALID, "tt_loader_next: the %s is NULL", loader ? "batch" : "loader");
        return false;
    }
    int64_t left = loader->examples - loader->at, n = left < loader->batch_size ? left : loader->batch_size;
    if (n == 0) {
        loader->at = 0;
        return false;
    }
    /* Neither can fail: a batch is at most what both were made for. */
    tt__tensor_set_rows(loader->x, n);
    if (loader->y)
        tt__tensor_set_rows(loader->y, n);
    gather(loader, n);
    loader->at += n;
    *batch = (tt_batch){loader->x, loader->y, n};
    return true;
}

void tt_loader_restart(tt_loader *loader) {
    if (loader)
        loader->at = 0;
}
