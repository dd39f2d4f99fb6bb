/* Transforms of any kind: their random numbers, making, composing and freeing them, transforms by callback, and the
 * data set whose examples are transformed when they are read. */
#include "data/transforms/transform.h"

#include "base/args.h"
#include "base/error.h"
#include "base/philox.h"
#include "base/quarantine.h"
#include "data/datasets/dataset.h"
#include "tensor/core/pool.h"
#include "tensor/shape/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- random numbers of an example: Philox, keyed by a seed, an epoch and the example's number ---- */

static _Thread_local int64_t reading_epoch; /* in which this thread reads examples */

void tt__draws_set_epoch(int64_t epoch) { reading_epoch = epoch; }

static uint64_t philox64(uint64_t key, uint64_t counter) {
    uint32_t word[4];
    tt__philox(key, counter, word);
    return (uint64_t)word[1] << 32 | word[0];
}

/* Begin the stream of an example. Each step's key is a number of the step before: no two of (seed, epoch, index) share
 * a stream. */
static tt_draws draws_of(uint64_t seed, int64_t epoch, int64_t index) {
    return (tt_draws){.key = philox64(philox64(seed, (uint64_t)epoch), (uint64_t)index)};
}

double tt_draws_uniform(tt_draws *draws, double low, double high) {
    if (!draws)
        return 0;
    double share = (double)(philox64(draws->key, draws->count++) >> 11) * 0x1p-53;
    return low + (high - low) * share;
}

/* The upper half of the product is in 0 .. n-1; its chances differ by less than n / 2^64. */
int64_t tt_draws_integer(tt_draws *draws, int64_t n) {
    if (!draws || n < 1)
        return 0;
    unsigned __int128 product = (unsigned __int128)philox64(draws->key, draws->count++) * (uint64_t)n;
    return (int64_t)(product >> 64);
}

bool tt__draws_chance(tt_draws *draws, double p) { return tt_draws_uniform(draws, 0, 1) < p; }

/* ---- life ---- */

tt_transform *tt__transform_new(const void *kind, size_t size) {
    const tt_transform *base = kind;
    tt_transform *t = malloc(size);
    if (!t)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", base->cls->name);
    memcpy(t, kind, size);
    return t;
}

/* Free a transform, for whoever owns it. */
static void transform_end(tt_transform *transform) {
    if (transform->cls->destroy)
        transform->cls->destroy(transform);
    tt__quarantine(transform, sizeof *transform, free);
}

/* Record that the transform was taken over before. */
static tt_status transform_fail_owned(const char *who, const tt_transform *transform) {
    return tt__fail(TT_ERR_STATE, "%s: this %s was taken over already, by a composition or a data set; make another",
                    who, transform->cls->name);
}

void tt_transform_free(tt_transform *transform) {
    if (!transform || tt__freed_before("tt_transform_free", transform))
        return;
    if (transform->owned)
        tt_ignore(transform_fail_owned("tt_transform_free", transform));
    else
        transform_end(transform);
}

/* ---- compositions ---- */

static void composition_destroy(tt_transform *t) {
    for (int64_t i = 0; i < t->count; i++)
        transform_end(t->parts[i]);
    free(t->parts);
}

static const tt__transform_class composition_class = {.name = "tt_compose", .destroy = composition_destroy};

/* Move what `from` is made of into a composition with enough room. */
static void composition_take(tt_transform *whole, tt_transform *from) {
    from->owned = true;
    if (from->cls != &composition_class) {
        whole->parts[whole->count++] = from;
        return;
    }
    memcpy(whole->parts + whole->count, from->parts, (size_t)from->count * sizeof *from->parts);
    whole->count += from->count;
    from->count = 0;
    transform_end(from);
}

