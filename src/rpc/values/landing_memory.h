/* Memory that large parts are received into.
 *
 * New pages of the kernel cost more time than receiving bytes into them: 16 MiB take 6 ms in new memory, and 0.5 ms in
 * memory that was used before. So blocks that are given back are kept for the next parts that fit: at most 64 MiB in a
 * process. When a block is given back, those that were not used for two seconds are freed; all are when a worker is
 * shut down. Any thread may call these functions, also in a forked child. */
#ifndef TT_RPC_LANDING_MEMORY_H
#define TT_RPC_LANDING_MEMORY_H

#include "base/export.h"

#include <stddef.h>

enum { TT__LANDING_LARGE = 128 << 10 }; /* blocks of at least this size are kept; others are malloc()'s */

/* Return at least `bytes` bytes, aligned to 64. NULL: there is no memory. */
TT__EXPORT void *tt__landing_take(size_t bytes);

/* Give memory back; NULL is allowed. */
TT__EXPORT void tt__landing_give(void *data);

/* Return what is kept to the system. */
void tt__landing_release_kept(void);

#endif
