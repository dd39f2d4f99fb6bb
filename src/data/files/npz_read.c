/* Reading .npz files: zip archives of .npy records. */
#include "base/error.h"
#include "base/text/parse.h"
#include "base/text/plain_text.h"
#include "data/files/npy.h"
#include "data/files/npz.h"
#include "data/files/whole_file.h"
#include "tensor/core/tensor.h"
#include "zip/zip_read.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* What a record claims must be something that its packed bytes can hold: deflate writes at most 258 bytes for 2
 * bits. */
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

/* *packed: of all records so far, none of which may lie over another. */
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

tt_status tt__npz_decode(tt_npz **out, const char *name, const void *data, int fd, uint64_t size) {
    tt__zip_reader zip;
    *out = NULL;
    TT__TRY(tt__zip_open(&zip, name, data, fd, size));
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
    tt_status status = tt__npz_decode(out, path, NULL, fd, size);
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
