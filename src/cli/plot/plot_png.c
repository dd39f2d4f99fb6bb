/* A canvas of pixels, written as PNG. A line's pixels are covered by how near they are to it, so edges are smooth. */
#include "base/atomic_file.h"
#include "base/error.h"
#include "cli/plot/plot.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

enum { SCALE = 2 }; /* pixels in a unit of the page, for screens with small ones */

typedef struct png_canvas {
    tt__canvas canvas; /* first, so that one is the other */
    int width, height;
    uint8_t *rows;   /* (height, 1 + 3 * width): as PNG has them, a filter's number before each row */
    float *coverage; /* (height, width): of the line that is being drawn, zero outside of it */
    tt__rgb colour;  /* of the text that is being drawn */
    double x, y, text_height;
} png_canvas;

static size_t row_bytes(const png_canvas *png) { return 1 + 3 * (size_t)png->width; }

/* ---- lines ---- */

/* Pixels that something touches. */
typedef struct pixel_box {
    int x0, y0, x1, y1; /* x1, y1: behind the last */
} pixel_box;

static int clip_pixel(double x, int most) { return x < 0 ? 0 : x > most ? most : (int)x; }

static pixel_box box_of(const png_canvas *png, double x0, double y0, double x1, double y1, double radius) {
    return (pixel_box){clip_pixel(floor(fmin(x0, x1) - radius - 1), png->width),
                       clip_pixel(floor(fmin(y0, y1) - radius - 1), png->height),
                       clip_pixel(ceil(fmax(x0, x1) + radius + 1), png->width),
                       clip_pixel(ceil(fmax(y0, y1) + radius + 1), png->height)};
}

/* Cover the pixels within `radius` of a segment. */
static void cover_segment(png_canvas *png, double x0, double y0, double x1, double y1, double radius) {
    double dx = x1 - x0, dy = y1 - y0, length = dx * dx + dy * dy;
    pixel_box box = box_of(png, x0, y0, x1, y1, radius);
    for (int j = box.y0; j < box.y1; j++)
        for (int i = box.x0; i < box.x1; i++) {
            double px = i + 0.5 - x0, py = j + 0.5 - y0;
            double along = length > 0 ? fmin(1, fmax(0, (px * dx + py * dy) / length)) : 0;
            double covered = radius + 0.5 - hypot(px - along * dx, py - along * dy);
            float *pixel = &png->coverage[(size_t)j * (size_t)png->width + (size_t)i];
            *pixel = fmaxf(*pixel, (float)fmin(1, fmax(0, covered)));
        }
}

/* Mix the colour into what is covered, and uncover it. */
static void paint_covered(png_canvas *png, pixel_box box, tt__rgb colour, double opacity) {
    const uint8_t parts[] = {colour.r, colour.g, colour.b};
    for (int j = box.y0; j < box.y1; j++)
        for (int i = box.x0; i < box.x1; i++) {
            float *covered = &png->coverage[(size_t)j * (size_t)png->width + (size_t)i];
            uint8_t *pixel = png->rows + (size_t)j * row_bytes(png) + 1 + 3 * (size_t)i;
            double a = *covered * opacity;
            for (int c = 0; c < 3 && a > 0; c++)
                pixel[c] = (uint8_t)lround(pixel[c] * (1 - a) + parts[c] * a);
            *covered = 0;
        }
}

static void png_line(tt__canvas *canvas, const double *x, const double *y, size_t n, double width, tt__rgb colour,
                     double opacity) {
    png_canvas *png = (png_canvas *)canvas;
    if (!n)
        return;
    double radius = width * SCALE / 2, x0 = x[0], x1 = x[0], y0 = y[0], y1 = y[0];
    for (size_t i = 0; i < n; i++) {
        size_t k = i + 1 < n ? i + 1 : i;
        if (i + 1 < n || n == 1)
            cover_segment(png, x[i] * SCALE, y[i] * SCALE, x[k] * SCALE, y[k] * SCALE, radius);
        x0 = fmin(x0, x[i]), x1 = fmax(x1, x[i]), y0 = fmin(y0, y[i]), y1 = fmax(y1, y[i]);
    }
    paint_covered(png, box_of(png, x0 * SCALE, y0 * SCALE, x1 * SCALE, y1 * SCALE, radius), colour, opacity);
}

/* ---- boxes ---- */

/* With a thin line around it. */
static void png_box(tt__canvas *canvas, double x, double y, double width, double height, tt__rgb colour,
                    const char *title) {
    png_canvas *png = (png_canvas *)canvas;
    (void)title;
    pixel_box box = {clip_pixel(round(x * SCALE), png->width), clip_pixel(round(y * SCALE), png->height),
                     clip_pixel(round((x + width) * SCALE), png->width),
                     clip_pixel(round((y + height) * SCALE), png->height)};
    for (int j = box.y0; j < box.y1; j++)
        for (int i = box.x0; i < box.x1; i++)
            png->coverage[(size_t)j * (size_t)png->width + (size_t)i] = 1;
    paint_covered(png, box, colour, 1);
    png_line(canvas, (double[]){x, x + width, x + width, x, x}, (double[]){y, y, y + height, y + height, y}, 5, 0.4,
             (tt__rgb){85, 85, 85}, 1);
}

