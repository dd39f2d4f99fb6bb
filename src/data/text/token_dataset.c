/* Data sets of windows of tokens: of a tensor in memory, and of a file, read when an example is asked for.
 *
 * A file of tokens is a plain run of numbers, or one behind llm.c's header: 256 ints, of which the first three are a
 * magic number, a version and the number of tokens. */
#include "base/args.h"
#include "base/error.h"
#include "data/datasets/dataset.h"
#include "data/files/whole_file.h"
#include "tensor/core/tensor.h"
#include "tensor/device/device.h"

#include <tutti/data.h>
#include <tutti/datasets.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- windows ---- */

typedef struct windows {
    int64_t tokens, block_size, stride, count; /* `count`: of examples */
} windows;

/* Count the windows of block_size tokens that another token follows. stride 0 = block_size. Errors, which begin with
 * `who`: TT_ERR_INVALID a number is out of range; TT_ERR_FORMAT too few tokens. */
static tt_status windows_make(windows *w, const char *who, int64_t tokens, int64_t block_size, int64_t stride) {
    if (block_size < 1 || block_size > INT32_MAX)
        return tt__fail(TT_ERR_INVALID, "%s: expected a block_size from 1 to %d, got %" PRId64, who, INT32_MAX,
                        block_size);
    if (stride < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected a stride of at least 0, got %" PRId64, who, stride);
    if (tokens <= block_size)
        return tt__fail(TT_ERR_FORMAT, "%s: expected at least %" PRId64 " tokens, block_size + 1, got %" PRId64, who,
                        block_size + 1, tokens);
    *w = (windows){tokens, block_size, stride ? stride : block_size, 0};
    w->count = (tokens - 1 - block_size) / w->stride + 1;
    return TT_OK;
}

/* Return the spec of x and of y. */
static tt_tensor_spec windows_spec(const windows *w) { return tt_spec(TT_I64, TT_SHAPE(w->block_size)); }

/* ---- in memory ---- */

typedef struct memory_windows {
    windows windows;
    tt_tensor *tokens; /* held, contiguous */
} memory_windows;

static int64_t memory_windows_size(void *user) { return ((const memory_windows *)user)->windows.count; }

static tt_status memory_windows_get(void *user, int64_t index, void *x, void *y) {
    const memory_windows *m = user;
    const int64_t *from = (const int64_t *)m->tokens->data + index * m->windows.stride;
    size_t bytes = (size_t)m->windows.block_size * sizeof *from;
    memcpy(x, from, bytes);
    if (y)
        memcpy(y, from + 1, bytes);
    return TT_OK;
}

static void memory_windows_destroy(void *user) {
    memory_windows *m = user;
    tt__tensor_disown(m->tokens);
    free(m);
}

static tt_status check_tokens(const char *who, const tt_tensor *x) {
    if (x->dtype != TT_I64)
        return tt__fail(TT_ERR_DTYPE, "%s: expected tokens of i64, got %s", who, TT__DESCRIBE(x));
    if (x->shape.ndim != 1 || !x->contiguous)
        return tt__fail(TT_ERR_SHAPE, "%s: expected contiguous tokens of one dimension, got %s", who, TT__DESCRIBE(x));
    if (!tt__device_is_host(tt__device_of(x)))
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: expected tokens on the host, got %s on \"%s\"", who, TT__DESCRIBE(x),
                        tt__device_of(x)->name);
    return TT_OK;
}

static tt_status fill_windows(memory_windows *m, const char *who, const tt_window_dataset_args *a) {
    TT__TRY(check_tokens(who, a->tokens));
    TT__TRY(windows_make(&m->windows, who, a->tokens->numel, a->block_size, a->stride));
    TT__TRY(tt__tensor_adopt(a->tokens, "a data set"));
    m->tokens = a->tokens;
    return TT_OK;
}

