/* Kernels that go element by element: cuda_pointwise.cu, cuda_choice.cu. */
#include "tensor/core/element.h"
#include "tensor/cuda/cuda_kernels.h"
#include "tensor/cuda/ops/cuda_ops.h"

#include <string.h>

static tt_status cuda_fill(tt_tensor *y, double value) {
    const tt__walk w = TT__CUDA_WALK(y);
    TT__CUDA_ENQUEUE(y, "fill", tt__cuda_fill(stream, y->dtype, &w, value));
}

static tt_status cuda_convert(tt_tensor *y, const tt_tensor *x) {
    const tt__walk w = TT__CUDA_WALK(y, x);
    TT__CUDA_ENQUEUE(y, "convert", tt__cuda_convert(stream, y->dtype, x->dtype, &w));
}

static tt_status cuda_copy(tt_tensor *y, const tt_tensor *x) {
    const tt__walk w = TT__CUDA_WALK(y, x);
    size_t bytes = (size_t)w.n * tt__cuda_element_size[y->dtype];
    if (w.ndim == 1 && w.step[0][0] == 1 && w.step[1][0] == 1)
        TT__CUDA_ENQUEUE(y, "copy", cudaMemcpyAsync(y->data, x->data, bytes, cudaMemcpyDeviceToDevice, stream));
    TT__CUDA_ENQUEUE(y, "copy", tt__cuda_convert(stream, y->dtype, x->dtype, &w));
}

static tt_status cuda_add(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    const tt__walk w = TT__CUDA_WALK(y, a, b);
    TT__CUDA_ENQUEUE(y, "add", tt__cuda_arithmetic_run(stream, y->dtype, &w, TT__CUDA_ADD));
}

static tt_status cuda_sub(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    const tt__walk w = TT__CUDA_WALK(y, a, b);
    TT__CUDA_ENQUEUE(y, "sub", tt__cuda_arithmetic_run(stream, y->dtype, &w, TT__CUDA_SUB));
}

static tt_status cuda_mul(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    const tt__walk w = TT__CUDA_WALK(y, a, b);
    TT__CUDA_ENQUEUE(y, "mul", tt__cuda_arithmetic_run(stream, y->dtype, &w, TT__CUDA_MUL));
}

static tt_status cuda_scale(tt_tensor *y, const tt_tensor *x, double factor) {
    const tt__walk w = TT__CUDA_WALK(y, x);
    TT__CUDA_ENQUEUE(y, "scale", tt__cuda_scale(stream, y->dtype, &w, factor));
}

static tt_status cuda_relu(tt_tensor *y, const tt_tensor *x) {
    const tt__walk w = TT__CUDA_WALK(y, x);
    TT__CUDA_ENQUEUE(y, "relu", tt__cuda_relu(stream, y->dtype, &w));
}

static tt_status cuda_relu_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    const tt__walk w = TT__CUDA_WALK(dx, y, g);
    TT__CUDA_ENQUEUE(dx, "relu_backward", tt__cuda_relu_backward(stream, dx->dtype, &w));
}

static tt_status cuda_unary(tt_tensor *y, const tt_tensor *x, const tt__unary *call) {
    const tt__walk w = TT__CUDA_WALK(y, x);
    TT__CUDA_ENQUEUE(y, "unary", tt__cuda_unary(stream, y->dtype, &w, call));
}

static tt_status cuda_unary_backward(tt_tensor *dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call) {
    const tt__walk w = TT__CUDA_WALK(dx, v, g);
    TT__CUDA_ENQUEUE(dx, "unary_backward", tt__cuda_unary_backward(stream, dx->dtype, &w, call));
}

static tt_status cuda_binary(tt_tensor *y, const tt_tensor *x, const tt_tensor *z, const tt__binary *call) {
    const tt__walk w = TT__CUDA_WALK(y, x, z);
    TT__CUDA_ENQUEUE(y, "binary", tt__cuda_binary(stream, y->dtype, &w, call));
}

