/* A data set whose examples are transformed when they are read. */
#include "data/datasets/dataset.h"
#include "data/transforms/transform.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/shape/shape.h"

#include <stdlib.h>

/* One transform, and the examples that it takes. */
typedef struct stage {
    const tt_transform *transform;
    tt_tensor_spec in;
} stage;

typedef struct transformed {
    tt_dataset *base;        /* held */
    tt_transform *transform; /* owned */
    uint64_t seed;
    size_t bytes; /* of the largest example on the way */
    int64_t count;
    stage stages[];
} transformed;

static int64_t transformed_size(void *user) { return ((const transformed *)user)->base->size; }

/* Run the stages: from `scratch`, where the base's example lies in the first half, to x. */
static tt_status run_stages(const transformed *t, char *scratch, tt_draws *draws, void *x) {
    char *from = scratch, *spare = scratch + t->bytes;
    for (int64_t i = 0; i < t->count; i++) {
        const stage *s = &t->stages[i];
        void *to = i + 1 < t->count ? spare : x;
        TT__TRY(s->transform->cls->apply(s->transform, &s->in, from, to, draws));
        spare = from;
        from = to;
    }
    return TT_OK;
}

static tt_status transformed_get(void *user, int64_t index, void *x, void *y) {
    const transformed *t = user;
    char *scratch = tt__pool_alloc(2 * t->bytes + 1);
    if (!scratch)
        return tt__fail(TT_ERR_MEMORY, "tt_dataset_transform: no memory for an example");
    tt_draws draws = tt__draws_of(t->seed, tt__draws_epoch(), index);
    tt_status status = tt__dataset_read(t->base, &index, 1, scratch, y);
    if (!status && run_stages(t, scratch, &draws, x))
        status = tt__fail_prefix("example %lld", (long long)index);
    tt__pool_free(scratch);
    return status;
}

static void transformed_destroy(void *user) {
    transformed *t = user;
    tt__transform_end(t->transform);
    tt__dataset_release(t->base);
    free(t);
}

/* Note that such an example is on the way. */
static tt_status note_bytes(transformed *t, const tt_tensor_spec *spec) {
    int64_t n = tt__shape_numel(&spec->shape);
    if (n < 0 || n > INT64_MAX / 32)
        return tt__fail(TT_ERR_SHAPE, "tt_dataset_transform: an example's size doesn't fit memory");
    size_t bytes = ((size_t)n * tt_dtype_size(spec->dtype) + 63) / 64 * 64;
    t->bytes = bytes > t->bytes ? bytes : t->bytes;
    return TT_OK;
}

/* Find out what comes of the base's examples: *x. */
static tt_status fit_stages(transformed *t, tt_tensor_spec *x) {
    *x = t->base->x;
    TT__TRY(note_bytes(t, x));
    for (int64_t i = 0; i < t->count; i++) {
        const tt_transform *each = t->transform->parts ? t->transform->parts[i] : t->transform;
        tt_tensor_spec out;
        t->stages[i] = (stage){each, *x};
        TT__TRY(each->cls->fit(each, x, &out));
        *x = out;
        TT__TRY(note_bytes(t, x));
    }
    return TT_OK;
}

static tt_dataset *transformed_new(const tt_dataset_transform_args *a) {
    static const tt_dataset_class cls = {.name = "a data set of transformed examples",
                                         .size = transformed_size,
                                         .get = transformed_get,
                                         .destroy = transformed_destroy};
    int64_t count = a->transform->parts ? a->transform->count : 1;
    transformed *t = calloc(1, sizeof *t + (size_t)count * sizeof *t->stages);
    tt_tensor_spec x;
    if (!t) {
        tt_transform_free(a->transform);
        return tt__fail_null(TT_ERR_MEMORY, "tt_dataset_transform: out of memory");
    }
    t->base = tt__dataset_hold(a->dataset);
    t->transform = a->transform;
    t->transform->owned = true;
    t->seed = a->seed;
    t->count = count;
    if (fit_stages(t, &x)) {
        transformed_destroy(t);
        return NULL;
    }
    tt_dataset *d = tt__dataset_new("tt_dataset_transform", &cls, t, x, a->dataset->y);
    if (d) {
        d->bases = &t->base;
        d->base_count = 1;
    }
    return d;
}

tt_dataset *tt_dataset_transform_with(const tt_dataset_transform_args *args, size_t size) {
    tt_dataset_transform_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.dataset && a.transform && a.transform->owned)
        return tt__transform_fail_owned("tt_dataset_transform", a.transform), NULL;
    if (a.dataset && a.transform)
        return transformed_new(&a);
    tt__fail_argument("tt_dataset_transform: the %s is NULL", a.dataset ? "transform" : "data set");
    if (a.transform && !a.transform->owned)
        tt__transform_end(a.transform);
    return NULL;
}
