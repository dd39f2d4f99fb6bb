/* The making of one batch: its examples are read, and collated if the program has a function for that. Workers run it,
 * so it touches nothing of the loader but its job. */
#include "base/error.h"
#include "data/loader/convert_kernels.h"
#include "data/loader/loader.h"
#include "data/transforms/transform.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdlib.h>

/* ---- reading examples ---- */

/* Return how many u8 examples stay in the second-level cache between reading and conversion. */
static int64_t raw_rows(const tt_dataset *dataset) {
    const int64_t bytes = 65536, row = (int64_t)dataset->x_bytes;
    return row > 0 && row < bytes ? bytes / row : 1;
}

tt_status tt__reader_init(tt__reader *reader, tt_dataset *dataset, bool convert) {
    *reader = (tt__reader){.dataset = dataset};
    if (!convert || dataset->x.dtype != TT_U8)
        return TT_OK;
    reader->raw_rows = raw_rows(dataset);
    reader->raw = malloc((size_t)reader->raw_rows * dataset->x_bytes + 1);
    return reader->raw ? TT_OK : tt__fail(TT_ERR_MEMORY, "tt_loader_new: out of memory");
}

void tt__reader_free(tt__reader *reader) { free(reader->raw); }

/* Read u8 inputs, and convert them a few examples at a time. x (n, ...) f32 */
static tt_status read_u8(tt__reader *reader, const tt__normalization *how, const int64_t *indices, int64_t n, float *x,
                         char *y) {
    const tt__convert_kernels *kernels = TT__LEVEL_CHOOSE(tt__convert_kernels);
    tt_dataset *d = reader->dataset;
    for (int64_t done = 0; done < n; done += reader->raw_rows) {
        int64_t now = n - done < reader->raw_rows ? n - done : reader->raw_rows;
        size_t count = (size_t)now * d->x_bytes;
        TT__TRY(tt__dataset_read(d, indices + done, now, reader->raw, y));
        if (how->on)
            kernels->normalize(x, reader->raw, count, how->mean, how->std);
        else
            kernels->plain(x, reader->raw, count);
        x += count;
        if (y)
            y += (size_t)now * d->y_bytes;
    }
    return TT_OK;
}

/* Write n examples to x and y (NULL: no targets), one behind the other; `how` normalises u8 inputs. */
static tt_status reader_read(tt__reader *reader, const tt__normalization *how, const int64_t *indices, int64_t n,
                             void *x, void *y) {
    return reader->raw ? read_u8(reader, how, indices, n, x, y) : tt__dataset_read(reader->dataset, indices, n, x, y);
}

/* ---- collating ---- */

/* Return x, or a copy in pinned memory; NULL: an error. */
static tt_tensor *pinned_copy_of(const tt_loader *loader, tt_tensor *x) {
    const tt_device *device = loader->batches.pin;
    if (!device || !tt__device_is_host(tt__device_of(x)))
        return x;
    tt_tensor *y = tt__tensor_new_pinned("tt_loader", device, x->shape, x->dtype);
    return y && tt_copy(y, x) ? tt__abandon(y) : y;
}

/* Lend what the program's function made: *lent. */
static tt_status take_collated(const tt_loader *loader, tt_tensor *made, tt_tensor **lent) {
    tt_tensor *x = made ? pinned_copy_of(loader, made) : NULL;
    if (made && !x)
        return tt_last_status();
    if (x)
        TT__TRY(tt__batch_lend_tensor(x));
    *lent = x;
    return TT_OK;
}

/* Free what the function made and nobody takes, unless the scope does it. */
static void discard_made(const tt__loader_job *job, tt_tensor *x) {
    if (x && x != job->x && x != job->y && x->owner == TT__OWNER_CALLER)
        tt_tensor_free(x);
}

/* Call the program's function in a scope of its own. */
static tt_status collate_job(const tt_loader *loader, tt__loader_job *job) {
    const tt_examples examples = {job->n, job->indices, tt_tensor_data(job->buffer->x), tt_tensor_data(job->buffer->y)};
    tt_tensor *x = NULL, *y = NULL;
    TT_AUTO_SCOPE;
    uint64_t errors = tt__error_count();
    tt_status status = loader->collate(loader->collate_user, &examples, &x, &y);
    if (!status)
        status = x ? take_collated(loader, x, &job->x) : tt__fail(TT_ERR_INVALID, "it set no x");
    if (!status)
        status = take_collated(loader, y, &job->y);
    if (status)
        status =
            tt__fail_callback(errors, status, "a loader's collate: %" PRId64 " examples, the first is number %" PRId64,
                              job->n, job->indices[0]);
    discard_made(job, x);
    discard_made(job, x == y ? NULL : y);
    return status;
}

/* ---- the batch ---- */

static tt_status make_loader_job(tt_loader *loader, tt__reader *reader, tt__loader_job *job) {
    TT__TRY(reader_read(reader, &job->how, job->indices, job->n, tt_tensor_data(job->buffer->x),
                        tt_tensor_data(job->buffer->y)));
    return loader->collate ? collate_job(loader, job) : TT_OK;
}

void tt__loader_work(void *loader, int worker, int64_t slot) {
    tt_loader *l = loader;
    tt__loader_job *job = &l->job[slot];
    tt__draws_set_epoch(job->epoch);
    if (make_loader_job(l, &l->reader[worker], job))
        tt__error_save(&job->error);
    tt__draws_set_epoch(0);
}
