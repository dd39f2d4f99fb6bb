/* .npz files: zip archives of .npy records. They are written as numpy.savez() does, nothing compressed. */

#include "base/error.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"
#include "data/files/npy.h"
#include "data/files/whole_file.h"
#include "tensor/core/named_tensors.h"
#include "tensor/core/tensor.h"
#include "tensor/shape/copy.h"
#include "zip/zip.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TT__NPZ_ENDING ".npy"

/* ---- names ---- */

static int npz_name_order(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

tt_status tt__npz_check_names(const char *who, tt_status status, const char *const *names, int64_t count) {
    if (!count)
        return TT_OK;
    const char **sorted = malloc((size_t)count * sizeof *sorted), *twice = NULL;
    if (!sorted)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to compare %" PRId64 " names", who, count);
    memcpy(sorted, names, (size_t)count * sizeof *sorted);
    qsort(sorted, (size_t)count, sizeof *sorted, npz_name_order);
    for (int64_t i = 1; i < count && !twice; i++)
        twice = strcmp(sorted[i - 1], sorted[i]) ? NULL : sorted[i];
    free(sorted);
    return twice ? tt__fail(status, "%s: the name \"%s\" comes twice", who, tt__make_printable(twice).text) : TT_OK;
}

/* ---- reading ---- */

struct tt_npz {
    int64_t count;
    char **names;
    tt_tensor **tensors;
    tt_named_tensors list;
};

static tt_status read_from_zip(void *from, void *out, size_t size, size_t *got) {
    uint64_t n = 0;
    tt_status status = tt__zip_stream_read(from, out, size, &n);
    *got = (size_t)n;
    return status;
}

/* Read what follows the elements, to the end, where the checksum is compared. */
static tt_status read_rest(tt__zip_stream *stream, uint64_t size) {
    char scratch[4096];
    uint64_t got = 1;
    for (uint64_t all = 0; got && all <= size; all += got)
        TT__TRY(tt__zip_stream_read(stream, scratch, sizeof scratch, &got));
    return TT_OK;
}

static tt_status decode_record(tt_tensor **out, const tt__zip_reader *zip, uint64_t i, const tt__zip_record *record) {
    char name[512];
    tt__zip_stream stream;
    snprintf(name, sizeof name, "%.300s: \"%s\"", zip->name, tt__make_printable(record->name).text);
    TT__TRY(tt__zip_stream_open(&stream, zip, i, record->name));
    const tt__npy_input input = {name, record->size, read_from_zip, &stream};
    tt_status status = tt__npy_decode(out, &input);
    if (!status)
        status = read_rest(&stream, record->size);
    tt__zip_stream_close(&stream);
    return status;
}

/* Check that a record is an array, and that its packed bytes can hold as many as it claims: deflate writes at most 258
 * bytes for 2 bits. */
static tt_status check_record(const tt__zip_reader *zip, const tt__zip_record *record) {
    if (!tt__ends_with(record->name, TT__NPZ_ENDING))
        return tt__fail(TT_ERR_FORMAT, "%s: expected records called NAME.npy, got \"%s\"", zip->name,
                        tt__make_printable(record->name).text);
    if (!record->stored && !record->deflated)
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: \"%s\" is encrypted, or not packed by deflate", zip->name,
                        tt__make_printable(record->name).text);
    if (!record->stored && record->size / 1032 > record->packed_size)
        return tt__fail(TT_ERR_FORMAT,
                        "%s: \"%s\" claims %" PRIu64 " bytes, more than its %" PRIu64 " packed ones can hold",
                        zip->name, tt__make_printable(record->name).text, record->size, record->packed_size);
    return TT_OK;
}

/* Read record i. *packed: the packed bytes of all records so far; if they are more than the file has, records
 * overlap. */
static tt_status read_record(tt_npz *file, const tt__zip_reader *zip, uint64_t i, uint64_t size, uint64_t *packed) {
    tt__zip_record record;
    TT__TRY(tt__zip_look(zip, i, &record));
    TT__TRY(check_record(zip, &record));
    if (record.packed_size > size - *packed)
        return tt__fail(TT_ERR_FORMAT, "%s: its records have more bytes than the file's %" PRIu64 ": they overlap",
                        zip->name, size);
    *packed += record.packed_size;
    char *name = strndup(record.name, strlen(record.name) - strlen(TT__NPZ_ENDING));
    if (!name)
        return tt__fail(TT_ERR_MEMORY, "%s: out of memory", zip->name);
    file->names[file->count++] = name;
    TT__TRY(decode_record(&file->tensors[file->count - 1], zip, i, &record));
    return tt__tensor_adopt(file->tensors[file->count - 1], "a .npz file");
}

