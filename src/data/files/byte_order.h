/* Elements of the other byte order. */
#ifndef TT_DATA_BYTE_ORDER_H
#define TT_DATA_BYTE_ORDER_H

#include <stddef.h>
#include <stdint.h>

/* Turn the bytes of each of `count` elements round. */
static inline void tt__swap_bytes(uint8_t *p, int64_t count, size_t width) {
    for (int64_t i = 0; i < count; i++, p += width)
        for (size_t k = 0; k < width / 2; k++) {
            uint8_t byte = p[k];
            p[k] = p[width - 1 - k];
            p[width - 1 - k] = byte;
        }
}

#endif
