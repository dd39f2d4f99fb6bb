/* Under TT_CUDA_FALLBACK=1: kernels that run on the cpu in place of a device that lacks them. */
#ifndef TT_TENSOR_FALLBACK_H
#define TT_TENSOR_FALLBACK_H

#include "tensor/kernels.h"

/* A kernel that takes tensors of a device whose memory is not the host's: it copies them, lets the cpu's kernel at
 * `offset` run, and copies back what that has written. NULL: this is not asked for, or there is none for x's type. */
tt__any_kernel tt__fallback_find(const tt_tensor *x, size_t offset);

#endif
