#include "base/bytes.h"

#include <stdlib.h>
#include <string.h>

enum { FIRST_CAPACITY = 64 };

bool tt__bytes_reserve(tt__bytes *bytes, size_t more) {
    if (bytes->capacity - bytes->size >= more)
        return true;
    if (more > SIZE_MAX / 2 - bytes->size) {
        bytes->failed = true;
        return false;
    }
    size_t capacity = bytes->capacity ? 2 * bytes->capacity : FIRST_CAPACITY;
    if (capacity < bytes->size + more)
        capacity = bytes->size + more;
    uint8_t *data = realloc(bytes->data, capacity);
    if (!data) {
        bytes->failed = true;
        return false;
    }
    bytes->data = data;
    bytes->capacity = capacity;
    return true;
}

void tt__bytes_put(tt__bytes *bytes, const void *data, size_t size) {
    if (!size || !tt__bytes_reserve(bytes, size))
        return;
    memcpy(bytes->data + bytes->size, data, size);
    bytes->size += size;
}

void tt__bytes_consume(tt__bytes *bytes, size_t size) {
    if (!size)
        return;
    memmove(bytes->data, bytes->data + size, bytes->size - size);
    bytes->size -= size;
}

void tt__bytes_clear(tt__bytes *bytes, size_t keep) {
    bytes->size = 0;
    bytes->failed = false;
    if (bytes->capacity > keep)
        tt__bytes_free(bytes);
}

void tt__bytes_free(tt__bytes *bytes) {
    free(bytes->data);
    *bytes = (tt__bytes){0};
}