static tt_status npz_fill(tt_npz *file, const tt__zip_reader *zip, uint64_t size) {
    uint64_t packed = 0;
    file->names = calloc(zip->count, sizeof *file->names);
    file->tensors = calloc(zip->count, sizeof *file->tensors);
    if (!file->names || !file->tensors)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to list %" PRIu64 " records", zip->name, zip->count);
    for (uint64_t i = 0; i < zip->count; i++)
        TT__TRY(read_record(file, zip, i, size, &packed));
    file->list = (tt_named_tensors){sizeof file->list, file->count, (const char *const *)file->names, file->tensors};
    return tt__npz_check_names(zip->name, TT_ERR_FORMAT, file->list.names, file->count);
}

static tt_status npz_decode(tt_npz **out, const char *name, int fd, uint64_t size) {
    tt__zip_reader zip;
    *out = NULL;
    TT__TRY(tt__zip_open(&zip, name, NULL, fd, size));
    tt_npz *file = calloc(1, sizeof *file);
    tt_status status = file ? npz_fill(file, &zip, size) : tt__fail(TT_ERR_MEMORY, "%s: out of memory", name);
    tt__zip_close(&zip);
    if (status)
        tt_npz_free(file);
    else
        *out = file;
    return status;
}

tt_status tt_npz_read(tt_npz **out, const char *path) {
    if (out)
        *out = NULL;
    if (!out || !path)
        return tt__fail(TT_ERR_INVALID, "tt_npz_read: expected a path and where to put the arrays, got NULL");
    int fd = -1;
    uint64_t size = 0;
    TT__TRY(tt__file_open(&fd, &size, path));
    tt_status status = npz_decode(out, path, fd, size);
    close(fd);
    return status;
}

const tt_named_tensors *tt_npz_tensors(const tt_npz *file) { return file ? &file->list : NULL; }

void tt_npz_free(tt_npz *file) {
    for (int64_t i = 0; file && i < file->count; i++) {
        free(file->names[i]);
        tt__tensor_disown(file->tensors[i]);
    }
    if (file) {
        free(file->names);
        free(file->tensors);
    }
    free(file);
}

/* ---- writing ---- */

static tt_status add_array(tt__zip_writer *w, const char *record, const tt_tensor *x) {
    tt__host_copy elements;
    tt__bytes header = {0};
    if (tt__host_copy_make(&elements, x))
        return tt__fail_prefix("%s: %s", w->file.path, record);
    tt__npy_put_header(&header, x);
    const tt__span parts[] = {{header.data, header.size}, {elements.data, elements.size}};
    tt_status status =
        header.failed ? tt__fail(TT_ERR_MEMORY, "%s: out of memory", record) : tt__zip_add(w, record, parts, 2);
    tt__bytes_free(&header);
    tt__host_copy_free(&elements);
    return status;
}

static tt_status add_named(tt__zip_writer *w, const char *name, const tt_tensor *x) {
    size_t size = strlen(name) + sizeof TT__NPZ_ENDING;
    char *record = malloc(size);
    if (!record)
        return tt__fail(TT_ERR_MEMORY, "%s: out of memory", w->file.path);
    snprintf(record, size, "%s" TT__NPZ_ENDING, name);
    tt_status status = add_array(w, record, x);
    free(record);
    return status;
}

static tt_status npz_check_list(const char *path, const tt_named_tensors *tensors) {
    TT__TRY(tt__named_tensors_check(path, tensors, true));
    for (int64_t i = 0; i < tensors->count; i++)
        if (!*tensors->names[i])
            return tt__fail(TT_ERR_INVALID, "%s: expected names, got an empty one", path);
    return tt__npz_check_names(path, TT_ERR_INVALID, tensors->names, tensors->count);
}

tt_status tt_npz_write(const char *path, const tt_named_tensors *tensors) {
    tt__zip_writer w;
    if (!path)
        return tt__fail(TT_ERR_INVALID, "tt_npz_write: expected a path, got NULL");
    TT__TRY(npz_check_list(path, tensors));
    TT__TRY(tt__zip_create(&w, path));
    tt_status status = TT_OK;
    for (int64_t i = 0; i < tensors->count && !status; i++)
        status = add_named(&w, tensors->names[i], tensors->tensors[i]);
    if (!status)
        return tt__zip_commit(&w);
    tt__zip_abort(&w);
    return status;
}
