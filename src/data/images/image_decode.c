#include "data/images/image.h"

#include "base/error.h"

#include <string.h>

tt_status tt__image_decode(tt__image *image, const char *name, const uint8_t *bytes, size_t size) {
    if (size >= 8 && !memcmp(bytes, "\x89PNG\r\n\x1a\n", 8))
        return tt__png_decode(image, name, bytes, size);
    if (size >= 3 && !memcmp(bytes, "\xff\xd8\xff", 3))
        return tt__jpeg_decode(image, name, bytes, size);
    uint8_t first[4] = {0};
    if (size)
        memcpy(first, bytes, size < 4 ? size : 4);
    return tt__fail(TT_ERR_FORMAT, "%s: neither JPEG nor PNG: its %zu bytes begin with %02x %02x %02x %02x", name, size,
                    first[0], first[1], first[2], first[3]);
}
