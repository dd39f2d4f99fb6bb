/* Cross entropy of logits x (B,V) and targets t (B). */
#include "tensor/cuda/kernels/cuda_means.cuh"

namespace tt {

/* A block for a row: rows[b] = log sum[b] - (x[b][t[b]] - max[b]), stats as tensor/kernels/kernels.h says. */
template <class T> __global__ void cross_entropy_rows(tt__cuda_cross_entropy c) {
    typedef wide<T> W;
    T *stats = (T *)c.stats;
    for (int64_t b = blockIdx.x; b < c.B; b += gridDim.x) {
        const T *x = (const T *)c.x + b * c.V;
        W max = -INFINITY, sum = 0;
        for (int64_t v = threadIdx.x; v < c.V; v += THREADS)
            max = join_max()(max, load(x + v));
        max = block_reduce(max, join_max());
        for (int64_t v = threadIdx.x; v < c.V; v += THREADS)
            sum += exp(load(x + v) - max);
        sum = block_reduce(sum, join_sum());
        if (threadIdx.x == 0) {
            store(stats + 2 * b, max);
            store(stats + 2 * b + 1, sum);
            const bool counts = is_place(c.t[b], c.V);
            c.rows[b] = counts ? log((double)sum) - ((double)load(x + c.t[b]) - (double)max) : 0;
        }
    }
}

template <class T> cudaError_t cross_entropy_run(cudaStream_t stream, const tt__cuda_cross_entropy *c) {
    cudaError_t error = launch_blocks(cross_entropy_rows<T>, grid_of(c->B), stream, *c);
    return error ? error : launch_blocks(mean_of_parts<T>, 1, stream, (T *)c->loss, c->rows, c->B, 1., c->t, c->V);
}

/* dx = (exp(x - max) / sum - [v == t]) * share, 0 where t is no class */
template <class T> __global__ void cross_entropy_backward(tt__cuda_cross_entropy c) {
    typedef wide<T> W;
    const T *stats = (const T *)c.stats;
    const W share = (W)*c.rows;
    for (int64_t i = first_element(); i < c.B * c.V; i += all_threads()) {
        int64_t b = i / c.V, v = i % c.V;
        W p = exp(load((const T *)c.x + i) - load(stats + 2 * b)) / load(stats + 2 * b + 1);
        store((T *)c.dx + i, is_place(c.t[b], c.V) ? (p - (W)(v == c.t[b])) * share : 0);
    }
}

template <class T> cudaError_t cross_entropy_backward_run(cudaStream_t stream, const tt__cuda_cross_entropy *c) {
    cudaError_t error = launch_blocks(share_of_classes<T>, 1, stream, c->rows, (const T *)c->g, c->t, c->B, c->V);
    return error ? error : launch(cross_entropy_backward<T>, grid_for(c->B * c->V), stream, *c);
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_cross_entropy_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cross_entropy *c){
    TT__FLOATS(dtype, tt::cross_entropy_run, stream, c)}

cudaError_t tt__cuda_cross_entropy_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cross_entropy *c) {
    TT__FLOATS(dtype, tt::cross_entropy_backward_run, stream, c)
}
}
