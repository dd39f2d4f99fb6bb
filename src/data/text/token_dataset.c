/* Windows of a file of tokens, read when they are asked for. */
#include "base/args.h"
#include "base/error.h"
#include "data/datasets/dataset.h"
#include "data/files/whole_file.h"
#include "data/text/tokens.h"
#include "data/text/windows.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- what the file is ---- */

static size_t token_width(tt_token_type type) { return type == TT_TOKEN_U16 ? 2 : 4; }

static uint32_t little_endian(const uint8_t *p, size_t width) {
    uint32_t low = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    return width == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

tt_status tt__tokens_look(tt__tokens *t, const char *name, const uint8_t *head, size_t head_size, uint64_t file_size,
                          tt_token_type type) {
    static const struct {
        uint32_t magic, version;
        tt_token_type type;
    } known[] = {{20240520, 1, TT_TOKEN_U16}, {20240801, 7, TT_TOKEN_U32}};
    *t = (tt__tokens){.type = type};
    for (size_t i = 0; head_size >= TT__TOKENS_HEADER && i < sizeof known / sizeof *known; i++) {
        if (little_endian(head, 4) != known[i].magic)
            continue;
        uint32_t version = little_endian(head + 4, 4), count = little_endian(head + 8, 4);
        *t = (tt__tokens){known[i].type, TT__TOKENS_HEADER, count};
        uint64_t expected = TT__TOKENS_HEADER + (uint64_t)count * token_width(t->type);
        if (version != known[i].version)
            return tt__fail(TT_ERR_FORMAT,
                            "%s: expected version %" PRIu32 " of a header with magic number %" PRIu32 ", got %" PRIu32,
                            name, known[i].version, known[i].magic, version);
        if (expected != file_size)
            return tt__fail(TT_ERR_FORMAT,
                            "%s: its header promises %" PRIu32 " tokens, a file of %" PRIu64
                            " bytes, but it has %" PRIu64,
                            name, count, expected, file_size);
        return TT_OK;
    }
    t->count = (int64_t)(file_size / token_width(type));
    if (file_size % token_width(type))
        return tt__fail(TT_ERR_FORMAT, "%s: expected tokens of %zu bytes each, got %" PRIu64 " bytes in all", name,
                        token_width(type), file_size);
    return TT_OK;
}

tt_status tt__tokens_widen(const tt__tokens *t, const char *name, void *data, int64_t n, int64_t first,
                           int64_t vocab_size) {
    int64_t *out = data;
    const uint8_t *raw = data;
    size_t width = token_width(t->type);
    for (int64_t i = n - 1; i >= 0; i--) { /* from the end: what is written never covers what is yet to be read */
        uint32_t bits = little_endian(raw + (size_t)i * width, width);
        int64_t token = t->type == TT_TOKEN_I32 ? (int64_t)(int32_t)bits : (int64_t)bits;
        if (token < 0 || (vocab_size && token >= vocab_size))
            return tt__fail(TT_ERR_FORMAT, "%s: token %" PRId64 ": expected 0 to %" PRId64 ", got %" PRId64, name,
                            first + i, vocab_size ? vocab_size - 1 : INT32_MAX, token);
        out[i] = token;
    }
    return TT_OK;
}

/* ---- examples ---- */

typedef struct token_file {
    char *path;
    int fd;
    tt__tokens tokens;
    tt__windows windows;
    int64_t vocab_size;
} token_file;

static int64_t token_file_size(void *user) { return ((const token_file *)user)->windows.count; }

/* Read n tokens from number `first` on into `out`, which has room for them as i64. */
static tt_status read_tokens(const token_file *f, int64_t first, int64_t n, int64_t *out) {
    size_t width = token_width(f->tokens.type), bytes = (size_t)n * width, got;
    TT__TRY(tt__file_read_at(f->fd, f->path, out, bytes, f->tokens.offset + (uint64_t)first * width, &got));
    if (got < bytes)
        return tt__fail(TT_ERR_IO, "%s: it has become shorter: expected %" PRId64 " tokens", f->path, f->tokens.count);
    return tt__tokens_widen(&f->tokens, f->path, out, n, first, f->vocab_size);
}

static tt_status token_file_get(void *user, int64_t index, void *x, void *y) {
    const token_file *f = user;
    int64_t first = index * f->windows.stride, n = f->windows.block_size, *to_x = x, *to_y = y;
    TT__TRY(read_tokens(f, first, n, to_x));
    if (!y)
        return TT_OK;
    memcpy(to_y, to_x + 1, (size_t)(n - 1) * sizeof *to_y);
    return read_tokens(f, first + n, 1, &to_y[n - 1]);
}

static void token_file_destroy(void *user) {
    token_file *f = user;
    if (f->fd >= 0)
        close(f->fd);
    free(f->path);
    free(f);
}

/* ---- the set ---- */

static tt_status check_token_args(const char *who, const tt_token_dataset_args *a) {
    if (!a->path)
        return tt__fail(TT_ERR_INVALID, "%s: the path is NULL", who);
    if ((unsigned)a->type > TT_TOKEN_I32)
        return tt__fail(TT_ERR_INVALID, "%s: expected one of the token types, got number %d", who, (int)a->type);
    if (a->vocab_size < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected a vocab_size of at least 0, got %" PRId64, who, a->vocab_size);
    return TT_OK;
}

static tt_status token_file_open(token_file *f, const tt_token_dataset_args *a) {
    uint8_t head[TT__TOKENS_HEADER];
    uint64_t size;
    size_t got;
    f->path = strdup(a->path);
    f->vocab_size = a->vocab_size;
    if (!f->path)
        return tt__fail(TT_ERR_MEMORY, "%s: out of memory", a->path);
    TT__TRY(tt__file_open(&f->fd, &size, a->path));
    TT__TRY(tt__file_read_at(f->fd, a->path, head, sizeof head, 0, &got));
    TT__TRY(tt__tokens_look(&f->tokens, a->path, head, got, size, a->type));
    return tt__windows_make(&f->windows, a->path, f->tokens.count, a->block_size, a->stride);
}

tt_dataset *tt_token_dataset_with(const tt_token_dataset_args *args, size_t size) {
    static const char who[] = "tt_token_dataset";
    static const tt_dataset_class cls = {
        .name = "a file of tokens", .size = token_file_size, .get = token_file_get, .destroy = token_file_destroy};
    tt_token_dataset_args a;
    TT__ARGS_COPY(a, args, size);
    if (check_token_args(who, &a))
        return NULL;
    token_file *f = calloc(1, sizeof *f);
    if (!f)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    f->fd = -1;
    if (!token_file_open(f, &a))
        return tt__dataset_new(who, &cls, f, tt__windows_spec(&f->windows), tt__windows_spec(&f->windows));
    token_file_destroy(f);
    return NULL;
}
