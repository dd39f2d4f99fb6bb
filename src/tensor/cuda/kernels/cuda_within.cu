/* Checks of indices that don't wait. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels_within.h"

namespace tt {

/* One block: indices are looked at once a call, and found wrong seldom. */
template <class T>
__global__ void expect_within(tt__walk w, int64_t low, int64_t high, int64_t but, tt__cuda_fault told,
                              tt__cuda_fault *fault) {
    int64_t first = w.n;
    for (int64_t i = threadIdx.x; i < w.n && i < first; i += THREADS) {
        const int64_t x = (int64_t)load(element<T>(w, 0, places<1>(w, i).at[0]));
        if ((x < low || x > high) && x != but)
            first = i;
    }
    first = block_reduce(first, join_min());
    if (threadIdx.x != 0 || first == w.n || fault->set)
        return;
    told.index = first;
    told.value = (int64_t)load(element<T>(w, 0, places<1>(w, first).at[0]));
    told.set = true;
    *fault = told;
}

template <class T>
cudaError_t expect_within_run(cudaStream_t stream, const tt__walk *w, int64_t low, int64_t high, int64_t but,
                              const tt__cuda_fault *told, tt__cuda_fault *fault) {
    return w->n ? launch_blocks(expect_within<T>, 1, stream, *w, low, high, but, *told, fault) : cudaSuccess;
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_expect_within(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, int64_t low, int64_t high,
                                   int64_t but, const tt__cuda_fault *told, tt__cuda_fault *fault) {
    TT__INTEGERS(dtype, tt::expect_within_run, stream, w, low, high, but, told, fault)
}
}
