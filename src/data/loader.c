/* The loader: batches gathered into two tensors that are made once. */
#include "data/dataset.h"

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
    float table[256]; /* what u8 inputs become */
};

/* ---- making ---- */

static tt_status check(const tt_loader_args *a) {
    if (!a->dataset)
        return tt__fail(TT_ERR_INVALID, "tt_loader_new: the data set is NULL");
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
    tt_loader_args a = {0};
    if (args)
        memcpy(&a, args, size < sizeof a ? size : sizeof a);
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

/* Where row `index` of x begins, and how many bytes it has. */
static size_t row_bytes(const tt_tensor *x) {
    return x->shape.dim[0] ? (size_t)(x->numel / x->shape.dim[0]) * tt_dtype_size(x->dtype) : 0;
}

static void gather_rows(tt_tensor *to, const tt_tensor *from, const int64_t *index, int64_t first, int64_t n) {
    size_t bytes = row_bytes(from);
    char *out = to->data;
    for (int64_t i = 0; i < n; i++)
        memcpy(out + (size_t)i * bytes, (const char *)from->data + (size_t)(index ? index[i] : first + i) * bytes,
               bytes);
}

static void gather_u8(tt_tensor *to, const tt_tensor *from, const int64_t *index, int64_t first, int64_t n,
                      const float *table) {
    size_t row = row_bytes(from);
    float *restrict out = to->data;
    for (int64_t i = 0; i < n; i++, out += row) {
        const uint8_t *restrict in = (const uint8_t *)from->data + (size_t)(index ? index[i] : first + i) * row;
        for (size_t k = 0; k < row; k++)
            out[k] = table[in[k]];
    }
}

static void gather(tt_loader *loader, int64_t n) {
    const tt_tensor *inputs = loader->dataset->inputs, *targets = loader->dataset->targets;
    const int64_t *index = loader->sampler ? tt_sampler_indices(loader->sampler) + loader->at : NULL;
    if (inputs->dtype == TT_U8)
        gather_u8(loader->x, inputs, index, loader->at, n, loader->table);
    else
        gather_rows(loader->x, inputs, index, loader->at, n);
    if (targets)
        gather_rows(loader->y, targets, index, loader->at, n);
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
    if (loader->at == 0)
        tt__dataset_table(loader->dataset, loader->table);
    /* Neither can fail: a batch is at most what both were made for. */
    tt__tensor_set_rows(loader->x, n);
    if (loader->y)
        tt__tensor_set_rows(loader->y, n);
    gather(loader, n);
    loader->at += n;
    *batch = (tt_batch){loader->x, loader->y, n};
    return true;
}
