/* Regular files: opening one, reading a part of it or all of it, and writing one. */
#ifndef TT_DATA_WHOLE_FILE_H
#define TT_DATA_WHOLE_FILE_H

#include "base/bytes.h"

#include <tutti/base.h>

typedef struct tt__whole_file {
    uint8_t *data; /* a zero byte follows */
    size_t size;
} tt__whole_file;

/* Read a regular file of at most `most` bytes. After success tt__whole_file_free() must follow. Errors, which name the
 * file: TT_ERR_IO; TT_ERR_FORMAT a larger one; TT_ERR_MEMORY. */
tt_status tt__whole_file_read(tt__whole_file *file, const char *path, uint64_t most);

/* Harmless on a zeroed one. */
void tt__whole_file_free(tt__whole_file *file);

/* Open a regular file for reading: a descriptor, the caller's to close, and its size. Never waits for a FIFO's
 * writer. */
tt_status tt__file_open(int *fd, uint64_t *size, const char *path);

/* Read `size` bytes from `offset` on; *got is less only at the end. Safe from several threads at once. */
tt_status tt__file_read_at(int fd, const char *path, void *to, size_t size, uint64_t offset, size_t *got);

/* Write a file of n parts, one behind the other. Atomic: it appears whole or not at all. Errors: those of
 * tt__atomic_open(), tt__atomic_write() and tt__atomic_commit(). */
tt_status tt__file_write(const char *path, const tt__span *parts, int n);

#endif
