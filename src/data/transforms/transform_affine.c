/* Transforms by an affine map: RandomAffine and RandomRotation.
 *
 * An element of the result comes from the place to which the inverse map leads. The 2 x 3 matrix is made in f64; then
 * everything is f32, in the steps of torchvision's affine(): normalised coordinates, grid_sample() with zeros outside,
 * then a mixture with the fill, by the weight of what lay inside. */
#include "data/transforms/transform.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/core/pool.h"

#include <inttypes.h>
#include <math.h>

typedef struct affine {
    tt_transform base;
    double degrees[2], translate[2], scale[2], shear[4];
    bool bilinear;
    double fill;
} affine;

/* What was drawn for one example. Angles in degrees; moves in elements. */
typedef struct affine_map {
    double angle, dx, dy, scale, shear_x, shear_y;
} affine_map;

/* ---- the inverse map ---- */

static double radians(double degrees) { return degrees * (acos(-1) / 180); }

/* Coordinates are relative to the middle: x_in = m[0] x + m[1] y + m[2], y_in = m[3] x + m[4] y + m[5]. */
static void inverse_matrix(const affine_map *map, double m[6]) {
    double rot = radians(map->angle), sx = radians(map->shear_x), sy = radians(map->shear_y);
    double a = cos(rot - sy) / cos(sy), b = -cos(rot - sy) * tan(sx) / cos(sy) - sin(rot);
    double c = sin(rot - sy) / cos(sy), d = -sin(rot - sy) * tan(sx) / cos(sy) + cos(rot);
    m[0] = d / map->scale, m[1] = -b / map->scale, m[2] = 0;
    m[3] = -c / map->scale, m[4] = a / map->scale, m[5] = 0;
    m[2] += m[0] * -map->dx + m[1] * -map->dy;
    m[5] += m[3] * -map->dx + m[4] * -map->dy;
}

/* The matrix in f32, to coordinates from -1 to 1. */
typedef struct grid {
    float x[3], y[3];
} grid;

static grid grid_of(const double m[6], tt__image_size s) {
    float half_w = 0.5f * (float)s.width, half_h = 0.5f * (float)s.height;
    return (grid){{(float)m[0] / half_w, (float)m[1] / half_w, (float)m[2] / half_w},
                  {(float)m[3] / half_h, (float)m[4] / half_h, (float)m[5] / half_h}};
}

static float grid_at(const float row[3], float x, float y, int64_t size) {
    float at = tt__fused(y, row[1], x * row[0]) + row[2];
    return tt__fused(at + 1, (float)size / 2, -0.5f);
}

/* ---- sampling ---- */

/* Where an element comes from: up to four elements and their weights; those outside have weight 0. */
typedef struct source {
    int64_t at[4];
    float weight[4];
} source;

/* Is a place so far outside that no element of the image counts? Its coordinates might not fit integers. */
static bool far_outside(float x, float y, tt__image_size s) {
    return !(x > -2 && y > -2 && x < (float)(s.width + 1) && y < (float)(s.height + 1));
}

static void source_set(source *from, int k, int64_t x, int64_t y, float weight, tt__image_size s) {
    bool inside = x >= 0 && y >= 0 && x < s.width && y < s.height;
    from->at[k] = inside ? y * s.width + x : 0;
    from->weight[k] = inside ? weight : 0;
}

static source nearest_source(float x, float y, tt__image_size s) {
    source from = {{0}, {0}};
    if (!far_outside(x, y, s))
        source_set(&from, 0, (int64_t)nearbyintf(x), (int64_t)nearbyintf(y), 1, s);
    return from;
}

static source bilinear_source(float x, float y, tt__image_size s) {
    source from = {{0}, {0}};
    if (far_outside(x, y, s))
        return from;
    float west = floorf(x), north = floorf(y), w = x - west, e = 1 - w, n = y - north, f = 1 - n;
    int64_t left = (int64_t)west, top = (int64_t)north;
    source_set(&from, 0, left, top, f * e, s);
    source_set(&from, 1, left + 1, top, f * w, s);
    source_set(&from, 2, left, top + 1, n * e, s);
    source_set(&from, 3, left + 1, top + 1, n * w, s);
    return from;
}

static float sample(const affine *t, const float *plane, const source *from) {
    const int64_t *at = from->at;
    const float *w = from->weight;
    if (!t->bilinear)
        return w[0] > 0 ? plane[at[0]] : (float)t->fill;
    float value = 0, inside = 0;
    for (int k = 0; k < 4; k++) {
        value = tt__fused(plane[at[k]], w[k], value);
        inside += w[k];
    }
    return value * inside + (1 - inside) * (float)t->fill;
}

/* out (planes, height, width) f32 := the mapped image */
static void map_image(const affine *t, const grid *g, tt__image_size s, const float *in, float *out) {
    int64_t plane = s.height * s.width;
    for (int64_t i = 0; i < s.height; i++)
        for (int64_t j = 0; j < s.width; j++) {
            float x = (float)j - (float)s.width * 0.5f + 0.5f, y = (float)i - (float)s.height * 0.5f + 0.5f;
            float from_x = grid_at(g->x, x, y, s.width), from_y = grid_at(g->y, x, y, s.height);
            source from = t->bilinear ? bilinear_source(from_x, from_y, s) : nearest_source(from_x, from_y, s);
            for (int64_t p = 0; p < s.planes; p++)
                out[p * plane + i * s.width + j] = sample(t, in + p * plane, &from);
        }
}

/* ---- transforms ---- */

