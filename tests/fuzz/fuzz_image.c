/* Pictures from memory: what is decoded can be resized. */
#include "data/images/image.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tt__image image, resized;
    static tt__resizing scratch;
    static uint8_t planes[3 * 9 * 5];
    if (tt__image_decode(&image, "fuzz", data, size))
        return 0;
    if (image.pixels.capacity < (size_t)image.height * (size_t)image.width * 3)
        abort();
    if (image.height * image.width > 1 << 16)
        return 0;
    if (tt__image_resize(&resized, &image, 9, 5, &scratch, "fuzz"))
        abort();
    tt__image_planes(planes, &resized, 0, 0, 9, 5);
    return 0;
}
