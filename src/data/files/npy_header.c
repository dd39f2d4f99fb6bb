/* The text that describes an array: a literal of Python's, of which only what NumPy writes is understood. */
#include "data/files/npy.h"

#include "base/error.h"
#include "base/text/plain_text.h"

#include <stdio.h>
#include <string.h>

#define UNSIGNED true
static const tt__npy_type types[] = {
    {'b', 1, TT_BOOL, false},   {'i', 1, TT_I8, false},  {'i', 2, TT_I16, false},    {'i', 4, TT_I32, false},
    {'i', 8, TT_I64, false},    {'u', 1, TT_U8, false},  {'u', 2, TT_I32, UNSIGNED}, {'u', 4, TT_I64, UNSIGNED},
    {'u', 8, TT_I64, UNSIGNED}, {'f', 2, TT_F16, false}, {'f', 4, TT_F32, false},    {'f', 8, TT_F64, false},
    {'V', 2, TT_BF16, false},
};

/* ---- words of the text ---- */

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

/* ---- the three values ---- */

/* "<f4": order of bytes, kind, width. */
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

/* "()", "(2,)", "(2, 3)"; a comma after the last size is allowed. */
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

/* ---- the whole ---- */

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

tt_status tt__npy_parse(tt__npy_header *header, const char *name, const char *text, size_t size) {
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

/* ---- writing ---- */

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
