/* libjpeg and libpng, loaded by the first picture of their kind. */
#ifndef TT_DATA_IMAGE_LOAD_H
#define TT_DATA_IMAGE_LOAD_H

#include <stdio.h> /* which jpeglib.h needs */

#include <jpeglib.h>
#include <png.h>

/* The functions that are used. Types and constants come from the headers. */
#define TT__JPEG_FUNCTIONS(X)  \
    X(jpeg_CreateDecompress)   \
    X(jpeg_destroy_decompress) \
    X(jpeg_finish_decompress)  \
    X(jpeg_mem_src)            \
    X(jpeg_read_header)        \
    X(jpeg_read_scanlines)     \
    X(jpeg_start_decompress)   \
    X(jpeg_std_error)

#define TT__PNG_FUNCTIONS(X)      \
    X(png_create_info_struct)     \
    X(png_create_read_struct)     \
    X(png_destroy_read_struct)    \
    X(png_error)                  \
    X(png_get_error_ptr)          \
    X(png_get_image_height)       \
    X(png_get_image_width)        \
    X(png_get_io_ptr)             \
    X(png_get_rowbytes)           \
    X(png_read_end)               \
    X(png_read_info)              \
    X(png_read_row)               \
    X(png_read_update_info)       \
    X(png_set_expand)             \
    X(png_set_gray_to_rgb)        \
    X(png_set_interlace_handling) \
    X(png_set_longjmp_fn)         \
    X(png_set_read_fn)            \
    X(png_set_strip_16)           \
    X(png_set_strip_alpha)

#define TT__IMAGE_FIELD(name) __typeof__(name) *name;
typedef struct tt__jpeg {
    TT__JPEG_FUNCTIONS(TT__IMAGE_FIELD)
} tt__jpeg;

typedef struct tt__png {
    TT__PNG_FUNCTIONS(TT__IMAGE_FIELD)
} tt__png;
#undef TT__IMAGE_FIELD

/* Return a library's functions; NULL and TT_ERR_UNSUPPORTED where it is missing. Cheap once it is loaded.
 * Thread-safe. */
const tt__jpeg *tt__jpeg_get(void);
const tt__png *tt__png_get(void);

#endif
