#include "tensor/fallback.h"

#include "base/error.h"
#include "base/log.h"
#include "base/setting.h"

#include <stdatomic.h>
#include <stdint.h>

/* ---- counting ---- */

static _Atomic int64_t fallbacks;

/* Count a kernel that runs so, and log it the first time. */
static void note_fallback(const tt_device *device, size_t offset, const char *kernel) {
    static _Atomic bool told[sizeof(tt__kernels) / sizeof(tt__any_kernel)];
    atomic_fetch_add_explicit(&fallbacks, 1, memory_order_relaxed);
    if (!atomic_exchange(&told[offset / sizeof(tt__any_kernel)], true))
        tt__log(TT_LOG_WARNING, "the device \"%s\" has no kernel \"%s\": it runs on the cpu, by copies there and back",
                device->name, kernel);
}

int64_t tt_device_fallbacks(void) { return atomic_load_explicit(&fallbacks, memory_order_relaxed); }

/* ---- copies of a call's tensors ---- */

/* A recurrent cell has ten tensors. */
enum { TENSORS = 12 };

typedef struct host_part {
    const tt_tensor *given;
    tt_tensor copy; /* on the host, with the same strides */
    size_t bytes;
    bool written;
} host_part;

typedef struct host_call {
    int n;
    host_part part[TENSORS];
    tt_status status;
} host_call;

/* How many bytes lie from the first element to the last one. Strides are not negative. */
static size_t span_bytes(const tt_tensor *x) {
    int64_t last = 0;
    for (int d = 0; d < x->shape.ndim; d++)
        last += (x->shape.dim[d] - 1) * x->stride[d];
    return x->numel ? (size_t)(last + 1) * tt_dtype_size(x->dtype) : 0;
}

static bool same_elements_lie(const tt_tensor *a, const tt_tensor *b) {
    bool same = a == b || (a->data == b->data && a->dtype == b->dtype && a->shape.ndim == b->shape.ndim && a->numel);
    for (int d = 0; d < a->shape.ndim && same; d++)
        same = a->shape.dim[d] == b->shape.dim[d] && a->stride[d] == b->stride[d];
    return same;
}

static host_part *host_part_of(host_call *c, const tt_tensor *x) {
    for (int i = 0; i < c->n; i++)
        if (same_elements_lie(c->part[i].given, x))
            return &c->part[i];
    return NULL;
}

/* Copy x, NULL or a tensor that may have been copied already; also one that is written: gaps between its elements stay
 * as they are. */
static void stage_on_host(host_call *c, const tt_tensor *x, bool written) {
    host_part *part = x ? host_part_of(c, x) : NULL;
    if (part)
        part->written = part->written || written;
    if (!x || part || c->status)
        return;
    part = &c->part[c->n];
    *part = (host_part){.given = x, .copy = tt__tensor_seen(x, x->shape, x->stride), .bytes = span_bytes(x)};
    part->written = written;
    part->copy.storage = tt__storage_new(&tt__cpu_device, part->bytes);
    if (!part->copy.storage) {
        c->status = tt__fail(TT_ERR_MEMORY, "no memory for a copy of %s on the host", TT__DESCRIBE(x));
        return;
    }
    c->n++;
    part->copy.data = part->copy.storage->data;
    const tt_device *device = tt__device_of(x);
    if (part->bytes)
        c->status = device->to_host(device, part->copy.data, x->data, part->bytes);
}

static tt_tensor *host_copy_of(host_call *c, const tt_tensor *x) { return x ? &host_part_of(c, x)->copy : NULL; }

/* Copy back what was written, and free the copies. */
static tt_status end_on_host(host_call *c, tt_status status) {
    for (int i = 0; i < c->n; i++) {
        const host_part *part = &c->part[i];
        const tt_device *device = tt__device_of(part->given);
        if (!status && part->written && part->bytes)
            status = device->from_host(device, part->given->data, part->copy.data, part->bytes);
        tt__storage_unref(part->copy.storage);
    }
    return status;
}

