/* Choices, element by element: cuda_choice.cu, cuda_dropout.cu. */
#include "tensor/core/element.h"
#include "tensor/cuda/cuda_kernels_choice.h"
#include "tensor/cuda/ops/cuda_ops.h"

#include <string.h>

static tt_status cuda_compare(const tt_tensor *a, const tt_tensor *b, tt__comparison op, tt_tensor *y) {
    const tt__walk w = TT__CUDA_WALK(y, a, b);
    TT__CUDA_ENQUEUE(a, "compare", tt__cuda_compare(stream, a->dtype, &w, op));
}

static tt_status cuda_where(tt_tensor *y, const tt_tensor *condition, const tt_tensor *a, const tt_tensor *b) {
    const tt__walk w = TT__CUDA_WALK(y, condition, a, b);
    TT__CUDA_ENQUEUE(y, "where", tt__cuda_where(stream, tt__cuda_element_size[y->dtype], &w));
}

/* The bits of an element made of a number, as kernels convert: integers are cut. */
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

void tt__cuda_choice_ops(tt__cuda_tables *t) {
    t->floats.compare = t->integers.compare = t->booleans.compare = cuda_compare;
    t->floats.where = t->integers.where = t->booleans.where = cuda_where;
    t->floats.masked_fill = t->integers.masked_fill = t->booleans.masked_fill = cuda_masked_fill;
    t->floats.dropout = cuda_dropout;
}
