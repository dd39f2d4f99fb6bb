/* Writing safetensors as the reference writer does: "__metadata__" first, tensors by element size (largest first, so
 * that all are aligned), then by name, compact JSON, padded with spaces to a multiple of 8 bytes. */
#include <stdlib.h>
#include <string.h>

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/json.h"
#include "base/text/plain_text.h"
#include "checkpoint/safetensors.h"
#include "tensor/core/named_tensors.h"
#include "tensor/shape/copy.h"

typedef struct item {
    const char *name;
    tt_tensor *tensor;
} item;

/* Return a type's rank in the reference writer's order. */
static int dtype_rank(tt_dtype dtype) {
    static const tt_dtype order[] = {TT_I64, TT_F64, TT_F32, TT_I32, TT_BF16, TT_F16, TT_I16, TT_I8, TT_U8, TT_BOOL};
    int rank = 0;
    while (order[rank] != dtype)
        rank++;
    return rank;
}

static int in_file_order(const void *a, const void *b) {
    const item *x = a, *y = b;
    int dx = dtype_rank(tt_tensor_dtype(x->tensor)), dy = dtype_rank(tt_tensor_dtype(y->tensor));
    return dx != dy ? dx - dy : strcmp(x->name, y->name);
}

static uint64_t item_bytes(const tt_tensor *x) {
    return (uint64_t)tt_tensor_numel(x) * tt_dtype_size(tt_tensor_dtype(x));
}

/* ---- the header ---- */

static tt_status check_text(const char *path, const char *what, const char *text) {
    if (!text)
        return tt__fail(TT_ERR_INVALID, "%s: expected a %s, got NULL", path, what);
    if (!tt__is_utf8(text))
        return tt__fail(TT_ERR_INVALID, "%s: expected the %s \"%s\" to be UTF-8", path, what,
                        tt__make_printable(text).text);
    return TT_OK;
}

/* Put `value` into `object`, which takes it over also on failure. A value of NULL means that memory ran out where it
 * was made. */
static tt_status json_put(json_t *object, const char *path, const char *key, json_t *value) {
    if (json_object_get(object, key)) {
        json_decref(value);
        return tt__fail(TT_ERR_INVALID, "%s: \"%s\" is given twice", path, tt__make_printable(key).text);
    }
    if (json_object_set_new(object, key, value) != 0)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its header", path);
    return TT_OK;
}

static json_t *describe_tensor(const tt_tensor *x, uint64_t begin) {
    json_t *shape = json_array();
    for (int d = 0; d < tt_tensor_dim(x); d++)
        json_array_append_new(shape, json_integer(tt_tensor_size(x, d)));
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", tt__safetensors_dtype_name(tt_tensor_dtype(x)), "shape", shape,
                     "data_offsets", (json_int_t)begin, (json_int_t)(begin + item_bytes(x)));
}

static tt_status fill_header(json_t *header, const char *path, const item *items, size_t count,
                             const tt_metadata *metadata, size_t n) {
    json_t *pairs = json_object();
    TT__TRY(json_put(header, path, TT__SAFETENSORS_METADATA, pairs));
    TT__TRY(json_put(pairs, path, "format", json_string("pt")));
    for (size_t i = 0; i < n; i++) {
        TT__TRY(check_text(path, "metadata key", metadata[i].key));
        TT__TRY(check_text(path, "metadata value", metadata[i].value));
        TT__TRY(json_put(pairs, path, metadata[i].key, json_string(metadata[i].value)));
    }
    uint64_t at = 0;
    for (size_t i = 0; i < count; i++) {
        TT__TRY(json_put(header, path, items[i].name, describe_tensor(items[i].tensor, at)));
        at += item_bytes(items[i].tensor);
    }
    return TT_OK;
}

/* Make the file's first bytes: length and padded JSON, in one block that is the caller's. */
static tt_status serialise_header(json_t *header, const char *path, char **out, size_t *size) {
    size_t length = tt__json_dumpb(header, NULL, 0, JSON_COMPACT);
    if (length == 0)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its header", path);
    uint64_t padded = (length + 7) / 8 * 8;
    if (padded > TT__SAFETENSORS_MAX_HEADER)
        return tt__fail(TT_ERR_INVALID, "%s: a header of %llu bytes is over the format's limit of %llu", path,
                        (unsigned long long)padded, (unsigned long long)TT__SAFETENSORS_MAX_HEADER);
    char *text = malloc(8 + padded);
    if (!text)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its header", path);
    memcpy(text, &padded, 8);
    tt__json_dumpb(header, text + 8, length, JSON_COMPACT);
    memset(text + 8 + length, ' ', padded - length);
    *out = text;
    *size = 8 + padded;
    return TT_OK;
}

static tt_status make_header(const char *path, const item *items, size_t count, const tt_metadata *metadata, size_t n,
                             char **out, size_t *size) {
    json_t *header = json_object();
    if (!header)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its header", path);
    tt_status status = fill_header(header, path, items, count, metadata, n);
    if (!status)
        status = serialise_header(header, path, out, size);
    json_decref(header);
    return status;
}

/* ---- the file ---- */

static tt_status write_tensor(tt__atomic_file *file, const item *it) {
    tt__host_copy elements;
    if (tt__host_copy_make(&elements, it->tensor))
        return tt__fail_prefix("%s: \"%s\"", file->path, it->name);
    tt_status status = tt__atomic_write(file, elements.data, elements.size);
    tt__host_copy_free(&elements);
    return status;
}

static tt_status safetensors_write(const char *path, const char *header, size_t header_size, const item *items,
                                   size_t count) {
    tt__atomic_file file;
    TT__TRY(tt__atomic_open(&file, path));
    tt_status status = tt__atomic_write(&file, header, header_size);
    for (size_t i = 0; i < count && !status; i++)
        status = write_tensor(&file, &items[i]);
    if (!status)
        return tt__atomic_commit(&file);
    tt__atomic_abort(&file);
    return status;
}

static tt_status collect_items(const char *path, const tt_named_tensors *tensors, item *items) {
    for (int64_t i = 0; i < tensors->count; i++) {
        items[i] = (item){.name = tensors->names[i], .tensor = tensors->tensors[i]};
        TT__TRY(check_text(path, "tensor name", items[i].name));
    }
    if (tensors->count > 0)
        qsort(items, (size_t)tensors->count, sizeof *items, in_file_order);
    return TT_OK;
}

/* Check the list and the metadata. */
static tt_status check_arguments(const char *path, const tt_named_tensors *tensors, const tt_metadata *metadata,
                                 int64_t n) {
    if (!path || !tensors || (n > 0 && !metadata))
        return tt__fail(TT_ERR_INVALID, "tt_safetensors_save: `%s` is NULL",
                        !path      ? "path"
                        : !tensors ? "tensors"
                                   : "metadata");
    if (n < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected 0 or more pairs of metadata, got %lld", path, (long long)n);
    return tt__named_tensors_check(path, tensors, true);
}

tt_status tt_safetensors_save(const char *path, const tt_named_tensors *tensors, const tt_metadata *metadata,
                              int64_t n) {
    TT__TRY(check_arguments(path, tensors, metadata, n));
    size_t count = (size_t)tensors->count;
    item *items = calloc(count ? count : 1, sizeof *items);
    if (!items)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to list %zu tensors", path, count);
    char *header = NULL;
    size_t header_size = 0;
    tt_status status = collect_items(path, tensors, items);
    if (!status)
        status = make_header(path, items, count, metadata, (size_t)n, &header, &header_size);
    if (!status)
        status = safetensors_write(path, header, header_size, items, count);
    free(header);
    free(items);
    return status;
}
