/* Random bytes of the system's. */
#ifndef TT_BASE_RANDOM_BYTES_H
#define TT_BASE_RANDOM_BYTES_H

#include "base/export.h"

#include <stddef.h>

/* Fill `bytes` with bytes that nobody can guess. Blocks while the machine, early in its boot, has none. Errors:
 * TT_ERR_SYSTEM, a kernel or sandbox without getrandom(2). */
TT__EXPORT tt_status tt__random_bytes(void *bytes, size_t size);

/* The same without blocking and without errors, for seeds that no security depends on: where the system has none,
 * `bytes` is made of the time and the process. */
TT__EXPORT void tt__random_seed(void *bytes, size_t size);

#endif