/* Draw as torchvision does: moves are whole elements. */
static affine_map draw_map(const affine *t, tt__image_size s, tt_draws *draws) {
    double most_x = t->translate[0] * (double)s.width, most_y = t->translate[1] * (double)s.height;
    affine_map map;
    map.angle = tt_draws_uniform(draws, t->degrees[0], t->degrees[1]);
    map.dx = nearbyint(tt_draws_uniform(draws, -most_x, most_x));
    map.dy = nearbyint(tt_draws_uniform(draws, -most_y, most_y));
    map.scale = tt_draws_uniform(draws, t->scale[0], t->scale[1]);
    map.shear_x = tt_draws_uniform(draws, t->shear[0], t->shear[1]);
    map.shear_y = tt_draws_uniform(draws, t->shear[2], t->shear[3]);
    return map;
}

static tt_status affine_fit(const tt_transform *self, const tt_tensor_spec *in, tt_tensor_spec *out) {
    const affine *t = (const affine *)self;
    *out = *in;
    TT__TRY(tt__image_check(self->cls->name, in));
    tt__image_size s = tt__image_size_of(in);
    if (s.height > INT32_MAX / 4 || s.width > INT32_MAX / 4)
        return tt__fail(TT_ERR_SHAPE, "%s: expected smaller images, got %" PRId64 " x %" PRId64, self->cls->name,
                        s.height, s.width);
    if (in->dtype == TT_U8 && !(t->fill >= 0 && t->fill <= 255))
        return tt__fail(TT_ERR_INVALID, "%s: fill: expected 0 to 255 for u8, got %g", self->cls->name, t->fill);
    return TT_OK;
}

static tt_status affine_apply(const tt_transform *self, const tt_tensor_spec *in, const void *from, void *to,
                              tt_draws *draws) {
    const affine *t = (const affine *)self;
    tt__image_size s = tt__image_size_of(in);
    int64_t n = s.planes * s.height * s.width;
    affine_map map = draw_map(t, s, draws);
    double m[6];
    inverse_matrix(&map, m);
    grid g = grid_of(m, s);
    if (s.element != 1) {
        map_image(t, &g, s, from, to);
        return TT_OK;
    }
    float *memory = tt__pool_alloc(2 * (size_t)n * sizeof *memory + 1);
    if (!memory)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to map an image", self->cls->name);
    tt__u8_to_floats(memory, from, n);
    map_image(t, &g, s, memory, memory + n);
    tt__floats_to_u8(to, memory + n, n);
    tt__pool_free(memory);
    return TT_OK;
}

/* Check a range of numbers that are at least `low`. */
static tt_status check_affine_range(const char *who, const char *name, const double range[2], double low) {
    if (isfinite(range[0]) && isfinite(range[1]) && range[0] >= low && range[1] >= range[0])
        return TT_OK;
    return tt__fail(TT_ERR_INVALID,
                    "%s: %s: expected two finite numbers from %g, the second not below the first, got %g and %g", who,
                    name, low, range[0], range[1]);
}

static tt_status affine_check(const char *who, affine *t) {
    if (t->scale[0] == 0 && t->scale[1] == 0)
        t->scale[0] = t->scale[1] = 1;
    TT__TRY(check_affine_range(who, "scale", t->scale, 1e-6));
    TT__TRY(check_affine_range(who, "shear along x", t->shear, -1e9));
    TT__TRY(check_affine_range(who, "shear along y", t->shear + 2, -1e9));
    for (int i = 0; i < 2; i++)
        if (!(t->translate[i] >= 0 && t->translate[i] <= 1))
            return tt__fail(TT_ERR_INVALID, "%s: translate: expected shares from 0 to 1, got %g", who, t->translate[i]);
    return isfinite(t->fill) ? TT_OK : tt__fail(TT_ERR_INVALID, "%s: fill: expected a finite number", who);
}

/* `degrees`: as the caller gave them. */
static tt_transform *affine_new(const tt__transform_class *cls, affine *t, const double degrees[2]) {
    t->base.cls = cls;
    return check_affine_range(cls->name, "degrees", degrees, -1e9) || affine_check(cls->name, t)
               ? NULL
               : tt__transform_new(t, sizeof *t);
}

tt_transform *tt_random_affine_with(const tt_random_affine_args *args, size_t size) {
    static const tt__transform_class cls = {.name = "tt_random_affine", .fit = affine_fit, .apply = affine_apply};
    tt_random_affine_args a;
    TT__ARGS_COPY(a, args, size);
    affine t = {.degrees = {a.min_degrees, a.max_degrees},
                .translate = {a.translate[0], a.translate[1]},
                .scale = {a.scale[0], a.scale[1]},
                .shear = {a.shear[0], a.shear[1], a.shear[2], a.shear[3]},
                .bilinear = a.bilinear,
                .fill = a.fill};
    return affine_new(&cls, &t, t.degrees);
}

/* torchvision's RandomRotation turns counter-clockwise, and its RandomAffine clockwise. */
tt_transform *tt_random_rotation_with(const tt_random_rotation_args *args, size_t size) {
    static const tt__transform_class cls = {.name = "tt_random_rotation", .fit = affine_fit, .apply = affine_apply};
    tt_random_rotation_args a;
    TT__ARGS_COPY(a, args, size);
    affine t = {.degrees = {-a.max_degrees, -a.min_degrees}, .bilinear = a.bilinear, .fill = a.fill};
    return affine_new(&cls, &t, (double[]){a.min_degrees, a.max_degrees});
}
