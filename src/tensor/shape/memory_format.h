/* The two orders of memory that images (N,C,H,W) have: contiguous, and channels last. */
#ifndef TT_TENSOR_MEMORY_FORMAT_H
#define TT_TENSOR_MEMORY_FORMAT_H

#include "tensor/core/tensor.h"

/* Compute the strides of (N,C,H,W) in this format. */
void tt__format_strides(const tt_shape *shape, tt_memory_format format, int64_t *stride);

/* Does x lie channels last, by PyTorch's rule for strides? False where its strides say nothing: (N,C,1,1) and (N,1,H,W)
 * lie in the same order either way. */
bool tt__is_channels_last(const tt_tensor *x);

/* Do the elements of x (N,C,H,W) fill a range of memory in this format? Strides of sizes of 1 don't matter. */
bool tt__lies_as(const tt_tensor *x, tt_memory_format format);

/* Choose the format in which a call on both runs: the one both lie in, else channels last if one of them surely
 * does. */
tt_memory_format tt__common_format(const tt_tensor *a, const tt_tensor *b);

#endif
