/* One batch of a loader's: its examples are read, and collated if the program has a function for that. Runs in workers:
 * touches nothing of the loader but its job. */
#include "base/error.h"
#include "data/loader/loader.h"
#include "data/transforms/draws.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>

/* x, or a copy in pinned memory; NULL: an error. */
static tt_tensor *pinned_copy_of(const tt_loader *loader, tt_tensor *x) {
    const tt_device *device = loader->batches.pin;
    if (!device || !tt__device_is_host(tt__device_of(x)))
        return x;
    tt_tensor *y = tt__tensor_new_pinned("tt_loader", device, x->shape, x->dtype);
    return y && tt_copy(y, x) ? tt__abandon(y) : y;
}

/* Let the caller lend what the program's function made. */
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

static tt_status make_loader_job(tt_loader *loader, tt__reader *reader, tt__loader_job *job) {
    TT__TRY(tt__reader_read(reader, &job->how, job->indices, job->n, tt_tensor_data(job->buffer->x),
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
