/* Reading safetensors, and what a file that was read has. The file is taken for hostile: lengths are compared with the
 * file's before anything is allocated, and every rule of the format is checked before a tensor is made. */
#include "checkpoint/safetensors.h"

#include "base/args.h"
#include "base/error.h"
#include "base/files/fd.h"
#include "base/quarantine.h"
#include "base/text/format.h"
#include "base/text/json.h"
#include "data/files/whole_file.h"
#include "tensor/core/tensor.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* What becomes of an element type of the format when it is read. */
typedef enum reading_kind {
    UNSUPPORTED, /* there is no type for it */
    AS_IT_IS,
    UNSIGNED /* integers without a sign become a signed type that holds them all; U64 becomes I64 if its values fit */
} reading_kind;

/* An element type of the format: F4 has 4 bits, F6 6. */
typedef struct dtype_row {
    const char *name;
    unsigned bits;
    reading_kind reading;
    tt_dtype dtype; /* of the tensor that is made */
} dtype_row;

static const dtype_row dtypes[] = {
    {"F32", 32, AS_IT_IS, TT_F32},      {"F64", 64, AS_IT_IS, TT_F64},  {"F16", 16, AS_IT_IS, TT_F16},
    {"BF16", 16, AS_IT_IS, TT_BF16},    {"I64", 64, AS_IT_IS, TT_I64},  {"I32", 32, AS_IT_IS, TT_I32},
    {"I16", 16, AS_IT_IS, TT_I16},      {"I8", 8, AS_IT_IS, TT_I8},     {"U8", 8, AS_IT_IS, TT_U8},
    {"BOOL", 8, AS_IT_IS, TT_BOOL},     {"U16", 16, UNSIGNED, TT_I32},  {"U32", 32, UNSIGNED, TT_I64},
    {"U64", 64, UNSIGNED, TT_I64},      {.name = "C64", .bits = 64},    {.name = "F8_E5M2", .bits = 8},
    {.name = "F8_E4M3", .bits = 8},     {.name = "F8_E8M0", .bits = 8}, {.name = "F8_E4M3FNUZ", .bits = 8},
    {.name = "F8_E5M2FNUZ", .bits = 8}, {.name = "F4", .bits = 4},      {.name = "F6_E2M3", .bits = 6},
    {.name = "F6_E3M2", .bits = 6},
};

/* Find a type of the format by its name; NULL if there is none. */
static const dtype_row *safetensors_dtype_find(const char *name) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return &dtypes[i];
    return NULL;
}

const char *tt__safetensors_dtype_name(tt_dtype dtype) {
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++)
        if (dtypes[i].reading == AS_IT_IS && dtypes[i].dtype == dtype)
            return dtypes[i].name;
    return "?";
}

/* ---- what was read ---- */

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

/* Free a file, which may be half made. */
static void end_file(tt_safetensors *file) {
    release_tensors(file);
    free(file->parts);
    free(file->tensors);
    free(file->names);
    free(file->skipped);
    json_decref(file->header);
    tt__quarantine(file, sizeof *file, free);
}

void tt_safetensors_free(tt_safetensors *file) {
    if (file && !tt__freed_before("tt_safetensors_free", file))
        end_file(file);
}

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tensors are read in the byte order of the file: little-endian"
#endif

/* ---- reading ---- */

/* Where bytes come from: a file, or memory if `data` is set. */
typedef struct source {
    const char *name; /* for errors */
    const unsigned char *data;
    int fd;
    uint64_t size;
} source;

/* One tensor as the header describes it. */
typedef struct entry {
    const char *name;
    const dtype_row *dtype;
    size_t ndim;    /* may be more than a tt_shape holds */
    tt_shape shape; /* its first TT_MAX_DIMS sizes */
    uint64_t begin, end;
} entry;

/* Fail for a tensor: the text has path, name and cause. */
TT_PRINTF(4, 5)
static tt_status fail_tensor(tt_status status, const source *src, const char *tensor, const char *format, ...) {
    char text[512];
    va_list args;
    va_start(args, format);
    tt__vformat(text, sizeof text, format, args);
    va_end(args);
    return tt__fail(status, "%s: tensor \"%s\": %s", src->name, tt__make_printable(tensor).text, text);
}

