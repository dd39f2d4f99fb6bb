/* Options from a caller that may have been compiled with an older version of Tutti. */
#ifndef TT_BASE_ARGS_H
#define TT_BASE_ARGS_H

#include <string.h>

/* Copy the `size` bytes of `args` that the caller knows into *full. The other fields become 0; args NULL: all of
 * them. */
static inline void tt__args_copy(void *full, size_t full_size, const void *args, size_t size) {
    memset(full, 0, full_size);
    if (args)
        memcpy(full, args, size < full_size ? size : full_size);
}

#define TT__ARGS_COPY(full, args, size) tt__args_copy(&(full), sizeof(full), args, size)

#endif
