/* The layout (numbers are little-endian):
 *
 *   for each record: local header, name, extra fields, bytes
 *   for each record: central header, name, extra fields
 *   [the same end in 64 bits, where 32 don't hold an offset or 16 a count] end of the directory
 *
 * A size or an offset of 4 GiB or more is 0xffffffff in its header, and stands in the extra field 1. */
#include "zip/zip.h"

#include <string.h>
#include <zlib.h>

#include "base/error.h"

enum {
    ALIGNMENT = 64,
    LOCAL_HEADER = 30,
    UTF8_NAMES = 0x0800, /* a flag of a record */
    VERSION_PLAIN = 20,  /* the version of the format that a reader must know */
    VERSION_ZIP64 = 45,
    DATE_1980 = 0x21, /* the first there is: the same tensors make the same bytes */
    EXTRA_ZIP64 = 1,
    EXTRA_PADDING = 0x4246, /* "FB", as in PyTorch's files */
};

#define TOO_LARGE UINT64_C(0xffffffff)

/* Put the `width` low bytes of a number. */
static void put(tt__bytes *to, uint64_t number, size_t width) { tt__bytes_put(to, &number, width); }

static uint64_t or_large(uint64_t number) { return number < TOO_LARGE ? number : TOO_LARGE; }

typedef struct item {
    const char *name;
    uint64_t size, offset;
    uint32_t crc;
} item;

static item item_of(const char *name, uint64_t offset, const tt__span *parts, size_t count) {
    item it = {.name = name, .offset = offset};
    uLong crc = crc32_z(0, NULL, 0);
    for (size_t i = 0; i < count; i++) {
        crc = parts[i].size ? crc32_z(crc, parts[i].data, parts[i].size) : crc;
        it.size += parts[i].size;
    }
    it.crc = (uint32_t)crc;
    return it;
}

/* Put the fields that local and central headers share, from the version needed to the sizes. */
static void put_common(tt__bytes *to, const item *it) {
    bool zip64 = it->size >= TOO_LARGE || it->offset >= TOO_LARGE;
    put(to, zip64 ? VERSION_ZIP64 : VERSION_PLAIN, 2);
    put(to, UTF8_NAMES, 2);
    put(to, 0, 2); /* stored */
    put(to, 0, 2); /* midnight */
    put(to, DATE_1980, 2);
    put(to, it->crc, 4);
    put(to, or_large(it->size), 4);
    put(to, or_large(it->size), 4);
}

/* Put the local header; its padding lets the record's bytes begin at a multiple of ALIGNMENT. */
static void put_local(tt__bytes *to, const item *it) {
    static const char filler[ALIGNMENT] = "";
    size_t name = strlen(it->name), zip64 = it->size >= TOO_LARGE ? 20 : 0;
    size_t begin = (size_t)((it->offset + LOCAL_HEADER + name + zip64 + 4) % ALIGNMENT);
    size_t padding = (ALIGNMENT - begin) % ALIGNMENT;
    put(to, 0x04034b50, 4);
    put_common(to, it);
    put(to, name, 2);
    put(to, zip64 + 4 + padding, 2);
    tt__bytes_put(to, it->name, name);
    if (zip64) {
        put(to, EXTRA_ZIP64, 2);
        put(to, 16, 2);
        put(to, it->size, 8);
        put(to, it->size, 8);
    }
    put(to, EXTRA_PADDING, 2);
    put(to, padding, 2);
    tt__bytes_put(to, filler, padding);
}

static void put_central(tt__bytes *to, const item *it) {
    size_t large = (it->size >= TOO_LARGE ? 16 : 0) + (it->offset >= TOO_LARGE ? 8 : 0);
    put(to, 0x02014b50, 4);
    put(to, large ? VERSION_ZIP64 : VERSION_PLAIN, 2);
    put_common(to, it);
    put(to, strlen(it->name), 2);
    put(to, large ? large + 4 : 0, 2);
    put(to, 0, 2 + 2 + 2); /* comment, disk, attributes inside */
    put(to, 0, 4);         /* attributes outside */
    put(to, or_large(it->offset), 4);
    tt__bytes_put(to, it->name, strlen(it->name));
    if (large) {
        put(to, EXTRA_ZIP64, 2);
        put(to, large, 2);
    }
    for (int twice = 0; twice < 2 && it->size >= TOO_LARGE; twice++)
        put(to, it->size, 8);
    if (it->offset >= TOO_LARGE)
        put(to, it->offset, 8);
}

/* Put the end of the directory, which begins at `offset`. */
static void put_end(tt__bytes *to, uint64_t count, uint64_t size, uint64_t offset) {
    bool zip64 = count >= 0xffff || size >= TOO_LARGE || offset >= TOO_LARGE;
    if (zip64) {
        put(to, 0x06064b50, 4);
        put(to, 44, 8); /* bytes that follow */
        put(to, VERSION_ZIP64, 2);
        put(to, VERSION_ZIP64, 2);
        put(to, 0, 8); /* disks */
        put(to, count, 8);
        put(to, count, 8);
        put(to, size, 8);
        put(to, offset, 8);
        put(to, 0x07064b50, 4);
        put(to, 0, 4);
        put(to, offset + size, 8);
        put(to, 1, 4); /* disks */
    }
    put(to, 0x06054b50, 4);
    put(to, 0, 4);
    put(to, count < 0xffff ? count : 0xffff, 2);
    put(to, count < 0xffff ? count : 0xffff, 2);
    put(to, or_large(size), 4);
    put(to, or_large(offset), 4);
    put(to, 0, 2); /* comment */
}

/* Write the bytes, and free them. */
static tt_status write_headers(tt__zip_writer *w, tt__bytes *bytes) {
    tt_status status = bytes->failed ? tt__fail(TT_ERR_MEMORY, "%s: no memory for its headers", w->file.path)
                                     : tt__atomic_write(&w->file, bytes->data, bytes->size);
    tt__bytes_free(bytes);
    return status;
}

tt_status tt__zip_create(tt__zip_writer *w, const char *path) {
    *w = (tt__zip_writer){.count = 0};
    return tt__atomic_open(&w->file, path);
}

tt_status tt__zip_add(tt__zip_writer *w, const char *record, const tt__span *parts, size_t count) {
    if (strlen(record) > UINT16_MAX)
        return tt__fail(TT_ERR_INVALID, "%s: expected names of less than 64 KiB, got one of %zu bytes", w->file.path,
                        strlen(record));
    const item it = item_of(record, w->file.size, parts, count);
    tt__bytes header = {0};
    put_local(&header, &it);
    put_central(&w->central, &it);
    w->count++;
    TT__TRY(write_headers(w, &header));
    for (size_t i = 0; i < count; i++)
        TT__TRY(tt__atomic_write(&w->file, parts[i].data, parts[i].size));
    return TT_OK;
}

tt_status tt__zip_commit(tt__zip_writer *w) {
    uint64_t size = w->central.size;
    put_end(&w->central, w->count, size, w->file.size);
    tt_status status = write_headers(w, &w->central);
    if (!status)
        return tt__atomic_commit(&w->file);
    tt__atomic_abort(&w->file);
    return status;
}

void tt__zip_abort(tt__zip_writer *w) {
    tt__bytes_free(&w->central);
    tt__atomic_abort(&w->file);
}
