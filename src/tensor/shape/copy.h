/* A tensor's elements one after the other, on the host, as files have them, and their hash. */
#ifndef TT_TENSOR_SHAPE_COPY_H
#define TT_TENSOR_SHAPE_COPY_H

#include "base/hash.h"

#include <tutti/tensor.h>

typedef struct tt__host_copy {
    const void *data;
    uint64_t size;
    tt_tensor *copy; /* NULL: data is the tensor's own */
} tt__host_copy;

/* Give x's elements; one of another layout, or on another device, is copied. After success
 * tt__host_copy_free() must follow. */
tt_status tt__host_copy_make(tt__host_copy *elements, const tt_tensor *x);
void tt__host_copy_free(tt__host_copy *elements);

/* Continue *hash, at first TT__FNV, over the bits of x's elements in row-major order, by which ranks compare values
 * that are too many to send: as words of 4 bytes, the last filled with zeros. TT_ERR_MEMORY: they must be copied first,
 * as x is not contiguous or on a device, and there is no memory. */
tt_status tt__hash_values(uint64_t *hash, const tt_tensor *x);

#endif
