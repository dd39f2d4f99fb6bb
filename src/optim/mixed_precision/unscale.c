#include "optim/mixed_precision/unscale.h"

#include "autograd/sparse_grad.h"
#include "base/error.h"
#include "optim/clipping/grad_total.h"
#include "optim/mixed_precision/masters.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"

#include <math.h>
#include <stdatomic.h>

typedef struct unscale_pass {
    tt__unscale_fn run;
    char *data;
    size_t size; /* of an element */
    double factor;
    _Atomic bool found;
} unscale_pass;

static void unscale_block(void *user, int64_t begin, int64_t end) {
    unscale_pass *pass = user;
    if (pass->run(pass->data + (size_t)begin * pass->size, end - begin, pass->factor))
        atomic_store_explicit(&pass->found, true, memory_order_relaxed);
}

/* Multiply contiguous memory of the host. */
static void unscale_here(tt_tensor *x, double factor, tt__grad_total *found) {
    enum { BLOCK = 1 << 15 };
    const tt__unscale_kernels *kernels = TT__LEVEL_CHOOSE(tt__unscale_kernels_of_types);
    unscale_pass pass = {.run = x->dtype == TT_F32 ? kernels->f32 : kernels->f64,
                         .data = x->data,
                         .size = tt_dtype_size(x->dtype),
                         .factor = factor};
    tt__parallel_for(x->numel, BLOCK, unscale_block, &pass);
    tt__grad_total_join(found, pass.found);
}

static tt_status unscale_far(tt_tensor *x, double factor, tt__grad_total *found) {
    tt__kernel_grad_unscale run = TT__KERNEL(found->who, x, grad_unscale);
    tt_tensor *far = run ? tt__grad_total_far(found, x) : NULL;
    return far ? run(x, factor, far) : tt_last_status();
}

/* Multiply x, in any layout and on any device. */
static tt_status unscale_one(tt_tensor *x, double factor, tt__grad_total *found) {
    tt_tensor *flat = tt_contiguous(x);
    if (!flat)
        return tt_last_status();
    if (tt__device_is_host(tt_tensor_device(x)))
        unscale_here(flat, factor, found);
    else
        TT__TRY(unscale_far(flat, factor, found));
    if (flat != x)
        return tt_copy(x, flat);
    tt__storage_touch(x->storage);
    return TT_OK;
}

static tt_status unscale_groups(const char *who, tt_optimizer *o, double factor, tt__grad_total *found,
                                int64_t *count) {
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++) {
            const tt__optim_param *p = &o->groups[g].params[i];
            tt_tensor *grad = tt__grad_values(p->tensor);
            if (!grad)
                continue;
            if (grad->dtype != p->dtype)
                return tt__fail(TT_ERR_STATE,
                                "%s: a parameter was %s when it was added, and its gradient is %s now; make the "
                                "optimizer after converting the module",
                                who, tt_dtype_name(p->dtype), TT__DESCRIBE(grad));
            TT__TRY(unscale_one(grad, factor, found));
            ++*count;
        }
    return tt__grad_total_end(found);
}

tt_status tt__unscale_grads(const char *who, tt_optimizer *optimizer, double factor, bool *found, int64_t *count) {
    tt__grad_total infinite = {.who = who, .p = INFINITY};
    *count = 0;
    int scope = tt_scope_begin(); /* ends copies of gradients in other layouts */
    bool before = tt_no_grad_begin();
    tt_status status = scope ? tt__masters_begin(who, optimizer) : tt__fail_prefix("%s", who);
    if (!status)
        status = unscale_groups(who, optimizer, factor, &infinite, count);
    double any[1 + TT__JOIN_ROOM] = {infinite.value};
    if (optimizer->shards)
        status = optimizer->shards->join(optimizer->shards_user, who, status, any, 1, true);
    *found = any[0] != 0;
    tt_no_grad_end(before);
    tt_scope_end(scope);
    return status;
}
