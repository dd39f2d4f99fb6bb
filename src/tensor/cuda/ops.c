/* The kernels of the device's tables (tensor/kernels.h): tensors become walks and plain pointers, and the work is
 * enqueued on the device's stream. */
#include "tensor/cuda/device_state.h"
#include "tensor/cuda/memory.h"
#include "tensor/kernels.h"

#include <string.h>

static tt_status done(cudaError_t error, const tt_tensor *x, const char *kernel) {
    return tt__cuda_check(error, "the kernel \"%s\" of %s for %s", kernel, tt__cuda_of(x)->name,
                          tt__cuda_host->dtype_name(x->dtype));
}

/* Enqueue `call`, an expression with `stream`, on x's device. */
#define ENQUEUE(x, kernel, call)                                 \
    do {                                                         \
        tt_status enter_status = tt__cuda_enter(tt__cuda_of(x)); \
        if (enter_status)                                        \
            return enter_status;                                 \
        cudaStream_t stream = tt__cuda_of(x)->stream;            \
        return done(call, x, kernel);                            \
    } while (0)

/* ---- walks ---- */

static const size_t element_size[TT__DTYPES] = {[TT_F32] = 4, [TT_F64] = 8, [TT_F16] = 2, [TT_BF16] = 2, [TT_I64] = 8,
                                                [TT_I32] = 4, [TT_I16] = 2, [TT_I8] = 1,  [TT_U8] = 1,   [TT_BOOL] = 1};

static tt__walk walk_of(const tt__iter *it, const tt_tensor *const *tensors) {
    tt__walk w;
    memset(&w, 0, sizeof w);
    w.n = it->more ? it->n : 0;
    w.ndim = it->ndim + 1;
    w.dim[0] = it->n;
    for (int d = 0; d < it->ndim; d++) {
        w.dim[d + 1] = it->dim[d];
        w.n *= it->dim[d];
    }
    for (int k = 0; k < it->arrays; k++) {
        w.p[k] = it->p[k];
        w.step[k][0] = it->step[k];
        for (int d = 0; d < it->ndim; d++)
            w.step[k][d + 1] = it->jump[k][d] / (int64_t)element_size[tensors[k]->dtype];
    }
    return w;
}

static tt__walk walk_over(int n, const tt_tensor *const *tensors) {
    const tt__iter it = tt__cuda_host->iter_over(n, tensors);
    return walk_of(&it, tensors);
}

#define COUNT_OF(...) ((int)(sizeof((const tt_tensor *[]){__VA_ARGS__}) / sizeof(tt_tensor *)))
#define WALK(...) walk_over(COUNT_OF(__VA_ARGS__), (const tt_tensor *[]){__VA_ARGS__})

/* ---- element by element ---- */

static tt_status op_fill(tt_tensor *y, double value) {
    const tt__walk w = WALK(y);
    ENQUEUE(y, "fill", tt__cuda_fill(stream, y->dtype, &w, value));
}

static tt_status op_convert(tt_tensor *y, const tt_tensor *x) {
    const tt__walk w = WALK(y, x);
    ENQUEUE(y, "convert", tt__cuda_convert(stream, y->dtype, x->dtype, &w));
}

static tt_status op_copy(tt_tensor *y, const tt_tensor *x) {
    const tt__walk w = WALK(y, x);
    size_t bytes = (size_t)w.n * element_size[y->dtype];
    if (w.ndim == 1 && w.step[0][0] == 1 && w.step[1][0] == 1)
        ENQUEUE(y, "copy", cudaMemcpyAsync(y->data, x->data, bytes, cudaMemcpyDeviceToDevice, stream));
    ENQUEUE(y, "copy", tt__cuda_convert(stream, y->dtype, x->dtype, &w));
}

static tt_status op_add(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    const tt__walk w = WALK(y, a, b);
    ENQUEUE(y, "add", tt__cuda_arithmetic_run(stream, y->dtype, &w, TT__CUDA_ADD));
}

static tt_status op_sub(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    const tt__walk w = WALK(y, a, b);
    ENQUEUE(y, "sub", tt__cuda_arithmetic_run(stream, y->dtype, &w, TT__CUDA_SUB));
}

static tt_status op_mul(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    const tt__walk w = WALK(y, a, b);
    ENQUEUE(y, "mul", tt__cuda_arithmetic_run(stream, y->dtype, &w, TT__CUDA_MUL));
}

static tt_status op_scale(tt_tensor *y, const tt_tensor *x, double factor) {
    const tt__walk w = WALK(y, x);
    ENQUEUE(y, "scale", tt__cuda_scale(stream, y->dtype, &w, factor));
}

static tt_status op_relu(tt_tensor *y, const tt_tensor *x) {
    const tt__walk w = WALK(y, x);
    ENQUEUE(y, "relu", tt__cuda_relu(stream, y->dtype, &w));
}

static tt_status op_relu_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    const tt__walk w = WALK(dx, y, g);
    ENQUEUE(dx, "relu_backward", tt__cuda_relu_backward(stream, dx->dtype, &w));
}

