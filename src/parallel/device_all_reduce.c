/* The ranks compare what they call, tell each other where their tensors lie, sum each its share into all of them, and
 * wait for each other. */
#include "parallel/device_all_reduce.h"

#include "base/error.h"
#include "comm/group.h"
#include "parallel/device_peers.h"
#include "reducer/text_agreement.h"
#include "tensor/core/tensor.h"
#include "tensor/device/capture.h"

#include <stdatomic.h>
#include <stdlib.h>

enum { LEAST_BYTES = 64 << 10 }; /* less is as fast by the host, in one call */

/* What must be alike on all ranks. */
typedef struct reduce_word {
    int64_t count;
    int32_t dtype, op;
} reduce_word;

/* Memory that was lent and not given back. */
typedef struct lent {
    struct lent *next;
    tt__storage *storage;
} lent;

bool tt__device_all_reduce_fits(const tt_tensor_all_reduce_args *a) {
    const tt_device *device = tt_tensor_device(a->x);
    const tt_dtype dtype = tt_tensor_dtype(a->x);
    return a->group && a->group->device == TT_DEVICE_CUDA && a->group->native && device->sharing && device->queue &&
           !a->work && (a->op == TT_SUM || a->op == TT_AVG) &&
           (dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16 || dtype == TT_BF16) && tt_is_contiguous(a->x) &&
           tt_tensor_numel(a->x) * (int64_t)tt_dtype_size(dtype) >= LEAST_BYTES;
}

/* What is attached to a group whose ranks can't reach each other. */
static char none;

static void end_attached(void *attached) {
    if (attached != &none)
        tt__device_peers_free(attached);
}

/* The group's peers, made by its first call. NULL: there are none. */
static tt_status find_peers(tt_group *group, const tt_device *device, const char *who, tt__device_peers **peers) {
    void *attached = tt__group_attached(group);
    if (!attached) {
        TT__TRY(tt__device_peers_make(peers, group, device, who));
        attached = *peers ? (void *)*peers : &none;
        tt__group_attach(group, attached, end_attached);
    }
    *peers = attached == &none ? NULL : attached;
    return TT_OK;
}

static const char *op_name(int op) { return op == TT_AVG ? "avg" : "sum"; }

static tt_status compare_calls(const tt_tensor_all_reduce_args *a, const char *who) {
    const reduce_word own = {tt_tensor_numel(a->x), (int32_t)tt_tensor_dtype(a->x), (int32_t)a->op};
    reduce_word all[TT__DEVICE_PEERS];
    TT__TRY(tt__group_gather(a->group, &own, all, sizeof own, TT_U8, who));
    for (int r = 0; r < tt_get_world_size(a->group); r++)
        if (all[r].count != own.count || all[r].dtype != own.dtype || all[r].op != own.op) {
            tt__fail(TT_ERR_MISMATCH, "rank %d called all_reduce(%s x %lld, %s), and rank %d all_reduce(%s x %lld, %s)",
                     r, tt_dtype_name((tt_dtype)all[r].dtype), (long long)all[r].count, op_name(all[r].op),
                     tt_get_rank(a->group), tt_dtype_name((tt_dtype)own.dtype), (long long)own.count, op_name(own.op));
            tt__abort_with_error(a->group);
            return tt_last_status();
        }
    return TT_OK;
}

static tt_status wait_for_mark(const tt_device *device, void *mark) {
    bool done;
    return mark ? device->queue->sent(device, mark, true, &done) : TT_OK;
}

/* Others of a call that has failed may still write there: the memory is nobody's any more. */
static void lend_for_ever(tt__storage *storage) {
    static _Atomic(lent *) all;
    lent *l = malloc(sizeof *l);
    tt__storage_ref(storage);
    if (!l)
        return;
    *l = (lent){atomic_load(&all), storage};
    while (!atomic_compare_exchange_weak(&all, &l->next, l))
        ;
}

/* This rank's share; then all wait for each other. */
static tt_status sum_and_meet(const tt_tensor_all_reduce_args *a, const tt__device_peers *peers, void *const *of,
                              const char *who) {
    const tt_device *device = tt_tensor_device(a->x);
    void *mark = NULL;
    tt_status status =
        tt__device_peers_sum(peers, of, (size_t)tt_tensor_numel(a->x), tt_tensor_dtype(a->x), a->op == TT_AVG, &mark);
    if (!status)
        status = wait_for_mark(device, mark);
    if (status) /* of this rank alone */
        tt__abort_with_error(a->group);
    else
        status = tt_barrier_with(TT_ARGS(tt_barrier_args, a->group, .timeout_ms = a->timeout_ms, .file = who));
    if (status)
        lend_for_ever(a->x->storage);
    else
        tt__storage_touch(a->x->storage);
    return status;
}

tt_status tt__device_all_reduce(const tt_tensor_all_reduce_args *a, const char *who, bool *done) {
    const tt_device *device = tt_tensor_device(a->x);
    const size_t bytes = (size_t)tt_tensor_numel(a->x) * tt_dtype_size(tt_tensor_dtype(a->x));
    void *of[TT__DEVICE_PEERS], *mark = NULL;
    tt__device_peers *peers;
    bool reached = false;
    *done = false;
    TT__TRY(tt__capture_refuse(who, NULL));
    TT__TRY(find_peers(a->group, device, who, &peers));
    if (!peers)
        return TT_OK;
    tt_status status = device->queue->mark(device, &mark);
    if (!status)
        status = wait_for_mark(device, mark);
    if (status) { /* of this rank alone */
        tt__abort_with_error(a->group);
        return status;
    }
    TT__TRY(compare_calls(a, who));
    TT__TRY(tt__device_peers_reach(peers, a->x->data, bytes, who, of, &reached));
    if (!reached)
        return TT_OK;
    *done = true;
    return sum_and_meet(a, peers, of, who);
}
