/* Pictures in memory: their pixels, parts of them, and bilinear resizing. */
#include "data/images/image.h"

#include "base/error.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The most pixels that a picture may have; PIL refuses larger ones, too. */
enum { IMAGE_MOST = 178956970 };

tt_status tt__reused_memory_reserve(tt__reused_memory *block, size_t size, const char *name) {
    if (size <= block->capacity)
        return TT_OK;
    uint8_t *data = malloc(size);
    if (!data)
        return tt__fail(TT_ERR_MEMORY, "%s: no memory for %zu bytes", name, size);
    free(block->data);
    *block = (tt__reused_memory){data, size};
    return TT_OK;
}

void tt__reused_memory_free(tt__reused_memory *block) {
    free(block->data);
    *block = (tt__reused_memory){0};
}

tt_status tt__image_size(tt__image *image, int64_t height, int64_t width, const char *name) {
    if (height < 1 || width < 1 || height > IMAGE_MOST / width)
        return tt__fail(TT_ERR_FORMAT, "%s: expected a picture of at most %d pixels, got %" PRId64 " x %" PRId64, name,
                        IMAGE_MOST, height, width);
    TT__TRY(tt__reused_memory_reserve(&image->pixels, (size_t)height * (size_t)width * 3, name));
    image->height = height;
    image->width = width;
    return TT_OK;
}

void tt__image_planes(uint8_t *out, const tt__image *image, int64_t top, int64_t left, int64_t height, int64_t width) {
    size_t plane = (size_t)height * (size_t)width;
    for (int64_t h = 0; h < height; h++) {
        const uint8_t *from = image->pixels.data + ((top + h) * image->width + left) * 3;
        for (int64_t w = 0; w < width; w++, out++, from += 3) {
            out[0] = from[0];
            out[plane] = from[1];
            out[2 * plane] = from[2];
        }
    }
}

/* ---- resizing ---- One direction after the other. Each pixel of the result is a weighted mean of those that a
 * triangle covers, whose half width is one pixel of the larger picture. To give PIL's pixels, weights are integers with
 * 22 bits behind the point, and the result of each direction is rounded to 8 bits. */

enum { WEIGHT_BITS = 32 - 8 - 2 };

/* Which pixels each of `n` results is made of, and their weights: `most` places for each. */
typedef struct weights {
    int64_t n, most;
    int64_t *begin, *count;
    int32_t *weight;
    double *exact; /* weights of one result */
} weights;

/* Fill the weights of result i; `scale`: pixels of the source for one of the result. */
static void weights_fill(weights *w, int64_t i, int64_t in, double scale, double half_width) {
    double centre = ((double)i + 0.5) * scale, sum = 0;
    int64_t begin = (int64_t)(centre - half_width + 0.5), end = (int64_t)(centre + half_width + 0.5);
    begin = begin > 0 ? begin : 0;
    end = end < in ? end : in;
    for (int64_t k = 0; k < end - begin; k++) {
        double distance = fabs(((double)(k + begin) - centre + 0.5) * (1 / half_width));
        w->exact[k] = distance < 1 ? 1 - distance : 0;
        sum += w->exact[k];
    }
    for (int64_t k = 0; k < end - begin; k++)
        w->weight[i * w->most + k] = (int32_t)(0.5 + (sum != 0 ? w->exact[k] / sum : w->exact[k]) * (1 << WEIGHT_BITS));
    w->begin[i] = begin;
    w->count[i] = end - begin;
}

/* The arrays lie in `block`. */
static tt_status weights_make(weights *w, tt__reused_memory *block, int64_t in, int64_t out, const char *name) {
    double scale = (double)in / (double)out, half_width = scale < 1 ? 1 : scale;
    *w = (weights){.n = out, .most = (int64_t)ceil(half_width) * 2 + 1};
    size_t n = (size_t)out, most = (size_t)w->most;
    size_t size = most * sizeof *w->exact + n * (sizeof *w->begin + sizeof *w->count) + n * most * sizeof *w->weight;
    TT__TRY(tt__reused_memory_reserve(block, size, name));
    w->exact = (double *)(void *)block->data;
    w->begin = (int64_t *)(void *)(w->exact + most);
    w->count = w->begin + n;
    w->weight = (int32_t *)(void *)(w->count + n);
    for (int64_t i = 0; i < out; i++)
        weights_fill(w, i, in, scale, half_width);
    return TT_OK;
}

static uint8_t round_sum(int32_t sum) {
    int32_t value = sum >> WEIGHT_BITS;
    return (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
}

/* Write n results, `to_step` bytes apart, from pixels `from_step` apart; each has 3 bytes. */
static void resize_line(uint8_t *to, size_t to_step, const uint8_t *from, size_t from_step, const weights *w) {
    for (int64_t i = 0; i < w->n; i++, to += to_step) {
        const int32_t *weight = w->weight + i * w->most;
        const uint8_t *p = from + (size_t)w->begin[i] * from_step;
        int32_t sum[3] = {1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1), 1 << (WEIGHT_BITS - 1)};
        for (int64_t k = 0; k < w->count[i]; k++, p += from_step)
            for (int c = 0; c < 3; c++)
                sum[c] += p[c] * weight[k];
        for (int c = 0; c < 3; c++)
            to[c] = round_sum(sum[c]);
    }
}

static tt_status resize_rows(tt__image *to, const tt__image *from, int64_t width, tt__reused_memory *block,
                             const char *name) {
    weights w;
    TT__TRY(tt__image_size(to, from->height, width, name));
    TT__TRY(weights_make(&w, block, from->width, width, name));
    for (int64_t h = 0; h < from->height; h++)
        resize_line(to->pixels.data + h * width * 3, 3, from->pixels.data + h * from->width * 3, 3, &w);
    return TT_OK;
}

static tt_status resize_columns(tt__image *to, const tt__image *from, int64_t height, tt__reused_memory *block,
                                const char *name) {
    weights w;
    size_t row = (size_t)from->width * 3;
    TT__TRY(tt__image_size(to, height, from->width, name));
    TT__TRY(weights_make(&w, block, from->height, height, name));
    for (int64_t x = 0; x < from->width; x++)
        resize_line(to->pixels.data + x * 3, row, from->pixels.data + x * 3, row, &w);
    return TT_OK;
}

static tt_status image_copy(tt__image *to, const tt__image *from, const char *name) {
    TT__TRY(tt__image_size(to, from->height, from->width, name));
    memcpy(to->pixels.data, from->pixels.data, (size_t)from->height * (size_t)from->width * 3);
    return TT_OK;
}

tt_status tt__image_resize(tt__image *to, const tt__image *from, int64_t height, int64_t width, tt__resizing *scratch,
                           const char *name) {
    if (from->width == width && from->height == height)
        return image_copy(to, from, name);
    if (from->width == width)
        return resize_columns(to, from, height, &scratch->weights, name);
    if (from->height == height)
        return resize_rows(to, from, width, &scratch->weights, name);
    TT__TRY(resize_rows(&scratch->between, from, width, &scratch->weights, name));
    return resize_columns(to, &scratch->between, height, &scratch->weights, name);
}

void tt__resizing_free(tt__resizing *scratch) {
    tt__reused_memory_free(&scratch->between.pixels);
    tt__reused_memory_free(&scratch->weights);
}
