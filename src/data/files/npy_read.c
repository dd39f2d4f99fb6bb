/* Reading arrays: the header, which is not trusted, then the elements, straight into the tensor's memory. */
#include "data/files/npy.h"

#include "base/error.h"
#include "data/files/byte_order.h"
#include "data/files/source.h"
#include "tensor/core/tensor.h"

#include <tutti/datasets.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* ---- header ---- */

enum { MAGIC = 8, MOST_HEADER = 10000 }; /* NumPy's own limit on headers */

static tt_status read_part(const tt__npy_input *in, void *out, size_t size, const char *what) {
    size_t got;
    TT__TRY(in->read(in->from, out, size, &got));
    if (got < size)
        return tt__fail(TT_ERR_FORMAT, "%s: expected %zu bytes of %s, but it ends after %zu", in->name, size, what,
                        got);
    return TT_OK;
}

/* *used: bytes before the elements. */
static tt_status read_npy_header(tt__npy_header *h, const tt__npy_input *in, size_t *used) {
    uint8_t magic[MAGIC], length[4] = {0};
    char text[MOST_HEADER];
    TT__TRY(read_part(in, magic, sizeof magic, "magic number"));
    if (memcmp(magic, "\x93NUMPY", 6))
        return tt__fail(TT_ERR_FORMAT, "%s: not a .npy file: it begins with %02x %02x %02x %02x, expected 93 \"NUMPY\"",
                        in->name, magic[0], magic[1], magic[2], magic[3]);
    if (magic[6] < 1 || magic[6] > 3 || magic[7])
        return tt__fail(TT_ERR_UNSUPPORTED, "%s: expected version 1.0, 2.0 or 3.0 of the .npy format, got %d.%d",
                        in->name, magic[6], magic[7]);
    size_t width = magic[6] == 1 ? 2 : 4;
    TT__TRY(read_part(in, length, width, "header's length"));
    uint32_t size =
        (uint32_t)length[0] | (uint32_t)length[1] << 8 | (uint32_t)length[2] << 16 | (uint32_t)length[3] << 24;
    if (size > MOST_HEADER)
        return tt__fail(TT_ERR_FORMAT, "%s: expected a header of at most %d bytes, got one of %" PRIu32, in->name,
                        MOST_HEADER, size);
    TT__TRY(read_part(in, text, size, "header"));
    *used = MAGIC + width + size;
    return tt__npy_parse(h, in->name, text, size);
}

/* The product of the sizes must be something that the input can hold. */
static tt_status check_npy_size(const tt__npy_header *h, const tt__npy_input *in, size_t used, int64_t *count) {
    *count = tt__shape_numel(&h->shape);
    if (*count < 0)
        return tt__fail(TT_ERR_FORMAT, "%s: the product of the sizes in its header overflows", in->name);
    uint64_t bytes = (uint64_t)*count * h->type->width, room = in->limit > used ? in->limit - used : 0;
    if (bytes > room)
        return tt__fail(TT_ERR_FORMAT,
                        "%s: its header promises %" PRIu64 " bytes of elements, but at most %" PRIu64 " follow",
                        in->name, bytes, room);
    return TT_OK;
}

/* ---- elements ---- */

/* Widen u16 to i32, u32 to i64. They were read into the end of the tensor's memory and are widened from the front:
 * what is written never passes what is yet to be read. */
static void widen_unsigned(void *to, const uint8_t *from, int64_t count, size_t width) {
    for (int64_t i = 0; i < count; i++) {
        uint16_t two;
        uint32_t four;
        if (width == 2)
            memcpy(&two, from + 2 * i, 2), ((int32_t *)to)[i] = two;
        else
            memcpy(&four, from + 4 * i, 4), ((int64_t *)to)[i] = four;
    }
}

/* What the bits of an element may not be. */
static tt_status check_elements(const tt__npy_header *h, const char *name, const void *data, int64_t count) {
    const uint8_t *bools = data;
    const int64_t *wide = data;
    for (int64_t i = 0; h->type->dtype == TT_BOOL && i < count; i++)
        if (bools[i] > 1)
            return tt__fail(TT_ERR_FORMAT, "%s: expected bools of 0 or 1, got %d in place %" PRId64, name, bools[i], i);
    for (int64_t i = 0; h->type->is_unsigned && h->type->width == 8 && i < count; i++)
        if (wide[i] < 0)
            return tt__fail(TT_ERR_UNSUPPORTED,
                            "%s: a uint64 in place %" PRId64 " is above %" PRId64 ", the largest i64", name, i,
                            INT64_MAX);
    return TT_OK;
}

static tt_status read_npy_elements(tt_tensor *x, const tt__npy_header *h, const tt__npy_input *in) {
    size_t width = h->type->width, bytes = (size_t)x->numel * width;
    uint8_t *into = (uint8_t *)x->data + ((size_t)x->numel * tt_dtype_size(x->dtype) - bytes);
    size_t got;
    TT__TRY(in->read(in->from, into, bytes, &got));
    if (got < bytes)
        return tt__fail(TT_ERR_FORMAT, "%s: its header promises %zu bytes of elements, but %zu follow", in->name, bytes,
                        got);
    if (h->swapped)
        tt__swap_bytes(into, x->numel, width);
    if (into != x->data)
        widen_unsigned(x->data, into, x->numel, width);
    return check_elements(h, in->name, x->data, x->numel);
}

/* Make a tensor in the array's order of memory. */
static tt_tensor *npy_tensor(const tt__npy_header *h) {
    int64_t stride[TT_MAX_DIMS], n = 1;
    for (int d = 0; d < h->shape.ndim; d++) {
        stride[d] = n;
        n *= h->shape.dim[d];
    }
    bool as_usual = !h->fortran || h->shape.ndim < 2 || n == 0;
    return tt_keep(tt__tensor_new_on("npy", tt_device_get("cpu"), h->shape, h->type->dtype, as_usual ? NULL : stride));
}

tt_status tt__npy_decode(tt_tensor **out, const tt__npy_input *input) {
    tt__npy_header h;
    size_t used;
    int64_t count;
    *out = NULL;
    TT__TRY(read_npy_header(&h, input, &used));
    TT__TRY(check_npy_size(&h, input, used, &count));
    tt_tensor *x = npy_tensor(&h);
    if (!x)
        return tt__fail_prefix("%s", input->name);
    tt_status status = read_npy_elements(x, &h, input);
    if (status)
        tt_tensor_free(x);
    else
        *out = x;
    return status;
}

/* ---- files ---- */

static tt_status read_from_source(void *from, void *out, size_t size, size_t *got) {
    return tt__source_read(from, out, size, got);
}

tt_status tt_npy_read(tt_tensor **out, const char *path) {
    if (out)
        *out = NULL;
    if (!out || !path)
        return tt__fail(TT_ERR_INVALID, "tt_npy_read: expected a path and where to put the tensor, got NULL");
    tt__source *source = malloc(sizeof *source);
    if (!source)
        return tt__fail(TT_ERR_MEMORY, "tt_npy_read: %s: out of memory", path);
    tt_status status = tt__source_open(source, path);
    if (!status) {
        const tt__npy_input input = {path, tt__source_limit(source), read_from_source, source};
        status = tt__npy_decode(out, &input);
        tt__source_close(source);
    }
    free(source);
    return status;
}