static tt_status source_read(const source *src, uint64_t offset, void *out, uint64_t size) {
    if (src->data) {
        if (size > 0)
            memcpy(out, src->data + offset, size);
        return TT_OK;
    }
    size_t got;
    TT__TRY(tt__file_read_at(src->fd, src->name, out, size, offset, &got));
    return got == size ? TT_OK : tt__fail(TT_ERR_IO, "%s: it became shorter while it was read", src->name);
}

/* ---- reading: the header ---- */

static tt_status header_length(const source *src, uint64_t *length) {
    if (src->size < 8)
        return tt__fail(TT_ERR_FORMAT, "%s: expected at least 8 bytes of safetensors, got %llu", src->name,
                        (unsigned long long)src->size);
    unsigned char bytes[8];
    TT__TRY(source_read(src, 0, bytes, sizeof bytes));
    memcpy(length, bytes, sizeof *length);
    if (*length > TT__SAFETENSORS_MAX_HEADER && !memcmp(bytes, "PK\3\4", 4))
        return tt__fail(TT_ERR_FORMAT,
                        "%s: not safetensors but a zip archive, as torch.save() makes: tt_torch_load() reads it",
                        src->name);
    if (*length > TT__SAFETENSORS_MAX_HEADER)
        return tt__fail(
            TT_ERR_FORMAT,
            "%s: not a safetensors file: expected a header of at most %llu bytes, its first 8 bytes say %llu",
            src->name, (unsigned long long)TT__SAFETENSORS_MAX_HEADER, (unsigned long long)*length);
    if (*length > src->size - 8)
        return tt__fail(TT_ERR_FORMAT, "%s: a header of %llu bytes does not fit the file's %llu bytes (cut short?)",
                        src->name, (unsigned long long)*length, (unsigned long long)src->size);
    return TT_OK;
}

static tt_status header_parse(const source *src, const char *text, size_t length, json_t **header) {
    json_error_t error;
    *header = tt__json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!*header && json_error_code(&error) == json_error_out_of_memory)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for its header", src->name);
    if (!*header)
        return tt__fail(TT_ERR_FORMAT, "%s: the header is no valid JSON: %s (byte %d of it)", src->name,
                        tt__make_printable(error.text).text, error.position);
    if (!json_is_object(*header))
        return tt__fail(TT_ERR_FORMAT, "%s: expected a JSON object as header, got something else", src->name);
    return TT_OK;
}

static tt_status header_read(const source *src, uint64_t length, json_t **header) {
    char *text = malloc(length ? length : 1);
    if (!text)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for a header of %llu bytes", src->name,
                        (unsigned long long)length);
    tt_status status = source_read(src, 8, text, length);
    if (!status)
        status = header_parse(src, text, length, header);
    free(text);
    return status;
}

static tt_status check_metadata(const source *src, json_t *header) {
    json_t *metadata = json_object_get(header, TT__SAFETENSORS_METADATA);
    if (!metadata || json_is_null(metadata))
        return TT_OK;
    if (!json_is_object(metadata))
        return tt__fail(TT_ERR_FORMAT, "%s: expected an object as %s, got something else", src->name,
                        TT__SAFETENSORS_METADATA);
    const char *key;
    json_t *value;
    json_object_foreach(metadata, key, value) {
        if (!json_is_string(value))
            return tt__fail(TT_ERR_FORMAT, "%s: expected a string as %s's \"%s\", got something else", src->name,
                            TT__SAFETENSORS_METADATA, tt__make_printable(key).text);
    }
    return TT_OK;
}

/* ---- reading: one entry ---- */

static tt_status entry_dtype(const source *src, entry *e, json_t *value) {
    const char *name = json_string_value(json_object_get(value, "dtype"));
    if (!name)
        return fail_tensor(TT_ERR_FORMAT, src, e->name, "expected a string \"dtype\"");
    e->dtype = safetensors_dtype_find(name);
    if (!e->dtype)
        return fail_tensor(TT_ERR_FORMAT, src, e->name, "unknown dtype \"%s\"", tt__make_printable(name).text);
    return TT_OK;
}

