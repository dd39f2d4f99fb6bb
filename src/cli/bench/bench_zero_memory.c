#include "cli/bench/bench_zero_memory.h"

#include "optim/optimizer.h"
#include "parallel/ddp_state.h"
#include "parallel/fully_shard/fully_shard.h"
#include "tensor/tensor.h"

#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static const double MEBIBYTE = 1 << 20;

/* How many of the `bytes` at `data` lie in resident pages. */
static double resident_bytes(const void *data, size_t bytes) {
    enum { BATCH = 1024 };
    unsigned char there[BATCH];
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), end = (uintptr_t)data + bytes;
    size_t pages = 0;
    for (uintptr_t at = (uintptr_t)data & ~(page - 1); at < end; at += BATCH * page) {
        const size_t n = end - at < BATCH * page ? (end - at + page - 1) / page : BATCH;
        if (mincore((void *)at, n * page, there))
            return (double)bytes; /* it can't be told: all of it */
        for (size_t i = 0; i < n; i++)
            pages += there[i] & 1;
    }
    return pages * page < bytes ? (double)(pages * page) : (double)bytes;
}

static double resident_tensor(const tt_tensor *x) {
    return x ? resident_bytes(x->data, (size_t)x->numel * tt_dtype_size(x->dtype)) : 0;
}

/* ---- where a wrapper's parameters and gradients lie */

static void add_ddp(const tt__ddp *d, const tt_named_tensors *params, tt__bench_memory *m) {
    for (int64_t i = 0; i < params->count; i++)
        m->params_mb += resident_tensor(params->tensors[i]) / MEBIBYTE;
    for (size_t i = 0; i < d->reducer->bucket_count; i++) {
        const tt__reducer_bucket *b = &d->reducer->buckets[i];
        m->grads_mb += resident_bytes(b->data, b->count * tt_dtype_size(b->dtype)) / MEBIBYTE;
    }
}

static void add_sharded(const tt__fs *fs, tt__bench_memory *m) {
    for (size_t i = 0; i < fs->bucket_count; i++) {
        const tt__fs_bucket *b = &fs->buckets[i];
        m->params_mb += resident_bytes(b->slices, (size_t)b->part * tt_dtype_size(b->dtype)) / MEBIBYTE;
    }
    for (size_t i = 0; i < fs->place_count; i++)
        m->params_mb += resident_bytes(fs->places[i].memory.data, fs->places[i].bytes) / MEBIBYTE;
    for (size_t i = 0; i < fs->grad_place_count; i++)
        m->grads_mb += resident_bytes(fs->grad_places[i].memory.data, fs->grad_places[i].bytes) / MEBIBYTE;
}

static bool lies_in_a_bucket(const tt__ddp *d, const tt_tensor *grad) {
    for (size_t i = 0; d && i < d->reducer->bucket_count; i++) {
        const tt__reducer_bucket *b = &d->reducer->buckets[i];
        const char *at = grad->data, *from = b->data;
        if (at >= from && at < from + b->count * tt_dtype_size(b->dtype))
            return true;
    }
    return false;
}

/* Gradients of slices that have memory of their own. */
static void add_slice_grads(const tt__ddp *d, const tt_optimizer *o, tt__bench_memory *m) {
    for (size_t g = 0; g < o->group_count; g++)
        for (size_t i = 0; i < o->groups[g].count; i++) {
            const tt_tensor *grad = tt_grad(o->groups[g].params[i].tensor);
            if (grad && grad->numel && !lies_in_a_bucket(d, grad))
                m->grads_mb += resident_tensor(grad) / MEBIBYTE;
        }
}

tt_status tt__bench_zero_memory(tt_module *wrapper, tt_optimizer *optimizer, tt__bench_memory *out) {
    *out = (tt__bench_memory){0};
    const tt__ddp *d = tt__ddp_of(wrapper);
    if (d)
        add_ddp(d, tt_module_parameters(wrapper), out);
    else
        add_sharded(tt__fs_of(wrapper), out);
    add_slice_grads(d, optimizer, out);
    const tt_named_tensors *state = tt__optim_own_state_dict(optimizer);
    for (int64_t i = 0; state && i < state->count; i++)
        if (!strncmp(state->names[i], "state.", 6))
            out->state_mb += (double)tt_tensor_numel(state->tensors[i]) *
                             (double)tt_dtype_size(tt_tensor_dtype(state->tensors[i])) / MEBIBYTE;
    return state ? TT_OK : tt_last_status();
}
