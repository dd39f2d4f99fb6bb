/* Master parameters: their values, their gradients, and giving them to parameters that become 16-bit. */
#include "optim/optimizer.h"

#include "autograd/leaf.h"
#include "base/dtype.h"
#include "base/error.h"
#include "tensor/device/parallel.h"
#include "tensor/ops/ops.h"

#include <stdlib.h>

tt_tensor *tt__master_of(tt_tensor *x) {
    tt_tensor *master = tt__optim_hold(tt__to("an optimizer", x, TT_F32));
    if (!master || tt_requires_grad_(master, true))
        return master;
    tt__tensor_disown(master);
    return NULL;
}

/* ---- values ---- */

typedef struct refresh_pass {
    float *master;
    const uint16_t *low;
    bool is_bf16;
} refresh_pass;

static void refresh_block(void *user, int64_t begin, int64_t end) {
    const refresh_pass *p = user;
    for (int64_t i = begin; i < end; i++) {
        const float m = p->master[i];
        const uint16_t low = p->low[i];
        const uint16_t rounded = p->is_bf16 ? tt__bf16_of_float(m) : tt__f16_of_float(m);
        const float value = p->is_bf16 ? tt__float_of_bf16(low) : tt__float_of_f16(low);
        p->master[i] = rounded == low ? m : value;
    }
}

/* refresh_master() for any layout and device, by operations. */
static tt_status refresh_anywhere(const char *who, const tt__optim_param *p) {
    tt_tensor *rounded = tt__to(who, p->tensor, p->low_dtype), *low = rounded ? tt__to(who, p->low, TT_F32) : NULL;
    tt_tensor *same = low ? tt__empty_beside(who, p->low, p->low->shape, TT_BOOL) : NULL;
    if (!same)
        return tt_last_status();
    TT__TRY(tt__compare_out(who, same, rounded, p->low, TT__EQ));
    return tt__where_out(who, p->tensor, same, p->tensor, low);
}

/* Where the parameter was changed since the last step, copy its elements to the master. */
static tt_status refresh_master(const char *who, const tt__optim_param *p) {
    enum { BLOCK = 1 << 15 };
    if (!tt__device_is_host(tt_tensor_device(p->low)) || !p->low->contiguous || !p->tensor->contiguous)
        return refresh_anywhere(who, p);
    refresh_pass pass = {p->tensor->data, p->low->data, p->low_dtype == TT_BF16};
    tt__parallel_for(p->numel, BLOCK, refresh_block, &pass);
    return TT_OK;
}

/* ---- gradients ---- */

static tt_status take_low_grad(const char *who, const tt__optim_param *p) {
    const tt_tensor *grad = tt_grad(p->low);
    if (tt_sparse_grad_values(p->low))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: %s has a sparse gradient, which no master of f32 takes: leave .sparse out, or keep it f32",
                        who, TT__DESCRIBE(p->low));
    tt__leaf *leaf = tt__leaf_of(p->tensor);
    tt_tensor *to = NULL;
    tt_zero_grad(p->tensor);
    if (!grad)
        return TT_OK;
    TT__TRY(tt__leaf_lend(leaf, p, &to));
    tt_status status = tt__copy_out(who, to, grad);
    if (!status)
        return tt__leaf_add(leaf, p, to, false);
    tt__leaf_unlend(leaf, p);
    return status;
}

tt_status tt__master_begin(const char *who, const tt__optim_param *p) {
    if (tt_tensor_dtype(p->low) != p->low_dtype || tt_tensor_numel(p->low) != p->numel)
        return tt__fail(TT_ERR_STATE,
                        "%s: a parameter was %s of %lld elements when it was added, and is %s now; make the optimizer "
                        "after converting the module",
                        who, tt_dtype_name(p->low_dtype), (long long)p->numel, TT__DESCRIBE(p->low));
    TT__TRY(refresh_master(who, p));
    return take_low_grad(who, p);
}

tt_status tt__masters_begin(const char *who, tt_optimizer *o) {
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++)
            if (o->groups[g].params[i].low)
                TT__TRY(tt__master_begin(who, &o->groups[g].params[i]));
    o->masters_begun = true;
    return TT_OK;
}

tt_status tt__master_end(const char *who, const tt__optim_param *p) {
    TT__TRY(tt__copy_out(who, p->low, p->tensor));
    tt__storage_touch(p->low->storage);
    return TT_OK;
}

/* ---- when a model becomes 16-bit ---- */

static size_t param_total(const tt_optimizer *o) {
    const tt__optim_group *last = &o->groups[o->group_count - 1];
    return (size_t)last->first + last->count;
}

tt_status tt__masters_prepare(const char *who, const tt_optimizer *o, tt_tensor ***list) {
    tt_tensor **made = *list = calloc(param_total(o) + 1, sizeof *made);
    if (!made)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu parameters", who, param_total(o));
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++) {
            const tt__optim_param *p = &o->groups[g].params[i];
            tt_tensor **master = &made[(size_t)o->groups[g].first + i];
            if (!p->low && p->dtype == TT_F32 && !(*master = tt__master_of(p->tensor)))
                return tt_last_status();
        }
    return TT_OK;
}

void tt__masters_take(tt_optimizer *o, tt_tensor **list, bool keep) {
    for (size_t g = 0; g < o->group_count && list; g++)
        for (size_t i = 0; i < o->groups[g].count; i++) {
            tt__optim_param *p = &o->groups[g].params[i];
            tt_tensor *master = list[(size_t)o->groups[g].first + i];
            if (master && keep && tt__wants_master(tt_tensor_dtype(p->tensor))) {
                p->low = p->tensor;
                p->low_dtype = tt_tensor_dtype(p->low);
                p->tensor = master;
                /* the rounded values, which are equal on all ranks */
                tt_ignore(tt__copy_out("tt_amp_initialize", master, p->low));
            } else {
                tt__tensor_disown(master);
            }
        }
    free(list);
}

/* ---- for programs ---- */

const tt_named_tensors *tt_optimizer_master_params(tt_optimizer *optimizer) {
    static const char who[] = "tt_optimizer_master_params";
    if (!optimizer)
        return NULL;
    size_t room = 0;
    for (size_t g = 0; g < optimizer->group_count; g++)
        room += optimizer->groups[g].count;
    tt__dict *list = &optimizer->masters;
    tt_status status = tt__dict_init(list, who, room);
    for (size_t g = 0; g < optimizer->group_count && !status; g++)
        for (size_t i = 0; i < optimizer->groups[g].count && !status; i++)
            status = tt__dict_add(list, optimizer->groups[g].params[i].tensor, "%lld",
                                  (long long)optimizer->groups[g].first + (long long)i);
    return tt__dict_finish(list, status);
}
