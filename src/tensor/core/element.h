/* One element of any type, for loops that needn't be fast. */
#ifndef TT_TENSOR_ELEMENT_H
#define TT_TENSOR_ELEMENT_H

#include "base/dtype.h"
#include "tensor/shape/shape.h"

static inline double tt__load_f64(tt_dtype dtype, const void *p) {
    switch (dtype) {
    case TT_F32:
        return *(const float *)p;
    case TT_F64:
        return *(const double *)p;
    case TT_F16:
        return (double)tt__float_of_f16(*(const uint16_t *)p);
    case TT_BF16:
        return (double)tt__float_of_bf16(*(const uint16_t *)p);
    case TT_I64:
        return (double)*(const int64_t *)p;
    case TT_I32:
        return *(const int32_t *)p;
    case TT_I16:
        return *(const int16_t *)p;
    case TT_I8:
        return *(const int8_t *)p;
    case TT_U8:
        return *(const uint8_t *)p;
    case TT_BOOL:
        return *(const uint8_t *)p != 0;
    }
    return 0;
}

/* Convert v to an integer in low..high: truncate it, and clamp what lies outside; NaN gives 0. C leaves such
 * conversions undefined. */
static inline int64_t tt__int_of_f64(double v, int64_t low, int64_t high) {
    int64_t whole = v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : v != v ? 0 : (int64_t)v;
    return whole < low ? low : whole > high ? high : whole;
}

/* Load an element as an integer; of floats as tt__int_of_f64(). */
static inline int64_t tt__load_i64(tt_dtype dtype, const void *p) {
    if (dtype == TT_I64)
        return *(const int64_t *)p;
    return tt__int_of_f64(tt__load_f64(dtype, p), INT64_MIN, INT64_MAX);
}

#endif
