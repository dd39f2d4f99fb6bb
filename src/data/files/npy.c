/* .npy files. A header is a literal of Python's; it is not trusted, and only the forms that NumPy writes are
 * understood. The elements are read straight into the tensor's memory. */
#include "data/files/npy.h"

#include "base/error.h"
#include "base/text/plain_text.h"
#include "data/files/source.h"
#include "data/files/whole_file.h"
#include "tensor/core/tensor.h"
#include "tensor/shape/copy.h"

#include <tutti/datasets.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Element types of the format and what becomes of each. */
typedef struct tt__npy_type {
    char kind;        /* the f of "<f4" */
    uint8_t width;    /* the 4 of "<f4": bytes of an element in the file */
    tt_dtype dtype;   /* of the tensor */
    bool is_unsigned; /* widened to a type with one bit more, or checked */
} tt__npy_type;

typedef struct tt__npy_header {
    const tt__npy_type *type;
    bool swapped; /* bytes are not in this machine's order */
    bool fortran;
    tt_shape shape;
} tt__npy_header;

#define UNSIGNED true
static const tt__npy_type types[] = {
    {'b', 1, TT_BOOL, false},   {'i', 1, TT_I8, false},  {'i', 2, TT_I16, false},    {'i', 4, TT_I32, false},
    {'i', 8, TT_I64, false},    {'u', 1, TT_U8, false},  {'u', 2, TT_I32, UNSIGNED}, {'u', 4, TT_I64, UNSIGNED},
    {'u', 8, TT_I64, UNSIGNED}, {'f', 2, TT_F16, false}, {'f', 4, TT_F32, false},    {'f', 8, TT_F64, false},
    {'V', 2, TT_BF16, false},
};

/* ---- parsing a header: its words ---- */

typedef struct cursor {
    const char *name; /* of the file */
    const char *at, *end;
} cursor;

static tt_status fail_header(const cursor *c, const char *expected) {
    char rest[24] = "";
    snprintf(rest, sizeof rest, "%.*s", (int)(c->end - c->at < 20 ? c->end - c->at : 20), c->at);
    return tt__fail(TT_ERR_FORMAT, "%s: its header is broken: expected %s, got \"%s\"", c->name, expected,
                    tt__make_printable(rest).text);
}

static void skip_spaces(cursor *c) {
    while (c->at < c->end && strchr(" \t\n\r\f", *c->at) && *c->at)
        c->at++;
}

/* Step over `sign`, if it comes next. */
static bool accept_sign(cursor *c, char sign) {
    skip_spaces(c);
    if (c->at == c->end || *c->at != sign)
        return false;
    c->at++;
    return true;
}

static bool accept_word(cursor *c, const char *word) {
    size_t n = strlen(word);
    skip_spaces(c);
    if ((size_t)(c->end - c->at) < n || memcmp(c->at, word, n))
        return false;
    c->at += n;
    return true;
}

/* Read a text in single or double quotes; there are no escapes in what NumPy writes. */
static tt_status header_text(cursor *c, char *out, size_t size, const char *expected) {
    skip_spaces(c);
    char quote = c->at < c->end ? *c->at : 0;
    const char *close = quote == '\'' || quote == '"' ? memchr(c->at + 1, quote, (size_t)(c->end - c->at - 1)) : NULL;
    if (!close || (size_t)(close - c->at) > size || memchr(c->at, '\\', (size_t)(close - c->at)))
        return fail_header(c, expected);
    size_t n = (size_t)(close - c->at) - 1;
    memcpy(out, c->at + 1, n);
    out[n] = 0;
    c->at = close + 1;
    return TT_OK;
}

static tt_status header_number(cursor *c, int64_t *number) {
    skip_spaces(c);
    const char *begin = c->at;
    *number = 0;
    for (; c->at < c->end && *c->at >= '0' && *c->at <= '9'; c->at++)
        if (__builtin_mul_overflow(*number, 10, number) || __builtin_add_overflow(*number, *c->at - '0', number))
            return tt__fail(TT_ERR_FORMAT, "%s: a size in its header has more than 63 bits", c->name);
    return c->at > begin ? TT_OK : fail_header(c, "a size");
}

/* ---- parsing a header: the three values ---- */

