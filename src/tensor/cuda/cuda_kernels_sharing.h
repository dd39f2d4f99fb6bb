/* Sums over the memory of several ranks: cuda_sharing.cu. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_SHARING_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_SHARING_H

#include "tensor/cuda/cuda_kernels.h"
#include "tensor/device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For 2 to TT__DEVICE_PEERS ranks: see tt__device_sharing. */
cudaError_t tt__cuda_sum_peers(cudaStream_t stream, const tt__device_sum *sum);

#ifdef __cplusplus
}
#endif

#endif
