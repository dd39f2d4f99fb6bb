/* .pt files in memory, put together by hand: a zip archive of stored records, and pickles in C strings. */
#ifndef TESTS_UNIT_PT_FILE_H
#define TESTS_UNIT_PT_FILE_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/checkpoint.h>
#include <zlib.h>

/* ---- pickles ---- */

#define PROTO "\200\2"
#define TEXT(length, text) "X" length "\0\0\0" text
#define ORDERED "ccollections\nOrderedDict\n)R"

/* A storage of `count` (one byte) elements in record data/KEY; KEY is one letter. */
#define STORAGE(type, key, count) \
    "(" TEXT("\7", "storage") "ctorch\n" type "\n" TEXT("\1", key) TEXT("\3", "cpu") "K" count "tQ"

/* A tensor; sizes and strides are tuples. */
#define TENSOR(type, key, count, offset, sizes, strides) \
    "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE(type, key, count) "K" offset sizes strides "\211" ORDERED "tR"

/* A dict of one tensor "w". */
#define W_IS(tensor) PROTO "}(" TEXT("\1", "w") tensor "u."

/* ---- archives ---- */

typedef struct pt_file {
    unsigned char *data, *central;
    size_t size, central_size;
    int count;
} pt_file;

static inline void pt_put(unsigned char **to, size_t *size, const void *from, size_t n) {
    unsigned char *grown = realloc(*to, *size + n + 1);
    if (!grown)
        abort();
    *to = grown;
    if (n)
        memcpy(*to + *size, from, n);
    *size += n;
}

static inline void pt_number(unsigned char **to, size_t *size, uint64_t number, size_t n) {
    pt_put(to, size, &number, n);
}

/* What both headers of a record share. */
static inline void pt_common(unsigned char **to, size_t *size, uint32_t crc, size_t n, size_t name) {
    pt_number(to, size, 20, 2); /* version */
    pt_number(to, size, 0, 4);  /* flags, stored */
    pt_number(to, size, 0x210000, 4);
    pt_number(to, size, crc, 4);
    pt_number(to, size, n, 4);
    pt_number(to, size, n, 4);
    pt_number(to, size, name, 2);
    pt_number(to, size, 0, 2); /* extra fields */
}

/* Add a record; its name is with the folder. */
static inline void pt_add(pt_file *f, const char *name, const void *bytes, size_t n) {
    uint32_t crc = (uint32_t)crc32(0, bytes, (unsigned)n);
    size_t at = f->size;
    pt_number(&f->data, &f->size, 0x04034b50, 4);
    pt_common(&f->data, &f->size, crc, n, strlen(name));
    pt_put(&f->data, &f->size, name, strlen(name));
    pt_put(&f->data, &f->size, bytes, n);
    pt_number(&f->central, &f->central_size, 0x02014b50, 4);
    pt_number(&f->central, &f->central_size, 20, 2);
    pt_common(&f->central, &f->central_size, crc, n, strlen(name));
    pt_number(&f->central, &f->central_size, 0, 8);
    pt_number(&f->central, &f->central_size, 0, 2);
    pt_number(&f->central, &f->central_size, at, 4);
    pt_put(&f->central, &f->central_size, name, strlen(name));
    f->count++;
}

/* Write the directory. */
static inline void pt_end(pt_file *f) {
    size_t at = f->size;
    pt_put(&f->data, &f->size, f->central, f->central_size);
    pt_number(&f->data, &f->size, 0x06054b50, 4);
    pt_number(&f->data, &f->size, 0, 4);
    pt_number(&f->data, &f->size, (uint64_t)f->count, 2);
    pt_number(&f->data, &f->size, (uint64_t)f->count, 2);
    pt_number(&f->data, &f->size, f->central_size, 4);
    pt_number(&f->data, &f->size, at, 4);
    pt_number(&f->data, &f->size, 0, 2);
}

static inline void pt_free(pt_file *f) {
    free(f->data);
    free(f->central);
    *f = (pt_file){0};
}

/* A file of a pickle, records "0" of `n` bytes 0, 1, 2, ... and a version. */
static inline pt_file pt_make(const char *pickle, size_t size, size_t n) {
    pt_file f = {0};
    unsigned char bytes[256];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (unsigned char)i;
    pt_add(&f, "x/data.pkl", pickle, size);
    pt_add(&f, "x/data/0", bytes, n);
    pt_add(&f, "x/version", "3\n", 2);
    pt_end(&f);
    return f;
}

/* Parse memory of exactly that size, so that a sanitizer sees the first byte read beyond it. */
static inline tt_status pt_parse(tt_value **value, const unsigned char *data, size_t size) {
    unsigned char *copy = malloc(size ? size : 1);
    if (!copy)
        abort();
    if (size)
        memcpy(copy, data, size);
    tt_status status = tt_torch_parse(value, copy, size, "x.pt");
    free(copy);
    return status;
}

#endif