/* Read "<f4": order of bytes, kind, width. */
static tt_status read_descr(cursor *c, tt__npy_header *h) {
    static const bool big = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__;
    char text[24] = "";
    unsigned width = 0;
    int used = 0;
    skip_spaces(c);
    if (c->at < c->end && *c->at == '[')
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: expected an array of numbers, got one of records with fields",
                        c->name);
    TT__TRY(header_text(c, text, sizeof text, "an element type such as '<f4'"));
    const char *kind = text + (*text && strchr("<>|=", *text) ? 1 : 0);
    h->swapped = kind > text && ((*text == '<' && big) || (*text == '>' && !big));
    if (*kind == 'O')
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: expected numbers, got Python's objects (a pickle, which could run code)", c->name);
    if (*kind && sscanf(kind + 1, "%3u%n", &width, &used) == 1 && !kind[1 + used])
        for (size_t i = 0; i < sizeof types / sizeof *types && !h->type; i++)
            if (types[i].kind == *kind && types[i].width == width)
                h->type = &types[i];
    if (h->type)
        return TT_OK;
    return tt__fail(TT_ERR_UNSUPPORTED,
                    "%s: there is no tensor of element type '%s'; known are b1, i1 to i8, u1 to u8, f2, f4, f8 and V2 "
                    "(bfloat16)",
                    c->name, tt__make_printable(text).text);
}

static tt_status read_fortran(cursor *c, tt__npy_header *h) {
    h->fortran = accept_word(c, "True");
    return h->fortran || accept_word(c, "False") ? TT_OK : fail_header(c, "True or False");
}

/* Read "()", "(2,)" or "(2, 3)"; a comma after the last size is allowed. */
static tt_status read_shape(cursor *c, tt__npy_header *h) {
    bool comma = true;
    if (!accept_sign(c, '('))
        return fail_header(c, "a shape such as (2, 3)");
    while (!accept_sign(c, ')')) {
        int64_t size;
        if (!comma)
            return fail_header(c, "a comma");
        TT__TRY(header_number(c, &size));
        if (h->shape.ndim == TT_MAX_DIMS)
            return tt__fail(TT_ERR_UNSUPPORTED, "%s: expected at most %d dimensions, got more", c->name, TT_MAX_DIMS);
        h->shape.dim[h->shape.ndim++] = size;
        comma = accept_sign(c, ',');
    }
    return h->shape.ndim == 1 && !comma ? fail_header(c, "a comma in a shape of one dimension") : TT_OK;
}

/* ---- parsing a header: all of it ---- */

typedef struct entry {
    const char *key;
    tt_status (*read)(cursor *c, tt__npy_header *h);
} entry;

enum { ENTRIES = 3 };
static const entry entries[ENTRIES] = {{"descr", read_descr}, {"fortran_order", read_fortran}, {"shape", read_shape}};

static tt_status read_entry(cursor *c, tt__npy_header *h, bool *seen) {
    char key[24] = "";
    TT__TRY(header_text(c, key, sizeof key, "one of the keys 'descr', 'fortran_order' and 'shape'"));
    if (!accept_sign(c, ':'))
        return fail_header(c, "a colon");
    for (int i = 0; i < ENTRIES; i++)
        if (!strcmp(key, entries[i].key) && !seen[i]) {
            seen[i] = true;
            return entries[i].read(c, h);
        }
    return tt__fail(TT_ERR_FORMAT,
                    "%s: its header is broken: expected each of 'descr', 'fortran_order' and 'shape' "
                    "once, got '%s'",
                    c->name, tt__make_printable(key).text);
}

/* Parse a header's text, `size` bytes. */
static tt_status npy_parse(tt__npy_header *header, const char *name, const char *text, size_t size) {
    cursor c = {.name = name, .at = text, .end = text + size};
    bool seen[ENTRIES] = {false}, comma = true;
    *header = (tt__npy_header){.type = NULL};
    if (!accept_sign(&c, '{'))
        return fail_header(&c, "{");
    while (!accept_sign(&c, '}')) {
        if (!comma)
            return fail_header(&c, "a comma");
        TT__TRY(read_entry(&c, header, seen));
        comma = accept_sign(&c, ',');
    }
    skip_spaces(&c);
    if (c.at != c.end)
        return fail_header(&c, "nothing behind the }");
    for (int i = 0; i < ENTRIES; i++)
        if (!seen[i])
            return tt__fail(TT_ERR_FORMAT, "%s: its header is broken: there is no '%s'", name, entries[i].key);
    return TT_OK;
}

/* ---- making a header ---- */

static const tt__npy_type *type_for(tt_dtype dtype) {
    const tt__npy_type *type = types;
    while (type->dtype != dtype || type->is_unsigned)
        type++;
    return type;
}

