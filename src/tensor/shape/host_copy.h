/* A tensor's elements as files have them: one after the other, on the host. */
#ifndef TT_TENSOR_HOST_COPY_H
#define TT_TENSOR_HOST_COPY_H

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

#endif
