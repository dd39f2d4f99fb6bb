#include "tensor/reference/reference_device.h"

const tt__kernels *const tt__reference_kernels[TT__DTYPES] = {
    [TT_F32] = &tt__reference_f32,   [TT_F64] = &tt__reference_f64, [TT_F16] = &tt__reference_f16,
    [TT_BF16] = &tt__reference_bf16, [TT_I8] = &tt__reference_i8,   [TT_I16] = &tt__reference_i16,
    [TT_I32] = &tt__reference_i32,   [TT_I64] = &tt__reference_i64, [TT_U8] = &tt__reference_u8,
    [TT_BOOL] = &tt__reference_bool,
};

/* The host with plain loops only: finite differences and parity tests run on it. */
const tt_device tt__reference_device = {.name = "reference", .kernels = tt__reference_kernels};
