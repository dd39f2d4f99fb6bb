/* JPEG by libjpeg, whose errors leave it by longjmp(). What it would only warn of, a file that is cut short or corrupt,
 * is an error here; harmless surplus is not. */
#include "data/images/image_load.h"

#include "base/error.h"
#include "base/text/plain_text.h"
#include "data/images/image.h"

#include <jerror.h>
#include <setjmp.h>

/* All that is used on both sides of a jump lies here, in the caller's frame. */
typedef struct jpeg_work {
    struct jpeg_decompress_struct info;
    struct jpeg_error_mgr errors;
    struct jpeg_progress_mgr progress;
    jmp_buf failed;
    const tt__jpeg *lib;
    tt__image *image;
    const char *name;
    size_t size;
    tt_status status;           /* of what we found ourselves; else */
    char text[JMSG_LENGTH_MAX]; /* what the library said */
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

/* A progressive file refines the whole picture with each scan: thousands of short ones would keep us for hours. */
static void jpeg_count_scans(j_common_ptr info) {
    enum { MOST_SCANS = 500 };
    jpeg_work *w = info->client_data;
    if (w->info.input_scan_number <= MOST_SCANS)
        return;
    snprintf(w->text, sizeof w->text, "expected at most %d scans", MOST_SCANS);
    longjmp(w->failed, 1);
}

static void jpeg_quiet(j_common_ptr info) { (void)info; }

/* (a * b) / 255, rounded. */
static int multiply_255(int a, int b) {
    int product = a * b + 128;
    return ((product >> 8) + product) >> 8;
}

/* Cyan, magenta, yellow, black as Adobe's programs store them (255: no ink) to red, green, blue, as PIL does. In place:
 * the row holds 4 bytes a pixel, of which 3 stay. */
static void cmyk_to_rgb(uint8_t *row, int64_t width) {
    for (int64_t i = 0; i < width; i++)
        for (int c = 0; c < 3; c++)
            row[3 * i + c] = (uint8_t)(row[4 * i + 3] - multiply_255(255 - row[4 * i + c], row[4 * i + 3]));
}

/* Even a picture of one colour takes a bit for each 8 x 8 of it. The last row of a CMYK picture has no room for its
 * fourth bytes. */
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

tt_status tt__jpeg_decode(tt__image *image, const char *name, const uint8_t *bytes, size_t size) {
    jpeg_work w = {.lib = tt__jpeg_get(), .image = image, .name = name, .size = size};
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
