#include <tutti/base.h>

static const struct {
    const char *name;
    size_t size;
} dtypes[] = {[TT_F32] = {"f32", 4}, [TT_F64] = {"f64", 8},  [TT_I32] = {"i32", 4},   [TT_I64] = {"i64", 8},
              [TT_U8] = {"u8", 1},   [TT_F16] = {"f16", 2},  [TT_BF16] = {"bf16", 2}, [TT_I8] = {"i8", 1},
              [TT_I16] = {"i16", 2}, [TT_BOOL] = {"bool", 1}};

enum { DTYPE_COUNT = sizeof dtypes / sizeof dtypes[0] };

size_t tt_dtype_size(tt_dtype dtype) { return (unsigned)dtype < DTYPE_COUNT ? dtypes[dtype].size : 0; }

const char *tt_device_type_name(tt_device_type type) {
    static const char *const names[] = {[TT_DEVICE_CPU] = "cpu", [TT_DEVICE_CUDA] = "cuda"};
    return (unsigned)type < sizeof names / sizeof *names ? names[type] : "?";
}

const char *tt_dtype_name(tt_dtype dtype) { return (unsigned)dtype < DTYPE_COUNT ? dtypes[dtype].name : "?"; }
