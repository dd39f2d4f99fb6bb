/* Windows of tokens in memory. */
#include "base/args.h"
#include "base/error.h"
#include "data/datasets/dataset.h"
#include "data/text/windows.h"
#include "tensor/core/tensor.h"
#include "tensor/device/device.h"

#include <tutti/datasets.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

tt_status tt__windows_make(tt__windows *w, const char *who, int64_t tokens, int64_t block_size, int64_t stride) {
    if (block_size < 1 || block_size > INT32_MAX)
        return tt__fail(TT_ERR_INVALID, "%s: expected a block_size from 1 to %d, got %" PRId64, who, INT32_MAX,
                        block_size);
    if (stride < 0)
        return tt__fail(TT_ERR_INVALID, "%s: expected a stride of at least 0, got %" PRId64, who, stride);
    if (tokens <= block_size)
        return tt__fail(TT_ERR_FORMAT, "%s: expected at least %" PRId64 " tokens, block_size + 1, got %" PRId64, who,
                        block_size + 1, tokens);
    *w = (tt__windows){tokens, block_size, stride ? stride : block_size, 0};
    w->count = (tokens - 1 - block_size) / w->stride + 1;
    return TT_OK;
}

tt_tensor_spec tt__windows_spec(const tt__windows *w) { return tt_spec(TT_I64, TT_SHAPE(w->block_size)); }

typedef struct memory_windows {
    tt__windows windows;
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
    TT__TRY(tt__windows_make(&m->windows, who, a->tokens->numel, a->block_size, a->stride));
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
    return tt__dataset_new(who, &cls, m, tt__windows_spec(&m->windows), tt__windows_spec(&m->windows));
}