/* Set e->shape, and *bytes to the size by dtype and shape. */
static tt_status entry_shape(const source *src, entry *e, json_t *value, uint64_t *bytes) {
    json_t *shape = json_object_get(value, "shape");
    if (!json_is_array(shape))
        return fail_tensor(TT_ERR_FORMAT, src, e->name, "expected an array \"shape\"");
    e->ndim = json_array_size(shape);
    uint64_t count = 1;
    for (size_t d = 0; d < e->ndim; d++) {
        json_t *size = json_array_get(shape, d);
        if (!json_is_integer(size) || json_integer_value(size) < 0)
            return fail_tensor(TT_ERR_FORMAT, src, e->name, "expected sizes of 0 or more in \"shape\", got another %s",
                               json_is_integer(size) ? "number" : "thing");
        if (__builtin_mul_overflow(count, (uint64_t)json_integer_value(size), &count))
            return fail_tensor(TT_ERR_FORMAT, src, e->name, "the sizes in \"shape\" multiply beyond 64 bits");
        if (d < TT_MAX_DIMS)
            e->shape.dim[d] = json_integer_value(size);
    }
    e->shape.ndim = e->ndim < TT_MAX_DIMS ? (int)e->ndim : TT_MAX_DIMS;
    if (__builtin_mul_overflow(count, (uint64_t)e->dtype->bits, bytes))
        return fail_tensor(TT_ERR_FORMAT, src, e->name, "%llu elements of %s are beyond 64 bits",
                           (unsigned long long)count, e->dtype->name);
    if (*bytes % 8)
        return fail_tensor(TT_ERR_FORMAT, src, e->name, "%llu elements of %s are no whole number of bytes",
                           (unsigned long long)count, e->dtype->name);
    *bytes /= 8;
    return TT_OK;
}

static tt_status entry_offsets(const source *src, entry *e, json_t *value, uint64_t bytes, uint64_t data_size) {
    json_t *offsets = json_object_get(value, "data_offsets");
    json_t *begin = json_array_get(offsets, 0), *end = json_array_get(offsets, 1);
    if (json_array_size(offsets) != 2 || !json_is_integer(begin) || !json_is_integer(end) ||
        json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin))
        return fail_tensor(TT_ERR_FORMAT, src, e->name, "expected \"data_offsets\":[begin,end] with 0 <= begin <= end");
    e->begin = (uint64_t)json_integer_value(begin);
    e->end = (uint64_t)json_integer_value(end);
    if (e->end > data_size)
        return fail_tensor(TT_ERR_FORMAT, src, e->name,
                           "its data ends at byte %llu, the file has %llu bytes of data (cut short?)",
                           (unsigned long long)e->end, (unsigned long long)data_size);
    if (e->end - e->begin != bytes)
        return fail_tensor(TT_ERR_FORMAT, src, e->name, "dtype and shape make %llu bytes, data_offsets %llu",
                           (unsigned long long)bytes, (unsigned long long)(e->end - e->begin));
    return TT_OK;
}

static tt_status entry_parse(const source *src, entry *e, json_t *value, uint64_t data_size) {
    if (!json_is_object(value))
        return fail_tensor(TT_ERR_FORMAT, src, e->name, "expected an object");
    uint64_t bytes = 0;
    TT__TRY(entry_dtype(src, e, value));
    TT__TRY(entry_shape(src, e, value, &bytes));
    return entry_offsets(src, e, value, bytes, data_size);
}

/* ---- reading: all entries ---- */

static tt_status parse_entries(const source *src, json_t *header, uint64_t data_size, entry *entries) {
    size_t n = 0;
    const char *name;
    json_t *value;
    json_object_foreach(header, name, value) {
        if (strcmp(name, TT__SAFETENSORS_METADATA) == 0)
            continue;
        entries[n].name = name;
        TT__TRY(entry_parse(src, &entries[n], value, data_size));
        n++;
    }
    return TT_OK;
}

static int by_offset(const void *a, const void *b) {
    const entry *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end > y->end) - (x->end < y->end);
}

