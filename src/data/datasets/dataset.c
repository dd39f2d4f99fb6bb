/* Any data set: made of a class, read by index, freed. */
#include "data/datasets/dataset.h"

#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "tensor/ops/ops.h"

#include <tutti/datasets.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- making ---- */

/* `field` is "x" or "y". *bytes: of one example. */
static tt_status check_spec(const char *who, const tt_dataset *d, const char *field, const tt_tensor_spec *spec,
                            size_t *bytes) {
    *bytes = 0;
    if (!spec->given)
        return TT_OK;
    if (!tt_dtype_size(spec->dtype))
        return tt__fail(TT_ERR_DTYPE, "%s: %s: %s: expected an element type that tensors have, got %s (number %d)", who,
                        d->cls.name, field, tt_dtype_name(spec->dtype), (int)spec->dtype);
    if (spec->shape.ndim < 0 || spec->shape.ndim >= TT_MAX_DIMS)
        return tt__fail(TT_ERR_SHAPE, "%s: %s: %s: expected 0 to %d dimensions, as a batch has one more, got %d", who,
                        d->cls.name, field, TT_MAX_DIMS - 1, spec->shape.ndim);
    int64_t numel = tt__shape_numel(&spec->shape);
    if (numel < 0)
        return tt__fail(TT_ERR_SHAPE, "%s: %s: %s: expected sizes of at least 0 whose product fits memory", who,
                        d->cls.name, field);
    *bytes = (size_t)numel * tt_dtype_size(spec->dtype);
    return TT_OK;
}

static tt_status dataset_check(const char *who, tt_dataset *d) {
    if (!d->cls.size || !d->cls.get)
        return tt__fail(TT_ERR_INVALID, "%s: %s: the class has no %s function", who, d->cls.name,
                        d->cls.size ? "get" : "size");
    if (!d->x.given)
        return tt__fail(TT_ERR_INVALID, "%s: %s: x: expected the type and shape of an example, tt_spec(...)", who,
                        d->cls.name);
    TT__TRY(check_spec(who, d, "x", &d->x, &d->x_bytes));
    TT__TRY(check_spec(who, d, "y", &d->y, &d->y_bytes));
    uint64_t errors = tt__error_count();
    d->size = d->cls.size(d->user);
    if (d->size >= 0)
        return TT_OK;
    if (tt__error_count() != errors)
        return tt__fail_prefix("%s: %s: size", who, d->cls.name);
    return tt__fail(TT_ERR_INVALID, "%s: %s: size: expected at least 0 examples, got %" PRId64, who, d->cls.name,
                    d->size);
}

tt_dataset *tt__dataset_new(const char *who, const tt_dataset_class *cls, void *user, tt_tensor_spec x,
                            tt_tensor_spec y) {
    tt_dataset *d = calloc(1, sizeof *d);
    if (!d) {
        if (cls->destroy)
            cls->destroy(user);
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    }
    d->cls = *cls;
    if (!cls->name)
        d->cls.name = "a data set";
    d->user = user;
    d->holders = 1;
    d->x = x;
    d->y = y;
    pthread_mutex_init(&d->one_at_a_time, NULL);
    if (!dataset_check(who, d))
        return d;
    tt__dataset_release(d);
    return NULL;
}

tt_dataset *tt_dataset_new_with(const tt_dataset_new_args *args, size_t size) {
    static const char who[] = "tt_dataset_new";
    tt_dataset_new_args a;
    tt_dataset_class cls;
    TT__ARGS_COPY(a, args, size);
    if (!a.cls || !a.cls_size)
        return tt__fail_null(TT_ERR_INVALID, "%s: the class is NULL or its size is 0", who);
    TT__ARGS_COPY(cls, a.cls, a.cls_size);
    return tt__dataset_new(who, &cls, a.user, a.x, a.y);
}

tt_dataset *tt__dataset_hold(tt_dataset *dataset) {
    atomic_fetch_add(&dataset->holders, 1);
    return dataset;
}

void tt__dataset_release(tt_dataset *dataset) {
    if (!dataset || atomic_fetch_sub(&dataset->holders, 1) > 1)
        return;
    if (dataset->cls.destroy)
        dataset->cls.destroy(dataset->user);
    pthread_mutex_destroy(&dataset->one_at_a_time);
    tt__quarantine(dataset, sizeof *dataset, free);
}

void tt_dataset_free(tt_dataset *dataset) {
    if (!dataset || tt__freed_before("tt_dataset_free", dataset))
        return;
    if (atomic_exchange(&dataset->freed, true)) {
        tt__fail(TT_ERR_STATE, "tt_dataset_free: this data set was freed already; what was made of it keeps it");
        return;
    }
    tt__dataset_release(dataset);
}

/* ---- looking ---- */

int64_t tt_dataset_size(const tt_dataset *dataset) { return dataset ? dataset->size : 0; }

tt_tensor_spec tt_dataset_x(const tt_dataset *dataset) { return dataset ? dataset->x : (tt_tensor_spec){0}; }

tt_tensor_spec tt_dataset_y(const tt_dataset *dataset) { return dataset ? dataset->y : (tt_tensor_spec){0}; }

tt_tensor *tt_dataset_inputs(const tt_dataset *dataset) { return dataset ? dataset->inputs : NULL; }

tt_tensor *tt_dataset_targets(const tt_dataset *dataset) { return dataset ? dataset->targets : NULL; }

const char *const *tt_dataset_classes(const tt_dataset *dataset, int64_t *count) {
    if (count)
        *count = dataset ? dataset->class_count : 0;
    return dataset ? dataset->classes : NULL;
}

/* ---- reading ---- */