static tt_transform *composition_new(int64_t room) {
    const tt_transform empty = {.cls = &composition_class};
    tt_transform *t = tt__transform_new(&empty, sizeof empty);
    if (!t)
        return NULL;
    t->parts = calloc((size_t)room, sizeof *t->parts);
    if (t->parts)
        return t;
    free(t);
    return tt__fail_null(TT_ERR_MEMORY, "tt_compose: no memory for %" PRId64 " transforms", room);
}

/* Is list[i] also at an earlier place of the list? */
static bool is_again(tt_transform *const *list, int64_t i) {
    for (int64_t before = 0; before < i; before++)
        if (list[before] == list[i])
            return true;
    return false;
}

/* Count the transforms of a list; -1 and an error if one is NULL or not free to be taken. */
static int64_t count_parts(tt_transform *const *list, int64_t n) {
    int64_t total = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!list[i]) {
            tt__fail_argument("tt_compose: transform %" PRId64 " is NULL", i);
            return -1;
        }
        if (list[i]->owned || is_again(list, i)) {
            tt_ignore(transform_fail_owned("tt_compose", list[i]));
            return -1;
        }
        total += list[i]->cls == &composition_class ? list[i]->count : 1;
    }
    return total;
}

tt_transform *tt_compose_with(const tt_compose_args *args, size_t size) {
    tt_compose_args a;
    TT__ARGS_COPY(a, args, size);
    if (a.count < 1 || !a.transforms)
        return tt__fail_null(TT_ERR_INVALID, "tt_compose: expected at least 1 transform, got %" PRId64,
                             a.transforms ? a.count : 0);
    int64_t total = count_parts(a.transforms, a.count);
    tt_transform *whole = total > 0 ? composition_new(total) : NULL;
    for (int64_t i = 0; i < a.count && whole; i++)
        composition_take(whole, a.transforms[i]);
    /* backwards, so that one which is given twice is freed at its first place, after the other was looked at */
    for (int64_t i = a.count - 1; i >= 0 && !whole; i--)
        if (a.transforms[i] && !is_again(a.transforms, i) && !a.transforms[i]->owned)
            transform_end(a.transforms[i]);
    return whole;
}

/* ---- images ---- */

tt_status tt__image_check(const char *who, const tt_tensor_spec *spec) {
    if (spec->dtype != TT_U8 && spec->dtype != TT_F32)
        return tt__fail(TT_ERR_DTYPE, "%s: expected images of u8 or f32, got %s", who, tt_dtype_name(spec->dtype));
    if (spec->shape.ndim >= 2)
        return TT_OK;
    return tt__fail(TT_ERR_SHAPE, "%s: expected images (..., height, width), got %d dimensions", who, spec->shape.ndim);
}

tt__image_size tt__image_size_of(const tt_tensor_spec *spec) {
    int n = spec->shape.ndim;
    tt__image_size size = {1, spec->shape.dim[n - 2], spec->shape.dim[n - 1], tt_dtype_size(spec->dtype)};
    for (int i = 0; i < n - 2; i++)
        size.planes *= spec->shape.dim[i];
    return size;
}

tt_status tt__image_check_size(const char *who, int64_t height, int64_t width) {
    const int64_t most = INT32_MAX / 4;
    if (height >= 1 && width >= 1 && height <= most && width <= most)
        return TT_OK;
    return tt__fail(TT_ERR_INVALID,
                    "%s: expected a height and a width from 1 to %" PRId64 ", got %" PRId64 " and %" PRId64, who, most,
                    height, width);
}

tt_tensor_spec tt__image_resized(const tt_tensor_spec *spec, int64_t height, int64_t width) {
    tt_tensor_spec out = *spec;
    out.shape.dim[out.shape.ndim - 2] = height;
    out.shape.dim[out.shape.ndim - 1] = width;
    return out;
}

void tt__floats_to_u8(uint8_t *to, const float *from, int64_t n) {
    for (int64_t i = 0; i < n; i++) {
        float x = nearbyintf(from[i]);
        to[i] = (uint8_t)(x < 0 ? 0 : x > 255 ? 255 : x);
    }
}

