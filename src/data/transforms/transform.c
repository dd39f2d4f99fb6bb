/* Any transform: making, composing, freeing; transforms by callback. */
#include "data/transforms/transform.h"

#include "base/args.h"
#include "base/error.h"
#include "base/quarantine.h"
#include "tensor/shape/shape.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

tt_transform *tt__transform_new(const void *kind, size_t size) {
    const tt_transform *base = kind;
    tt_transform *t = malloc(size);
    if (!t)
        return tt__fail_null(TT_ERR_MEMORY, "%s: out of memory", base->cls->name);
    memcpy(t, kind, size);
    return t;
}

void tt__transform_end(tt_transform *transform) {
    if (transform->cls->destroy)
        transform->cls->destroy(transform);
    tt__quarantine(transform, sizeof *transform, free);
}

tt_status tt__transform_fail_owned(const char *who, const tt_transform *transform) {
    return tt__fail(TT_ERR_STATE, "%s: this %s was taken over already, by a composition or a data set; make another",
                    who, transform->cls->name);
}

void tt_transform_free(tt_transform *transform) {
    if (!transform || tt__freed_before("tt_transform_free", transform))
        return;
    if (transform->owned)
        tt_ignore(tt__transform_fail_owned("tt_transform_free", transform));
    else
        tt__transform_end(transform);
}

/* ---- compositions ---- */

static void composition_destroy(tt_transform *t) {
    for (int64_t i = 0; i < t->count; i++)
        tt__transform_end(t->parts[i]);
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
    tt__transform_end(from);
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

/* Does list[i] stand before that in the list, too? */
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
            tt_ignore(tt__transform_fail_owned("tt_compose", list[i]));
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
    /* backwards: where one stands twice, its first place is last */
    for (int64_t i = a.count - 1; i >= 0 && !whole; i--)
        if (a.transforms[i] && !is_again(a.transforms, i) && !a.transforms[i]->owned)
            tt__transform_end(a.transforms[i]);
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
