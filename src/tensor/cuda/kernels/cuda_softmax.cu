/* Softmax along rows: a block for a row, in f32 (f64 of f64), as each is read twice or three times, mostly from cache.
 */
#include "tensor/cuda/kernels/cuda_code.cuh"

namespace tt {

template <class T> __device__ wide<T> row_max(const T *x, int64_t V) {
    wide<T> max = -INFINITY;
    for (int64_t v = threadIdx.x; v < V; v += THREADS)
        max = join_max()(max, load(x + v));
    return block_reduce(max, join_max());
}

template <class T> __device__ wide<T> row_sum_exp(const T *x, int64_t V, wide<T> max) {
    wide<T> sum = 0;
    for (int64_t v = threadIdx.x; v < V; v += THREADS)
        sum += exp(load(x + v) - max);
    return block_reduce(sum, join_sum());
}

/* y = x - max - log sum, or exp(x - max) / sum */
template <class T, bool LOG> __global__ void softmax(T *y, const T *x, int64_t R, int64_t V) {
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        const T *from = x + r * V;
        wide<T> max = row_max(from, V), sum = row_sum_exp(from, V, max), log_sum = log(sum);
        for (int64_t v = threadIdx.x; v < V; v += THREADS) {
            wide<T> above = load(from + v) - max;
            store(y + r * V + v, LOG ? above - log_sum : exp(above) / sum);
        }
    }
}

/* LOG: dx = g - exp(y) * sum of g; else y * (g - sum of g * y) */
template <class T, bool LOG> __global__ void softmax_backward(T *dx, const T *y, const T *g, int64_t R, int64_t V) {
    for (int64_t r = blockIdx.x; r < R; r += gridDim.x) {
        wide<T> sum = 0;
        for (int64_t v = r * V + threadIdx.x; v < (r + 1) * V; v += THREADS)
            sum += LOG ? load(g + v) : load(g + v) * load(y + v);
        sum = block_reduce(sum, join_sum());
        for (int64_t v = r * V + threadIdx.x; v < (r + 1) * V; v += THREADS)
            store(dx + v, LOG ? load(g + v) - exp(load(y + v)) * sum : load(y + v) * (load(g + v) - sum));
    }
}

template <class T, bool LOG> cudaError_t forward(cudaStream_t stream, void *y, const void *x, int64_t R, int64_t V) {
    return R && V ? launch_blocks(softmax<T, LOG>, grid_of(R), stream, (T *)y, (const T *)x, R, V) : cudaSuccess;
}

template <class T, bool LOG>
cudaError_t backward(cudaStream_t stream, void *dx, const void *y, const void *g, int64_t R, int64_t V) {
    return R && V
               ? launch_blocks(softmax_backward<T, LOG>, grid_of(R), stream, (T *)dx, (const T *)y, (const T *)g, R, V)
               : cudaSuccess;
}

template <class T> cudaError_t softmax_run(cudaStream_t s, void *y, const void *x, int64_t R, int64_t V) {
    return forward<T, false>(s, y, x, R, V);
}
template <class T> cudaError_t log_softmax_run(cudaStream_t s, void *y, const void *x, int64_t R, int64_t V) {
    return forward<T, true>(s, y, x, R, V);
}
template <class T>
cudaError_t softmax_backward_run(cudaStream_t s, void *dx, const void *y, const void *g, int64_t R, int64_t V) {
    return backward<T, false>(s, dx, y, g, R, V);
}
template <class T>
cudaError_t log_softmax_backward_run(cudaStream_t s, void *dx, const void *y, const void *g, int64_t R, int64_t V) {
    return backward<T, true>(s, dx, y, g, R, V);
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_softmax(cudaStream_t stream, tt_dtype dtype, void *y, const void *x, int64_t R,
                             int64_t V){TT__FLOATS(dtype, tt::softmax_run, stream, y, x, R, V)}

cudaError_t tt__cuda_log_softmax(cudaStream_t stream, tt_dtype dtype, void *y, const void *x, int64_t R,
                                 int64_t V){TT__FLOATS(dtype, tt::log_softmax_run, stream, y, x, R, V)}

cudaError_t
    tt__cuda_softmax_backward(cudaStream_t stream, tt_dtype dtype, void *dx, const void *y, const void *g, int64_t R,
                              int64_t V){TT__FLOATS(dtype, tt::softmax_backward_run, stream, dx, y, g, R, V)}

cudaError_t tt__cuda_log_softmax_backward(cudaStream_t stream, tt_dtype dtype, void *dx, const void *y, const void *g,
                                          int64_t R, int64_t V) {
    TT__FLOATS(dtype, tt::log_softmax_backward_run, stream, dx, y, g, R, V)
}
}
