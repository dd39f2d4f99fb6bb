/* Scaled dot product attention of a batch of matrices: a block for each row of q, and for dk and dv one for each row of
 * k. Scores are not stored but made anew each time, as many at once as a block has threads. f32 and 16-bit floats are
 * computed in f32, f64 in f64, sums in an order that depends on shapes alone. Letters as in
 * tensor/reference/attention_loops.h. */
#include "tensor/cuda/cuda_kernels_layers.h"
#include "tensor/cuda/kernels/cuda_code.cuh"

namespace tt {

template <class T> __device__ T *attention_row(const tt__cuda_matrix &x, int64_t i) { return (T *)x.p + i * x.row; }

__device__ inline void move_matrix(tt__cuda_matrix *m, int64_t bytes) { m->p = (char *)m->p + bytes; }

/* The matrices of number `i` of a batch, with the mean gradients of its rows, of `size` bytes. */
__device__ inline tt__cuda_attention attention_number(const tt__cuda_attention &first,
                                                      const tt__cuda_attention_batch &b, int64_t i, size_t size) {
    tt__cuda_attention a = first;
    a.mean = (char *)a.mean + i * a.T * (int64_t)size;
    for (int d = 0; d < b.ndim; d++) {
        const int64_t at = i % b.dim[d];
        i /= b.dim[d];
        move_matrix(&a.q, at * b.q[d]);
        move_matrix(&a.k, at * b.k[d]);
        move_matrix(&a.v, at * b.v[d]);
        move_matrix(&a.mask, at * b.mask[d]);
        move_matrix(&a.y, at * b.y[d]);
        move_matrix(&a.stats, at * b.stats[d]);
        move_matrix(&a.g, at * b.g[d]);
        move_matrix(&a.dq, at * b.dq[d]);
        move_matrix(&a.dk, at * b.dk[d]);
        move_matrix(&a.dv, at * b.dv[d]);
    }
    return a;
}

template <class T> __device__ wide<T> attention_dot(const T *a, const T *b, int64_t n) {
    wide<T> sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += load(a + i) * load(b + i);
    return sum;
}

/* How many keys row t sees. */
__device__ inline int64_t attention_seen(const tt__cuda_attention &a, int64_t t) {
    return a.causal && t + 1 < a.S ? t + 1 : a.S;
}

template <class T> __device__ wide<T> attention_score(const tt__cuda_attention &a, int64_t t, int64_t j) {
    typedef wide<T> W;
    W s = (W)a.scale * attention_dot(attention_row<T>(a.q, t), attention_row<T>(a.k, j), a.D);
    return a.mask.p ? s + attention_row<W>(a.mask, t)[j * a.mask.column] : s;
}

/* p[j] of row t, from the maximum and the sum of its stats. */
template <class T> __device__ wide<T> attention_share(const tt__cuda_attention &a, int64_t t, int64_t j) {
    const wide<T> *stats = attention_row<wide<T>>(a.stats, t);
    return exp(attention_score<T>(a, t, j) - stats[0]) / stats[1];
}

/* g.v[j] of row t */
template <class T> __device__ wide<T> attention_pull(const tt__cuda_attention &a, int64_t t, int64_t j) {
    return attention_dot(attention_row<T>(a.g, t), attention_row<T>(a.v, j), a.Dv);
}

/* to[c] = sum of factor(i) x[i][c] over rows begin <= i < end of x, for each column c: each of the block's threads
 * makes factors first, then columns. */
template <class T, class Factor>
__device__ void attention_sum(T *to, const tt__cuda_matrix &x, int64_t columns, int64_t begin, int64_t end,
                              Factor factor) {
    __shared__ wide<T> factors[THREADS];
    for (int64_t c0 = 0; c0 < columns; c0 += THREADS) {
        const int64_t c = c0 + threadIdx.x;
        wide<T> sum = 0;
        for (int64_t i0 = begin; i0 < end; i0 += THREADS) {
            const int n = end - i0 < THREADS ? (int)(end - i0) : THREADS;
            __syncthreads(); /* the factors before may still be read */
            if ((int)threadIdx.x < n)
                factors[threadIdx.x] = factor(i0 + threadIdx.x);
            __syncthreads();
            for (int i = 0; i < n && c < columns; i++)
                sum += factors[i] * load(attention_row<T>(x, i0 + i) + c);
        }
        if (c < columns)
            store(to + c, sum);
    }
}

template <class T> struct attention_share_of_key {
    const tt__cuda_attention &a;
    int64_t t;
    __device__ wide<T> operator()(int64_t j) const { return attention_share<T>(a, t, j); }
};

template <class T> struct attention_share_of_row {
    const tt__cuda_attention &a;
    int64_t j;
    __device__ wide<T> operator()(int64_t t) const { return attention_share<T>(a, t, j); }
};

/* ds[j] of row t */
template <class T> __device__ wide<T> attention_slope(const tt__cuda_attention &a, int64_t t, int64_t j) {
    wide<T> above = attention_pull<T>(a, t, j) - ((const wide<T> *)a.mean)[t];
    return attention_share<T>(a, t, j) * above * (wide<T>)a.scale;
}

template <class T> struct attention_slope_of_key {
    const tt__cuda_attention &a;
    int64_t t;
    __device__ wide<T> operator()(int64_t j) const { return attention_slope<T>(a, t, j); }
};

template <class T> struct attention_slope_of_row {
    const tt__cuda_attention &a;
    int64_t j;
    __device__ wide<T> operator()(int64_t t) const { return attention_slope<T>(a, t, j); }
};

/* ---- forward ---- */

/* Make the stats of row t: the largest score, NaN if one is, and the sum of exp(s - max). */
template <class T> __device__ void attention_make_stats(const tt__cuda_attention &a, int64_t t) {
    typedef wide<T> W;
    const int64_t n = attention_seen(a, t);
    W max = -INFINITY, sum = 0;
    for (int64_t j = threadIdx.x; j < n; j += THREADS)
        max = join_max()(max, attention_score<T>(a, t, j));
    max = block_reduce(max, join_max());
    const bool sees = max != -(W)INFINITY;
    for (int64_t j = threadIdx.x; j < n && sees; j += THREADS)
        sum += exp(attention_score<T>(a, t, j) - max);
    sum = block_reduce(sum, join_sum());
    if (threadIdx.x == 0) {
        attention_row<W>(a.stats, t)[0] = sees ? max : 0;
        attention_row<W>(a.stats, t)[1] = sees ? sum : (W)INFINITY;
    }
    __syncthreads();
}

template <class T> __global__ void attention(tt__cuda_attention first, tt__cuda_attention_batch b) {
    for (int64_t i = blockIdx.x; i < b.n * first.T; i += gridDim.x) {
        const tt__cuda_attention a = attention_number(first, b, i / first.T, sizeof(wide<T>));
        const int64_t t = i % a.T;
        attention_make_stats<T>(a, t);
        attention_sum(attention_row<T>(a.y, t), a.v, a.Dv, 0, attention_seen(a, t), attention_share_of_key<T>{a, t});
    }
}

template <class T>
cudaError_t attention_run(cudaStream_t stream, const tt__cuda_attention *a, const tt__cuda_attention_batch *b) {
    const int64_t rows = b->n * a->T;
    return rows ? launch_blocks(attention<T>, grid_of(rows), stream, *a, *b) : cudaSuccess;
}

/* ---- backward ---- */

/* The mean gradient of row t, and dq. */
template <class T> __global__ void attention_backward_rows(tt__cuda_attention first, tt__cuda_attention_batch b) {
    typedef wide<T> W;
    for (int64_t i = blockIdx.x; i < b.n * first.T; i += gridDim.x) {
        const tt__cuda_attention a = attention_number(first, b, i / first.T, sizeof(W));
        const int64_t t = i % a.T;
        const int64_t n = attention_seen(a, t);
        W mean = 0;
        for (int64_t j = threadIdx.x; j < n; j += THREADS)
            mean += attention_share<T>(a, t, j) * attention_pull<T>(a, t, j);
        mean = block_reduce(mean, join_sum());
        if (threadIdx.x == 0)
            ((W *)a.mean)[t] = mean;
        __syncthreads();
        attention_sum(attention_row<T>(a.dq, t), a.k, a.D, 0, n, attention_slope_of_key<T>{a, t});
    }
}

/* dk and dv of row j, from the rows that see it. */
template <class T> __global__ void attention_backward_keys(tt__cuda_attention first, tt__cuda_attention_batch b) {
    for (int64_t i = blockIdx.x; i < b.n * first.S; i += gridDim.x) {
        const tt__cuda_attention a = attention_number(first, b, i / first.S, sizeof(wide<T>));
        const int64_t j = i % a.S, begin = a.causal ? j : 0;
        attention_sum(attention_row<T>(a.dk, j), a.q, a.D, begin, a.T, attention_slope_of_row<T>{a, j});
        attention_sum(attention_row<T>(a.dv, j), a.g, a.Dv, begin, a.T, attention_share_of_row<T>{a, j});
    }
}

template <class T>
cudaError_t attention_backward_run(cudaStream_t stream, const tt__cuda_attention *a,
                                   const tt__cuda_attention_batch *b) {
    const int64_t rows = b->n * a->T, keys = b->n * a->S;
    cudaError_t error = rows ? launch_blocks(attention_backward_rows<T>, grid_of(rows), stream, *a, *b) : cudaSuccess;
    return error || !keys ? error : launch_blocks(attention_backward_keys<T>, grid_of(keys), stream, *a, *b);
}

/* ---- for cuDNN ---- */

__global__ void attention_log_sums(float *sums, const float *stats, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (int64_t)blockDim.x)
        sums[i] = stats[2 * i] + logf(stats[2 * i + 1]);
}

__global__ void attention_stats(float *stats, const float *sums, int64_t n) {
    for (int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (int64_t)blockDim.x) {
        stats[2 * i] = sums[i];
        stats[2 * i + 1] = 1;
    }
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_attention_log_sums(cudaStream_t stream, float *sums, const float *stats, int64_t n) {
    return n ? tt::launch(tt::attention_log_sums, tt::grid_for(n), stream, sums, stats, n) : cudaSuccess;
}

cudaError_t tt__cuda_attention_stats(cudaStream_t stream, float *stats, const float *sums, int64_t n) {
    return n ? tt::launch(tt::attention_stats, tt::grid_for(n), stream, stats, sums, n) : cudaSuccess;
}

cudaError_t tt__cuda_attention_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_attention *a,
                                   const tt__cuda_attention_batch *batch){
    TT__FLOATS(dtype, tt::attention_run, stream, a, batch)}

cudaError_t tt__cuda_attention_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_attention *a,
                                        const tt__cuda_attention_batch *batch) {
    TT__FLOATS(dtype, tt::attention_backward_run, stream, a, batch)
}
}
