/* The numbers of a graph that come from the host: cuda_graph.cu. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_GRAPH_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_GRAPH_H

#include <cuda_runtime_api.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TT__CUDA_WORDS = 448 };

/* to (n) := words, which are read before this returns; n <= TT__CUDA_WORDS. */
cudaError_t tt__cuda_set_words(cudaStream_t stream, void *to, const uint64_t *words, size_t n);

#ifdef __cplusplus
}
#endif

#endif
