/* Memory that large parts of messages land in.
 *
 * A page that the kernel gives anew costs more than to receive its bytes: 16 MiB take 6 ms in new memory and 0.5 ms in
 * memory that was there. So a block that is given back is kept for the next part that fits into it: at most 64 MiB of
 * them in a process, none that had no use for two seconds when another is given back, and none after a worker's
 * shutdown. Any thread may call this, also in a forked child. */
#ifndef TT_RPC_LANDING_MEMORY_H
#define TT_RPC_LANDING_MEMORY_H

#include "base/export.h"

#include <stddef.h>

enum { TT__LANDING_LARGE = 128 << 10 }; /* blocks of at least this size are kept; others are malloc()'s */

/* Return at least `bytes` bytes, aligned to 64. NULL: there is no memory. */
TT__EXPORT void *tt__landing_take(size_t bytes);

/* Give it back; NULL is allowed. */
TT__EXPORT void tt__landing_give(void *data);

/* Return what is kept to the system. */
void tt__landing_release_kept(void);

#endif
