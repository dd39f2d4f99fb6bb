/* Normalisation of elements: sums in double, elements in f32 (f64 of f64). Rows are read twice or three times, mostly
 * from cache. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels_norm.h"

namespace tt {

template <class T> __device__ wide<T> weight_or(const void *weight, int64_t k, wide<T> none) {
    return weight ? load((const T *)weight + k) : none;
}

/* The number of the weight of element i of row r. */
__device__ inline int64_t norm_weight_of(const tt__cuda_norm &n, int64_t r, int64_t i) {
    if (n.groups == 1 && n.share == 1)
        return i;
    return r % n.groups * (n.n / n.share) + i / n.share;
}

/* ---- rows: a block for each ---- */

template <class T> __device__ void row_moments(const tt__cuda_norm &n, const T *x, double *mean, double *rstd) {
    double sum = 0, squares = 0;
    if (!n.no_mean) {
        for (int64_t i = threadIdx.x; i < n.n; i += THREADS)
            sum += (double)load(x + i);
        sum = block_reduce(sum, join_sum());
    }
    *mean = sum / (double)n.n;
    for (int64_t i = threadIdx.x; i < n.n; i += THREADS) {
        double d = (double)load(x + i) - *mean;
        squares += d * d;
    }
    *rstd = 1 / sqrt(block_reduce(squares, join_sum()) / (double)n.n + n.eps);
}

template <class T> __global__ void norm_each_row(tt__cuda_norm n) {
    for (int64_t r = blockIdx.x; r < n.R; r += gridDim.x) {
        const T *x = (const T *)n.x + r * n.n;
        double mean, rstd;
        row_moments(n, x, &mean, &rstd);
        if (threadIdx.x == 0) {
            n.mean[r] = mean;
            n.rstd[r] = rstd;
        }
        wide<T> m = (wide<T>)mean, s = (wide<T>)rstd;
        for (int64_t i = threadIdx.x; i < n.n; i += THREADS) {
            int64_t k = norm_weight_of(n, r, i);
            wide<T> normed = (load(x + i) - m) * s;
            store((T *)n.y + r * n.n + i, normed * weight_or<T>(n.weight, k, 1) + weight_or<T>(n.bias, k, 0));
        }
    }
}

/* dx = rstd (h - mean of h - normed (mean of h normed)), h = g weight; no_mean: without the mean of h. */
template <class T> __global__ void norm_each_row_backward(tt__cuda_norm n) {
    typedef wide<T> W;
    for (int64_t r = blockIdx.x; r < n.R; r += gridDim.x) {
        const T *x = (const T *)n.x + r * n.n, *g = (const T *)n.g + r * n.n;
        W m = (W)n.mean[r], s = (W)n.rstd[r];
        double sum = 0, dot = 0;
        for (int64_t i = threadIdx.x; i < n.n; i += THREADS) {
            W h = load(g + i) * weight_or<T>(n.weight, norm_weight_of(n, r, i), 1);
            sum += (double)h;
            dot += (double)h * (double)((load(x + i) - m) * s);
        }
        W shift = n.no_mean ? 0 : (W)(block_reduce(sum, join_sum()) / (double)n.n);
        W slope = (W)(block_reduce(dot, join_sum()) / (double)n.n);
        for (int64_t i = threadIdx.x; i < n.n; i += THREADS) {
            W h = load(g + i) * weight_or<T>(n.weight, norm_weight_of(n, r, i), 1);
            store((T *)n.y + r * n.n + i, s * (h - shift - (load(x + i) - m) * s * slope));
        }
    }
}

template <class T> cudaError_t norm_rows_run(cudaStream_t stream, const tt__cuda_norm *n) {
    return launch_blocks(norm_each_row<T>, grid_of(n->R), stream, *n);
}

template <class T> cudaError_t norm_rows_backward_run(cudaStream_t stream, const tt__cuda_norm *n) {
    return launch_blocks(norm_each_row_backward<T>, grid_of(n->R), stream, *n);
}

/* ---- by channel: a thread for each element ---- */

