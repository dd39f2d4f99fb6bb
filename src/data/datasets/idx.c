/* IDX files, the format of MNIST, and the data sets of images in them:
 *
 *   two zero bytes, a type, the number of dimensions, their sizes as 32-bit big-endian numbers
 *   the elements, row-major, big-endian
 *
 * The header of a file is not trusted. Its sizes are multiplied with overflow checks and compared with what the file
 * can hold before memory is allocated, and the file must have exactly as many elements as it says. */
#include "base/error.h"
#include "base/files/atomic_file.h"
#include "base/text/parse.h"
#include "data/files/source.h"
#include "tensor/core/tensor.h"
#include "tensor/ops/ops.h"

#include <tutti/data.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The type that follows the two zero bytes. */
typedef enum idx_type {
    IDX_U8 = 0x08,
    IDX_I8 = 0x09,
    IDX_I16 = 0x0b,
    IDX_I32 = 0x0c,
    IDX_F32 = 0x0d,
    IDX_F64 = 0x0e
} idx_type;

typedef struct header {
    idx_type type;
    size_t width;   /* bytes of an element in the file */
    tt_dtype dtype; /* of the tensor */
    tt_shape shape;
    int64_t count; /* of elements */
} header;

static uint32_t big_endian(const uint8_t *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* ---- reading: the header ---- */

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
        idx_type type;
        size_t width;
        tt_dtype dtype;
    } types[] = {{IDX_U8, 1, TT_U8},   {IDX_I8, 1, TT_I32},  {IDX_I16, 2, TT_I32},
                 {IDX_I32, 4, TT_I32}, {IDX_F32, 4, TT_F32}, {IDX_F64, 8, TT_F64}};
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

/* Multiply the sizes, and check that the source can hold so many bytes. A size of 0 makes the product 0, but the others
 * must fit the strides of a tensor anyway. */
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

/* ---- reading: the elements ---- */

/* Widen small types to i32. They were read into the end of the tensor's memory and are widened from the front: element
 * i goes to bytes 4i..4i+3, which overlap no element that is not widened yet. */
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

static tt_status idx_decode(tt_tensor **out, tt__source *source) {
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
        status = idx_decode(out, source);
        tt__source_close(source);
    }
    free(source);
    return status;
}

/* ---- writing: plain or packed; the file appears whole or not at all ---- */

enum { BLOCK = 8192 };

/* The file that is written; bytes go through deflate if it is packed. */
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

/* Finish the file, or remove it if `status`, which tells how writing went so far, is an error. */
static tt_status sink_close(sink *s, tt_status status) {
    if (!status && s->gzip)
        status = sink_deflate(s, NULL, 0, Z_FINISH);
    if (s->gzip)
        deflateEnd(&s->deflate);
    if (!status)
        return tt__atomic_commit(&s->file);
    tt__atomic_abort(&s->file);
    return status;
}

static void store_big_endian(uint8_t *p, uint64_t value, size_t width) {
    for (size_t k = 0; k < width; k++)
        p[k] = (uint8_t)(value >> 8 * (width - 1 - k));
}

static tt_status write_header(sink *s, const tt_tensor *x, idx_type type) {
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

static tt_status type_of(const tt_tensor *x, const char *path, idx_type *type) {
    static const idx_type types[] = {[TT_F32] = IDX_F32, [TT_F64] = IDX_F64, [TT_I32] = IDX_I32, [TT_U8] = IDX_U8};
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
    idx_type type = IDX_U8;
    sink s;
    TT__TRY(type_of(x, path, &type));
    TT__TRY(sink_open(&s, path));
    tt_status status = write_header(&s, x, type);
    if (!status)
        status = write_elements(&s, x);
    return sink_close(&s, status);
}

/* ---- data sets: images and labels in two files ---- */

static tt_status read_checked(tt_tensor **out, const char *path, int ndim, const char *expected) {
    TT__TRY(tt_idx_read(out, path));
    if ((*out)->dtype == TT_U8 && (*out)->shape.ndim == ndim)
        return TT_OK;
    tt__fail(TT_ERR_FORMAT, "%s: expected %s, got %s", path, expected, TT__DESCRIBE(*out));
    tt_tensor_free(*out);
    *out = NULL;
    return TT_ERR_FORMAT;
}

/* Make a data set of images (N,H,W) and labels (N): inputs (N,1,H,W) and targets (N) i64. */
static tt_dataset *dataset_from(const tt_tensor *images, const tt_tensor *labels) {
    const int64_t *size = images->shape.dim;
    tt_tensor *inputs = tt_keep(tt__view("tt_image_dataset", images, TT_SHAPE(size[0], 1, size[1], size[2])));
    tt_tensor *targets = tt_keep(tt__to("tt_image_dataset", labels, TT_I64));
    if (inputs && targets)
        return tt_tensor_dataset(inputs, targets);
    tt_tensor_free(inputs);
    tt_tensor_free(targets);
    return NULL;
}

tt_dataset *tt_image_dataset(const char *images_path, const char *labels_path) {
    tt_tensor *images = NULL, *labels = NULL;
    tt_dataset *dataset = NULL;
    if (!images_path || !labels_path)
        return tt__fail_null(TT_ERR_INVALID, "tt_image_dataset: the path of the %s is NULL",
                             images_path ? "labels" : "images");
    if (read_checked(&images, images_path, 3, "images (N, height, width) of u8") ||
        read_checked(&labels, labels_path, 1, "labels (N) of u8"))
        goto out;
    if (images->shape.dim[0] != labels->shape.dim[0])
        tt__fail(TT_ERR_FORMAT, "%s has %" PRId64 " images, but %s has %" PRId64 " labels", images_path,
                 images->shape.dim[0], labels_path, labels->shape.dim[0]);
    else
        dataset = dataset_from(images, labels);
out:
    tt_tensor_free(images);
    tt_tensor_free(labels);
    return dataset;
}

/* ---- MNIST's file names ---- */

enum { PATH_SIZE = 4096 };

/* Set `path` to "DIR/SUB/NAME", or to "DIR/SUB/NAME.gz" if only that is there. False: neither is. */
static bool find_image_file(char *path, const char *dir, const char *sub, const char *name) {
    static const char *const endings[] = {"", ".gz"};
    for (int i = 0; i < 2; i++) {
        int n = snprintf(path, PATH_SIZE, "%s/%s%s%s", dir, sub, name, endings[i]);
        if (n < PATH_SIZE && access(path, F_OK) == 0)
            return true;
    }
    return false;
}

tt_dataset *tt_mnist(const char *dir, bool train) {
    static const char *const subs[] = {"", "MNIST/raw/", "raw/"};
    const char *images_name = train ? "train-images-idx3-ubyte" : "t10k-images-idx3-ubyte";
    const char *labels_name = train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
    char images[PATH_SIZE], labels[PATH_SIZE];
    if (!dir)
        return tt__fail_null(TT_ERR_INVALID, "tt_mnist: the directory is NULL");
    for (size_t i = 0; i < sizeof subs / sizeof *subs; i++)
        if (find_image_file(images, dir, subs[i], images_name) && find_image_file(labels, dir, subs[i], labels_name))
            return tt_image_dataset(images, labels);
    return tt__fail_null(TT_ERR_IO, "tt_mnist: expected %s and %s, plain or with .gz, in %s, %s/MNIST/raw or %s/raw",
                         images_name, labels_name, dir, dir, dir);
}
