/* Means that losses are: of parts in double, over rows whose target is a class. */
#ifndef TT_TENSOR_CUDA_CUDA_MEANS_CUH
#define TT_TENSOR_CUDA_CUDA_MEANS_CUH

#include "tensor/cuda/kernels/cuda_code.cuh"

namespace tt {

/* How many of n targets are classes, 0..V-1? The others were reported, or are to be ignored. All threads of a block
 * get the number. */
__device__ inline double block_classes(const int64_t *t, int64_t n, int64_t V) {
    double count = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        count += is_place(t[i], V);
    return block_reduce(count, join_sum());
}

/* One block: mean = the sum of n parts, divided by `divisor`, or, with targets t, by how many of these are classes. */
template <class T>
__global__ void mean_of_parts(T *mean, const double *part, int64_t n, double divisor, const int64_t *t, int64_t V) {
    double sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += THREADS)
        sum += part[i];
    sum = block_reduce(sum, join_sum());
    if (t)
        divisor = block_classes(t, n, V);
    if (threadIdx.x == 0)
        store(mean, (wide<T>)(sum / divisor));
}

/* One block: each = g / how many of n targets are classes. */
template <class T> __global__ void share_of_classes(double *each, const T *g, const int64_t *t, int64_t n, int64_t V) {
    const double count = block_classes(t, n, V);
    if (threadIdx.x == 0)
        *each = (double)load(g) / count;
}

} /* namespace tt */

#endif