template <class T> __global__ void norm_channels(tt__cuda_norm n) {
    typedef wide<T> W;
    for (int64_t i = first_element(); i < n.R * n.n; i += all_threads()) {
        int64_t c = i / n.n % n.groups;
        W scale = (W)(n.rstd[c] * (double)weight_or<T>(n.weight, c, 1)), shift = weight_or<T>(n.bias, c, 0);
        store((T *)n.y + i, (load((const T *)n.x + i) - (W)n.mean[c]) * scale + shift);
    }
}

/* dx = weight rstd (g - [dbias + normed dweight] / count); x has no part in it if mean and rstd are fixed, even if it
 * is infinite. */
template <class T> __global__ void norm_channels_backward(tt__cuda_norm n, const double *sums, double count) {
    typedef wide<T> W;
    for (int64_t i = first_element(); i < n.R * n.n; i += all_threads()) {
        int64_t c = i / n.n % n.groups;
        W scale = (W)(n.rstd[c] * (double)weight_or<T>(n.weight, c, 1)), g = load((const T *)n.g + i);
        if (!n.fixed) {
            W shift = (W)(sums[c] / count), slope = (W)(sums[n.groups + c] * n.rstd[c] / count);
            g -= shift + (load((const T *)n.x + i) - (W)n.mean[c]) * slope;
        }
        store((T *)n.y + i, scale * g);
    }
}

template <class T> cudaError_t norm_channels_run(cudaStream_t stream, const tt__cuda_norm *n) {
    return launch(norm_channels<T>, grid_for(n->R * n->n), stream, *n);
}

template <class T>
cudaError_t norm_channels_backward_run(cudaStream_t stream, const tt__cuda_norm *n, const double *sums, int64_t count) {
    return launch(norm_channels_backward<T>, grid_for(n->R * n->n), stream, *n, sums, (double)count);
}

/* ---- running statistics ---- */

template <class T> __global__ void norm_given(tt__cuda_norm_running r) {
    for (int64_t c = first_element(); c < r.C; c += all_threads()) {
        r.mean[c] = (double)load((const T *)r.m + c);
        r.rstd[c] = 1 / sqrt((double)load((const T *)r.var + c) + r.eps);
    }
}

/* running += momentum (now - running); the variance of now is the unbiased one. */
template <class T> __global__ void norm_move(tt__cuda_norm_running r) {
    for (int64_t c = first_element(); c < r.C; c += all_threads()) {
        T *m = (T *)r.m + c, *var = (T *)r.var + c;
        double now = (1 / (r.rstd[c] * r.rstd[c]) - r.eps) * (double)r.count / (double)(r.count - 1);
        store(m, (wide<T>)((1 - r.momentum) * (double)load(m) + r.momentum * r.mean[c]));
        store(var, (wide<T>)((1 - r.momentum) * (double)load(var) + r.momentum * now));
    }
}

template <class T> cudaError_t norm_given_run(cudaStream_t stream, const tt__cuda_norm_running *r) {
    return launch(norm_given<T>, grid_for(r->C), stream, *r);
}

template <class T> cudaError_t norm_move_run(cudaStream_t stream, const tt__cuda_norm_running *r) {
    return launch(norm_move<T>, grid_for(r->C), stream, *r);
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_norm_rows(cudaStream_t stream, tt_dtype dtype,
                               const tt__cuda_norm *n){TT__FLOATS(dtype, tt::norm_rows_run, stream, n)}

cudaError_t tt__cuda_norm_rows_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n){
    TT__FLOATS(dtype, tt::norm_rows_backward_run, stream, n)}

cudaError_t tt__cuda_norm_channels(cudaStream_t stream, tt_dtype dtype,
                                   const tt__cuda_norm *n){TT__FLOATS(dtype, tt::norm_channels_run, stream, n)}

cudaError_t tt__cuda_norm_channels_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n,
                                            const double *sums, int64_t count){
    TT__FLOATS(dtype, tt::norm_channels_backward_run, stream, n, sums, count)}

cudaError_t tt__cuda_norm_given(cudaStream_t stream, tt_dtype dtype,
                                const tt__cuda_norm_running *r){TT__FLOATS(dtype, tt::norm_given_run, stream, r)}

cudaError_t tt__cuda_norm_move(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm_running *r) {
    TT__FLOATS(dtype, tt::norm_move_run, stream, r)
}
}