static tt_status cuda_binary_backward(tt_tensor *d, const tt_tensor *x, const tt_tensor *z, const tt_tensor *g,
                                      const tt__binary *call, int input) {
    const tt__walk w = TT__CUDA_WALK(d, x, z, g);
    TT__CUDA_ENQUEUE(d, "binary_backward", tt__cuda_binary_backward(stream, d->dtype, &w, call, input));
}

/* ---- choices, dropout */

static tt_status cuda_compare(const tt_tensor *a, const tt_tensor *b, tt__comparison op, tt_tensor *y) {
    const tt__walk w = TT__CUDA_WALK(y, a, b);
    TT__CUDA_ENQUEUE(a, "compare", tt__cuda_compare(stream, a->dtype, &w, op));
}

static tt_status cuda_where(tt_tensor *y, const tt_tensor *condition, const tt_tensor *a, const tt_tensor *b) {
    const tt__walk w = TT__CUDA_WALK(y, condition, a, b);
    TT__CUDA_ENQUEUE(y, "where", tt__cuda_where(stream, tt__cuda_element_size[y->dtype], &w));
}

/* The bits of a number as an element, converted as kernels do: integers are truncated. */
static uint64_t element_bits(tt_dtype dtype, double value) {
    float single = (float)value;
    uint64_t bits = 0;
    switch (dtype) {
    case TT_F64:
        memcpy(&bits, &value, sizeof value);
        return bits;
    case TT_F32:
        return tt__bits_of_float(single);
    case TT_F16:
        return tt__f16_of_float(single);
    case TT_BF16:
        return tt__bf16_of_float(single);
    case TT_BOOL:
        return value != 0;
    case TT_U8:
        return (uint64_t)tt__int_of_f64(value, 0, UINT8_MAX);
    case TT_I8:
        return (uint64_t)tt__int_of_f64(value, INT8_MIN, INT8_MAX);
    case TT_I16:
        return (uint64_t)tt__int_of_f64(value, INT16_MIN, INT16_MAX);
    case TT_I32:
        return (uint64_t)tt__int_of_f64(value, INT32_MIN, INT32_MAX);
    case TT_I64:
        return (uint64_t)tt__int_of_f64(value, INT64_MIN, INT64_MAX);
    }
    return bits;
}

static tt_status cuda_masked_fill(tt_tensor *y, const tt_tensor *x, const tt_tensor *mask, bool when, double value) {
    const tt__walk w = TT__CUDA_WALK(y, x, mask);
    const uint64_t bits = element_bits(y->dtype, value);
    TT__CUDA_ENQUEUE(y, "masked_fill", tt__cuda_masked_fill(stream, tt__cuda_element_size[y->dtype], &w, when, bits));
}

static tt_status cuda_dropout(tt_tensor *y, const tt_tensor *x, const tt__dropout *call) {
    const tt__walk w = TT__CUDA_WALK(y, x);
    TT__CUDA_ENQUEUE(y, "dropout", tt__cuda_dropout(stream, y->dtype, &w, call));
}

void tt__cuda_pointwise_ops(tt__cuda_tables *t) {
    t->floats.fill = t->integers.fill = t->booleans.fill = cuda_fill;
    t->floats.copy = t->integers.copy = t->booleans.copy = cuda_copy;
    t->floats.convert = t->integers.convert = t->booleans.convert = cuda_convert;
    t->floats.add = t->integers.add = t->booleans.add = cuda_add;
    t->floats.sub = t->integers.sub = t->booleans.sub = cuda_sub;
    t->floats.mul = t->integers.mul = t->booleans.mul = cuda_mul;
    t->floats.scale = cuda_scale;
    t->floats.relu = cuda_relu;
    t->floats.relu_backward = cuda_relu_backward;
    t->floats.unary = cuda_unary;
    t->floats.unary_backward = cuda_unary_backward;
    t->floats.binary = cuda_binary;
    t->floats.binary_backward = cuda_binary_backward;
    t->floats.compare = t->integers.compare = t->booleans.compare = cuda_compare;
    t->floats.where = t->integers.where = t->booleans.where = cuda_where;
    t->floats.masked_fill = t->integers.masked_fill = t->booleans.masked_fill = cuda_masked_fill;
    t->floats.dropout = cuda_dropout;
}
