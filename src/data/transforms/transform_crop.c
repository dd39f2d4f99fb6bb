/* Transforms that move elements without changing them: CenterCrop, RandomCrop and flips. */
#include "data/transforms/transform.h"

#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

/* ---- windows: parts of an image, which may reach beyond it ---- */

/* Fill n elements of a row. */
static void fill_elements(char *to, int64_t n, tt__image_size s, double fill) {
    if (s.element == 1)
        memset(to, (uint8_t)fill, (size_t)n);
    else
        for (int64_t i = 0; i < n; i++)
            ((float *)(void *)to)[i] = (float)fill;
}

static int64_t clamp_to(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

/* Copy one row of the window that begins in column `left`; `from` NULL: the row is outside of the image. */
static void copy_window_row(char *to, const char *from, int64_t left, int64_t width, tt__image_size s, double fill) {
    int64_t begin = from ? clamp_to(-left, 0, width) : width, end = clamp_to(s.width - left, begin, width);
    fill_elements(to, begin, s, fill);
    if (end > begin)
        memcpy(to + (size_t)begin * s.element, from + (size_t)(left + begin) * s.element,
               (size_t)(end - begin) * s.element);
    fill_elements(to + (size_t)end * s.element, width - end, s, fill);
}

/* to (planes, height, width) := the window of from at (top, left); `fill` beyond the image. */
static void copy_window(char *to, const char *from, tt__image_size s, int64_t top, int64_t left, int64_t height,
                        int64_t width, double fill) {
    for (int64_t p = 0; p < s.planes; p++)
        for (int64_t y = top; y < top + height; y++, to += (size_t)width * s.element)
            copy_window_row(to,
                            y < 0 || y >= s.height ? NULL : from + (size_t)((p * s.height + y) * s.width) * s.element,
                            left, width, s, fill);
}

/* ---- crops ---- */

typedef struct window {
    tt_transform base;
    int64_t height, width;
    bool random;
    int64_t padding;
    double fill;
} window;

static tt_status window_fit(const tt_transform *self, const tt_tensor_spec *in, tt_tensor_spec *out) {
    const window *w = (const window *)self;
    TT__TRY(tt__image_check(self->cls->name, in));
    tt__image_size s = tt__image_size_of(in);
    *out = tt__image_resized(in, w->height, w->width);
    if (w->random && (s.height + 2 * w->padding < w->height || s.width + 2 * w->padding < w->width))
        return tt__fail(TT_ERR_SHAPE,
                        "%s: expected images of at least %" PRId64 " x %" PRId64 " with their padding of %" PRId64
                        ", got %" PRId64 " x %" PRId64,
                        self->cls->name, w->height, w->width, w->padding, s.height, s.width);
    if (in->dtype == TT_U8 && !(w->fill >= 0 && w->fill <= 255))
        return tt__fail(TT_ERR_INVALID, "%s: fill: expected 0 to 255 for u8, got %g", self->cls->name, w->fill);
    return TT_OK;
}

/* Return where a crop of the middle begins, as torchvision does: halve the excess, rounding to even; halve the deficit,
 * rounding down. */
static int64_t middle(int64_t size, int64_t crop) {
    return crop > size ? -((crop - size) / 2) : (int64_t)nearbyint((double)(size - crop) / 2);
}

static tt_status window_apply(const tt_transform *self, const tt_tensor_spec *in, const void *from, void *to,
                              tt_draws *draws) {
    const window *w = (const window *)self;
    tt__image_size s = tt__image_size_of(in);
    int64_t top = middle(s.height, w->height), left = middle(s.width, w->width);
    if (w->random) {
        top = tt_draws_integer(draws, s.height + 2 * w->padding - w->height + 1) - w->padding;
        left = tt_draws_integer(draws, s.width + 2 * w->padding - w->width + 1) - w->padding;
    }
    copy_window(to, from, s, top, left, w->height, w->width, w->fill);
    return TT_OK;
}

tt_transform *tt_center_crop(int64_t height, int64_t width) {
    static const tt__transform_class cls = {.name = "tt_center_crop", .fit = window_fit, .apply = window_apply};
    const window w = {.base.cls = &cls, .height = height, .width = width};
    return tt__image_check_size(cls.name, height, width) ? NULL : tt__transform_new(&w, sizeof w);
}

tt_transform *tt_random_crop_with(const tt_random_crop_args *args, size_t size) {
    static const tt__transform_class cls = {.name = "tt_random_crop", .fit = window_fit, .apply = window_apply};
    tt_random_crop_args a;
    TT__ARGS_COPY(a, args, size);
    if (tt__image_check_size(cls.name, a.height, a.width))
        return NULL;
    if (a.padding < 0 || a.padding > INT32_MAX / 4 || !isfinite(a.fill))
        return tt__fail_null(TT_ERR_INVALID,
                             "%s: expected a padding of at least 0 and a finite fill, got %" PRId64 ", %g", cls.name,
                             a.padding, a.fill);
    const window w = {{.cls = &cls}, a.height, a.width, true, a.padding, a.fill};
    return tt__transform_new(&w, sizeof w);
}

/* ---- flips ---- */

typedef struct flip {
    tt_transform base;
    double p;
    bool vertical;
} flip;

static tt_status flip_fit(const tt_transform *self, const tt_tensor_spec *in, tt_tensor_spec *out) {
    *out = *in;
    return tt__image_check(self->cls->name, in);
}

static void mirror_row(char *to, const char *from, tt__image_size s) {
    for (int64_t x = 0; x < s.width; x++)
        memcpy(to + (size_t)x * s.element, from + (size_t)(s.width - 1 - x) * s.element, s.element);
}

static tt_status flip_apply(const tt_transform *self, const tt_tensor_spec *in, const void *from, void *to,
                            tt_draws *draws) {
    const flip *f = (const flip *)self;
    tt__image_size s = tt__image_size_of(in);
    size_t row = (size_t)s.width * s.element;
    bool flips = tt__draws_chance(draws, f->p);
    for (int64_t p = 0; p < s.planes; p++)
        for (int64_t y = 0; y < s.height; y++) {
            int64_t source = flips && f->vertical ? s.height - 1 - y : y;
            char *to_row = (char *)to + (size_t)(p * s.height + y) * row;
            const char *from_row = (const char *)from + (size_t)(p * s.height + source) * row;
            if (flips && !f->vertical)
                mirror_row(to_row, from_row, s);
            else
                memcpy(to_row, from_row, row);
        }
    return TT_OK;
}

static tt_transform *flip_new(const tt__transform_class *cls, double p, bool vertical) {
    const flip f = {{.cls = cls}, p, vertical};
    if (!(p >= 0 && p <= 1))
        return tt__fail_null(TT_ERR_INVALID, "%s: p: expected 0 to 1, got %g", cls->name, p);
    return tt__transform_new(&f, sizeof f);
}

tt_transform *tt_random_horizontal_flip(double p) {
    static const tt__transform_class cls = {.name = "tt_random_horizontal_flip", .fit = flip_fit, .apply = flip_apply};
    return flip_new(&cls, p, false);
}

tt_transform *tt_random_vertical_flip(double p) {
    static const tt__transform_class cls = {.name = "tt_random_vertical_flip", .fit = flip_fit, .apply = flip_apply};
    return flip_new(&cls, p, true);
}
