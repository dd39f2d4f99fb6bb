/* ColorJitter: brightness, contrast, saturation and hue, by factors that are drawn, one after the other in an order
 * that is drawn. The arithmetic is torchvision's on tensors, in f32; u8 is truncated, not rounded, after each
 * change. */
#include "data/transforms/transform.h"

#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* In the order of torchvision's numbers for them. */
typedef enum change { BRIGHTNESS, CONTRAST, SATURATION, HUE, CHANGES } change;

static const char *const change_names[CHANGES] = {"brightness", "contrast", "saturation", "hue"};

typedef struct jitter {
    tt_transform base;
    double range[CHANGES][2];
    bool wanted[CHANGES];
} jitter;

/* One image (channels, plane), changed in place. */
typedef struct colours {
    void *data;
    bool bytes;
    int64_t channels, plane;
} colours;

static float colour_at(const colours *im, int64_t channel, int64_t i) {
    int64_t at = channel * im->plane + i;
    return im->bytes ? ((const uint8_t *)im->data)[at] : ((const float *)im->data)[at];
}

static void set_colour(const colours *im, int64_t channel, int64_t i, float x) {
    int64_t at = channel * im->plane + i;
    if (im->bytes)
        ((uint8_t *)im->data)[at] = (uint8_t)x;
    else
        ((float *)im->data)[at] = x;
}

/* Return the largest value of an element. */
static float bound_of(const colours *im) { return im->bytes ? 255 : 1; }

static float clamp_colour(float x, float bound) { return x < 0 ? 0 : x > bound ? bound : x; }

static float grey_at(const colours *im, int64_t i) {
    if (im->channels == 1)
        return colour_at(im, 0, i);
    float grey = 0.2989f * colour_at(im, 0, i) + 0.587f * colour_at(im, 1, i) + 0.114f * colour_at(im, 2, i);
    return im->bytes ? truncf(grey) : grey;
}

/* Move pixel i towards `other`, or away from it. */
static void blend_pixel(const colours *im, int64_t i, float other, double factor) {
    float ratio = (float)factor, rest = (float)(1 - factor);
    for (int64_t c = 0; c < im->channels; c++)
        set_colour(im, c, i, clamp_colour(ratio * colour_at(im, c, i) + rest * other, bound_of(im)));
}

static float mean_grey(const colours *im) {
    double sum = 0;
    for (int64_t i = 0; i < im->plane; i++)
        sum += (double)grey_at(im, i);
    return (float)(sum / (double)im->plane);
}

/* ---- hue ---- */

typedef struct hsv {
    float h, s, v;
} hsv;

static hsv hsv_of(float r, float g, float b) {
    float most = fmaxf(fmaxf(r, g), b), least = fminf(fminf(r, g), b), range = most - least;
    bool grey = most == least;
    float divisor = grey ? 1 : range;
    float rc = (most - r) / divisor, gc = (most - g) / divisor, bc = (most - b) / divisor;
    float h = most == r ? bc - gc : most == g ? 2 + rc - bc : 4 + gc - rc;
    return (hsv){fmodf(h / 6 + 1, 1), range / (grey ? 1 : most), most};
}

static void rgb_of(hsv x, float *rgb) {
    float sixth = floorf(x.h * 6), f = x.h * 6 - sixth;
    float p = clamp_colour(x.v * (1 - x.s), 1), q = clamp_colour(x.v * (1 - x.s * f), 1);
    float t = clamp_colour(x.v * (1 - x.s * (1 - f)), 1);
    const float all[6][3] = {{x.v, t, p}, {q, x.v, p}, {p, x.v, t}, {p, q, x.v}, {t, p, x.v}, {x.v, p, q}};
    memcpy(rgb, all[sixth >= 0 && sixth < 6 ? (int)sixth : 0], sizeof all[0]);
}

static void turn_hue(const colours *im, int64_t i, double by) {
    float unit = bound_of(im), rgb[3];
    hsv x = hsv_of(colour_at(im, 0, i) / unit, colour_at(im, 1, i) / unit, colour_at(im, 2, i) / unit);
    x.h = fmodf(x.h + (float)by, 1);
    x.h += x.h < 0 ? 1 : 0;
    rgb_of(x, rgb);
    for (int64_t c = 0; c < 3; c++)
        set_colour(im, c, i, im->bytes ? rgb[c] * 255 : rgb[c]);
}