static int by_name(const void *a, const void *b) {
    const entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

/* Check that the tensors cover the data exactly. Sorts `entries` by offset. */
static tt_status check_coverage(const source *src, entry *entries, size_t n, uint64_t data_size) {
    if (n > 0)
        qsort(entries, n, sizeof *entries, by_offset);
    uint64_t at = 0;
    for (size_t i = 0; i < n; at = entries[i++].end)
        if (entries[i].begin != at)
            return fail_tensor(TT_ERR_FORMAT, src, entries[i].name,
                               "its data begins at byte %llu, %s (tensors must follow each other without gaps)",
                               (unsigned long long)entries[i].begin,
                               entries[i].begin < at ? "inside another tensor's" : "after bytes that are no tensor's");
    if (at != data_size)
        return tt__fail(TT_ERR_FORMAT, "%s: its tensors have %llu bytes, the file has %llu bytes of data", src->name,
                        (unsigned long long)at, (unsigned long long)data_size);
    return TT_OK;
}

static bool is_supported(const entry *e) { return e->dtype->reading && e->ndim <= TT_MAX_DIMS; }

#define OR_SKIP "; with .skip_unsupported the file is read without such tensors"

static tt_status check_supported(const source *src, const entry *entries, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (!entries[i].dtype->reading)
            return fail_tensor(TT_ERR_UNSUPPORTED, src, entries[i].name,
                               "dtype %s is not supported (convert it to F32, F64, F16, BF16, I64, I32, I16, I8, U8 "
                               "or BOOL" OR_SKIP ")",
                               entries[i].dtype->name);
        if (!is_supported(&entries[i]))
            return fail_tensor(TT_ERR_UNSUPPORTED, src, entries[i].name,
                               "%zu dimensions, at most %d are supported" OR_SKIP, entries[i].ndim, TT_MAX_DIMS);
    }
    return TT_OK;
}

/* Check that all bytes are bools, 0 or 1. */
static tt_status check_bools(const source *src, const entry *e, const tt_tensor *x) {
    const unsigned char *bytes = tt_tensor_data(x);
    for (uint64_t i = 0; i < e->end - e->begin; i++)
        if (bytes[i] > 1)
            return fail_tensor(TT_ERR_FORMAT, src, e->name, "expected bools, bytes of 0 or 1, but byte %llu is %d",
                               (unsigned long long)i, bytes[i]);
    return TT_OK;
}

/* Turn `count` unsigned integers of that type into signed ones that have room for them, in place: the unsigned ones
 * are at the end of the tensor's memory. Returns how many it turned: fewer if a U64 is above I64's largest value. */
static int64_t give_sign(const dtype_row *dtype, tt_tensor *x, int64_t count) {
    unsigned char *to = tt_tensor_data(x);
    size_t size = dtype->bits / 8, room = tt_dtype_size(dtype->dtype);
    const unsigned char *from = to + (size_t)count * (room - size);
    for (int64_t i = 0; i < count; i++, to += room, from += size) {
        uint64_t value = 0;
        memcpy(&value, from, size);
        if (value > INT64_MAX)
            return i;
        memcpy(to, &value, room);
    }
    return count;
}

/* Read a tensor, which the file owns, not the open scope. *beyond: the place of a U64 that I64 can't hold, or -1. */
static tt_status read_tensor(const source *src, uint64_t data_at, const entry *e, tt_tensor **out, int64_t *beyond) {
    uint64_t size = e->end - e->begin;
    tt_tensor *x = tt__tensor_new("tt_safetensors_load", e->shape, e->dtype->dtype);
    *beyond = -1;
    if (!x || tt__tensor_adopt(x, "a safetensors file"))
        return tt__fail_prefix("%s: tensor \"%s\"", src->name, tt__make_printable(e->name).text);
    *out = x;
    int64_t count = tt_tensor_numel(x);
    char *end = (char *)tt_tensor_data(x) + (size_t)count * tt_dtype_size(e->dtype->dtype);
    TT__TRY(source_read(src, data_at + e->begin, end - size, size));
    if (e->dtype->reading == UNSIGNED) {
        int64_t done = give_sign(e->dtype, x, count);
        *beyond = done < count ? done : -1;
    }
    return e->dtype->dtype == TT_BOOL ? check_bools(src, e, x) : TT_OK;
}

static void skip_tensor(tt_safetensors *file, const entry *e) { file->skipped[file->skipped_count++] = e->name; }

/* Read the next tensor of the list, or skip it. */
static tt_status read_next(tt_safetensors *file, const source *src, uint64_t data_at, const entry *e, bool skip) {
    int64_t beyond;
    if (!is_supported(e)) {
        skip_tensor(file, e);
        return TT_OK;
    }
    tt_tensor **x = &file->tensors[file->count];
    file->names[file->count++] = e->name; /* what is made of it is freed with the file */
    TT__TRY(read_tensor(src, data_at, e, x, &beyond));
    if (beyond < 0)
        return TT_OK;
    if (!skip)
        return fail_tensor(TT_ERR_UNSUPPORTED, src, e->name,
                           "its U64 become I64, but element %lld is above 9223372036854775807" OR_SKIP,
                           (long long)beyond);
    tt__tensor_disown(*x);
    *x = NULL;
    file->count--;
    skip_tensor(file, e);
    return TT_OK;
}

