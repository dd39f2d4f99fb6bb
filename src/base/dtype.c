/* What tutti/base.h says of itself and of types: the version, names and sizes. */
#include "base/dtype.h"

const unsigned char tt__dtype_sizes[TT__DTYPES] = {
    [TT_F32] = 4, [TT_F64] = 8,  [TT_I32] = 4, [TT_I64] = 8, [TT_U8] = 1,
    [TT_F16] = 2, [TT_BF16] = 2, [TT_I8] = 1,  [TT_I16] = 2, [TT_BOOL] = 1};

static const char *const names[TT__DTYPES] = {
    [TT_F32] = "f32", [TT_F64] = "f64",   [TT_I32] = "i32", [TT_I64] = "i64", [TT_U8] = "u8",
    [TT_F16] = "f16", [TT_BF16] = "bf16", [TT_I8] = "i8",   [TT_I16] = "i16", [TT_BOOL] = "bool"};

size_t tt_dtype_size(tt_dtype dtype) { return tt__dtype_size(dtype); }

const char *tt_dtype_name(tt_dtype dtype) { return (unsigned)dtype < TT__DTYPES ? names[dtype] : "?"; }

const char *tt_device_type_name(tt_device_type type) {
    static const char *const device_names[] = {[TT_DEVICE_CPU] = "cpu", [TT_DEVICE_CUDA] = "cuda"};
    return (unsigned)type < sizeof device_names / sizeof *device_names ? device_names[type] : "?";
}

#define STRING_(x) #x
#define STRING(x) STRING_(x)

const char *tt_version(void) {
    return STRING(TT_VERSION_MAJOR) "." STRING(TT_VERSION_MINOR) "." STRING(TT_VERSION_PATCH);
}
