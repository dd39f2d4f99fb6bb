/* Pictures in memory: decoding them, resizing them, and cutting parts out. */
#ifndef TT_DATA_IMAGE_H
#define TT_DATA_IMAGE_H

#include <tutti/base.h>

/* Memory that is used again: it grows and never shrinks. Zeroed = empty. */
typedef struct tt__reused_memory {
    uint8_t *data;
    size_t capacity;
} tt__reused_memory;

/* Make room for `size` bytes; what it held is lost. TT_ERR_MEMORY: the error begins with `name`. */
tt_status tt__reused_memory_reserve(tt__reused_memory *block, size_t size, const char *name);
void tt__reused_memory_free(tt__reused_memory *block);

/* (height, width, 3) of u8: red, green, blue. */
typedef struct tt__image {
    int64_t height, width;
    tt__reused_memory pixels;
} tt__image;

/* The most bytes of a picture's file. */
#define TT__IMAGE_FILE_MOST (UINT64_C(1) << 30)

/* Set the size, and make room. Errors: TT_ERR_FORMAT a size below 1 or too many pixels; TT_ERR_MEMORY. */
tt_status tt__image_size(tt__image *image, int64_t height, int64_t width, const char *name);

/* Decode a JPEG or PNG file in memory, told apart by content, into `image`, whose memory is used again. Errors, which
 * begin with `name`: TT_ERR_FORMAT the file is neither, corrupt or cut short; TT_ERR_UNSUPPORTED the library is
 * missing; TT_ERR_MEMORY. */
tt_status tt__image_decode(tt__image *image, const char *name, const uint8_t *bytes, size_t size);

/* What resizing needs, used again. Zeroed = empty. */
typedef struct tt__resizing {
    tt__image between; /* resized in one direction */
    tt__reused_memory weights;
} tt__resizing;

void tt__resizing_free(tt__resizing *scratch);

/* Resize to height x width as PIL does with BILINEAR, bit for bit: a triangle filter, which widens where the picture
 * shrinks (antialias). `from` and `to` differ. */
tt_status tt__image_resize(tt__image *to, const tt__image *from, int64_t height, int64_t width, tt__resizing *scratch,
                           const char *name);

/* Copy the part of height x width that begins at (top, left) to `out`, (3, height, width). */
void tt__image_planes(uint8_t *out, const tt__image *image, int64_t top, int64_t left, int64_t height, int64_t width);

#endif