static tt_status op_unary(tt_tensor *y, const tt_tensor *x, const tt__unary *call) {
    const tt__walk w = WALK(y, x);
    ENQUEUE(y, "unary", tt__cuda_unary(stream, y->dtype, &w, call));
}

static tt_status op_unary_backward(tt_tensor *dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call) {
    const tt__walk w = WALK(dx, v, g);
    ENQUEUE(dx, "unary_backward", tt__cuda_unary_backward(stream, dx->dtype, &w, call));
}

static tt_status op_binary(tt_tensor *y, const tt_tensor *x, const tt_tensor *z, const tt__binary *call) {
    const tt__walk w = WALK(y, x, z);
    ENQUEUE(y, "binary", tt__cuda_binary(stream, y->dtype, &w, call));
}

static tt_status op_binary_backward(tt_tensor *d, const tt_tensor *x, const tt_tensor *z, const tt_tensor *g,
                                    const tt__binary *call, int input) {
    const tt__walk w = WALK(d, x, z, g);
    ENQUEUE(d, "binary_backward", tt__cuda_binary_backward(stream, d->dtype, &w, call, input));
}

/* ---- reductions ---- */

/* A tensor with some dimensions of x alone, in order: those along which y repeats (`repeats`), or the others. */
static tt_tensor part_of(const tt_tensor *x, const tt_tensor *y, bool repeats) {
    tt_tensor part = *x;
    part.shape.ndim = 0;
    part.numel = 1;
    for (int d = 0; d < x->shape.ndim; d++) {
        if ((y->stride[d] == 0) != repeats)
            continue;
        part.shape.dim[part.shape.ndim] = x->shape.dim[d];
        part.stride[part.shape.ndim++] = x->stride[d];
        part.numel *= x->shape.dim[d];
    }
    return part;
}

/* y's dimensions in which it does not repeat. */
static tt_tensor unrepeated(const tt_tensor *y) { return part_of(y, y, false); }

static tt_status op_sum(tt_tensor *y, const tt_tensor *x, double factor) {
    const tt_tensor to = unrepeated(y), from = part_of(x, y, false), terms = part_of(x, y, true);
    tt__cuda_sum sum = {.outer = WALK(&to, &from), .inner = WALK(&terms), .factor = factor, .parts = 1};
    sum.parts = tt__cuda_sum_parts(sum.outer.n, sum.inner.n);
    tt__cuda_state *state = tt__cuda_of(y);
    tt_status status = tt__cuda_enter(state);
    if (!status && sum.parts > 1) {
        sum.scratch = tt__cuda_scratch(state, (size_t)(sum.outer.n * sum.parts) * sizeof *sum.scratch);
        status = sum.scratch ? TT_OK : tt__cuda_host->last_status();
    }
    if (!status)
        status = done(tt__cuda_sum_run(state->stream, y->dtype, &sum), y, "sum");
    tt__cuda_scratch_free(state, sum.scratch);
    return status;
}

static tt_status op_find_outside(const tt_tensor *x, int64_t low, int64_t high, int64_t *index, int64_t *value) {
    const tt_tensor *const tensors[] = {x};
    const tt__iter it = tt__cuda_host->iter_row_major(1, tensors);
    const tt__walk w = walk_of(&it, tensors);
    tt__cuda_state *state = tt__cuda_of(x);
    int64_t found[2];
    int64_t *there = tt__cuda_scratch(state, sizeof found);
    if (!there)
        return tt__cuda_host->last_status();
    tt_status status = done(tt__cuda_find_outside(state->stream, x->dtype, &w, low, high, there), x, "find_outside");
    if (!status)
        status = tt__cuda_to_host(state, found, there, sizeof found);
    tt__cuda_scratch_free(state, there);
    if (status)
        return status;
    *index = found[0] < w.n ? found[0] : -1;
    *value = found[1];
    return TT_OK;
}

static tt_status op_argmax(const tt_tensor *x, int dim, tt_tensor *y) {
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < x->shape.ndim; d++) {
        outer *= d < dim ? x->shape.dim[d] : 1;
        inner *= d > dim ? x->shape.dim[d] : 1;
    }
    ENQUEUE(x, "argmax", tt__cuda_argmax(stream, x->dtype, x->data, y->data, outer, x->shape.dim[dim], inner));
}

/* ---- products ---- */

static tt__cuda_matrix matrix_of(const tt_tensor *x) { return (tt__cuda_matrix){x->data, x->stride[0], x->stride[1]}; }

static tt_status multiply(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias, double beta) {
    const tt__cuda_product product = {.M = y->shape.dim[0],
                                      .N = y->shape.dim[1],
                                      .K = a->shape.dim[1],
                                      .y = matrix_of(y),
                                      .a = matrix_of(a),
                                      .b = matrix_of(b),
                                      .bias = bias ? bias->data : NULL,
                                      .beta = beta};
    ENQUEUE(y, "matmul", tt__cuda_matmul(stream, y->dtype, &product));
}

static tt_status op_matmul(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    return multiply(y, a, b, NULL, beta);
}

