/* Gradients of slices. In stage 1 they are views into the wrapper's buckets, which are averaged whole. In stage 2 a
 * communication hook reduces each bucket to its parts: a rank adds its own part to the gradients of its slices, and
 * gives the bucket's memory back to the system until the next pass writes there. The kernels and the order of sums are
 * those of whole buckets, so gradients have the same bits. */
#include "parallel/ddp/ddp_state.h"
#include "parallel/zero/zero.h"

#include <sys/mman.h>
#include <unistd.h>

#include "autograd/leaf.h"
#include "base/error.h"

static const char scatter_site[] = "the averaging of gradients";

/* ---- a bucket's way to its slices ---- */

static char *own_part_of_bucket(const tt__zero *z, const tt_bucket *bucket) {
    const tt__zero_bucket *b = &z->buckets[bucket->index];
    return (char *)bucket->data + (size_t)(b->part * z->rank) * tt_dtype_size(b->dtype);
}

static tt_status begin_scatter(const tt__zero *z, const tt_bucket *bucket, tt_work **work) {
    return tt_reduce_scatter_with(TT_ARGS(tt_reduce_scatter_args, bucket->group, bucket->data,
                                          own_part_of_bucket(z, bucket), z->buckets[bucket->index].part, bucket->dtype,
                                          TT_AVG, .work = work, .file = scatter_site, TT__BUCKET_ON(bucket)));
}

void *tt__zero_averaged(const tt__zero *z, const tt__zero_param *p) {
    const size_t at = (size_t)p->from * tt_dtype_size(z->buckets[p->bucket].dtype);
    return (char *)tt__ddp_gradient_place(z->ddp, (size_t)(p - z->params)) + at;
}

/* Copy the slice's part of a bucket to the device. */
static tt_status bring_part(const tt__zero *z, const tt_bucket *bucket, const tt__zero_param *p) {
    const size_t bytes = tt_dtype_size(bucket->dtype);
    const void *from = (const char *)bucket->data + (size_t)(p->offset + p->from) * bytes;
    const tt_device *d = z->device;
    return d->queue ? d->queue->receive(d, tt__zero_averaged(z, p), from, (size_t)p->n * bytes)
                    : d->from_host(d, tt__zero_averaged(z, p), from, (size_t)p->n * bytes);
}

/* Add the parameter's average in the bucket to its slice's gradient. */
static tt_status take_grad(const tt__zero *z, const tt_bucket *bucket, const tt__zero_param *p) {
    if (p->n && z->ddp->device.twins)
        TT__TRY(bring_part(z, bucket, p));
    tt_tensor *averaged =
        tt__tensor_borrow(scatter_site, z->device, tt__zero_averaged(z, p), TT_SHAPE(p->n), bucket->dtype);
    return averaged ? tt__leaf_give_grad(p->slice, averaged) : tt_last_status();
}

static tt_status take_grads(const tt__zero *z, const tt_bucket *bucket) {
    int scope = tt_scope_begin();
    tt_status status = scope ? TT_OK : tt_last_status();
    for (int64_t i = 0; i < bucket->gradient_count && !status; i++) {
        const int64_t param = bucket->gradients[i].param;
        if (tt_reducer_was_used(z->ddp->reducer, param))
            status = take_grad(z, bucket, &z->params[param]);
    }
    tt_scope_end(scope);
    return status;
}

/* Give back the pages that have gradients only. If the system takes them, they read as zeros from then on. */
static void give_pages_back(const tt_bucket *bucket, int64_t count) {
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)bucket->data,
                    end = begin + (uintptr_t)count * tt_dtype_size(bucket->dtype),
                    first = (begin + page - 1) & ~(page - 1), last = end & ~(page - 1);
    if (last > first && madvise((void *)first, last - first, MADV_REMOVE)) /* for shared memory; next, for private */
        madvise((void *)first, last - first, MADV_DONTNEED);
}

/* Are the buckets so large that giving memory back is worth the page faults? */
static bool is_worth_giving_back(const tt__zero *z) {
    enum { LEAST = 16 << 20 };
    size_t bytes = 0;
    for (size_t i = 0; i < z->bucket_count; i++)
        bytes += (size_t)(z->buckets[i].part * z->world) * tt_dtype_size(z->buckets[i].dtype);
    return bytes >= LEAST;
}

static tt_status zero_next(void *state, const tt_bucket *bucket, int stage, tt_work **work) {
    const tt__zero *z = state;
    if (stage == 0)
        return begin_scatter(z, bucket, work);
    TT__TRY(take_grads(z, bucket));
    if (z->gives_back)
        give_pages_back(bucket, z->buckets[bucket->index].part * z->world);
    return TT_OK;
}

static void zero_unhooked(void *state) {
    tt__zero *z = state;
    z->hooked = false;
}

static const tt_comm_hook zero_hook = {.size = sizeof zero_hook,
                                       .name = "ZeRO stage 2",
                                       .next = zero_next,
                                       .detach = zero_unhooked,
                                       .takes_devices = true};

/* ---- after a pass ---- */

static void zero_stepped(void *user) {
    const tt__zero *z = user;
    for (size_t i = 0; i < z->count; i++) {
        const tt__zero_param *p = &z->params[i];
        if (!tt_reducer_was_used(z->ddp->reducer, (int64_t)i))
            continue;
        if (z->stage > 1)
            tt__leaf_drop_grad(p->whole);
        else
            tt__leaf_define_grad(p->slice);
    }
}

/* The buckets are about to go: move gradients that lie there to memory of their own. */
static void zero_detached(void *user) {
    tt__zero *z = user;
    for (size_t i = 0; i < z->count && z->stage == 1; i++)
        tt_ignore(tt__leaf_set_grad_storage(z->params[i].slice, NULL));
    if (z->hooked)
        tt__ddp_drop_hook(z->ddp);
    z->ddp = NULL;
}

static const tt__ddp_watcher zero_watcher = {.stepped = zero_stepped, .detached = zero_detached},
                             zero_2_watcher = {.stepped = zero_stepped, .detached = zero_detached, .takes_all = true};

/* ---- beginning and end ---- */

tt_status tt__zero_watch(tt__zero *z, tt_module *ddp) {
    if (z->stage > 1) {
        TT__TRY(tt_ddp_register_comm_hook(ddp, &zero_hook, z));
        z->hooked = true;
        /* a device's buckets are pinned, and can't be given back */
        z->gives_back = tt__device_is_host(z->device) && is_worth_giving_back(z);
    }
    z->ddp->watcher = z->stage > 1 ? &zero_2_watcher : &zero_watcher;
    z->ddp->watcher_user = z;
    return TT_OK;
}

void tt__zero_unwatch(tt__zero *z) {
    tt__ddp *d = z->ddp;
    if (!d)
        return;
    if (d->watcher_user == z)
        d->watcher = NULL;
    if (z->hooked)
        tt__ddp_drop_hook(d);
    z->ddp = NULL;
}
