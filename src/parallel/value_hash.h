/* Hashes, by which ranks compare values that are too many to send. */
#ifndef TT_PARALLEL_VALUE_HASH_H
#define TT_PARALLEL_VALUE_HASH_H

#include "base/hash.h"

#include <tutti/tensor.h>

/* Continue *hash, at first TT__FNV, over the bits of x's elements in row-major order. TT_ERR_MEMORY: they must be
 * copied first, as x is not contiguous or on a device, and there is no memory. */
tt_status tt__hash_values(uint64_t *hash, const tt_tensor *x);

#endif
