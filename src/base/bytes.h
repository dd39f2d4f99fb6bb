/* A growable array of bytes. When memory is out, it sets `failed` and stops growing, so a writer adds all its fields
 * and checks once. */
#ifndef TT_BASE_BYTES_H
#define TT_BASE_BYTES_H

#include "base/export.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Zeroed = empty. */
typedef struct tt__bytes {
    uint8_t *data;
    size_t size, capacity;
    bool failed;
} tt__bytes;

/* Bytes that belong to someone else. */
typedef struct tt__span {
    const uint8_t *data;
    size_t size;
} tt__span;

/* Make room for `more` bytes after the present ones; false (and `failed`) when memory is out. */
bool tt__bytes_reserve(tt__bytes *bytes, size_t more);

TT__EXPORT void tt__bytes_put(tt__bytes *bytes, const void *data, size_t size);

/* Drop the first `size` bytes. */
void tt__bytes_consume(tt__bytes *bytes, size_t size);

/* Empty it, and release memory of more than `keep` bytes, so that one large message does not hold it for good. */
void tt__bytes_clear(tt__bytes *bytes, size_t keep);

/* Release the memory, which leaves it empty. */
TT__EXPORT void tt__bytes_free(tt__bytes *bytes);

#endif