static tt_status read_tensors(tt_safetensors *file, const source *src, uint64_t data_at, entry *entries, size_t n,
                              bool skip) {
    file->names = calloc(n ? n : 1, sizeof *file->names);
    file->skipped = calloc(n ? n : 1, sizeof *file->skipped);
    file->tensors = calloc(n ? n : 1, sizeof *file->tensors);
    if (!file->names || !file->skipped || !file->tensors)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu tensors", src->name, n);
    if (n > 0)
        qsort(entries, n, sizeof *entries, by_name);
    for (size_t i = 0; i < n; i++)
        TT__TRY(read_next(file, src, data_at, &entries[i], skip));
    return TT_OK;
}

static tt_status read_entries(tt_safetensors *file, const source *src, uint64_t data_at, bool skip) {
    size_t n = json_object_size(file->header);
    if (json_object_get(file->header, TT__SAFETENSORS_METADATA))
        n--;
    entry *entries = calloc(n ? n : 1, sizeof *entries);
    if (!entries)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu tensors", src->name, n);
    uint64_t data_size = src->size - data_at;
    tt_status status = parse_entries(src, file->header, data_size, entries);
    if (!status)
        status = check_coverage(src, entries, n, data_size);
    if (!status && !skip)
        status = check_supported(src, entries, n);
    if (!status)
        status = read_tensors(file, src, data_at, entries, n, skip);
    free(entries);
    return status;
}

static tt_status read_source(tt_safetensors **out, const source *src, bool skip) {
    tt_safetensors *file = calloc(1, sizeof *file);
    if (!file)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to read it", src->name);
    uint64_t length = 0;
    tt_status status = header_length(src, &length);
    if (!status)
        status = header_read(src, length, &file->header);
    if (!status)
        status = check_metadata(src, file->header);
    if (!status)
        status = read_entries(file, src, 8 + length, skip);
    if (status) {
        end_file(file);
        return status;
    }
    file->list = (tt_named_tensors){sizeof file->list, (int64_t)file->count, file->names, file->tensors};
    *out = file;
    return TT_OK;
}

tt_status tt_safetensors_parse_with(const tt_safetensors_parse_args *given, size_t given_size) {
    tt_safetensors_parse_args args;
    TT__ARGS_COPY(args, given, given_size);
    if (!args.out)
        return tt__fail(TT_ERR_INVALID, "tt_safetensors_parse: `out` is NULL");
    *args.out = NULL;
    if (!args.data && args.size > 0)
        return tt__fail(TT_ERR_INVALID, "tt_safetensors_parse: `data` is NULL");
    const source src = {
        .name = args.name ? args.name : "safetensors", .data = args.data ? args.data : "", .fd = -1, .size = args.size};
    return read_source(args.out, &src, args.skip_unsupported);
}

tt_status tt__checkpoint_file_open(int *fd, uint64_t *size, const char *path) {
    struct stat s;
    tt_status status = TT_OK;
    *fd = tt__fd(open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (*fd < 0)
        return tt__fail_errno(TT_ERR_IO, errno, "%s: can't open it", path);
    if (fstat(*fd, &s) != 0)
        status = tt__fail_errno(TT_ERR_IO, errno, "%s: can't look at it", path);
    else if (!S_ISREG(s.st_mode))
        status = tt__fail(TT_ERR_IO, "%s: expected a file, got a %s", path,
                          S_ISDIR(s.st_mode) ? "directory" : "device or pipe");
    if (status)
        close(*fd);
    else
        *size = (uint64_t)s.st_size;
    return status;
}

tt_status tt__safetensors_read_file(tt_safetensors **out, const char *path, bool skip_unsupported) {
    source src = {.name = path};
    TT__TRY(tt__checkpoint_file_open(&src.fd, &src.size, path));
    tt_status status = read_source(out, &src, skip_unsupported);
    close(src.fd);
    return status;
}
