/* Buckets in the order in which gradients become ready, which the first step shows. */
#include "autograd/leaf.h"
#include "base/error.h"
#include "parallel/ddp/ddp_device.h"

tt_status tt__ddp_rebuild(tt__ddp *d) {
    bool rebuilt;
    if (d->rebuilt || d->watcher) /* who watches relies on the buckets */
        return TT_OK;
    d->rebuilt = true;
    tt_status status = tt__reducer_rebuild(d->reducer, &rebuilt);
    if (!status && rebuilt && d->twins)
        status = tt__ddp_make_twins(d, tt__ddp_far_device(d));
    for (size_t i = 0; i < d->attached && rebuilt && !status; i++)
        if (tt_requires_grad(d->slots[i].parameter) && !d->slots[i].sparse) /* a frozen one has no gradient now */
            status = tt__leaf_set_grad_storage(d->slots[i].parameter, tt__ddp_gradient_place(d, i));
    if (status) { /* some gradients may still lie in the old buckets, which go with the reducer */
        tt__reducer_abandon(d->reducer, status);
        return status;
    }
    tt__ddp_drop_old_twins(d);
    tt__reducer_drop_old(d->reducer);
    return TT_OK;
}
