/* Picture files as tensors: reading JPEG and PNG, writing PNG. */
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "data/files/whole_file.h"
#include "data/images/image.h"
#include "tensor/core/tensor.h"
#include "tensor/shape/copy.h"

#include <tutti/datasets.h>

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

static tt_status read_image(tt_tensor **out, const char *path, const tt__whole_file *file, tt__image *image) {
    TT__TRY(tt__image_decode(image, path, file->data, file->size));
    tt_tensor *x = tt_keep(tt__tensor_new("tt_image_read", TT_SHAPE(3, image->height, image->width), TT_U8));
    if (!x)
        return tt__fail_prefix("%s", path);
    tt__image_planes(x->data, image, 0, 0, image->height, image->width);
    *out = x;
    return TT_OK;
}

tt_status tt_image_read(tt_tensor **out, const char *path) {
    if (out)
        *out = NULL;
    if (!out || !path)
        return tt__fail(TT_ERR_INVALID, "tt_image_read: expected a path and where to put the tensor, got NULL");
    tt__whole_file file;
    tt__image image = {0};
    TT__TRY(tt__whole_file_read(&file, path, TT__IMAGE_FILE_MOST));
    tt_status status = read_image(out, path, &file, &image);
    tt__reused_memory_free(&image.pixels);
    tt__whole_file_free(&file);
    return status;
}

/* ---- writing PNG ---- 8 bits a sample, each byte as its difference from the one to its left, which packs well in
 * drawings and photographs. */

enum { PACKED = 32768 }; /* bytes of a chunk */

/* u8 samples, plane after plane. */
typedef struct picture {
    const uint8_t *data;
    size_t channels, height, width;
} picture;

static void big_endian_32(uint8_t *to, uint32_t number) {
    for (int k = 0; k < 4; k++)
        to[k] = (uint8_t)(number >> (24 - 8 * k));
}

static tt_status write_png_chunk(tt__atomic_file *file, const char *type, const void *data, size_t size) {
    uint8_t head[8], check[4];
    uLong crc = crc32_z(crc32_z(0, NULL, 0), (const Bytef *)type, 4);
    big_endian_32(head, (uint32_t)size);
    memcpy(head + 4, type, 4);
    big_endian_32(check, (uint32_t)(size ? crc32_z(crc, data, size) : crc));
    TT__TRY(tt__atomic_write(file, head, sizeof head));
    TT__TRY(tt__atomic_write(file, data, size));
    return tt__atomic_write(file, check, sizeof check);
}

/* Make one row of the file: the filter's number (1: from the left), then the differences. */
static void filter_row(uint8_t *row, const picture *p, size_t h) {
    *row++ = 1;
    for (size_t w = 0; w < p->width; w++)
        for (size_t c = 0; c < p->channels; c++) {
            const uint8_t *at = p->data + (c * p->height + h) * p->width + w;
            *row++ = (uint8_t)(at[0] - (w ? at[-1] : 0));
        }
}

/* Pack what z has as input, and write a chunk whenever the buffer is full. */
static tt_status pack_bytes(tt__atomic_file *file, z_stream *z, uint8_t *packed, size_t room, int flush) {
    do {
        int result = deflate(z, flush);
        if (!z->avail_out || (flush == Z_FINISH && result == Z_STREAM_END)) {
            TT__TRY(write_png_chunk(file, "IDAT", packed, room - z->avail_out));
            z->next_out = packed;
            z->avail_out = (uInt)room;
            if (result == Z_STREAM_END)
                return TT_OK;
        }
    } while (z->avail_in || flush == Z_FINISH);
    return TT_OK;
}

static tt_status pack_rows(tt__atomic_file *file, const picture *p, z_stream *z, uint8_t *row, uint8_t *packed) {
    size_t row_size = 1 + p->width * p->channels;
    z->next_out = packed;
    z->avail_out = PACKED;
    for (size_t h = 0; h < p->height; h++) {
        filter_row(row, p, h);
        z->next_in = row;
        z->avail_in = (uInt)row_size;
        TT__TRY(pack_bytes(file, z, packed, PACKED, Z_NO_FLUSH));
    }
    return pack_bytes(file, z, packed, PACKED, Z_FINISH);
}

static tt_status write_pixels(tt__atomic_file *file, const picture *p) {
    z_stream z = {0};
    uint8_t *packed = malloc(PACKED + 1 + p->width * p->channels), *row = packed ? packed + PACKED : NULL;
    if (!packed || deflateInit(&z, Z_DEFAULT_COMPRESSION) != Z_OK) {
        free(packed);
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to compress it", file->path);
    }
    tt_status status = pack_rows(file, p, &z, row, packed);
    deflateEnd(&z);
    free(packed);
    return status;
}

static tt_status png_write_all(tt__atomic_file *file, const picture *p) {
    uint8_t header[13] = {[8] = 8, [9] = p->channels == 3 ? 2 : 0}; /* bits of a sample; color or gray */
    big_endian_32(header, (uint32_t)p->width);
    big_endian_32(header + 4, (uint32_t)p->height);
    TT__TRY(tt__atomic_write(file, "\x89PNG\r\n\x1a\n", 8));
    TT__TRY(write_png_chunk(file, "IHDR", header, sizeof header));
    TT__TRY(write_pixels(file, p));
    return write_png_chunk(file, "IEND", NULL, 0);
}

static tt_status picture_of(picture *p, const tt_tensor *x, const char *path) {
    int ndim = x->shape.ndim;
    const int64_t *size = x->shape.dim + (ndim == 3);
    if (x->dtype != TT_U8)
        return tt__fail(TT_ERR_DTYPE, "tt_image_write_png: %s: expected u8, got %s", path, TT__DESCRIBE(x));
    if ((ndim != 2 && ndim != 3) || (ndim == 3 && x->shape.dim[0] != 1 && x->shape.dim[0] != 3) || size[0] < 1 ||
        size[1] < 1 || size[0] > INT32_MAX / 4 || size[1] > INT32_MAX / 4)
        return tt__fail(TT_ERR_SHAPE,
                        "tt_image_write_png: %s: expected (3, height, width), (1, height, width) or (height, width), "
                        "got %s",
                        path, TT__DESCRIBE(x));
    *p = (picture){NULL, ndim == 3 ? (size_t)x->shape.dim[0] : 1, (size_t)size[0], (size_t)size[1]};
    return TT_OK;
}

tt_status tt_image_write_png(const tt_tensor *x, const char *path) {
    picture p = {.data = NULL};
    tt__host_copy elements;
    tt__atomic_file file;
    if (!path)
        return tt__fail(TT_ERR_INVALID, "tt_image_write_png: expected a path, got NULL");
    if (!x)
        return tt__tensor_first_error("tt_image_write_png");
    TT__TRY(picture_of(&p, x, path));
    if (tt__host_copy_make(&elements, x))
        return tt__fail_prefix("tt_image_write_png: %s", path);
    p.data = elements.data;
    tt_status status = tt__atomic_open(&file, path);
    if (!status) {
        status = png_write_all(&file, &p);
        if (status)
            tt__atomic_abort(&file);
        else
            status = tt__atomic_commit(&file);
    }
    tt__host_copy_free(&elements);
    return status;
}
