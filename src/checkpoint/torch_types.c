#include "checkpoint/torch_types.h"

#include <string.h>

static const tt__torch_type types[] = {
    {"float32", "FloatStorage", true, TT_F32},
    {"float64", "DoubleStorage", true, TT_F64},
    {"float16", "HalfStorage", true, TT_F16},
    {"bfloat16", "BFloat16Storage", true, TT_BF16},
    {"int64", "LongStorage", true, TT_I64},
    {"int32", "IntStorage", true, TT_I32},
    {"int16", "ShortStorage", true, TT_I16},
    {"int8", "CharStorage", true, TT_I8},
    {"uint8", "ByteStorage", true, TT_U8},
    {"bool", "BoolStorage", true, TT_BOOL},
    {.dtype = "complex64", .storage = "ComplexFloatStorage"},
    {.dtype = "complex128", .storage = "ComplexDoubleStorage"},
    {.dtype = "quint8", .storage = "QUInt8Storage"},
    {.dtype = "qint8", .storage = "QInt8Storage"},
    {.dtype = "qint32", .storage = "QInt32Storage"},
    {.dtype = "quint4x2", .storage = "QUInt4x2Storage"},
    {.dtype = "quint2x4", .storage = "QUInt2x4Storage"},
    {.dtype = "complex32"},
    {.dtype = "uint16"},
    {.dtype = "uint32"},
    {.dtype = "uint64"},
    {.dtype = "float8_e5m2"},
    {.dtype = "float8_e4m3fn"},
    {.dtype = "float8_e5m2fnuz"},
    {.dtype = "float8_e4m3fnuz"},
    {.dtype = "float8_e8m0fnu"},
};

enum { TYPES = sizeof types / sizeof *types };

const tt__torch_type *tt__torch_type_of_dtype(const char *name) {
    for (int i = 0; i < TYPES; i++)
        if (!strcmp(types[i].dtype, name))
            return &types[i];
    return NULL;
}

const tt__torch_type *tt__torch_type_of_storage(const char *name) {
    for (int i = 0; i < TYPES; i++)
        if (types[i].storage && !strcmp(types[i].storage, name))
            return &types[i];
    return NULL;
}

const tt__torch_type *tt__torch_type_find(tt_dtype dtype) {
    int i = 0;
    while (!types[i].supported || types[i].ours != dtype)
        i++;
    return &types[i];
}

bool tt__torch_type_is(const void *type) {
    for (int i = 0; i < TYPES; i++)
        if (type == &types[i])
            return true;
    return false;
}
