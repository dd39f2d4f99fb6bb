/* PNG by libpng, whose errors leave it by longjmp(). Whatever the file has becomes 8 bits of red, green and blue:
 * palettes and grays are looked up, of 16 bits the upper 8 stay, transparency is left out, as PIL's convert("RGB")
 * does. */
#include "data/images/image_load.h"

#include "base/error.h"
#include "base/text/plain_text.h"
#include "data/images/image.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

/* All that is used on both sides of a jump lies here, in the caller's frame. */
typedef struct png_work {
    png_structp png;
    png_infop info;
    jmp_buf *failed;
    const tt__png *lib;
    tt__image *image;
    const char *name;
    const uint8_t *at;
    size_t left, size;
    tt_status status;
    char text[128];
} png_work;

static void png_fail(png_structp png, png_const_charp text) {
    png_work *w = tt__png_get()->png_get_error_ptr(png);
    snprintf(w->text, sizeof w->text, "%s", text);
    longjmp(*w->failed, 1);
}

static void png_quiet(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

static void png_take(png_structp png, png_bytep out, size_t n) {
    png_work *w = tt__png_get()->png_get_io_ptr(png);
    if (n > w->left)
        w->lib->png_error(png, "it is cut short");
    memcpy(out, w->at, n);
    w->at += n;
    w->left -= n;
}

/* What the header claims must be something that the packed bytes can hold: deflate writes at most 258 bytes for 2
 * bits. */
static tt_status png_room(png_work *w) {
    size_t height = w->lib->png_get_image_height(w->png, w->info), row = w->lib->png_get_rowbytes(w->png, w->info);
    if (height * row / 1032 > w->size)
        return tt__fail(TT_ERR_FORMAT, "%s: its header claims %zu bytes of pixels, more than a file of %zu can hold",
                        w->name, height * row, w->size);
    return tt__image_size(w->image, (int64_t)height, w->lib->png_get_image_width(w->png, w->info), w->name);
}

static void png_run(png_work *w) {
    const tt__png *lib = w->lib;
    lib->png_set_read_fn(w->png, w, png_take);
    lib->png_read_info(w->png, w->info);
    w->status = png_room(w);
    if (w->status)
        return;
    lib->png_set_expand(w->png);
    lib->png_set_strip_16(w->png);
    lib->png_set_strip_alpha(w->png);
    lib->png_set_gray_to_rgb(w->png);
    int passes = lib->png_set_interlace_handling(w->png);
    lib->png_read_update_info(w->png, w->info);
    if (lib->png_get_rowbytes(w->png, w->info) != (size_t)w->image->width * 3)
        lib->png_error(w->png, "its pixels are of a kind that is not known");
    for (int pass = 0; pass < passes; pass++)
        for (int64_t h = 0; h < w->image->height; h++)
            lib->png_read_row(w->png, w->image->pixels.data + h * w->image->width * 3, NULL);
    lib->png_read_end(w->png, NULL);
}

tt_status tt__png_decode(tt__image *image, const char *name, const uint8_t *bytes, size_t size) {
    png_work w = {.lib = tt__png_get(), .image = image, .name = name, .at = bytes, .left = size, .size = size};
    if (!w.lib)
        return tt__fail_prefix("%s", name);
    w.png = w.lib->png_create_read_struct(PNG_LIBPNG_VER_STRING, &w, png_fail, png_quiet);
    w.info = w.png ? w.lib->png_create_info_struct(w.png) : NULL;
    w.status = w.info ? TT_OK : tt__fail(TT_ERR_MEMORY, "%s: no memory to decode it", name);
    w.failed = w.png ? w.lib->png_set_longjmp_fn(w.png, longjmp, sizeof(jmp_buf)) : NULL;
    if (w.info && w.failed && !setjmp(*w.failed))
        png_run(&w);
    w.lib->png_destroy_read_struct(&w.png, &w.info, NULL);
    if (*w.text)
        return tt__fail(!strcmp(w.text, "Out of memory") ? TT_ERR_MEMORY : TT_ERR_FORMAT, "%s: %s", name,
                        tt__make_printable(w.text).text);
    return w.status;
}
