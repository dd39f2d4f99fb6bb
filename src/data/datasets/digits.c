/* The built-in data set: digits like handwritten ones, drawn on raw pixels, as a tensor of images.
 *
 * A glyph is a few strokes; a stroke is a smooth curve through points (Catmull and Rom, 1974). For each example the
 * page under the glyph is warped: a coarse grid of random displacements moves it, and strokes that meet still meet.
 * Then the glyph is scaled, turned, sheared and moved, and drawn with a round pen of random width and softness. Noise
 * and specks come last.
 *
 * Glyph coordinates: a box of 70 x 100 units, x to the right, y down, (0,0) in the middle. */
#include "base/error.h"
#include "tensor/core/tensor.h"

#include <tutti/data.h>

#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

enum { SIDE = 28, PIXELS = SIDE * SIDE };

/* ---- random numbers: SplitMix64 (Steele, Lea and Flood, 2014), one stream an example ---- */

typedef struct rng {
    uint64_t state;
} rng;

static uint64_t splitmix(uint64_t z) {
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

static uint32_t digits_random(rng *r) { return (uint32_t)(splitmix(r->state += UINT64_C(0x9e3779b97f4a7c15)) >> 32); }

static int random_below(rng *r, int n) { return (int)((uint64_t)digits_random(r) * (uint64_t)n >> 32); }

static float random_between(rng *r, float low, float high) {
    return low + (high - low) * ((float)(digits_random(r) >> 8) * 0x1p-24f);
}

/* Draw a number around 0, seldom near the ends: the mean of three. */
static float random_around(rng *r, float limit) {
    return (random_between(r, -limit, limit) + random_between(r, -limit, limit) + random_between(r, -limit, limit)) /
           3.0f;
}

/* ---- glyphs ---- */

enum { LIFT = 127, END = 126 }; /* instead of an x: the pen is lifted; the glyph ends */

typedef struct glyph {
    int8_t digit;
    int8_t points[38]; /* x, y, x, y, ... */
} glyph;

static const glyph glyphs[] = {
    {0, {2, -50, -22, -36, -32, 0, -23, 36, 0, 50, 23, 36, 32, 0, 23, -36, 0, -50, -12, -46, END}},
    {0, {14, -46, -10, -46, -30, -16, -29, 24, -8, 49, 18, 42, 32, 8, 27, -30, 10, -49, END}},
    {1, {3, -50, 0, 50, END}},
    {1, {-18, -30, 5, -50, LIFT, 5, -50, 1, 50, END}},
    {1, {-18, -32, 4, -50, LIFT, 4, -50, 4, 49, LIFT, -18, 50, 25, 49, END}},
    {2, {-27, -27, -13, -47, 11, -49, 26, -29, 15, -2, -9, 26, -30, 48, LIFT, -30, 48, 31, 47, END}},
    {2, {-25, -34, -4, -50, 22, -38, 20, -8, -4, 28, -25, 47, -29, 32, -12, 28, 8, 43, 32, 44, END}},
    {3, {-26, -38, -6, -50, 20, -42, 22, -18, -3, -4, LIFT, -3, -4, 24, 8, 27, 32, 8, 49, -14, 48, -29, 36, END}},
    {3, {-26, -47, 23, -48, LIFT, 23, -48, -3, -10, LIFT, -3, -10, 23, 4, 26, 32, 4, 50, -28, 38, END}},
    {4, {-15, -50, -27, 6, LIFT, -27, 6, 31, 4, LIFT, 16, -28, 13, 50, END}},
    {4, {15, -50, -31, 13, LIFT, -31, 13, 33, 13, LIFT, 15, -50, 14, 50, END}},
    {4, {-20, -48, -25, -8, -2, 4, 22, -4, LIFT, 24, -48, 22, -4, 16, 50, END}},
    {5, {25, -48, -17, -47, LIFT, -17, -47, -22, -7, LIFT, -22, -7, 4, -15, 26, 5, 24, 34, 2, 50, -27, 40, END}},
    {5, {-15, -48, -18, -10, 6, -8, 26, 14, 16, 42, -10, 50, -27, 42, LIFT, -15, -46, 29, -49, END}},
    {6, {17, -50, -9, -30, -25, 6, -20, 37, 2, 50, 22, 38, 24, 16, 6, 2, -15, 12, -23, 27, END}},
    {6, {2, -50, -18, -12, -24, 26, -8, 48, 17, 46, 27, 24, 12, 7, -10, 14, -20, 32, END}},
    {7, {-29, -47, 28, -48, LIFT, 28, -48, 5, 0, -8, 50, END}},
    {7, {-29, -34, -27, -48, LIFT, -27, -48, 28, -46, LIFT, 28, -46, 10, 4, 0, 50, LIFT, -14, 3, 25, -1, END}},
    {8, {20, -38, 0,   -50, -21, -36, -16, -14, 0,  -2,  20, 16,  24, 36,
         0,  50,  -24, 36,  -20, 16,  0,   -2,  17, -16, 21, -36, END}},
    {8, {2, -3, -19, -16, -17, -40, 2, -50, 20, -40, 18, -16, 2, -3, LIFT,
         2, -3, -24, 14,  -22, 40,  2, 50,  25, 40,  24, 14,  2, -3, END}},
    {9, {22, -30, 4, -50, -20, -38, -22, -14, -2, -2, 18, -12, 23, -32, LIFT, 23, -32, 20, 10, 10, 50, END}},
    {9, {24, -34, 6, -50, -19, -42, -24, -20, -8, -4, 16, -10, 24, -34, LIFT, 24, -34, 25, 14, 10, 46, -20, 44, END}},
};

static const glyph *choose_glyph(rng *r, int digit) {
    const glyph *of_digit[4];
    int n = 0;
    for (size_t i = 0; i < sizeof glyphs / sizeof *glyphs; i++)
        if (glyphs[i].digit == digit)
            of_digit[n++] = &glyphs[i];
    return of_digit[random_below(r, n)];
}

/* ---- from glyph to page ---- */

typedef struct point {
    float x, y;
} point;

enum { GRID = 4 };

typedef struct hand {
    point warp[GRID][GRID]; /* displacements at the corners of 3 x 3 cells over the glyph's box */
    float xx, xy, yx, yy;   /* glyph units to pixels */
    point origin;           /* where (0,0) lands */
    float radius, taper;    /* of the pen, at a stroke's start, and its change along the stroke */
    float softness;         /* pixels from full ink to none */
    float ink;              /* 0..255 */
    float noise;
} hand;

/* Choose the transform. It rotates by the angle whose half has tangent t, which needs no sine or cosine. */
static void choose_transform(hand *h, rng *r) {
    float t = random_around(r, 0.22f), c = (1 - t * t) / (1 + t * t), s = 2 * t / (1 + t * t);
    float width = random_between(r, 0.145f, 0.245f), height = random_between(r, 0.165f, 0.215f),
          shear = random_around(r, 0.5f) - 0.08f;
    h->xx = c * width;
    h->yx = s * width;
    h->xy = c * width * -shear - s * height;
    h->yy = s * width * -shear + c * height;
    h->origin.x = (SIDE - 1) * 0.5f + random_around(r, 3.0f);
    h->origin.y = (SIDE - 1) * 0.5f + random_around(r, 3.0f);
}

static void choose_hand(hand *h, rng *r) {
    for (int i = 0; i < GRID * GRID; i++) {
        h->warp[i / GRID][i % GRID].x = random_around(r, 17.0f);
        h->warp[i / GRID][i % GRID].y = random_around(r, 17.0f);
    }
    choose_transform(h, r);
    h->radius = random_between(r, 0.75f, 1.75f);
    h->taper = random_between(r, -0.35f, 0.35f);
    h->softness = random_between(r, 1.0f, 2.0f);
    h->ink = random_between(r, 190.0f, 290.0f); /* above 255 it saturates, as in scans */
    h->noise = random_between(r, 0.0f, 22.0f);
}

/* Return the cell of the warp grid that `at` (0..GRID-1) lies in; points outside belong to the border cells. */
static int grid_cell(float at) {
    int i = (int)at;
    return i < 0 ? 0 : i > GRID - 2 ? GRID - 2 : i;
}

static point warped_point(const hand *h, point p) {
    float gx = (p.x + 35.0f) * ((GRID - 1) / 70.0f), gy = (p.y + 50.0f) * ((GRID - 1) / 100.0f);
    int i = grid_cell(gy), j = grid_cell(gx);
    float fy = gy - (float)i, fx = gx - (float)j;
    const point *top = &h->warp[i][j], *bottom = &h->warp[i + 1][j];
    float x = p.x + (1 - fy) * ((1 - fx) * top[0].x + fx * top[1].x) + fy * ((1 - fx) * bottom[0].x + fx * bottom[1].x);
    float y = p.y + (1 - fy) * ((1 - fx) * top[0].y + fx * top[1].y) + fy * ((1 - fx) * bottom[0].y + fx * bottom[1].y);
    return (point){h->origin.x + h->xx * x + h->xy * y, h->origin.y + h->yx * x + h->yy * y};
}

/* ---- drawing ----
 * `gap` (SIDE,SIDE): distance of each pixel from the nearest edge of ink, negative inside it. */

static int clamp_pixel(float at) { return at < 0 ? 0 : at > SIDE - 1 ? SIDE - 1 : (int)at; }

static void draw_segment(float *gap, point a, point b, float radius, float softness) {
    float reach = radius + softness, dx = b.x - a.x, dy = b.y - a.y, length2 = dx * dx + dy * dy + 1e-6f;
    int x0 = clamp_pixel((a.x < b.x ? a.x : b.x) - reach), x1 = clamp_pixel((a.x > b.x ? a.x : b.x) + reach + 1);
    int y0 = clamp_pixel((a.y < b.y ? a.y : b.y) - reach), y1 = clamp_pixel((a.y > b.y ? a.y : b.y) + reach + 1);
    for (int y = y0; y <= y1; y++)
        for (int x = x0; x <= x1; x++) {
            float px = (float)x - a.x, py = (float)y - a.y, t = (px * dx + py * dy) / length2;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            float ex = px - t * dx, ey = py - t * dy, distance = sqrtf(ex * ex + ey * ey) - radius;
            if (distance < gap[y * SIDE + x])
                gap[y * SIDE + x] = distance;
        }
}

/* Return the curve's point between b and c, at u in 0..1; a and d are the points before and after. */
static point catmull_rom(point a, point b, point c, point d, float u) {
    float u2 = u * u, u3 = u2 * u, wa = -u3 + 2 * u2 - u, wb = 3 * u3 - 5 * u2 + 2, wc = -3 * u3 + 4 * u2 + u,
          wd = u3 - u2;
    return (point){0.5f * (wa * a.x + wb * b.x + wc * c.x + wd * d.x),
                   0.5f * (wa * a.y + wb * b.y + wc * c.y + wd * d.y)};
}

static void draw_stroke(float *gap, const hand *h, const int8_t *xy, int n) {
    enum { STEPS = 5 };
    int total = (n - 1) * STEPS;
    point before = {0};
    for (int k = 0; k <= total; k++) {
        int i = k / STEPS;
        float u = (float)(k % STEPS) / STEPS;
        const int8_t *a = xy + 2 * (i > 0 ? i - 1 : 0), *b = xy + 2 * i, *c = xy + 2 * (i + 1 < n ? i + 1 : n - 1),
                     *d = xy + 2 * (i + 2 < n ? i + 2 : n - 1);
        point p = catmull_rom((point){a[0], a[1]}, (point){b[0], b[1]}, (point){c[0], c[1]}, (point){d[0], d[1]}, u);
        p = warped_point(h, p);
        if (k > 0)
            draw_segment(gap, before, p, h->radius * (1 + h->taper * (float)k / (float)total), h->softness);
        before = p;
    }
}

static void draw_glyph(float *gap, const hand *h, const glyph *g) {
    for (int i = 0; i < PIXELS; i++)
        gap[i] = 1e3f;
    for (const int8_t *start = g->points;;) {
        const int8_t *end = start;
        while (*end != LIFT && *end != END)
            end += 2;
        draw_stroke(gap, h, start, (int)(end - start) / 2);
        if (*end == END)
            return;
        start = end + 1;
    }
}

/* Add a few dots of dust. */
static void add_specks(uint8_t *pixels, rng *r) {
    for (int n = random_below(r, 6); n > 0; n--)
        pixels[random_below(r, PIXELS)] = (uint8_t)random_between(r, 60.0f, 255.0f);
}

static void ink_page(uint8_t *pixels, const float *gap, const hand *h, rng *r) {
    for (int i = 0; i < PIXELS; i++) {
        float ink = 0.5f - gap[i] / h->softness;
        ink = (ink < 0 ? 0 : ink > 1 ? 1 : ink) * h->ink + random_around(r, 2 * h->noise) - 0.5f * h->noise;
        pixels[i] = ink < 0 ? 0 : ink > 255 ? 255 : (uint8_t)(ink + 0.5f);
    }
    add_specks(pixels, r);
}

/* Draw example number `index` of the set with this seed: pixels (SIDE,SIDE), 0 background to 255 ink. Returns the
 * digit, 0..9. It is the same on every machine: of floating point, only what IEEE 754 rounds correctly is used (+ - * /
 * and square root). */
static int digit_draw(uint8_t *pixels, uint64_t seed, int64_t index) {
    rng r = {splitmix(seed + UINT64_C(0x9e3779b97f4a7c15)) ^
             splitmix((uint64_t)index * UINT64_C(0xd1342543de82ef95) + 1)};
    hand h;
    float gap[PIXELS];
    int digit = random_below(&r, 10);
    choose_hand(&h, &r);
    draw_glyph(gap, &h, choose_glyph(&r, digit));
    ink_page(pixels, gap, &h, &r);
    return digit;
}

/* ---- the data set ---- */

tt_dataset *tt_digits(int64_t n, uint64_t seed) {
    if (n < 1)
        return tt__fail_null(TT_ERR_INVALID, "tt_digits: expected at least 1 example, got %" PRId64, n);
    tt_tensor *images = tt_keep(tt__tensor_new("tt_digits", TT_SHAPE(n, 1, SIDE, SIDE), TT_U8));
    tt_tensor *labels = tt_keep(tt__tensor_new("tt_digits", TT_SHAPE(n), TT_I64));
    if (!images || !labels) {
        tt_tensor_free(images);
        tt_tensor_free(labels);
        return NULL;
    }
    uint8_t *pixels = images->data;
    int64_t *label = labels->data;
    for (int64_t i = 0; i < n; i++)
        label[i] = digit_draw(pixels + i * SIDE * SIDE, seed, i);
    return tt_tensor_dataset(images, labels);
}
