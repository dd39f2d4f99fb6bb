/* Memory of a CUDA device, and copies from and to the host: what its tt_device offers. */
#ifndef TT_TENSOR_CUDA_CUDA_MEMORY_H
#define TT_TENSOR_CUDA_CUDA_MEMORY_H

#include "tensor/cuda/device/cuda_state.h"

#include <cuda.h>

/* Take memory for a pool; NULL: of nobody's. NULL: none, with an error. */
void *tt__cuda_take(tt__cuda_state *state, tt__arena_pool *pool, size_t bytes);

/* Reserve the range of addresses. */
tt_status tt__cuda_memory_begin(tt__cuda_state *state);

/* Addresses; memory at some of them, which the device may read and write and which stays after its handle, released
 * here; the reverse. */
CUresult tt__cuda_reserve(CUdeviceptr *base, size_t bytes);
CUresult tt__cuda_map(const tt__cuda_state *state, CUdeviceptr at, size_t bytes, CUmemGenericAllocationHandle handle);
void tt__cuda_unmap(CUdeviceptr at, size_t bytes);
void tt__cuda_release(CUmemGenericAllocationHandle handle);

/* What tt_device_memory_get(), tt_device_reset_peak() and tt_device_empty_cache() say of it and do. */
tt_status tt__cuda_memory_get(tt__cuda_state *state, tt_device_memory *memory);
void tt__cuda_reset_peak(tt__cuda_state *state);
tt_status tt__cuda_empty_cache(tt__cuda_state *state);

/* Copy, behind what was enqueued before, and wait until the host's bytes may be read or changed. */
tt_status tt__cuda_to_host(tt__cuda_state *state, void *host, const void *from, size_t bytes);
tt_status tt__cuda_from_host(tt__cuda_state *state, void *to, const void *host, size_t bytes);

/* Wait until all that was enqueued is done; errors of that work come here, also indices that were out of range. */
tt_status tt__cuda_wait(tt__cuda_state *state);

#endif
