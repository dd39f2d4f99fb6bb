/* Hooks that are one all-reduce: of the gradients as they are, and of gradients in 16 bits. */
#include "base/error.h"
#include "parallel/hooks/comm_hook.h"
#include "reducer/reducer.h"
#include "tensor/ops/ops.h"

#include <tutti/functional.h>

#include <stdlib.h>

static bool takes_all(tt_dtype dtype) { return (void)dtype, true; }

static tt_status all_reduce_next(void *state, const tt_bucket *b, int stage, tt_work **work) {
    (void)state;
    return stage ? TT_OK
                 : tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, b->group, b->data, b->count, b->dtype, TT_AVG,
                                              .work = work, .file = tt__hook_site, TT__BUCKET_ON(b)));
}

static void all_reduce_free(tt__comm_hook *h) { free(h); }

tt_status tt_all_reduce_hook(tt_module *ddp) {
    static const tt__hook_class cls = {.hook = {.size = sizeof cls.hook,
                                                .name = "all_reduce",
                                                .next = all_reduce_next,
                                                .attach = tt__hook_attach,
                                                .detach = tt__hook_detach,
                                                .takes_devices = true},
                                       .takes = takes_all,
                                       .free = all_reduce_free};
    TT__TRY(tt__hook_check("tt_all_reduce_hook", ddp));
    return tt__hook_register(ddp, calloc(1, sizeof(tt__comm_hook)), &cls, NULL);
}

/* ---- 16 bits: gradients are rounded, divided by the number of ranks, summed in one all-reduce of half the bytes, and
 * widened; 16-bit gradients of the same type are divided in their bucket ---- */

typedef struct half_hook {
    tt__comm_hook base;
    tt_dtype type; /* TT_F16 or TT_BF16 */
} half_hook;

static bool takes_f16(tt_dtype dtype) { return dtype == TT_F32 || dtype == TT_F64 || dtype == TT_F16; }
static bool takes_bf16(tt_dtype dtype) { return dtype == TT_F32 || dtype == TT_F64 || dtype == TT_BF16; }

static bool is_wide(tt_dtype dtype) { return dtype == TT_F32 || dtype == TT_F64; }

static void half_needs(const tt__comm_hook *h, const tt_bucket *b, tt__hook_needs *needs) {
    (void)h;
    needs->bytes[0] = is_wide(b->dtype) ? (size_t)b->count * sizeof(uint16_t) : 0;
}

static const tt__hook_half_kernels *half_kernels(const half_hook *h) {
    const tt__hook_kernels *k = TT__LEVEL_CHOOSE(tt__hook_kernels);
    return h->type == TT_F16 ? &k->f16 : &k->bf16;
}

/* Narrow the bucket; returns the 16-bit elements. */
static uint16_t *narrow(const half_hook *h, const tt_bucket *b) {
    const tt__hook_half_kernels *k = half_kernels(h);
    uint16_t *out = is_wide(b->dtype) ? tt__hook_bucket_of(&h->base, b)->buffers[0] : b->data;
    float world = (float)tt_get_world_size(b->group);
    if (b->dtype == TT_F32)
        k->narrow_f32(out, b->data, (size_t)b->count, world);
    else if (b->dtype == TT_F64)
        k->narrow_f64(out, b->data, (size_t)b->count, world);
    else
        k->divide(out, (size_t)b->count, world);
    return out;
}

static void widen(const half_hook *h, const tt_bucket *b) {
    const uint16_t *in = tt__hook_bucket_of(&h->base, b)->buffers[0];
    if (b->dtype == TT_F32)
        half_kernels(h)->widen_f32(b->data, in, (size_t)b->count);
    else if (b->dtype == TT_F64)
        half_kernels(h)->widen_f64(b->data, in, (size_t)b->count);
}

/* The memory for the 16-bit elements of a bucket on a device. */
static void *narrow_of(const half_hook *h, const tt_bucket *b) {
    return is_wide(b->dtype) ? tt__hook_bucket_of(&h->base, b)->buffers[0] : b->data;
}

static tt_tensor *far_tensor(const tt_bucket *b, void *data, tt_dtype dtype) {
    const tt_device *device = tt_device_of(b->device, b->device_index);
    return tt__tensor_borrow(tt__hook_site, device, data, TT_SHAPE(b->count), dtype);
}

/* Narrow the bucket by the device's operators, in its stream. */
static tt_status narrow_far(const half_hook *h, const tt_bucket *b) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    tt_tensor *x = far_tensor(b, b->data, b->dtype), *y = x ? far_tensor(b, narrow_of(h, b), h->type) : NULL;
    if (!y || !tt_scale_(x, 1.0 / tt_get_world_size(b->group)))
        return tt_last_status();
    return is_wide(b->dtype) ? tt__copy_out(tt__hook_site, y, x) : TT_OK;
}

static tt_status widen_far(const half_hook *h, const tt_bucket *b) {
    TT_AUTO_SCOPE;
    tt_tensor *x = far_tensor(b, b->data, b->dtype), *y = x ? far_tensor(b, narrow_of(h, b), h->type) : NULL;
    if (!y)
        return tt_last_status();
    return is_wide(b->dtype) ? tt__copy_out(tt__hook_site, x, y) : TT_OK;
}

static tt_status half_next(void *state, const tt_bucket *b, int stage, tt_work **work) {
    const half_hook *h = state;
    const bool far = b->device != TT_DEVICE_CPU;
    if (stage == 0) {
        if (far)
            TT__TRY(narrow_far(h, b));
        void *at = far ? narrow_of(h, b) : narrow(h, b);
        return tt_all_reduce_with(TT_ARGS(tt_all_reduce_args, b->group, at, b->count, h->type, TT_SUM, .work = work,
                                          .file = tt__hook_site, TT__BUCKET_ON(b)));
    }
    if (far)
        return widen_far(h, b);
    widen(h, b);
    return TT_OK;
}

static void half_free(tt__comm_hook *h) { free(h); }

#define HALF_HOOK(name_)                                                                                \
    {                                                                                                   \
        .hook = {.size = sizeof(tt_comm_hook),                                                          \
                 .name = #name_,                                                                        \
                 .next = half_next,                                                                     \
                 .attach = tt__hook_attach,                                                             \
                 .detach = tt__hook_detach,                                                             \
                 .takes_devices = true},                                                                \
        .takes = takes_##name_, .types = "f32, f64 and " #name_, .needs = half_needs, .free = half_free \
    }
static const tt__hook_class f16_class = HALF_HOOK(f16);
static const tt__hook_class bf16_class = HALF_HOOK(bf16);

static tt_status register_half(tt_module *ddp, const tt__hook_class *cls, tt_dtype type) {
    half_hook *h = calloc(1, sizeof *h);
    if (h)
        h->type = type;
    return tt__hook_register(ddp, (tt__comm_hook *)h, cls, NULL);
}

tt_status tt_f16_hook(tt_module *ddp) {
    TT__TRY(tt__hook_check("tt_f16_hook", ddp));
    return register_half(ddp, &f16_class, TT_F16);
}

tt_status tt_bf16_hook(tt_module *ddp) {
    TT__TRY(tt__hook_check("tt_bf16_hook", ddp));
    return register_half(ddp, &bf16_class, TT_BF16);
}