/* ---- the transform ---- */

static void change_image(const colours *im, change what, double factor) {
    float mean = what == CONTRAST ? mean_grey(im) : 0;
    if (im->channels == 1 && (what == SATURATION || what == HUE))
        return;
    for (int64_t i = 0; i < im->plane; i++)
        if (what == HUE)
            turn_hue(im, i, factor);
        else
            blend_pixel(im, i, what == SATURATION ? grey_at(im, i) : mean, factor);
}

static int64_t channels_of(const tt_tensor_spec *spec) {
    return spec->shape.ndim > 2 ? spec->shape.dim[spec->shape.ndim - 3] : 1;
}

static tt_status jitter_fit(const tt_transform *self, const tt_tensor_spec *in, tt_tensor_spec *out) {
    *out = *in;
    TT__TRY(tt__image_check(self->cls->name, in));
    int64_t channels = channels_of(in);
    return channels == 1 || channels == 3
               ? TT_OK
               : tt__fail(TT_ERR_SHAPE, "%s: expected images of 1 or 3 channels, got %" PRId64, self->cls->name,
                          channels);
}

/* Draw as torchvision does: an order, then a factor for each change that is wanted. */
static void draw_changes(const jitter *j, tt_draws *draws, change *order, double *factor) {
    for (int i = 0; i < CHANGES; i++)
        order[i] = (change)i;
    for (int i = CHANGES - 1; i > 0; i--) {
        int64_t k = tt_draws_integer(draws, i + 1);
        change last = order[i];
        order[i] = order[k];
        order[k] = last;
    }
    for (int i = 0; i < CHANGES; i++)
        factor[i] = j->wanted[i] ? tt_draws_uniform(draws, j->range[i][0], j->range[i][1]) : 0;
}

static tt_status jitter_apply(const tt_transform *self, const tt_tensor_spec *in, const void *from, void *to,
                              tt_draws *draws) {
    const jitter *j = (const jitter *)self;
    tt__image_size s = tt__image_size_of(in);
    change order[CHANGES];
    double factor[CHANGES];
    const int64_t channels = channels_of(in), plane = s.height * s.width;
    const size_t bytes = (size_t)(channels * plane) * s.element;
    draw_changes(j, draws, order, factor);
    memcpy(to, from, (size_t)(s.planes * plane) * s.element);
    for (int64_t n = 0; plane && n < s.planes / channels; n++) {
        const colours im = {(char *)to + (size_t)n * bytes, s.element == 1, channels, plane};
        for (int i = 0; i < CHANGES; i++)
            if (j->wanted[order[i]])
                change_image(&im, order[i], factor[order[i]]);
    }
    return TT_OK;
}

static tt_status jitter_set(const char *who, jitter *j, change what, const double range[2]) {
    const double low = what == HUE ? -0.5 : 0, high = what == HUE ? 0.5 : INFINITY, same = what == HUE ? 0 : 1;
    if (!(range[0] >= low && range[1] >= range[0] && range[1] <= high && isfinite(range[1])))
        return tt__fail(TT_ERR_INVALID,
                        "%s: %s: expected two numbers from %g%s, the second not below the first, got %g and %g", who,
                        change_names[what], low, what == HUE ? " to 0.5" : "", range[0], range[1]);
    memcpy(j->range[what], range, sizeof j->range[what]);
    bool none = range[0] == 0 && range[1] == 0;
    j->wanted[what] = !none && !(range[0] == same && range[1] == same);
    return TT_OK;
}

tt_transform *tt_color_jitter_with(const tt_color_jitter_args *args, size_t size) {
    static const tt__transform_class cls = {.name = "tt_color_jitter", .fit = jitter_fit, .apply = jitter_apply};
    tt_color_jitter_args a;
    TT__ARGS_COPY(a, args, size);
    jitter j = {.base.cls = &cls};
    const double *const ranges[CHANGES] = {a.brightness, a.contrast, a.saturation, a.hue};
    for (int i = 0; i < CHANGES; i++)
        if (jitter_set(cls.name, &j, (change)i, ranges[i]))
            return NULL;
    return tt__transform_new(&j, sizeof j);
}
