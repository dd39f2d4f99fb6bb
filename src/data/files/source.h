/* The bytes of a file, unpacked if it is gzip, which its first two bytes show. */
#ifndef TT_DATA_SOURCE_H
#define TT_DATA_SOURCE_H

#include <tutti/base.h>

#include <stddef.h>
#include <stdint.h>
#include <zlib.h>

typedef struct tt__source {
    const char *name; /* for errors; borrowed */
    int fd;
    uint64_t packed_size; /* bytes of the file */
    uint64_t packed_read; /* bytes of it that were read */
    bool gzip, ended;
    z_stream inflate; /* next_in, avail_in: the bytes in `buffer` that are not used yet, also of a plain file */
    uint8_t buffer[32768];
} tt__source;

/* Open a regular file. After success tt__source_close() must follow. Errors: TT_ERR_IO, TT_ERR_MEMORY. */
tt_status tt__source_open(tt__source *source, const char *path);
void tt__source_close(tt__source *source);

/* Read `size` bytes; *got is less only at the end. Errors: TT_ERR_IO; TT_ERR_FORMAT a corrupt or truncated gzip
 * stream. */
tt_status tt__source_read(tt__source *source, void *out, size_t size, size_t *got);

/* Return the most bytes that the source can give, whatever a header in it claims. */
uint64_t tt__source_limit(const tt__source *source);

/* Reverse the bytes of each of `count` elements, which have the other byte order. */
static inline void tt__swap_bytes(uint8_t *p, int64_t count, size_t width) {
    for (int64_t i = 0; i < count; i++, p += width)
        for (size_t k = 0; k < width / 2; k++) {
            uint8_t byte = p[k];
            p[k] = p[width - 1 - k];
            p[width - 1 - k] = byte;
        }
}

#endif