/* ---- kernels ----
 *
 * ON_HOST(cumsum, 4, (declarations), y, x, ...) makes cumsum_on_host(), which has copies of the tensors among its 4
 * arguments. */

#define AS_TENSOR(a) ((const tt_tensor *)(uintptr_t)(a))
#define STAGE(a)                                                            \
    if (_Generic((a), tt_tensor * : 1, const tt_tensor * : 1, default : 0)) \
        stage_on_host(&call, AS_TENSOR(a), _Generic((a), tt_tensor * : true, default : false));
#define COPY(a) \
    _Generic((a),                                      \
        tt_tensor *: host_copy_of(&call, AS_TENSOR(a)),   \
        const tt_tensor *: host_copy_of(&call, AS_TENSOR(a)), \
        default: (a))

#define STAGE_3(a, b, c) STAGE(a) STAGE(b) STAGE(c)
#define STAGE_4(a, ...) STAGE(a) STAGE_3(__VA_ARGS__)
#define STAGE_5(a, ...) STAGE(a) STAGE_4(__VA_ARGS__)
#define STAGE_6(a, ...) STAGE(a) STAGE_5(__VA_ARGS__)
#define COPY_3(a, b, c) COPY(a), COPY(b), COPY(c)
#define COPY_4(a, ...) COPY(a), COPY_3(__VA_ARGS__)
#define COPY_5(a, ...) COPY(a), COPY_4(__VA_ARGS__)

#define ON_HOST(name, n, arguments, ...)                                                                           \
    static tt_status name##_on_host arguments {                                                                    \
        host_call call = {0};                                                                                      \
        STAGE_##n(__VA_ARGS__);                                                                                    \
        const tt__kernel_##name run = (tt__kernel_##name)begin_on_host(&call, offsetof(tt__kernels, name), #name); \
        return end_on_host(&call, run ? run(COPY_##n(__VA_ARGS__)) : call.status);                                 \
    }

/* Find the cpu's kernel by the first tensor, and note that it runs. NULL: the copies failed. */
static tt__any_kernel begin_on_host(const host_call *c, size_t offset, const char *name) {
    if (c->status)
        return NULL;
    note_fallback(tt__device_of(c->part[0].given), offset, name);
    return tt__kernel_of(&tt__cpu_device, c->part[0].given->dtype, offset);
}

ON_HOST(add, 3, (tt_tensor * y, const tt_tensor *a, const tt_tensor *b), y, a, b)
ON_HOST(sub, 3, (tt_tensor * y, const tt_tensor *a, const tt_tensor *b), y, a, b)
ON_HOST(mul, 3, (tt_tensor * y, const tt_tensor *a, const tt_tensor *b), y, a, b)
ON_HOST(argmax, 3, (const tt_tensor *x, int dim, tt_tensor *y), x, dim, y)
ON_HOST(find_outside, 5, (const tt_tensor *x, int64_t low, int64_t high, int64_t *index, int64_t *value), x, low, high,
        index, value)
ON_HOST(index_select, 4, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index), y, x, dim, index)
ON_HOST(index_add, 4, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index), y, x, dim, index)
ON_HOST(gather, 4, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index), y, x, dim, index)
ON_HOST(scatter, 4, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index), y, x, dim, index)
ON_HOST(scatter_add, 4, (tt_tensor * y, const tt_tensor *x, int dim, const tt_tensor *index), y, x, dim, index)
ON_HOST(triangle, 4, (tt_tensor * y, const tt_tensor *x, int64_t diagonal, bool upper), y, x, diagonal, upper)
ON_HOST(cumsum, 4, (tt_tensor * y, const tt_tensor *x, int dim, bool backwards), y, x, dim, backwards)
ON_HOST(sort, 4, (tt_tensor * y, tt_tensor *indices, const tt_tensor *x, bool descending), y, indices, x, descending)
ON_HOST(any, 3, (const tt_tensor *x, bool all, tt_tensor *y), x, all, y)
ON_HOST(extreme, 5, (tt_tensor * y, tt_tensor *index, const tt_tensor *x, int dim, bool largest), y, index, x, dim,
        largest)
