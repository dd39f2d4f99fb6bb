/* Options as the caller's version of Tutti knew them. */
#ifndef TT_BASE_ARGS_H
#define TT_BASE_ARGS_H

#include <string.h>

/* *full := `args`, of which the caller knows `size` bytes. An older program's struct is shorter: what it lacks is zero.
 * NULL is all zeros. */
static inline void tt__args_copy(void *full, size_t full_size, const void *args, size_t size) {
    memset(full, 0, full_size);
    if (args)
        memcpy(full, args, size < full_size ? size : full_size);
}

#define TT__ARGS_COPY(full, args, size) tt__args_copy(&(full), sizeof(full), args, size)

#endif