static tt_status op_matmul_bias(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias) {
    return multiply(y, a, b, bias, 0);
}

/* ---- rows ---- */

static int64_t row_length(const tt_tensor *x) { return x->shape.dim[x->shape.ndim - 1]; }
static int64_t row_count(const tt_tensor *x) { return x->numel ? x->numel / row_length(x) : 0; }

static tt_status op_log_softmax(tt_tensor *y, const tt_tensor *x) {
    ENQUEUE(y, "log_softmax", tt__cuda_log_softmax(stream, y->dtype, y->data, x->data, row_count(x), row_length(x)));
}

static tt_status op_log_softmax_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    ENQUEUE(dx, "log_softmax_backward",
            tt__cuda_log_softmax_backward(stream, dx->dtype, dx->data, y->data, g->data, row_count(y), row_length(y)));
}

static tt_status op_softmax(tt_tensor *y, const tt_tensor *x) {
    ENQUEUE(y, "softmax", tt__cuda_softmax(stream, y->dtype, y->data, x->data, row_count(x), row_length(x)));
}

static tt_status op_softmax_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    ENQUEUE(dx, "softmax_backward",
            tt__cuda_softmax_backward(stream, dx->dtype, dx->data, y->data, g->data, row_count(y), row_length(y)));
}

static tt__cuda_cross_entropy cross_entropy_of(const tt_tensor *x, const tt_tensor *t, const tt_tensor *stats) {
    return (tt__cuda_cross_entropy){
        .x = x->data, .t = t->data, .stats = stats->data, .B = x->shape.dim[0], .V = x->shape.dim[1]};
}

static tt_status op_cross_entropy(tt_tensor *loss, tt_tensor *stats, const tt_tensor *x, const tt_tensor *t) {
    tt__cuda_state *state = tt__cuda_of(x);
    tt__cuda_cross_entropy c = cross_entropy_of(x, t, stats);
    c.loss = loss->data;
    c.rows = tt__cuda_scratch(state, (size_t)c.B * sizeof *c.rows);
    if (!c.rows)
        return tt__cuda_host->last_status();
    tt_status status = done(tt__cuda_cross_entropy_run(state->stream, x->dtype, &c), x, "cross_entropy");
    tt__cuda_scratch_free(state, c.rows);
    return status;
}

static tt_status op_cross_entropy_backward(tt_tensor *dx, const tt_tensor *x, const tt_tensor *t,
                                           const tt_tensor *stats, const tt_tensor *g) {
    tt__cuda_cross_entropy c = cross_entropy_of(x, t, stats);
    c.dx = dx->data;
    c.g = g->data;
    ENQUEUE(x, "cross_entropy_backward", tt__cuda_cross_entropy_backward(stream, x->dtype, &c));
}

/* ---- optimizers ---- */

static tt_status op_sgd(tt_tensor *p, const tt_tensor *g, tt_tensor *buf, const struct tt__sgd_step *s) {
    const tt__cuda_sgd step = {.p = p->data,
                               .g = g->data,
                               .buf = buf ? buf->data : NULL,
                               .n = p->numel,
                               .lr = s->lr,
                               .momentum = s->momentum,
                               .dampening = s->dampening,
                               .weight_decay = s->weight_decay,
                               .nesterov = s->nesterov,
                               .fresh = s->fresh};
    ENQUEUE(p, "sgd", tt__cuda_sgd_run(stream, p->dtype, &step));
}

/* ---- tables ---- */

#define MOVES .fill = op_fill, .copy = op_copy, .convert = op_convert
#define NUMBERS MOVES, .add = op_add, .sub = op_sub, .mul = op_mul, .argmax = op_argmax

static const tt__kernels floats = {NUMBERS,
                                   .scale = op_scale,
                                   .relu = op_relu,
                                   .relu_backward = op_relu_backward,
                                   .sum = op_sum,
                                   .matmul = op_matmul,
                                   .matmul_bias = op_matmul_bias,
                                   .log_softmax = op_log_softmax,
                                   .log_softmax_backward = op_log_softmax_backward,
                                   .softmax = op_softmax,
                                   .softmax_backward = op_softmax_backward,
                                   .cross_entropy = op_cross_entropy,
                                   .cross_entropy_backward = op_cross_entropy_backward,
                                   .unary = op_unary,
                                   .unary_backward = op_unary_backward,
                                   .binary = op_binary,
                                   .binary_backward = op_binary_backward,
                                   .sgd = op_sgd};
static const tt__kernels integers = {NUMBERS, .find_outside = op_find_outside};
static const tt__kernels booleans = {MOVES};

const tt__kernels *const tt__cuda_kernels[TT__DTYPES] = {
    [TT_F32] = &floats,   [TT_F64] = &floats,   [TT_F16] = &floats,  [TT_BF16] = &floats, [TT_I64] = &integers,
    [TT_I32] = &integers, [TT_I16] = &integers, [TT_I8] = &integers, [TT_U8] = &integers, [TT_BOOL] = &booleans};
