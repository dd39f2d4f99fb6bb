/* Do ranks have the same values? Two hashes tell, where the values would be too many to send. */
#ifndef TT_PARALLEL_VALUE_HASH_H
#define TT_PARALLEL_VALUE_HASH_H

#include "base/hash.h"

#include <tutti/tensor.h>

/* Go on with *hash, at first TT__FNV, over x's elements, in row-major order, as bits. TT_ERR_MEMORY, where they
 * must be copied first: of another layout, or on another device. */
tt_status tt__hash_values(uint64_t *hash, const tt_tensor *x);

#endif
