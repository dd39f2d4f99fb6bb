/* Losses: cross entropy of logits, the negative log likelihood of targets t among V classes, the mean squared error.
 * Sums are made in double. */
#include "tensor/cuda/kernels/cuda_code.cuh"

#include "tensor/cuda/cuda_kernels_layers.h"

namespace tt {

/* ---- losses as means: of parts in double, over rows whose target is a class ---- */

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

/* ---- negative log likelihood: the mean of all rows ---- */

template <class T> __global__ void nll_mean(tt__cuda_nll c) {
    double sum = 0;
    for (int64_t r = threadIdx.x; r < c.R; r += THREADS)
        sum -= is_place(c.t[r], c.V) ? (double)load((const T *)c.x + r * c.V + c.t[r]) : 0;
    sum = block_reduce(sum, join_sum());
    const double count = block_classes(c.t, c.R, c.V);
    if (threadIdx.x == 0)
        store((T *)c.loss, (wide<T>)(sum / count));
}

template <class T> cudaError_t nll_mean_run(cudaStream_t stream, const tt__cuda_nll *c) {
    return launch_blocks(nll_mean<T>, 1, stream, *c);
}

template <class T> __global__ void nll_mean_backward(tt__cuda_nll c) {
    const wide<T> each = (wide<T>)-*c.scratch;
    for (int64_t i = first_element(); i < c.R * c.V; i += all_threads())
        store((T *)c.dx + i, i % c.V == c.t[i / c.V] ? each : 0);
}

template <class T> cudaError_t nll_mean_backward_run(cudaStream_t stream, const tt__cuda_nll *c) {
    if (!c->R || !c->V)
        return cudaSuccess;
    cudaError_t error = launch_blocks(share_of_classes<T>, 1, stream, c->scratch, (const T *)c->g, c->t, c->R, c->V);
    return error ? error : launch(nll_mean_backward<T>, grid_for(c->R * c->V), stream, *c);
}

/* ---- row by row ---- */

template <class T> __device__ double class_weight(const tt__cuda_nll &c, int64_t v) {
    return c.w ? (double)load((const T *)c.w + v) : 1;
}

__device__ inline bool row_counts(const tt__cuda_nll &c, int64_t r) {
    return c.t[r] != c.call.ignore && is_place(c.t[r], c.V);
}

/* `all`: the sum of w[v] x[r][v], where the smoothing needs it. */
template <class T> __device__ void store_nll_row(const tt__cuda_nll &c, int64_t r, double all) {
    bool counts = row_counts(c, r);
    double weight = counts ? class_weight<T>(c, c.t[r]) : 0, s = c.call.smoothing;
    double hit = counts ? weight * (double)load((const T *)c.x + r * c.V + c.t[r]) : 0;
    store((T *)c.share + r, (wide<T>)weight);
    store((T *)c.loss + r, (wide<T>)((s - 1) * hit - s / (double)c.V * all));
}

template <class T> __global__ void nll_rows(tt__cuda_nll c) {
    for (int64_t r = first_element(); r < c.R; r += all_threads())
        store_nll_row<T>(c, r, 0);
}

template <class T> __global__ void nll_smooth_rows(tt__cuda_nll c) {
    for (int64_t r = blockIdx.x; r < c.R; r += gridDim.x) {
        double all = 0;
        for (int64_t v = threadIdx.x; v < c.V && row_counts(c, r); v += THREADS)
            all += class_weight<T>(c, v) * (double)load((const T *)c.x + r * c.V + v);
        all = block_reduce(all, join_sum());
        if (threadIdx.x == 0)
            store_nll_row<T>(c, r, all);
    }
}

template <class T> cudaError_t nll_rows_run(cudaStream_t stream, const tt__cuda_nll *c) {
    if (!c->R)
        return cudaSuccess;
    return c->call.smoothing != 0 ? launch_blocks(nll_smooth_rows<T>, grid_of(c->R), stream, *c)
                                  : launch(nll_rows<T>, grid_for(c->R), stream, *c);
}

template <class T> __global__ void nll_rows_backward(tt__cuda_nll c) {
    double s = c.call.smoothing;
    for (int64_t i = first_element(); i < c.R * c.V; i += all_threads()) {
        int64_t t = c.t[i / c.V], v = i % c.V;
        const bool counts = row_counts(c, i / c.V);
        double g = counts ? (double)load((const T *)c.g + i / c.V) : 0;
        double each = s == 0 ? 0 : s / (double)c.V * g; /* 0, even of NaN */
        bool hit = t == v && counts;
        if (hit)
            each += (1 - s) * g;
        store((T *)c.dx + i, (wide<T>)(hit || each != 0 ? -each * class_weight<T>(c, v) : 0));
    }
}

template <class T> cudaError_t nll_rows_backward_run(cudaStream_t stream, const tt__cuda_nll *c) {
    return c->R && c->V ? launch(nll_rows_backward<T>, grid_for(c->R * c->V), stream, *c) : cudaSuccess;
}

/* ---- mean squared error ---- */

/* A block makes each part. */
template <class T> __global__ void square_error_parts(tt__cuda_mse c) {
    double sum = 0;
    for (int64_t i = first_element(); i < c.n; i += all_threads()) {
        double d = (double)(load((const T *)c.a + i) - load((const T *)c.b + i));
        sum += d * d;
    }
    sum = block_reduce(sum, join_sum());
    if (threadIdx.x == 0)
        c.scratch[blockIdx.x] = sum;
}

template <class T> cudaError_t mse_run(cudaStream_t stream, const tt__cuda_mse *c) {
    cudaError_t error = launch_blocks(square_error_parts<T>, c->parts, stream, *c);
    return error ? error
                 : launch_blocks(mean_of_parts<T>, 1, stream, (T *)c->loss, c->scratch, c->parts, (double)c->n,
                                 (const int64_t *)NULL, 0);
}

template <class T> __global__ void mse_backward(tt__cuda_mse c) {
    wide<T> factor = (wide<T>)(2.0 / (double)c.n) * load((const T *)c.g);
    for (int64_t i = first_element(); i < c.n; i += all_threads())
        store((T *)c.da + i, (load((const T *)c.a + i) - load((const T *)c.b + i)) * factor);
}

template <class T> cudaError_t mse_backward_run(cudaStream_t stream, const tt__cuda_mse *c) {
    return c->n ? launch(mse_backward<T>, grid_for(c->n), stream, *c) : cudaSuccess;
}

/* ---- cross entropy of logits x (B,V) and targets t (B) ---- */

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

cudaError_t tt__cuda_nll_loss(cudaStream_t stream, tt_dtype dtype,
                              const tt__cuda_nll *c){TT__FLOATS(dtype, tt::nll_mean_run, stream, c)}

cudaError_t tt__cuda_nll_loss_backward(cudaStream_t stream, tt_dtype dtype,
                                       const tt__cuda_nll *c){TT__FLOATS(dtype, tt::nll_mean_backward_run, stream, c)}

cudaError_t tt__cuda_nll_rows(cudaStream_t stream, tt_dtype dtype,
                              const tt__cuda_nll *c){TT__FLOATS(dtype, tt::nll_rows_run, stream, c)}

cudaError_t tt__cuda_nll_rows_backward(cudaStream_t stream, tt_dtype dtype,
                                       const tt__cuda_nll *c){TT__FLOATS(dtype, tt::nll_rows_backward_run, stream, c)}

cudaError_t tt__cuda_mse_loss(cudaStream_t stream, tt_dtype dtype,
                              const tt__cuda_mse *c){TT__FLOATS(dtype, tt::mse_run, stream, c)}

cudaError_t tt__cuda_mse_loss_backward(cudaStream_t stream, tt_dtype dtype,
                                       const tt__cuda_mse *c){TT__FLOATS(dtype, tt::mse_backward_run, stream, c)}

cudaError_t tt__cuda_cross_entropy_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cross_entropy *c){
    TT__FLOATS(dtype, tt::cross_entropy_run, stream, c)}

cudaError_t tt__cuda_cross_entropy_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cross_entropy *c) {
    TT__FLOATS(dtype, tt::cross_entropy_backward_run, stream, c)
}
}