/* ---- texts ---- */

enum { CORNERS_MAX = 24 };

static void png_stroke(void *user, const double *x, const double *y, size_t n) {
    png_canvas *png = user;
    double at_x[CORNERS_MAX] = {0}, at_y[CORNERS_MAX] = {0};
    for (size_t i = 0; i < n && i < CORNERS_MAX; i++) {
        at_x[i] = png->x + x[i] * png->text_height;
        at_y[i] = png->y + y[i] * png->text_height;
    }
    png_line(&png->canvas, at_x, at_y, n < CORNERS_MAX ? n : CORNERS_MAX, png->text_height / 7.5, png->colour, 1);
}

static void png_text(tt__canvas *canvas, double x, double y, double height, tt__align align, tt__rgb colour,
                     const char *text) {
    png_canvas *png = (png_canvas *)canvas;
    double width = tt__font_strokes(text, NULL, NULL) * height;
    png->x = align == TT__ALIGN_LEFT ? x : align == TT__ALIGN_CENTRE ? x - width / 2 : x - width;
    png->y = y;
    png->text_height = height;
    png->colour = colour;
    tt__font_strokes(text, png_stroke, png);
}

/* ---- the file ---- */

static void put_big_endian(uint8_t *to, uint32_t n) {
    for (int i = 0; i < 4; i++)
        to[i] = (uint8_t)(n >> (24 - 8 * i));
}

/* A chunk: length, type, data, checksum of both. The file keeps its first error. */
static void write_chunk(tt__atomic_file *file, tt_status *status, const char *type, const uint8_t *data, size_t size) {
    uint8_t head[8], tail[4];
    put_big_endian(head, (uint32_t)size);
    memcpy(head + 4, type, 4);
    uLong sum = crc32_z(0, head + 4, 4);
    put_big_endian(tail, (uint32_t)(size ? crc32_z(sum, data, size) : sum)); /* of NULL zlib makes 0 */
    const struct {
        const void *bytes;
        size_t size;
    } parts[] = {{head, sizeof head}, {data, size}, {tail, sizeof tail}};
    for (int i = 0; i < 3 && !*status; i++)
        if (parts[i].size)
            *status = tt__atomic_write(file, parts[i].bytes, parts[i].size);
}

static tt_status write_png_file(const png_canvas *png, const uint8_t *packed, size_t size, const char *path) {
    static const uint8_t signature[] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};
    uint8_t header[13] = {[8] = 8, [9] = 2}; /* 8 bits, red green blue */
    tt__atomic_file file;
    put_big_endian(header, (uint32_t)png->width);
    put_big_endian(header + 4, (uint32_t)png->height);
    TT__TRY(tt__atomic_open(&file, path));
    tt_status status = tt__atomic_write(&file, signature, sizeof signature);
    write_chunk(&file, &status, "IHDR", header, sizeof header);
    write_chunk(&file, &status, "IDAT", packed, size);
    write_chunk(&file, &status, "IEND", NULL, 0);
    if (status) {
        tt__atomic_abort(&file);
        return status;
    }
    return tt__atomic_commit(&file);
}

static tt_status pack_png(const png_canvas *png, const char *path) {
    size_t size = (size_t)png->height * row_bytes(png);
    uLongf packed_size = compressBound(size);
    uint8_t *packed = malloc(packed_size);
    tt_status status = TT_OK;
    if (!packed || compress2(packed, &packed_size, png->rows, size, Z_BEST_COMPRESSION) != Z_OK)
        status = tt__fail(TT_ERR_MEMORY, "%s: no memory for the picture", path);
    if (!status)
        status = write_png_file(png, packed, packed_size, path);
    free(packed);
    return status;
}

/* White paper. */
static bool make_rows(png_canvas *png) {
    size_t pixels = (size_t)png->width * (size_t)png->height;
    png->rows = malloc((size_t)png->height * row_bytes(png));
    png->coverage = calloc(pixels, sizeof *png->coverage);
    for (int j = 0; j < png->height && png->rows; j++) {
        memset(png->rows + (size_t)j * row_bytes(png), 255, row_bytes(png));
        png->rows[(size_t)j * row_bytes(png)] = 0;
    }
    return png->rows && png->coverage;
}

tt_status tt__canvas_write_png(const char *path, double width, double height, tt__draw_fn draw, const void *user) {
    enum { SIDE_MAX = 30000 };
    png_canvas png = {.canvas = {png_line, png_text, png_box, width, height}};
    if (height * SCALE > SIDE_MAX || width * SCALE > SIDE_MAX)
        return tt__fail(TT_ERR_INVALID, "%s: %.0f x %.0f pixels are too many for one PNG; draw less, or an SVG", path,
                        width * SCALE, height * SCALE);
    png.width = (int)ceil(width) * SCALE;
    png.height = (int)ceil(height) * SCALE;
    tt_status status = make_rows(&png) ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory for the picture", path);
    if (!status)
        status = draw(&png.canvas, user);
    if (!status)
        status = pack_png(&png, path);
    free(png.rows);
    free(png.coverage);
    return status;
}
