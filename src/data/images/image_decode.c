/* Decoding JPEG and PNG by libjpeg and libpng, which the first picture of their kind loads. Their errors leave them by
 * longjmp(). */
#include "base/error.h"
#include "base/text/plain_text.h"
#include "data/images/image.h"

#include <stdio.h> /* which jpeglib.h needs */

#include <dlfcn.h>
#include <jerror.h>
#include <jpeglib.h>
#include <png.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

/* ---- the libraries ---- */

/* The functions that are used. Types and constants come from the headers. */
#define JPEG_FUNCTIONS(X)      \
    X(jpeg_CreateDecompress)   \
    X(jpeg_destroy_decompress) \
    X(jpeg_finish_decompress)  \
    X(jpeg_mem_src)            \
    X(jpeg_read_header)        \
    X(jpeg_read_scanlines)     \
    X(jpeg_start_decompress)   \
    X(jpeg_std_error)

#define PNG_FUNCTIONS(X)          \
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

#define IMAGE_FIELD(name) __typeof__(name) *name;
typedef struct jpeg_library {
    JPEG_FUNCTIONS(IMAGE_FIELD)
} jpeg_library;

typedef struct png_library {
    PNG_FUNCTIONS(IMAGE_FIELD)
} png_library;
#undef IMAGE_FIELD

/* Why a library is missing; "": it is there. */
typedef struct absence {
    char why[512];
} absence;

static pthread_once_t jpeg_once = PTHREAD_ONCE_INIT, png_once = PTHREAD_ONCE_INIT;
static jpeg_library jpeg;
static png_library png;
static absence no_jpeg, no_png;

static void note_absence(absence *missing) {
    const char *why = dlerror();
    snprintf(missing->why, sizeof missing->why, "%s", why ? why : "no reason given");
}

