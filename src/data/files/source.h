/* Bytes of a file or of memory, unpacked if they are gzip, which the first two bytes show. */
#ifndef TT_DATA_SOURCE_H
#define TT_DATA_SOURCE_H

#include <tutti/base.h>

#include <zlib.h>

typedef struct tt__source {
    const char *name; /* for errors; borrowed */
    int fd;           /* -1: memory */
    const uint8_t *memory;
    uint64_t packed_size; /* bytes of the file or memory, */
    uint64_t packed_read; /* and how many of them were read */
    bool gzip, ended;
    z_stream inflate; /* next_in, avail_in: also where plain bytes wait */
    uint8_t buffer[32768];
} tt__source;

/* Open a regular file / a block of memory. After success tt__source_close() must follow. Errors: TT_ERR_IO,
 * TT_ERR_MEMORY. */
tt_status tt__source_open(tt__source *source, const char *path);
tt_status tt__source_memory(tt__source *source, const char *name, const void *bytes, size_t size);
void tt__source_close(tt__source *source);

/* Read `size` bytes; *got is less only at the end. Errors: TT_ERR_IO; TT_ERR_FORMAT a corrupt or truncated gzip
 * stream. */
tt_status tt__source_read(tt__source *source, void *out, size_t size, size_t *got);

/* Return the most bytes that can come out of the source, whatever it claims to hold. */
uint64_t tt__source_limit(const tt__source *source);

#endif
