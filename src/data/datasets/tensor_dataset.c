/* A data set in memory: inputs and targets, two tensors of one length. */
#include "data/datasets/dataset.h"

#include "base/error.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct table {
    tt_tensor *inputs, *targets; /* (N, ...) held, contiguous; targets may be NULL */
    const char *x, *y;           /* their elements */
    size_t x_bytes, y_bytes;     /* of one example */
} table;

/* ---- reading ---- */

/* Prefetch a row. Shuffled rows come from anywhere in memory, and waiting for them would cost more than the work. The
 * hardware fetches the rest of a long row by itself. */
static void prefetch_row(const char *row, size_t bytes) {
    enum { LINE = 64, MOST = 1024 };
    for (size_t at = 0; at < bytes && at < MOST; at += LINE)
        __builtin_prefetch(row + at);
}

static void copy_rows(char *to, const char *from, size_t bytes, const int64_t *indices, int64_t n) {
    enum { AHEAD = 2 };
    for (int64_t i = 0; i < n; i++, to += bytes) {
        if (i + AHEAD < n)
            prefetch_row(from + (size_t)indices[i + AHEAD] * bytes, bytes);
        memcpy(to, from + (size_t)indices[i] * bytes, bytes);
    }
}

static tt_status table_get_batch(void *user, const int64_t *indices, int64_t n, void *x, void *y) {
    const table *t = user;
    copy_rows(x, t->x, t->x_bytes, indices, n);
    if (y)
        copy_rows(y, t->y, t->y_bytes, indices, n);
    return TT_OK;
}

static tt_status table_get(void *user, int64_t index, void *x, void *y) {
    return table_get_batch(user, &index, 1, x, y);
}

static int64_t table_size(void *user) { return ((const table *)user)->inputs->shape.dim[0]; }

/* ---- making ---- */

/* Free a tensor that was to be taken over, unless a scope or a holder owns it. */
static void discard_tensor(tt_tensor *x) {
    if (x && x->owner == TT__OWNER_CALLER)
        tt_tensor_free(x);
}

/* Return x as the data set holds it: contiguous; a view with gaps is copied. On failure NULL and an error, and x is
 * freed. */
static tt_tensor *take_tensor(tt_tensor *x) {
    if (x && !tt_is_contiguous(x)) {
        tt_tensor *copy = tt__clone_contiguous("tt_tensor_dataset", x);
        discard_tensor(x);
        x = copy;
    }
    if (x && tt__tensor_adopt(x, "a data set")) {
        discard_tensor(x);
        return NULL;
    }
    return x;
}

static void table_destroy(void *user) {
    table *t = user;
    tt__tensor_disown(t->inputs);
    tt__tensor_disown(t->targets);
    free(t);
}

/* Is the tensor on the host? Examples are copied by plain pointers. */
static bool is_here(const tt_tensor *x) { return !x || tt__device_is_host(tt__device_of(x)); }

static tt_status tensors_check(const tt_tensor *inputs, const tt_tensor *targets) {
    static const char who[] = "tt_tensor_dataset";
    if (!inputs)
        return tt__tensor_first_error(who);
    if (inputs->shape.ndim < 1 || (targets && targets->shape.ndim < 1))
        return tt__fail(TT_ERR_SHAPE, "%s: expected a dimension that counts examples, got inputs %s, targets %s", who,
                        TT__DESCRIBE(inputs), TT__DESCRIBE(targets));
    if (targets && inputs->shape.dim[0] != targets->shape.dim[0])
        return tt__fail(TT_ERR_SHAPE, "%s: expected as many targets as inputs, got inputs %s, targets %s", who,
                        TT__DESCRIBE(inputs), TT__DESCRIBE(targets));
    if (!is_here(inputs) || !is_here(targets))
        return tt__fail(TT_ERR_UNSUPPORTED,
                        "%s: expected tensors on the host, got inputs %s on \"%s\", targets %s on \"%s\"; "
                        "tt_to_device() moves, batches too",
                        who, TT__DESCRIBE(inputs), tt_device_name(tt_tensor_device(inputs)), TT__DESCRIBE(targets),
                        tt_device_name(tt_tensor_device(targets)));
    return TT_OK;
}

/* Describe one example of x, a tensor of N. */
static tt_tensor_spec spec_of(const tt_tensor *x) {
    tt_tensor_spec spec = {0};
    if (!x)
        return spec;
    spec = tt_spec(x->dtype, (tt_shape){.ndim = x->shape.ndim - 1});
    memcpy(spec.shape.dim, x->shape.dim + 1, (size_t)spec.shape.ndim * sizeof *spec.shape.dim);
    return spec;
}

static tt_dataset *dataset_of(table *t) {
    static const tt_dataset_class cls = {.name = "a data set of tensors",
                                         .size = table_size,
                                         .get = table_get,
                                         .get_batch = table_get_batch,
                                         .destroy = table_destroy};
    tt_dataset *d = tt__dataset_new("tt_tensor_dataset", &cls, t, spec_of(t->inputs), spec_of(t->targets));
    if (!d)
        return NULL;
    d->inputs = t->inputs;
    d->targets = t->targets;
    t->x = tt_tensor_data(t->inputs);
    t->y = tt_tensor_data(t->targets);
    t->x_bytes = d->x_bytes;
    t->y_bytes = d->y_bytes;
    return d;
}

tt_dataset *tt_tensor_dataset(tt_tensor *inputs, tt_tensor *targets) {
    tt_status status = tensors_check(inputs, targets);
    table *t = status ? NULL : calloc(1, sizeof *t);
    if (!t) {
        if (!status)
            tt__fail(TT_ERR_MEMORY, "tt_tensor_dataset: out of memory");
        discard_tensor(inputs);
        discard_tensor(targets);
        return NULL;
    }
    t->inputs = take_tensor(inputs);
    t->targets = take_tensor(targets);
    if (t->inputs && (t->targets || !targets))
        return dataset_of(t);
    table_destroy(t);
    return NULL;
}
