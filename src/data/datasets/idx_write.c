/* Writing IDX, plain or packed, so that the file appears whole or not at all. */
#include "data/datasets/idx.h"

#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/parse.h"
#include "tensor/core/tensor.h"

#include <string.h>

enum { BLOCK = 8192 };

/* Where bytes go: through deflate, or straight. */
typedef struct sink {
    tt__atomic_file file;
    bool gzip;
    z_stream deflate;
} sink;

static tt_status sink_open(sink *s, const char *path) {
    memset(s, 0, sizeof *s);
    TT__TRY(tt__atomic_open(&s->file, path));
    if (!tt__ends_with(path, ".gz"))
        return TT_OK;
    if (deflateInit2(&s->deflate, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK) {
        tt__atomic_abort(&s->file);
        return tt__fail(TT_ERR_MEMORY, "%s: no memory to compress it", path);
    }
    s->gzip = true;
    return TT_OK;
}

static tt_status sink_deflate(sink *s, const void *data, size_t size, int flush) {
    uint8_t packed[BLOCK];
    s->deflate.next_in = (Bytef *)(uintptr_t)data; /* zlib only reads it */
    s->deflate.avail_in = (uInt)size;
    do {
        s->deflate.next_out = packed;
        s->deflate.avail_out = sizeof packed;
        deflate(&s->deflate, flush);
        TT__TRY(tt__atomic_write(&s->file, packed, sizeof packed - s->deflate.avail_out));
    } while (!s->deflate.avail_out);
    return TT_OK;
}

static tt_status sink_write(sink *s, const void *data, size_t size) {
    return s->gzip ? sink_deflate(s, data, size, Z_NO_FLUSH) : tt__atomic_write(&s->file, data, size);
}

/* `status`: how writing went so far; anything but TT_OK takes the file back. */
static tt_status sink_close(sink *s, tt_status status) {
    if (!status && s->gzip)
        status = sink_deflate(s, "", 0, Z_FINISH);
    if (s->gzip)
        deflateEnd(&s->deflate);
    if (!status)
        return tt__atomic_commit(&s->file);
    tt__atomic_abort(&s->file);
    return status;
}

/* ---- the format ---- */

static void store_big_endian(uint8_t *p, uint64_t value, size_t width) {
    for (size_t k = 0; k < width; k++)
        p[k] = (uint8_t)(value >> 8 * (width - 1 - k));
}

static tt_status write_header(sink *s, const tt_tensor *x, tt__idx_type type) {
    uint8_t header[4 + 4 * TT_MAX_DIMS] = {0, 0, (uint8_t)type, (uint8_t)x->shape.ndim};
    for (int d = 0; d < x->shape.ndim; d++)
        store_big_endian(header + 4 + 4 * d, (uint64_t)x->shape.dim[d], 4);
    return sink_write(s, header, 4 + 4 * (size_t)x->shape.ndim);
}

static uint64_t load_element(const uint8_t *p, size_t width) {
    uint32_t four;
    uint64_t eight;
    if (width == 1)
        return *p;
    if (width == 4)
        return memcpy(&four, p, 4), four;
    return memcpy(&eight, p, 8), eight;
}

static tt_status write_elements(sink *s, const tt_tensor *x) {
    uint8_t block[BLOCK];
    size_t width = tt_dtype_size(x->dtype);
    const uint8_t *from = x->data;
    for (int64_t left = x->numel; left > 0;) {
        size_t n = (size_t)left < BLOCK / width ? (size_t)left : BLOCK / width;
        for (size_t i = 0; i < n; i++)
            store_big_endian(block + i * width, load_element(from + i * width, width), width);
        TT__TRY(sink_write(s, block, n * width));
        from += n * width;
        left -= (int64_t)n;
    }
    return TT_OK;
}

static tt_status type_of(const tt_tensor *x, const char *path, tt__idx_type *type) {
    static const tt__idx_type types[] = {
        [TT_F32] = TT__IDX_F32, [TT_F64] = TT__IDX_F64, [TT_I32] = TT__IDX_I32, [TT_U8] = TT__IDX_U8};
    if ((unsigned)x->dtype >= sizeof types / sizeof *types || !types[x->dtype])
        return tt__fail(TT_ERR_DTYPE, "tt_idx_write: %s: expected u8, i32, f32 or f64, got %s", path, TT__DESCRIBE(x));
    *type = types[x->dtype];
    if (!tt__device_is_host(tt__device_of(x)))
        return tt__fail(TT_ERR_UNSUPPORTED, "tt_idx_write: %s: expected a tensor on the host, got %s on \"%s\"", path,
                        TT__DESCRIBE(x), tt__device_of(x)->name);
    if (!x->contiguous)
        return tt__fail(TT_ERR_SHAPE, "tt_idx_write: %s: expected a contiguous tensor, got a view %s", path,
                        TT__DESCRIBE(x));
    for (int d = 0; d < x->shape.ndim; d++)
        if (x->shape.dim[d] > UINT32_MAX)
            return tt__fail(TT_ERR_SHAPE, "tt_idx_write: %s: sizes of IDX have 32 bits, got %s", path, TT__DESCRIBE(x));
    return TT_OK;
}

tt_status tt_idx_write(const tt_tensor *x, const char *path) {
    if (!path)
        return tt__fail(TT_ERR_INVALID, "tt_idx_write: expected a path, got NULL");
    if (!x)
        return tt__tensor_first_error("tt_idx_write");
    tt__idx_type type = TT__IDX_U8;
    sink s;
    TT__TRY(type_of(x, path, &type));
    TT__TRY(sink_open(&s, path));
    tt_status status = write_header(&s, x, type);
    if (!status)
        status = write_elements(&s, x);
    return sink_close(&s, status);
}
