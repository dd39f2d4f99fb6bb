#include "data/loader/reader.h"

#include "base/error.h"
#include "data/loader/convert_kernels.h"

#include <stdlib.h>

/* Return how many u8 examples stay in the second-level cache between reading and conversion. */
static int64_t raw_rows(const tt_dataset *dataset) {
    const int64_t bytes = 65536, row = (int64_t)dataset->x_bytes;
    return row > 0 && row < bytes ? bytes / row : 1;
}

tt_status tt__reader_init(tt__reader *reader, tt_dataset *dataset, bool convert) {
    *reader = (tt__reader){.dataset = dataset};
    if (!convert || dataset->x.dtype != TT_U8)
        return TT_OK;
    reader->raw_rows = raw_rows(dataset);
    reader->raw = malloc((size_t)reader->raw_rows * dataset->x_bytes + 1);
    return reader->raw ? TT_OK : tt__fail(TT_ERR_MEMORY, "tt_loader_new: out of memory");
}

void tt__reader_free(tt__reader *reader) { free(reader->raw); }

/* Bytes become numbers a few examples at a time. x (n, ...) f32 */
static tt_status read_u8(tt__reader *reader, const tt__normalization *how, const int64_t *indices, int64_t n, float *x,
                         char *y) {
    const tt__convert_kernels *kernels = TT__LEVEL_CHOOSE(tt__convert_kernels);
    tt_dataset *d = reader->dataset;
    for (int64_t done = 0; done < n; done += reader->raw_rows) {
        int64_t now = n - done < reader->raw_rows ? n - done : reader->raw_rows;
        size_t count = (size_t)now * d->x_bytes;
        TT__TRY(tt__dataset_read(d, indices + done, now, reader->raw, y));
        if (how->on)
            kernels->normalize(x, reader->raw, count, how->mean, how->std);
        else
            kernels->plain(x, reader->raw, count);
        x += count;
        if (y)
            y += (size_t)now * d->y_bytes;
    }
    return TT_OK;
}

tt_status tt__reader_read(tt__reader *reader, const tt__normalization *how, const int64_t *indices, int64_t n, void *x,
                          void *y) {
    return reader->raw ? read_u8(reader, how, indices, n, x, y) : tt__dataset_read(reader->dataset, indices, n, x, y);
}
