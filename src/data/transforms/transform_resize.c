/* Transforms to another size: Resize and RandomResizedCrop.
 *
 * Row i of the result is at row (i + 1/2) scale - 1/2 of the source, where scale is the ratio of the sizes; the same
 * holds for columns. An element is mixed from the four around its place, or taken from the nearest, as torch's
 * interpolate() does in f32. */
#include "data/transforms/transform.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/core/pool.h"

#include <inttypes.h>
#include <math.h>

/* ---- one dimension ---- */

typedef struct tap {
    int64_t first, second; /* elements */
    float w0, w1;          /* their weights */
} tap;

/* torch rounds the scale and the weight to f32, and nothing in between. */
static tap bilinear_tap(int64_t i, int64_t in, int64_t out) {
    double at = (double)((float)in / (float)out) * ((double)i + 0.5) - 0.5;
    at = at < 0 ? 0 : at;
    int64_t first = (int64_t)at;
    first = first < in - 1 ? first : in - 1;
    float w1 = (float)(at - (double)first);
    w1 = w1 < 1 ? w1 : 1;
    return (tap){first, first < in - 1 ? first + 1 : first, 1 - w1, w1};
}

static tap nearest_tap(int64_t i, int64_t in, int64_t out) {
    int64_t at = in == out ? i : (int64_t)floorf((float)i * ((float)in / (float)out));
    at = at < in - 1 ? at : in - 1;
    return (tap){at, at, 1, 0};
}

static void taps_fill(tap *taps, int64_t in, int64_t out, bool nearest) {
    for (int64_t i = 0; i < out; i++)
        taps[i] = nearest ? nearest_tap(i, in, out) : bilinear_tap(i, in, out);
}

/* ---- a region, resized ---- */

typedef struct region {
    int64_t top, left, height, width;
} region;

/* out (height, width) := the region of one plane, whose rows have `stride` elements. rows (height), columns (width) */
static void resize_plane(float *out, const float *plane, int64_t stride, region r, const tap *rows, int64_t height,
                         const tap *columns, int64_t width, bool nearest) {
    plane += r.top * stride + r.left;
    for (int64_t y = 0; y < height; y++) {
        const float *a = plane + rows[y].first * stride, *b = plane + rows[y].second * stride;
        for (int64_t x = 0; x < width; x++) {
            const tap *c = &columns[x];
            if (nearest) {
                *out++ = a[c->first];
                continue;
            }
            float upper = tt__fused(a[c->second], c->w1, a[c->first] * c->w0);
            float lower = tt__fused(b[c->second], c->w1, b[c->first] * c->w0);
            *out++ = tt__fused(lower, rows[y].w1, upper * rows[y].w0);
        }
    }
}

typedef struct resizing {
    tt_transform base;
    int64_t height, width;
    bool nearest, random;
    double scale[2], ratio[2]; /* of a random region */
} resizing;

/* Return the bytes of one call's memory: taps, and two planes of f32, before and after. */
static size_t resizing_bytes(const resizing *r, tt__image_size s) {
    return (size_t)(r->height + r->width) * sizeof(tap) +
           (size_t)(s.height * s.width + r->height * r->width) * sizeof(float);
}

static void resize_all(const resizing *r, tt__image_size s, region where, const void *from, void *to, void *memory) {
    tap *rows = memory, *columns = rows + r->height;
    float *before = (float *)(void *)(columns + r->width), *after = before + s.height * s.width;
    taps_fill(rows, where.height, r->height, r->nearest);
    taps_fill(columns, where.width, r->width, r->nearest);
    for (int64_t p = 0; p < s.planes; p++) {
        int64_t in_at = p * s.height * s.width, out_at = p * r->height * r->width;
        if (s.element == 1)
            tt__u8_to_floats(before, (const uint8_t *)from + in_at, s.height * s.width);
        resize_plane(s.element == 1 ? after : (float *)to + out_at,
                     s.element == 1 ? before : (const float *)from + in_at, s.width, where, rows, r->height, columns,
                     r->width, r->nearest);
        if (s.element == 1)
            tt__floats_to_u8((uint8_t *)to + out_at, after, r->height * r->width);
    }
}

/* ---- a random region ---- */

static int64_t rounded(double x) { return (int64_t)nearbyint(x); }