/* Read examples. A set made of others leaves it to them to name the one that failed. */
static tt_status read_batch(tt_dataset *d, const int64_t *indices, int64_t n, void *x, void *y) {
    uint64_t errors = tt__error_count();
    tt_status status = d->cls.get_batch(d->user, indices, n, x, y);
    if (!status || d->base_count)
        return status;
    return tt__fail_callback(errors, status, "%s: %" PRId64 " examples, of which the first is number %" PRId64,
                             d->cls.name, n, indices[0]);
}

static tt_status read_one(tt_dataset *d, int64_t index, void *x, void *y) {
    uint64_t errors = tt__error_count();
    tt_status status = d->cls.get(d->user, index, x, y);
    if (!status || d->base_count)
        return status;
    return tt__fail_callback(errors, status, "%s: example %" PRId64, d->cls.name, index);
}

static tt_status read_examples(tt_dataset *d, const int64_t *indices, int64_t n, void *x, void *y) {
    if (d->cls.get_batch)
        return n ? read_batch(d, indices, n, x, y) : TT_OK;
    char *to_x = x, *to_y = y;
    for (int64_t i = 0; i < n; i++) {
        TT__TRY(read_one(d, indices[i], to_x, to_y));
        to_x += d->x_bytes;
        if (to_y)
            to_y += d->y_bytes;
    }
    return TT_OK;
}

/* Begin to read. One thread at a time reads a set of a serial class. */
static void reading_begins(tt_dataset *d) {
    if (d->cls.serial)
        pthread_mutex_lock(&d->one_at_a_time);
}

static void reading_ends(tt_dataset *d) {
    if (d->cls.serial)
        pthread_mutex_unlock(&d->one_at_a_time);
}

tt_status tt__dataset_read(tt_dataset *dataset, const int64_t *indices, int64_t n, void *x, void *y) {
    reading_begins(dataset);
    tt_status status = read_examples(dataset, indices, n, x, y);
    reading_ends(dataset);
    return status;
}

tt_status(tt_dataset_get)(tt_dataset *dataset, int64_t index, void *x, void *y) {
    if (!dataset)
        return tt__fail_argument("tt_dataset_get: the data set is NULL");
    if (!x || (dataset->y.given && !y))
        return tt__fail(TT_ERR_INVALID, "tt_dataset_get: %s: where to write %s is NULL", dataset->cls.name,
                        x ? "y" : "x");
    if (index < 0 || index >= dataset->size)
        return tt__fail(TT_ERR_INVALID, "tt_dataset_get: %s: expected an example from 0 to %" PRId64 ", got %" PRId64,
                        dataset->cls.name, dataset->size - 1, index);
    reading_begins(dataset);
    tt_status status = read_one(dataset, index, x, dataset->y.given ? y : NULL);
    reading_ends(dataset);
    return status;
}

/* ---- normalisation ---- */

tt_status tt_dataset_normalize(tt_dataset *dataset, double mean, double std) {
    if (!dataset)
        return tt__fail(TT_ERR_INVALID, "tt_dataset_normalize: the data set is NULL");
    if (dataset->x.dtype != TT_U8)
        return tt__fail(TT_ERR_DTYPE, "tt_dataset_normalize: expected u8 inputs, but those of %s are %s",
                        dataset->cls.name, tt_dtype_name(dataset->x.dtype));
    if (!isfinite(mean) || !isfinite(std) || !((float)std > 0))
        return tt__fail(TT_ERR_INVALID,
                        "tt_dataset_normalize: expected finite numbers and std > 0, got mean %g, std %g", mean, std);
    dataset->normalization = (tt__normalization){true, (float)mean, (float)std};
    return TT_OK;
}

static bool normalization_equal(const tt__normalization *a, const tt__normalization *b) {
    return a->on == b->on && (!a->on || (a->mean == b->mean && a->std == b->std));
}

tt_status tt__dataset_normalization(const tt_dataset *dataset, tt__normalization *out) {
    *out = dataset->normalization;
    if (out->on || !dataset->base_count)
        return TT_OK;
    TT__TRY(tt__dataset_normalization(dataset->bases[0], out));
    for (int64_t i = 1; i < dataset->base_count; i++) {
        tt__normalization other;
        TT__TRY(tt__dataset_normalization(dataset->bases[i], &other));
        if (!normalization_equal(out, &other))
            return tt__fail(TT_ERR_STATE,
                            "%s: parts 0 and %" PRId64
                            " are normalised differently; give the whole its own by tt_dataset_normalize()",
                            dataset->cls.name, i);
    }
    return TT_OK;
}

/* ---- by callback ---- */

typedef struct callback {
    int64_t size;
    tt_dataset_get_fn get;
    void *user;
} callback;

static int64_t dataset_callback_size(void *user) { return ((const callback *)user)->size; }

static tt_status dataset_callback_get(void *user, int64_t index, void *x, void *y) {
    const callback *c = user;
    return c->get(c->user, index, x, y);
}

tt_dataset *tt_dataset_from_with(const tt_dataset_from_args *args, size_t size) {
    static const char who[] = "tt_dataset_from";
    tt_dataset_from_args a;
    TT__ARGS_COPY(a, args, size);
    const tt_dataset_class cls = {.name = a.name,
                                  .size = dataset_callback_size,
                                  .get = dataset_callback_get,
                                  .destroy = free,
                                  .serial = a.serial};
    if (!a.get)
        return tt__fail_null(TT_ERR_INVALID, "%s: %s: get is NULL", who, a.name ? a.name : "a data set");
    callback *c = malloc(sizeof *c);
    if (!c)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", who);
    *c = (callback){a.size, a.get, a.user};
    return tt__dataset_new(who, &cls, c, a.x, a.y);
}
