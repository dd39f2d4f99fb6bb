/* The reference kernels of each element type. A file of this folder includes the loops once, with its type. */
#ifndef TT_TENSOR_REFERENCE_REFERENCE_DEVICE_H
#define TT_TENSOR_REFERENCE_REFERENCE_DEVICE_H

#include "tensor/kernels/kernels.h"

extern const tt__kernels tt__reference_f32, tt__reference_f64, tt__reference_f16, tt__reference_bf16, tt__reference_i8,
    tt__reference_i16, tt__reference_i32, tt__reference_i64, tt__reference_u8, tt__reference_bool;

#endif