void tt__npy_put_header(tt__bytes *to, const tt_tensor *x) {
    enum { PREFIX = 10, ALIGNMENT = 64 };
    static const char order = __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__ ? '>' : '<';
    const tt__npy_type *type = type_for(tt_tensor_dtype(x));
    char text[320];
    int ndim = tt_tensor_dim(x);
    int n = snprintf(text, sizeof text, "{'descr': '%c%c%d', 'fortran_order': False, 'shape': (",
                     type->width == 1 ? '|' : order, type->kind, type->width);
    for (int d = 0; d < ndim; d++)
        n += snprintf(text + n, sizeof text - (size_t)n, "%lld%s", (long long)tt_tensor_size(x, d),
                      d + 1 < ndim ? ", "
                      : ndim == 1  ? ","
                                   : "");
    n += snprintf(text + n, sizeof text - (size_t)n, "), }");
    while ((PREFIX + n + 1) % ALIGNMENT)
        text[n++] = ' ';
    text[n++] = '\n';
    const uint8_t size[] = {(uint8_t)(n & 255), (uint8_t)(n >> 8)};
    tt__bytes_put(to, "\x93NUMPY\1\0", PREFIX - 2);
    tt__bytes_put(to, size, sizeof size);
    tt__bytes_put(to, text, (size_t)n);
}

/* ---- reading: the header ---- */

enum { MAGIC = 8, MOST_HEADER = 10000 }; /* NumPy's own limit on headers */

static tt_status read_part(const tt__npy_input *in, void *out, size_t size, const char *what) {
    size_t got;
    TT__TRY(in->read(in->from, out, size, &got));
    if (got < size)
        return tt__fail(TT_ERR_FORMAT, "%s: expected %zu bytes of %s, but it ends after %zu", in->name, size, what,
                        got);
    return TT_OK;
}

/* Read the header; *used: bytes before the elements. */
static tt_status read_npy_header(tt__npy_header *h, const tt__npy_input *in, size_t *used) {
    uint8_t magic[MAGIC], length[4] = {0};
    char text[MOST_HEADER];
    TT__TRY(read_part(in, magic, sizeof magic, "magic number"));
    if (memcmp(magic, "\x93NUMPY", 6))
        return tt__fail(TT_ERR_FORMAT, "%s: not a .npy file: it begins with %02x %02x %02x %02x, expected 93 \"NUMPY\"",
                        in->name, magic[0], magic[1], magic[2], magic[3]);
    if (magic[6] < 1 || magic[6] > 3 || magic[7])
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: expected version 1.0, 2.0 or 3.0 of the .npy format, got %d.%d",
                        in->name, magic[6], magic[7]);
    size_t width = magic[6] == 1 ? 2 : 4;
    TT__TRY(read_part(in, length, width, "header's length"));
    uint32_t size =
        (uint32_t)length[0] | (uint32_t)length[1] << 8 | (uint32_t)length[2] << 16 | (uint32_t)length[3] << 24;
    if (size > MOST_HEADER)
        return tt__fail(TT_ERR_FORMAT, "%s: expected a header of at most %d bytes, got one of %" PRIu32, in->name,
                        MOST_HEADER, size);
    TT__TRY(read_part(in, text, size, "header"));
    *used = MAGIC + width + size;
    return npy_parse(h, in->name, text, size);
}

/* Check that the input can hold as many elements as the sizes make. */
static tt_status check_npy_size(const tt__npy_header *h, const tt__npy_input *in, size_t used, int64_t *count) {
    *count = tt__shape_numel(&h->shape);
    if (*count < 0)
        return tt__fail(TT_ERR_FORMAT, "%s: the product of the sizes in its header overflows", in->name);
    uint64_t bytes = (uint64_t)*count * h->type->width, room = in->limit > used ? in->limit - used : 0;
    if (bytes > room)
        return tt__fail(TT_ERR_FORMAT,
                        "%s: its header promises %" PRIu64 " bytes of elements, but at most %" PRIu64 " follow",
                        in->name, bytes, room);
    return TT_OK;
}

/* ---- reading: the elements ---- */

/* Widen u16 to i32, u32 to i64. They were read into the end of the tensor's memory and are widened from the front:
 * what is written never passes what is yet to be read. */
static void widen_unsigned(void *to, const uint8_t *from, int64_t count, size_t width) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t two;
        uint32_t four;
        if (width == 2)
            memcpy(&two, from + 2 * i, 2), ((int32_t *)to)[i] = two;
        else
            memcpy(&four, from + 4 * i, 4), ((int64_t *)to)[i] = four;
    }
}