ON_HOST(compare, 4, (const tt_tensor *a, const tt_tensor *b, tt__comparison op, tt_tensor *y), a, b, op, y)
ON_HOST(where, 4, (tt_tensor * y, const tt_tensor *condition, const tt_tensor *a, const tt_tensor *b), y, condition, a,
        b)
ON_HOST(masked_fill, 5, (tt_tensor * y, const tt_tensor *x, const tt_tensor *mask, bool when, double value), y, x, mask,
        when, value)

/* The tensors of these stand in a struct. */

static tt_status rnn_cell_on_host(tt_tensor *y, const tt__cell_step *step) {
    host_call call = {0};
    STAGE_6(y, step->x, step->bias, step->h, step->c, step->gates)
    STAGE(step->c_next)
    const tt__kernel_rnn_cell run =
        (tt__kernel_rnn_cell)begin_on_host(&call, offsetof(tt__kernels, rnn_cell), "rnn_cell");
    if (!run)
        return end_on_host(&call, call.status);
    const tt__cell_step near = {.cell = step->cell,
                                .x = COPY(step->x),
                                .bias = COPY(step->bias),
                                .h = COPY(step->h),
                                .c = COPY(step->c),
                                .gates = COPY(step->gates),
                                .c_next = COPY(step->c_next)};
    return end_on_host(&call, run(COPY(y), &near));
}

static tt_status rnn_cell_backward_on_host(tt_tensor *dx, const tt__cell_grad *grad) {
    host_call call = {0};
    STAGE_6(dx, grad->gates, grad->y, grad->h, grad->c, grad->c_next)
    STAGE_4(grad->g, grad->dh, grad->dc, grad->dhidden)
    const tt__kernel_rnn_cell_backward run = (tt__kernel_rnn_cell_backward)begin_on_host(
        &call, offsetof(tt__kernels, rnn_cell_backward), "rnn_cell_backward");
    if (!run)
        return end_on_host(&call, call.status);
    const tt__cell_grad near = {.cell = grad->cell,
                                .gates = COPY(grad->gates),
                                .y = COPY(grad->y),
                                .h = COPY(grad->h),
                                .c = COPY(grad->c),
                                .c_next = COPY(grad->c_next),
                                .g = COPY(grad->g),
                                .dh = COPY(grad->dh),
                                .dc = COPY(grad->dc),
                                .dhidden = COPY(grad->dhidden)};
    return end_on_host(&call, run(COPY(dx), &near));
}

/* A device has the kernels that are for floats alone; these are for all types, or for recurrent cells. */
static const tt__kernels on_host = {
    .add = add_on_host,
    .sub = sub_on_host,
    .mul = mul_on_host,
    .argmax = argmax_on_host,
    .find_outside = find_outside_on_host,
    .index_select = index_select_on_host,
    .index_add = index_add_on_host,
    .gather = gather_on_host,
    .scatter = scatter_on_host,
    .scatter_add = scatter_add_on_host,
    .triangle = triangle_on_host,
    .cumsum = cumsum_on_host,
    .sort = sort_on_host,
    .any = any_on_host,
    .extreme = extreme_on_host,
    .compare = compare_on_host,
    .where = where_on_host,
    .masked_fill = masked_fill_on_host,
    .rnn_cell = rnn_cell_on_host,
    .rnn_cell_backward = rnn_cell_backward_on_host,
};

tt__any_kernel tt__fallback_find(const tt_tensor *x, size_t offset) {
    const bool there = tt__setting_is_on(TT__CUDA_FALLBACK) && tt__kernel_of(&tt__cpu_device, x->dtype, offset);
    return there ? *(const tt__any_kernel *)(const void *)((const char *)&on_host + offset) : NULL;
}