static void load_jpeg(void) {
    void *library = dlopen(TT__LIBJPEG, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define FIND(name) (*(void **)&jpeg.name = dlsym(library, #name)) &&
    if (library && JPEG_FUNCTIONS(FIND) true)
        return;
#undef FIND
    note_absence(&no_jpeg);
}

static void load_png(void) {
    void *library = dlopen(TT__LIBPNG, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
#define FIND(name) (*(void **)&png.name = dlsym(library, #name)) &&
    if (library && PNG_FUNCTIONS(FIND) true)
        return;
#undef FIND
    note_absence(&no_png);
}

/* Return a library's functions; NULL and TT_ERR_UNSUPPORTED where it is missing. Cheap once it is loaded.
 * Thread-safe. */
static const jpeg_library *jpeg_get(void) {
    pthread_once(&jpeg_once, load_jpeg);
    if (!*no_jpeg.why)
        return &jpeg;
    return tt__fail_null(TT_ERR_UNSUPPORTED,
                         "JPEG needs libjpeg, which can't be loaded: %s. Tutti was built for " TT__LIBJPEG,
                         no_jpeg.why);
}

static const png_library *png_get(void) {
    pthread_once(&png_once, load_png);
    if (!*no_png.why)
        return &png;
    return tt__fail_null(TT_ERR_UNSUPPORTED,
                         "PNG needs libpng, which can't be loaded: %s. Tutti was built for " TT__LIBPNG, no_png.why);
}

/* ---- JPEG ----
 * What libjpeg would only warn of, a file that is cut short or corrupt, is an error here; harmless surplus is not. */

/* What is used on both sides of a jump. It is in the caller's frame, so that a jump does not undo it. */
typedef struct jpeg_work {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    const jpeg_library *lib;
    tt__image *image;
    const char *name;
    size_t size;
    tt_status status;           /* of an error that our own checks found */
    char text[JMSG_LENGTH_MAX]; /* of an error that the library found; else "" */
    bool out_of_memory;
} jpeg_work;

static void jpeg_error_exit(j_common_ptr info) {
    jpeg_work *w = info->client_data;
    info->err->format_message(info, w->text);
    w->out_of_memory = info->err->msg_code == JERR_OUT_OF_MEMORY;
    longjmp(w->failed, 1);
}

static void jpeg_emit_message(j_common_ptr info, int level) {
    int code = info->err->msg_code;
    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER || code == JWRN_HUFF_BAD_CODE ||
                      code == JWRN_MUST_RESYNC || code == JWRN_BOGUS_PROGRESSION))
        jpeg_error_exit(info);
}

/* Refuse too many scans: in a progressive file each one refines the whole picture, and thousands would take hours. */
static void jpeg_count_scans(j_common_ptr info) {
    enum { MOST_SCANS = 500 };
    jpeg_work *w = info->client_data;
    if (w->info.input_scan_number <= MOST_SCANS)
        return;
    snprintf(w->text, sizeof w->text, "expected at most %d scans", MOST_SCANS);
    longjmp(w->failed, 1);
}

static void jpeg_quiet(j_common_ptr info) { (void)info; }

/* Return (a * b) / 255, rounded. */
static int multiply_255(int a, int b) {
    int product = a * b + 128;
    return ((product >> 8) + product) >> 8;
}

/* Turn cyan, magenta, yellow, black as Adobe's programs store them (255: no ink) into red, green, blue, as PIL does. In
 * place: the row has 4 bytes a pixel, of which 3 stay. */
static void cmyk_to_rgb(uint8_t *row, int64_t width) {
    for (int64_t i = 0; i < width; i++)
        for (int c = 0; c < 3; c++)
            row[3 * i + c] = (uint8_t)(row[4 * i + 3] - multiply_255(255 - row[4 * i + c], row[4 * i + 3]));
}

/* Make room for the pixels. Even a picture of one colour takes a bit for each 8 x 8 pixels, so the header's size is
 * checked against the file's. A row of a CMYK picture has a fourth byte for each pixel: the last row needs more
 * room. */
static tt_status jpeg_room(jpeg_work *w) {
    static const uint64_t most = 4096; /* pixels for a byte of the file */
    uint64_t pixels = (uint64_t)w->info.image_height * w->info.image_width;
    if (pixels / most > w->size)
        return tt__fail(TT_ERR_FORMAT, "%s: its header claims %u x %u pixels, more than a file of %zu bytes can hold",
                        w->name, w->info.image_height, w->info.image_width, w->size);
    TT__TRY(tt__image_size(w->image, w->info.image_height, w->info.image_width, w->name));
    size_t size = (size_t)w->image->height * (size_t)w->image->width * 3;
    return tt__reused_memory_reserve(&w->image->pixels, size + (size_t)w->image->width, w->name);
}

static void jpeg_run(jpeg_work *w) {
    w->lib->jpeg_read_header(&w->info, TRUE);
    w->status = jpeg_room(w);
    if (w->status)
        return;
    bool cmyk = w->info.num_components == 4;
    w->info.out_color_space = cmyk ? JCS_CMYK : JCS_RGB;
    w->lib->jpeg_start_decompress(&w->info);
    while (w->info.output_scanline < w->info.output_height) {
        JSAMPROW row = w->image->pixels.data + (size_t)w->info.output_scanline * (size_t)w->image->width * 3;
        w->lib->jpeg_read_scanlines(&w->info, &row, 1);
        if (cmyk)
            cmyk_to_rgb(row, w->image->width);
    }
    w->lib->jpeg_finish_decompress(&w->info);
}

static tt_status decode_jpeg(tt__image *image, const char *name, const uint8_t *bytes, size_t size) {
    jpeg_work w = {.lib = jpeg_get(), .image = image, .name = name, .size = size};
    if (!w.lib)
        return tt__fail_prefix("%s", name);
    w.info.err = w.lib->jpeg_std_error(&w.errors);
    w.errors.error_exit = jpeg_error_exit;
    w.errors.emit_message = jpeg_emit_message;
    w.errors.output_message = jpeg_quiet;
    w.info.client_data = &w;
    if (!setjmp(w.failed)) {
        w.lib->jpeg_CreateDecompress(&w.info, JPEG_LIB_VERSION, sizeof w.info);
        w.progress.progress_monitor = jpeg_count_scans;
        w.info.progress = &w.progress;
        w.lib->jpeg_mem_src(&w.info, bytes, size);
        jpeg_run(&w);
    }
    w.lib->jpeg_destroy_decompress(&w.info);
    if (*w.text)
        return tt__fail(w.out_of_memory ? TT_ERR_MEMORY : TT_ERR_FORMAT, "%s: %s", name,
                        tt__make_printable(w.text).text);
    return w.status;
}

/* ---- PNG ----
 * Any file becomes 8 bits of red, green and blue, as by PIL's convert("RGB"): palettes and grays are looked up, of 16
 * bits the upper 8 stay, and transparency is left out. */

/* What is used on both sides of a jump, as in jpeg_work. */
typedef struct png_work {
    png_structp png;
    png_infop info;
    jmp_buf *failed;
    const png_library *lib;
    tt__image *image;
    const char *name;
    const uint8_t *at;
    size_t left, size;
    tt_status status;
    char text[128];
} png_work;

static void png_fail(png_structp png, png_const_charp text) {
    png_work *w = png_get()->png_get_error_ptr(png);
    snprintf(w->text, sizeof w->text, "%s", text);
    longjmp(*w->failed, 1);
}

static void png_quiet(png_structp png, png_const_charp text) {
    (void)png;
    (void)text;
}

static void png_take(png_structp png, png_bytep out, size_t n) {
    png_work *w = png_get()->png_get_io_ptr(png);
    if (n > w->left)
        w->lib->png_error(png, "it is cut short");
    memcpy(out, w->at, n);
    w->at += n;
    w->left -= n;
}

/* Make room for the pixels, after checking that the packed bytes can hold as many as the header claims: deflate writes
 * at most 258 bytes for 2 bits. */
static tt_status png_room(png_work *w) {
    size_t height = w->lib->png_get_image_height(w->png, w->info), row = w->lib->png_get_rowbytes(w->png, w->info);
    if (height * row / 1032 > w->size)
        return tt__fail(TT_ERR_FORMAT, "%s: its header claims %zu bytes of pixels, more than a file of %zu can hold",
                        w->name, height * row, w->size);
    return tt__image_size(w->image, (int64_t)height, w->lib->png_get_image_width(w->png, w->info), w->name);
}

static void png_run(png_work *w) {
    const png_library *lib = w->lib;
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

static tt_status decode_png(tt__image *image, const char *name, const uint8_t *bytes, size_t size) {
    png_work w = {.lib = png_get(), .image = image, .name = name, .at = bytes, .left = size, .size = size};
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

/* ---- either ---- */

tt_status tt__image_decode(tt__image *image, const char *name, const uint8_t *bytes, size_t size) {
    if (size >= 8 && !memcmp(bytes, "\x89PNG\r\n\x1a\n", 8))
        return decode_png(image, name, bytes, size);
    if (size >= 3 && !memcmp(bytes, "\xff\xd8\xff", 3))
        return decode_jpeg(image, name, bytes, size);
    uint8_t first[4] = {0};
    if (size)
        memcpy(first, bytes, size < 4 ? size : 4);
    return tt__fail(TT_ERR_FORMAT, "%s: neither JPEG nor PNG: its %zu bytes begin with %02x %02x %02x %02x", name, size,
                    first[0], first[1], first[2], first[3]);
}
