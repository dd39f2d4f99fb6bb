/* Kernels that add up many elements. Sums are made in double, in an order that depends on
 * shapes alone. */
#include "tensor/cuda/kernels/cuda_code.cuh"

namespace tt {

/* ---- sums ---- */

template <class T> __device__ void store_sum(T *p, double sum) { store(p, (wide<T>)sum); }

/* Where the terms of sum number i begin in x. */
__device__ inline int64_t terms_of(const tt__cuda_sum &s, int64_t i, int64_t *y) {
    places<2> at(s.outer, i);
    *y = at.at[0];
    return at.at[1];
}

/* Few terms: a thread makes a sum. */
template <class T> __global__ void sum_threads(tt__cuda_sum s) {
    for (int64_t i = first_element(); i < s.outer.n; i += all_threads()) {
        int64_t y, x = terms_of(s, i, &y);
        double sum = 0;
        for (int64_t k = 0; k < s.inner.n; k++)
            sum += (double)load(element<T>(s.outer, 1, x + places<1>(s.inner, k).at[0]));
        store_sum(element<T>(s.outer, 0, y), sum * s.factor);
    }
}

/* A block makes part number `part` of a sum. */
template <class T> __device__ double sum_of_part(const tt__cuda_sum &s, int64_t x, int64_t part) {
    double sum = 0;
    for (int64_t k = part * THREADS + threadIdx.x; k < s.inner.n; k += s.parts * THREADS)
        sum += (double)load(element<T>(s.outer, 1, x + places<1>(s.inner, k).at[0]));
    return block_reduce(sum, join_sum());
}

template <class T> __global__ void sum_blocks(tt__cuda_sum s) {
    for (int64_t i = blockIdx.x; i < s.outer.n; i += gridDim.x) {
        int64_t y, x = terms_of(s, i, &y);
        double sum = sum_of_part<T>(s, x, 0);
        if (threadIdx.x == 0)
            store_sum(element<T>(s.outer, 0, y), sum * s.factor);
    }
}

template <class T> __global__ void sum_parts(tt__cuda_sum s) {
    for (int64_t i = blockIdx.x; i < s.outer.n * s.parts; i += gridDim.x) {
        int64_t y, x = terms_of(s, i / s.parts, &y);
        double sum = sum_of_part<T>(s, x, i % s.parts);
        if (threadIdx.x == 0)
            s.scratch[i] = sum;
    }
}

template <class T> __global__ void sum_of_parts(tt__cuda_sum s) {
    for (int64_t i = blockIdx.x; i < s.outer.n; i += gridDim.x) {
        double sum = 0;
        for (int64_t k = threadIdx.x; k < s.parts; k += THREADS)
            sum += s.scratch[i * s.parts + k];
        sum = block_reduce(sum, join_sum());
        if (threadIdx.x == 0)
            store_sum(element<T>(s.outer, 0, places<2>(s.outer, i).at[0]), sum * s.factor);
    }
}

template <class T> cudaError_t sum_run(cudaStream_t stream, const tt__cuda_sum *s) {
    constexpr int64_t FEW = 32;
    if (!s->outer.n)
        return cudaSuccess;
    if (s->parts > 1) {
        cudaError_t error = launch_blocks(sum_parts<T>, grid_of(s->outer.n * s->parts), stream, *s);
        return error ? error : launch_blocks(sum_of_parts<T>, grid_of(s->outer.n), stream, *s);
    }
    if (s->inner.n < FEW || s->outer.n >= (int64_t)THREADS * BLOCKS)
        return launch(sum_threads<T>, grid_for(s->outer.n), stream, *s);
    return launch_blocks(sum_blocks<T>, grid_of(s->outer.n), stream, *s);
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_sum_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_sum *sum) {
    TT__FLOATS(dtype, tt::sum_run, stream, sum)
}
}
