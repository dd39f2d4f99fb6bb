/* The kernel of dropout: see kernels.h. */
#ifndef TT_TENSOR_KERNELS_DROPOUT_H
#define TT_TENSOR_KERNELS_DROPOUT_H

#include <stdint.h>

/* Element i is kept if word i % 4 of Philox's counter i / 4 under this key is at least `limit`. */
typedef struct tt__dropout {
    uint64_t key;
    uint32_t limit;         /* p * 2^32 */
    double scale;           /* of what is kept */
    const uint64_t *key_at; /* on the device: the key of a captured call; NULL: `key` is it */
} tt__dropout;

/* y is dense: y = x * scale where kept, else 0. The element's number is its place in y's memory. */
#define TT__DROPOUT_KERNELS(X) X(dropout, (tt_tensor * y, const tt_tensor *x, const tt__dropout *call))

#endif