void tt__u8_to_floats(float *to, const uint8_t *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i];
}

/* ---- by callback ---- */

typedef struct callback_transform {
    tt_transform base;
    tt_tensor_spec from, to;
    tt_transform_fn apply;
    void *user;
    const char *name;
} callback_transform;

static tt_status callback_fit(const tt_transform *self, const tt_tensor_spec *in, tt_tensor_spec *out) {
    const callback_transform *c = (const callback_transform *)self;
    *out = c->to;
    if (in->dtype != c->from.dtype)
        return tt__fail(TT_ERR_DTYPE, "%s: expected %s, got %s", c->name, tt_dtype_name(c->from.dtype),
                        tt_dtype_name(in->dtype));
    if (!tt__shape_equal(&in->shape, &c->from.shape))
        return tt__fail(TT_ERR_SHAPE, "%s: expected examples of the shape that it was made for", c->name);
    return TT_OK;
}

static tt_status callback_apply(const tt_transform *self, const tt_tensor_spec *in, const void *from, void *to,
                                tt_draws *draws) {
    const callback_transform *c = (const callback_transform *)self;
    uint64_t errors = tt__error_count();
    (void)in;
    tt_status status = c->apply(c->user, from, to, draws);
    return status ? tt__fail_callback(errors, status, "%s", c->name) : TT_OK;
}

tt_transform *tt_transform_from_with(const tt_transform_from_args *args, size_t size) {
    static const tt__transform_class cls = {.name = "tt_transform_from", .fit = callback_fit, .apply = callback_apply};
    tt_transform_from_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.apply || !a.from.given)
        return tt__fail_null(TT_ERR_INVALID, "tt_transform_from: expected %s, got none",
                             a.apply ? "the type and shape that it takes, tt_spec(...)" : "a function");
    const callback_transform c = {{.cls = &cls}, a.from, a.to.given ? a.to : a.from,
                                  a.apply,       a.user, a.name ? a.name : "a transform"};
    return tt__transform_new(&c, sizeof c);
}

/* ---- data sets of transformed examples ---- */

/* One transform, and the examples that it takes. */
typedef struct stage {
    const tt_transform *transform;
    tt_tensor_spec in;
} stage;

typedef struct transformed {
    tt_dataset *base;        /* held */
    tt_transform *transform; /* owned */
    uint64_t seed;
    size_t bytes; /* of the largest example, before or after any stage */
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
    tt_draws draws = draws_of(t->seed, reading_epoch, index);
    tt_status status = tt__dataset_read(t->base, &index, 1, scratch, y);
    if (!status && run_stages(t, scratch, &draws, x))
        status = tt__fail_prefix("example %lld", (long long)index);
    tt__pool_free(scratch);
    return status;
}

static void transformed_destroy(void *user) {
    transformed *t = user;
    transform_end(t->transform);
    tt__dataset_release(t->base);
    free(t);
}

/* Make sure that ->bytes is enough for an example of this form. */
static tt_status note_bytes(transformed *t, const tt_tensor_spec *spec) {
    int64_t n = tt__shape_numel(&spec->shape);
    if (n < 0 || n > INT64_MAX / 32)
        return tt__fail(TT_ERR_SHAPE, "tt_dataset_transform: an example's size doesn't fit memory");
    size_t bytes = ((size_t)n * tt_dtype_size(spec->dtype) + 63) / 64 * 64;
    t->bytes = bytes > t->bytes ? bytes : t->bytes;
    return TT_OK;
}

/* Fill in the stages; *x := the form of a transformed example. */
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
        return transform_fail_owned("tt_dataset_transform", a.transform), NULL;
    if (a.dataset && a.transform)
        return transformed_new(&a);
    tt__fail_argument("tt_dataset_transform: the %s is NULL", a.dataset ? "transform" : "data set");
    if (a.transform && !a.transform->owned)
        transform_end(a.transform);
    return NULL;
}
