#include "data/images/image.h"

#include "base/error.h"

#include <inttypes.h>
#include <stdlib.h>

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
    if (height < 1 || width < 1 || height > TT__IMAGE_MOST / width)
        return tt__fail(TT_ERR_FORMAT, "%s: expected a picture of at most %d pixels, got %" PRId64 " x %" PRId64, name,
                        TT__IMAGE_MOST, height, width);
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