/* Choose the middle after ten draws that did not fit, with a ratio as near to the wanted ones as the image allows. */
static region middle_region(const resizing *r, tt__image_size s) {
    double ratio = (double)s.width / (double)s.height;
    region m = {.height = s.height, .width = s.width};
    if (ratio < r->ratio[0])
        m.height = rounded((double)s.width / r->ratio[0]);
    else if (ratio > r->ratio[1])
        m.width = rounded((double)s.height * r->ratio[1]);
    m.height = m.height < 1 ? 1 : m.height;
    m.width = m.width < 1 ? 1 : m.width;
    m.top = (s.height - m.height) / 2;
    m.left = (s.width - m.width) / 2;
    return m;
}

static region draw_region(const resizing *r, tt__image_size s, tt_draws *draws) {
    double area = (double)s.height * (double)s.width;
    for (int tries = 0; tries < 10; tries++) {
        double part = area * tt_draws_uniform(draws, r->scale[0], r->scale[1]);
        double ratio = exp(tt_draws_uniform(draws, log(r->ratio[0]), log(r->ratio[1])));
        int64_t width = rounded(sqrt(part * ratio)), height = rounded(sqrt(part / ratio));
        if (width < 1 || height < 1 || width > s.width || height > s.height)
            continue;
        int64_t top = tt_draws_integer(draws, s.height - height + 1);
        return (region){top, tt_draws_integer(draws, s.width - width + 1), height, width};
    }
    return middle_region(r, s);
}

/* ---- transforms ---- */

static tt_status resizing_fit(const tt_transform *self, const tt_tensor_spec *in, tt_tensor_spec *out) {
    const resizing *r = (const resizing *)self;
    TT__TRY(tt__image_check(self->cls->name, in));
    tt__image_size s = tt__image_size_of(in);
    *out = tt__image_resized(in, r->height, r->width);
    if (s.height >= 1 && s.width >= 1 && s.height <= INT32_MAX / 4 && s.width <= INT32_MAX / 4)
        return TT_OK;
    return tt__fail(TT_ERR_SHAPE, "%s: expected images of at least 1 x 1, got %" PRId64 " x %" PRId64, self->cls->name,
                    s.height, s.width);
}

static tt_status resizing_apply(const tt_transform *self, const tt_tensor_spec *in, const void *from, void *to,
                                tt_draws *draws) {
    const resizing *r = (const resizing *)self;
    tt__image_size s = tt__image_size_of(in);
    region where = {0, 0, s.height, s.width};
    if (r->random)
        where = draw_region(r, s, draws);
    void *memory = tt__pool_alloc(resizing_bytes(r, s));
    if (!memory)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to resize an image", self->cls->name);
    resize_all(r, s, where, from, to, memory);
    tt__pool_free(memory);
    return TT_OK;
}

tt_transform *tt_resize_image_with(const tt_resize_image_args *args, size_t size) {
    static const tt__transform_class cls = {.name = "tt_resize_image", .fit = resizing_fit, .apply = resizing_apply};
    tt_resize_image_args a;
    TT__ARGS_COPY(a, args, size);
    const resizing r = {.base.cls = &cls, .height = a.height, .width = a.width, .nearest = a.nearest};
    return tt__image_check_size(cls.name, a.height, a.width) ? NULL : tt__transform_new(&r, sizeof r);
}

/* Take a range, or its default; both ends are above 0. */
static tt_status take_range(const char *who, const char *name, const double given[2], double low, double high,
                            double out[2]) {
    out[0] = given[0] == 0 && given[1] == 0 ? low : given[0];
    out[1] = given[0] == 0 && given[1] == 0 ? high : given[1];
    if (out[0] > 0 && out[1] >= out[0] && isfinite(out[1]))
        return TT_OK;
    return tt__fail(TT_ERR_INVALID, "%s: %s: expected two finite numbers above 0, the second not below, got %g and %g",
                    who, name, out[0], out[1]);
}

tt_transform *tt_random_resized_crop_with(const tt_random_resized_crop_args *args, size_t size) {
    static const tt__transform_class cls = {
        .name = "tt_random_resized_crop", .fit = resizing_fit, .apply = resizing_apply};
    tt_random_resized_crop_args a;
    TT__ARGS_COPY(a, args, size);
    resizing r = {.base.cls = &cls, .height = a.height, .width = a.width, .nearest = a.nearest, .random = true};
    if (tt__image_check_size(cls.name, a.height, a.width) || take_range(cls.name, "scale", a.scale, 0.08, 1, r.scale) ||
        take_range(cls.name, "ratio", a.ratio, 3.0 / 4, 4.0 / 3, r.ratio))
        return NULL;
    return tt__transform_new(&r, sizeof r);
}