tt_dataset *tt_window_dataset_with(const tt_window_dataset_args *args, size_t size) {
    static const char who[] = "tt_window_dataset";
    static const tt_dataset_class cls = {.name = "windows of tokens",
                                         .size = memory_windows_size,
                                         .get = memory_windows_get,
                                         .destroy = memory_windows_destroy};
    tt_window_dataset_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.tokens) {
        tt__fail_argument("%s: the tokens are NULL", who);
        return NULL;
    }
    memory_windows *m = calloc(1, sizeof *m);
    tt_status status = m ? fill_windows(m, who, &a) : tt__fail(TT_ERR_MEMORY, "%s: out of memory", who);
    if (status) {
        tt__abandon(a.tokens);
        free(m);
        return NULL;
    }
    return tt__dataset_new(who, &cls, m, windows_spec(&m->windows), windows_spec(&m->windows));
}

/* ---- a file: its header and its numbers ---- */

enum { TOKENS_HEADER = 1024 };

typedef struct tokens_header {
    tt_token_type type;
    uint64_t offset; /* of the first token */
    int64_t count;
} tokens_header;

static size_t token_width(tt_token_type type) { return type == TT_TOKEN_U16 ? 2 : 4; }

static uint32_t little_endian(const uint8_t *p, size_t width) {
    uint32_t low = (uint32_t)p[0] | (uint32_t)p[1] << 8;
    return width == 2 ? low : low | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* Tell what a file of `file_size` bytes that begins with `head` has. `type`: what its numbers are if it has no header.
 * TT_ERR_FORMAT: a header that does not fit the file, or a number that is cut off. */
static tt_status tokens_look(tokens_header *t, const char *name, const uint8_t *head, size_t head_size,
                             uint64_t file_size, tt_token_type type) {
    static const struct {
        uint32_t magic, version;
        tt_token_type type;
    } known[] = {{20240520, 1, TT_TOKEN_U16}, {20240801, 7, TT_TOKEN_U32}};
    *t = (tokens_header){.type = type};
    for (size_t i = 0; head_size >= TOKENS_HEADER && i < sizeof known / sizeof *known; i++) {
        if (little_endian(head, 4) != known[i].magic)
            continue;
        uint32_t version = little_endian(head + 4, 4), count = little_endian(head + 8, 4);
        *t = (tokens_header){known[i].type, TOKENS_HEADER, count};
        uint64_t expected = TOKENS_HEADER + (uint64_t)count * token_width(t->type);
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

/* Widen n tokens from the file's form to i64, in place. `first`: the number of the first of them in the file.
 * TT_ERR_FORMAT: one is negative or beyond the vocabulary. */
static tt_status tokens_widen(const tokens_header *t, const char *name, void *data, int64_t n, int64_t first,
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

/* ---- a file: its examples ---- */

typedef struct token_file {
    char *path;
    int fd;
    tokens_header tokens;
    windows windows;
    int64_t vocab_size;
} token_file;

static int64_t token_file_size(void *user) { return ((const token_file *)user)->windows.count; }

/* Read n tokens from number `first` on into `out`, which has room for them as i64. */
static tt_status read_tokens(const token_file *f, int64_t first, int64_t n, int64_t *out) {
    size_t width = token_width(f->tokens.type), bytes = (size_t)n * width, got;
    TT__TRY(tt__file_read_at(f->fd, f->path, out, bytes, f->tokens.offset + (uint64_t)first * width, &got));
    if (got < bytes)
        return tt__fail(TT_ERR_IO, "%s: it has become shorter: expected %" PRId64 " tokens", f->path, f->tokens.count);
    return tokens_widen(&f->tokens, f->path, out, n, first, f->vocab_size);
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

/* ---- a file: the set ---- */

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
    uint8_t head[TOKENS_HEADER];
    uint64_t size;
    size_t got;
    f->path = strdup(a->path);
    f->vocab_size = a->vocab_size;
    if (!f->path)
        return tt__fail(TT_ERR_MEMORY, "%s: out of memory", a->path);
    TT__TRY(tt__file_open(&f->fd, &size, a->path));
    TT__TRY(tt__file_read_at(f->fd, a->path, head, sizeof head, 0, &got));
    TT__TRY(tokens_look(&f->tokens, a->path, head, got, size, a->type));
    return windows_make(&f->windows, a->path, f->tokens.count, a->block_size, a->stride);
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
        return tt__dataset_new(who, &cls, f, windows_spec(&f->windows), windows_spec(&f->windows));
    token_file_destroy(f);
    return NULL;
}