/* Refuse bools other than 0 and 1, and u64 values that i64 can't hold. */
static tt_status check_elements(const tt__npy_header *h, const char *name, const void *data, int64_t count) {
    const uint8_t *bools = data;
    const int64_t *wide = data;
    for (int64_t i = 0; h->type->dtype == TT_BOOL && i < count; i++)
        if (bools[i] > 1)
            return tt__fail(TT_ERR_FORMAT, "%s: expected bools of 0 or 1, got %d in place %" PRId64, name, bools[i], i);
    for (int64_t i = 0; h->type->is_unsigned && h->type->width == 8 && i < count; i++)
        if (wide[i] < 0)
            return tt__fail(TT_ERR_UNSUPPORTED,
                            "%s: a uint64 in place %" PRId64 " is above %" PRId64 ", the largest i64", name, i,
                            INT64_MAX);
    return TT_OK;
}

static tt_status read_npy_elements(tt_tensor *x, const tt__npy_header *h, const tt__npy_input *in) {
    size_t width = h->type->width, bytes = (size_t)x->numel * width;
    uint8_t *into = (uint8_t *)x->data + ((size_t)x->numel * tt_dtype_size(x->dtype) - bytes);
    size_t got;
    TT__TRY(in->read(in->from, into, bytes, &got));
    if (got < bytes)
        return tt__fail(TT_ERR_FORMAT, "%s: its header promises %zu bytes of elements, but %zu follow", in->name, bytes,
                        got);
    if (h->swapped)
        tt__swap_bytes(into, x->numel, width);
    if (into != x->data)
        widen_unsigned(x->data, into, x->numel, width);
    return check_elements(h, in->name, x->data, x->numel);
}

/* Make a tensor in the array's order of memory. */
static tt_tensor *npy_tensor(const tt__npy_header *h) {
    int64_t stride[TT_MAX_DIMS], n = 1;
    for (int d = 0; d < h->shape.ndim; d++) {
        stride[d] = n;
        n *= h->shape.dim[d];
    }
    bool as_usual = !h->fortran || h->shape.ndim < 2 || n == 0;
    return tt_keep(tt__tensor_new_on("npy", tt_device_get("cpu"), h->shape, h->type->dtype, as_usual ? NULL : stride));
}

tt_status tt__npy_decode(tt_tensor **out, const tt__npy_input *input) {
    tt__npy_header h;
    size_t used;
    int64_t count;
    *out = NULL;
    TT__TRY(read_npy_header(&h, input, &used));
    TT__TRY(check_npy_size(&h, input, used, &count));
    tt_tensor *x = npy_tensor(&h);
    if (!x)
        return tt__fail_prefix("%s", input->name);
    tt_status status = read_npy_elements(x, &h, input);
    if (status)
        tt_tensor_free(x);
    else
        *out = x;
    return status;
}

/* ---- files ---- */

static tt_status read_from_source(void *from, void *out, size_t size, size_t *got) {
    return tt__source_read(from, out, size, got);
}

tt_status tt_npy_read(tt_tensor **out, const char *path) {
    if (out)
        *out = NULL;
    if (!out || !path)
        return tt__fail(TT_ERR_INVALID, "tt_npy_read: expected a path and where to put the tensor, got NULL");
    tt__source *source = malloc(sizeof *source);
    if (!source)
        return tt__fail(TT_ERR_MEMORY, "tt_npy_read: %s: out of memory", path);
    tt_status status = tt__source_open(source, path);
    if (!status) {
        const tt__npy_input input = {path, tt__source_limit(source), read_from_source, source};
        status = tt__npy_decode(out, &input);
        tt__source_close(source);
    }
    free(source);
    return status;
}

tt_status tt_npy_write(const tt_tensor *x, const char *path) {
    if (!path)
        return tt__fail(TT_ERR_INVALID, "tt_npy_write: expected a path, got NULL");
    if (!x)
        return tt__tensor_first_error("tt_npy_write");
    tt__host_copy elements;
    tt__bytes header = {0};
    if (tt__host_copy_make(&elements, x))
        return tt__fail_prefix("tt_npy_write: %s", path);
    tt__npy_put_header(&header, x);
    tt_status status =
        header.failed
            ? tt__fail(TT_ERR_MEMORY, "tt_npy_write: %s: out of memory", path)
            : tt__file_write(path, (const tt__span[]){{header.data, header.size}, {elements.data, elements.size}}, 2);
    tt__bytes_free(&header);
    tt__host_copy_free(&elements);
    return status;
}
