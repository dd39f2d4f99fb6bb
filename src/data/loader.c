/* The loader: an epoch's order from the sampler, the examples of each batch from the data set, u8 inputs converted. */
#include "data/batch.h"
#include "data/convert_kernels.h"
#include "data/dataset.h"
#include "data/sampler.h"

#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "tensor/tensor.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tt_loader {
    tt_dataset *dataset;
    tt_sampler *sampler;
    int64_t batch_size;
    int64_t examples; /* an epoch, without what drop_last leaves out */
    int64_t at;       /* the next one */
    int64_t *order;   /* (size of the sampler) the examples that this epoch visits */
    tt__batches batches;
    uint8_t *raw; /* (raw_rows) u8 inputs on their way to f32; NULL for other inputs */
    int64_t raw_rows;
    tt_status error; /* what ended the epoch, TT_OK: nothing */
    char error_text[TT__ERROR_TEXT_SIZE];
};

/* ---- making ---- */

static tt_status loader_check(const tt_loader_new_args *a) {
    if (!a->dataset)
        return tt__fail_argument("tt_loader_new: the data set is NULL");
    if (!a->sampler)
        return tt__fail_argument("tt_loader_new: the sampler (without one: tt_in_order() or tt_shuffled()) is NULL");
    if (a->batch_size < 1)
        return tt__fail(TT_ERR_INVALID, "tt_loader_new: batch_size: expected at least 1, got %" PRId64, a->batch_size);
    return TT_OK;
}

static tt_status choose_sampler(tt_loader *loader, tt_sampler *sampler) {
    int64_t n = loader->dataset->size;
    if (sampler == tt_in_order() || (sampler == tt_shuffled() && n == 0))
        loader->sampler = tt_sequential_sampler(n);
    else if (sampler == tt_shuffled())
        loader->sampler = tt_random_sampler(n);
    else
        loader->sampler = tt__sampler_hold(sampler);
    if (!loader->sampler)
        return tt_last_status();
    if (loader->sampler->dataset_size != n)
        return tt__fail(TT_ERR_INVALID,
                        "tt_loader_new: the sampler is for a data set of %" PRId64
                        " examples, but this one has %" PRId64,
                        loader->sampler->dataset_size, n);
    return TT_OK;
}

/* Return how many u8 examples stay in the second-level cache between reading and conversion. */
static int64_t raw_rows(const tt_dataset *dataset) {
    const int64_t bytes = 65536, row = (int64_t)dataset->x_bytes;
    return row > 0 && row < bytes ? bytes / row : 1;
}

/* Allocate the batches' memory; they are never larger than the epoch. */
static tt_status loader_allocate(tt_loader *loader) {
    const tt_dataset *d = loader->dataset;
    int64_t n = loader->batch_size < loader->examples ? loader->batch_size : loader->examples;
    tt_tensor_spec x = d->x;
    loader->order = tt__indices_new("tt_loader_new", loader->sampler->size);
    if (x.dtype == TT_U8) {
        x.dtype = TT_F32;
        loader->raw_rows = raw_rows(d);
        loader->raw = malloc((size_t)loader->raw_rows * d->x_bytes + 1);
    }
    if (!loader->order || (d->x.dtype == TT_U8 && !loader->raw))
        return tt__fail(TT_ERR_MEMORY, "tt_loader_new: out of memory");
    return tt__batches_init(&loader->batches, n, &x, &d->y);
}

static tt_status loader_init(tt_loader *loader, const tt_loader_new_args *a) {
    loader->dataset = tt__dataset_hold(a->dataset);
    loader->batch_size = a->batch_size;
    TT__TRY(choose_sampler(loader, a->sampler));
    loader->examples = loader->sampler->size;
    if (a->drop_last)
        loader->examples -= loader->examples % a->batch_size;
    return loader_allocate(loader);
}

static void loader_end(tt_loader *loader) {
    tt__batches_free(&loader->batches);
    tt__sampler_release(loader->sampler);
    tt__dataset_release(loader->dataset);
    free(loader->order);
    free(loader->raw);
    tt__quarantine(loader, sizeof *loader, free);
}

