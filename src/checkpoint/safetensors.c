#include "checkpoint/safetensors.h"

#include "base/quarantine.h"

#include <stdlib.h>
#include <string.h>

#include "tensor/core/tensor.h"

#define OWN TT__SAFETENSORS_AS_IT_IS
#define UNSIGNED TT__SAFETENSORS_UNSIGNED
static const tt__safetensors_dtype dtypes[] = {
    {"F32", 32, OWN, TT_F32},           {"F64", 64, OWN, TT_F64},       {"F16", 16, OWN, TT_F16},
    {"BF16", 16, OWN, TT_BF16},         {"I64", 64, OWN, TT_I64},       {"I32", 32, OWN, TT_I32},
    {"I16", 16, OWN, TT_I16},           {"I8", 8, OWN, TT_I8},          {"U8", 8, OWN, TT_U8},
    {"BOOL", 8, OWN, TT_BOOL},          {"U16", 16, UNSIGNED, TT_I32},  {"U32", 32, UNSIGNED, TT_I64},
    {"U64", 64, UNSIGNED, TT_I64},      {.name = "C64", .bits = 64},    {.name = "F8_E5M2", .bits = 8},
    {.name = "F8_E4M3", .bits = 8},     {.name = "F8_E8M0", .bits = 8}, {.name = "F8_E4M3FNUZ", .bits = 8},
    {.name = "F8_E5M2FNUZ", .bits = 8}, {.name = "F4", .bits = 4},      {.name = "F6_E2M3", .bits = 6},
    {.name = "F6_E3M2", .bits = 6},
};

const tt__safetensors_dtype *tt__safetensors_dtype_find(const char *name) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

const char *tt__safetensors_dtype_name(tt_dtype dtype) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].reading == OWN && dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return "?";
}

const tt_named_tensors *tt_safetensors_tensors(const tt_safetensors *file) { return file ? &file->list : NULL; }

const char *const *tt_safetensors_skipped(const tt_safetensors *file, int64_t *count) {
    if (count)
        *count = file ? (int64_t)file->skipped_count : 0;
    return file ? file->skipped : NULL;
}

const char *tt_safetensors_metadata(const tt_safetensors *file, const char *key) {
    if (!file || !key)
        return NULL;
    const char *value =
        json_string_value(json_object_get(json_object_get(file->header, TT__SAFETENSORS_METADATA), key));
    for (size_t i = 0; !value && i < file->part_count; i++)
        value = tt_safetensors_metadata(file->parts[i], key);
    return value;
}

/* End the files of an index, or the tensors of a file. */
static void release_tensors(tt_safetensors *file) {
    for (size_t i = 0; i < file->part_count; i++)
        tt_safetensors_free(file->parts[i]);
    for (size_t i = 0; !file->parts && file->tensors && i < file->count; i++)
        tt__tensor_disown(file->tensors[i]);
}

void tt_safetensors_free(tt_safetensors *file) {
    if (!file || tt__freed_before("tt_safetensors_free", file))
        return;
    release_tensors(file);
    free(file->parts);
    free(file->tensors);
    free(file->names);
    free(file->skipped);
    json_decref(file->header);
    tt__quarantine(file, sizeof *file, free);
}
