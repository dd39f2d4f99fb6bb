/* Reading IDX. The header is not trusted: its sizes are multiplied with overflow checks and compared with what the file
 * can hold before memory is taken, and the elements must be exactly as many as it says. */
#include "data/datasets/idx.h"

#include "base/error.h"
#include "data/files/byte_order.h"
#include "tensor/core/tensor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct header {
    tt__idx_type type;
    size_t width;   /* bytes of an element in the file */
    tt_dtype dtype; /* of the tensor */
    tt_shape shape;
    int64_t count; /* of elements */
} header;

static uint32_t big_endian(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* ---- header ---- */

static tt_status read_exactly(tt__source *source, void *out, size_t size, const char *what) {
    size_t got;
    TT__TRY(tt__source_read(source, out, size, &got));
    if (got < size)
        return tt__fail(TT_ERR_FORMAT, "%s: expected %zu bytes of %s, but it ends after %zu", source->name, size, what,
                        got);
    return TT_OK;
}

static tt_status decode_type(header *h, const char *name, uint8_t type) {
    static const struct {
        tt__idx_type type;
        size_t width;
        tt_dtype dtype;
    } types[] = {{TT__IDX_U8, 1, TT_U8},   {TT__IDX_I8, 1, TT_I32},  {TT__IDX_I16, 2, TT_I32},
                 {TT__IDX_I32, 4, TT_I32}, {TT__IDX_F32, 4, TT_F32}, {TT__IDX_F64, 8, TT_F64}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if ((uint8_t)types[i].type == type) {
            h->type = types[i].type;
            h->width = types[i].width;
            h->dtype = types[i].dtype;
            return TT_OK;
        }
    return tt__fail(TT_ERR_FORMAT, "%s: not an IDX file: unknown element type 0x%02x (08, 09 and 0b to 0e are known)",
                    name, type);
}

/* Multiplies the sizes; the product of bytes must be something the source can hold. A size of 0 makes it 0, but the
 * others must fit the strides of a tensor even so. */
static tt_status decode_sizes(header *h, const tt__source *source, const uint8_t *sizes) {
    uint64_t bytes = h->width;
    bool overflow = false, empty = false;
    for (int d = 0; d < h->shape.ndim; d++) {
        uint64_t size = big_endian(sizes + 4 * d);
        h->shape.dim[d] = (int64_t)size;
        empty |= size == 0;
        overflow |= __builtin_mul_overflow(bytes, size ? size : 1, &bytes) || bytes > INT64_MAX / 16;
    }
    if (overflow)
        return tt__fail(TT_ERR_FORMAT, "%s: the product of the sizes in its header overflows", source->name);
    bytes = empty ? 0 : bytes;
    if (bytes > tt__source_limit(source))
        return tt__fail(TT_ERR_FORMAT,
                        "%s: its header promises %" PRIu64 " bytes of elements, more than a %sfile of %" PRIu64
                        " bytes can hold",
                        source->name, bytes, source->gzip ? "gzip " : "", source->packed_size);
    h->count = (int64_t)(bytes / h->width);
    return TT_OK;
}

static tt_status read_header(header *h, tt__source *source) {
    uint8_t magic[4], sizes[4 * TT_MAX_DIMS];
    TT__TRY(read_exactly(source, magic, sizeof magic, "magic number"));
    if (magic[0] || magic[1])
        return tt__fail(TT_ERR_FORMAT, "%s: not an IDX file: it begins with %02x %02x %02x %02x, expected 00 00",
                        source->name, magic[0], magic[1], magic[2], magic[3]);
    memset(h, 0, sizeof *h);
    TT__TRY(decode_type(h, source->name, magic[2]));
    if (magic[3] > TT_MAX_DIMS)
        return tt__fail(TT_ERR_FORMAT, "%s: expected at most %d dimensions, got %d", source->name, TT_MAX_DIMS,
                        magic[3]);
    h->shape.ndim = magic[3];
    TT__TRY(read_exactly(source, sizes, 4 * (size_t)h->shape.ndim, "dimensions"));
    return decode_sizes(h, source, sizes);
}

/* ---- elements ---- */

/* Widen small types to i32. They were read into the end of the tensor's memory and are widened from the front: element
 * i goes to bytes 4i..4i+3, which lie before or on those of any element not widened yet. */
static void widen_elements(int32_t *to, const uint8_t *from, int64_t count, size_t width) {
    for (int64_t i = 0; i < count; i++)
        to[i] = width == 1 ? (int8_t)from[i] : (int16_t)(from[2 * i] << 8 | from[2 * i + 1]);
}

static bool host_is_big_endian(void) { return __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__; }

/* Count the bytes that follow, up to a limit: unpacking a hostile stream to its end could take forever. */
static tt_status count_rest(tt__source *source, uint64_t *count) {
    uint8_t scratch[4096];
    size_t got = 1;
    for (*count = 0; got && *count < UINT64_C(64) << 20; *count += got)
        TT__TRY(tt__source_read(source, scratch, sizeof scratch, &got));
    return TT_OK;
}

static tt_status read_elements(tt_tensor *x, const header *h, tt__source *source) {
    size_t bytes = (size_t)h->count * h->width, whole = (size_t)h->count * tt_dtype_size(h->dtype), got;
    uint8_t *into = (uint8_t *)x->data + (whole - bytes);
    uint64_t rest;
    TT__TRY(tt__source_read(source, into, bytes, &got));
    if (got < bytes)
        return tt__fail(TT_ERR_FORMAT, "%s: its header promises %zu bytes of elements, but %zu follow", source->name,
                        bytes, got);
    TT__TRY(count_rest(source, &rest));
    if (rest)
        return tt__fail(TT_ERR_FORMAT, "%s: its header promises %zu bytes of elements, but %" PRIu64 "%s follow",
                        source->name, bytes, bytes + rest, rest < UINT64_C(64) << 20 ? "" : " or more");
    if (whole != bytes)
        widen_elements(x->data, into, h->count, h->width);
    else if (!host_is_big_endian())
        tt__swap_bytes(x->data, h->count, h->width);
    return TT_OK;
}

tt_status tt__idx_decode(tt_tensor **out, tt__source *source) {
    header h;
    *out = NULL;
    TT__TRY(read_header(&h, source));
    tt_tensor *x = tt_keep(tt_empty(h.shape, h.dtype));
    if (!x)
        return tt__fail_prefix("%s", source->name);
    tt_status status = read_elements(x, &h, source);
    if (status)
        tt_tensor_free(x);
    else
        *out = x;
    return status;
}

tt_status tt_idx_read(tt_tensor **out, const char *path) {
    if (!out || !path)
        return tt__fail(TT_ERR_INVALID, "tt_idx_read: expected a path and where to put the tensor, got NULL");
    *out = NULL;
    tt__source *source = malloc(sizeof *source);
    if (!source)
        return tt__fail(TT_ERR_MEMORY, "tt_idx_read: %s: out of memory", path);
    tt_status status = tt__source_open(source, path);
    if (!status) {
        status = tt__idx_decode(out, source);
        tt__source_close(source);
    }
    free(source);
    return status;
}