tt_loader *tt_loader_new_with(const tt_loader_new_args *args, size_t size) {
    tt_loader_new_args a;
    TT__ARGS_COPY(a, args, size);
    if (loader_check(&a))
        return NULL;
    tt_loader *loader = calloc(1, sizeof *loader);
    if (!loader)
        return tt__fail_null(TT_ERR_MEMORY, "tt_loader_new: out of memory");
    if (!loader_init(loader, &a))
        return loader;
    loader_end(loader);
    return NULL;
}

void tt_loader_free(tt_loader *loader) {
    if (loader && !tt__freed_before("tt_loader_free", loader))
        loader_end(loader);
}

int64_t tt_loader_batches(const tt_loader *loader) {
    return loader ? loader->examples / loader->batch_size + (loader->examples % loader->batch_size != 0) : 0;
}

/* ---- one batch ---- */

/* Bytes become numbers a few examples at a time. x (n, ...) f32 */
static tt_status fill_u8(tt_loader *loader, const int64_t *indices, int64_t n, float *x, char *y) {
    const tt__convert_kernels *kernels = TT__LEVEL_CHOOSE(tt__convert_kernels);
    tt_dataset *d = loader->dataset;
    tt__normalization how;
    TT__TRY(tt__dataset_normalization(d, &how));
    for (int64_t done = 0; done < n; done += loader->raw_rows) {
        int64_t now = n - done < loader->raw_rows ? n - done : loader->raw_rows;
        size_t count = (size_t)now * d->x_bytes;
        TT__TRY(tt__dataset_read(d, indices + done, now, loader->raw, y));
        if (how.on)
            kernels->normalize(x, loader->raw, count, how.mean, how.std);
        else
            kernels->plain(x, loader->raw, count);
        x += count;
        y += y ? (size_t)now * d->y_bytes : 0;
    }
    return TT_OK;
}

/* Make a batch of the n examples from position loader->at of the order. */
static tt_status make_batch(tt_loader *loader, int64_t n, tt_batch *batch) {
    TT__TRY(tt__batches_lend(&loader->batches, n));
    tt_tensor *x = loader->batches.lent_x, *y = loader->batches.lent_y;
    const int64_t *indices = loader->order + loader->at;
    tt_status status = loader->raw
                           ? fill_u8(loader, indices, n, tt_tensor_data(x), tt_tensor_data(y))
                           : tt__dataset_read(loader->dataset, indices, n, tt_tensor_data(x), tt_tensor_data(y));
    if (status)
        return status;
    loader->at += n;
    *batch = (tt_batch){x, y, n, indices};
    return TT_OK;
}

/* ---- epochs ---- */

/* End the epoch with an error, which further calls repeat. It is the open scope's first error, too, so that a step with
 * this batch's NULLs reports it. */
static int end_with_error(tt_loader *loader, tt_status status) {
    tt__batches_take_back(&loader->batches);
    if (!loader->error) {
        loader->error = status;
        snprintf(loader->error_text, sizeof loader->error_text, "%s", tt_last_error());
    }
    tt__tensor_fail(loader->error, "%s", loader->error_text);
    return -1;
}

static int next_batch(tt_loader *loader, tt_batch *batch) {
    tt_status status = loader->error;
    tt__batches_take_back(&loader->batches);
    if (!status && loader->at == 0)
        status = tt__sampler_begin(loader->sampler, loader->order);
    int64_t left = loader->examples - loader->at, n = left < loader->batch_size ? left : loader->batch_size;
    if (!status && n == 0) {
        loader->at = 0;
        return 0;
    }
    if (!status)
        status = make_batch(loader, n, batch);
    return status ? end_with_error(loader, status) : 1;
}

int tt_loader_next_with(tt_loader *loader, tt_batch *batch, size_t size) {
    tt_batch next = {0};
    int result = -1;
    if (loader && batch)
        result = next_batch(loader, &next);
    else if (batch && tt_last_status())
        tt__tensor_fail(tt_last_status(), "%s", tt_last_error()); /* why the loader could not be made */
    else
        tt__tensor_fail(TT_ERR_INVALID, "tt_loader_next: the %s is NULL", batch ? "loader" : "batch");
    if (batch) {
        memset(batch, 0, size);
        memcpy(batch, &next, size < sizeof next ? size : sizeof next);
    }
    return result;
}

void tt_loader_restart(tt_loader *loader) {
    if (!loader)
        return;
    loader->at = 0;
    loader->error = TT_OK;
}
