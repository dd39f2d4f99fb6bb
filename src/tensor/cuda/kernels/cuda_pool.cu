/* Pooling: a thread for each element that is written, which gathers what goes into it. Sums are made in double and
 * rounded once. */
#include "tensor/cuda/kernels/cuda_images.cuh"

namespace tt {

/* ---- the largest ---- */

template <class T> __global__ void max_pool(tt__cuda_pool a, int64_t elements) {
    const int64_t H = a.x.dim[2], W = a.x.dim[3];
    for (int64_t i = first_element(); i < elements; i += all_threads()) {
        const image_place y = place_in(a.y, i);
        int64_t best = -1;
        wide<T> most = 0;
        for (int64_t r = 0; r < a.pool.size[0]; r++)
            for (int64_t s = 0; s < a.pool.size[1]; s++) {
                int64_t h = tap_place(a.pool.window, 0, y.h, r, H), w = tap_place(a.pool.window, 1, y.w, s, W);
                if (h < 0 || w < 0)
                    continue;
                wide<T> here = load(pixel<T>(a.x, y.n, y.c, h, w));
                if (best >= 0 && !(here > most) && here == here)
                    continue;
                best = h * W + w;
                most = here;
            }
        int64_t to = image_offset(a.y, y.n, y.c, y.h, y.w);
        a.at[to] = (int32_t)best;
        ((T *)a.y.p)[to] = *pixel<T>(a.x, y.n, y.c, best / W, best % W);
    }
}

/* The sum of what windows that hold the element at x give it: give(p, q), of the window at (p, q). */
template <class Give> __device__ double given_by_windows(const tt__cuda_pool &a, const image_place &x, Give give) {
    double sum = 0;
    for (int64_t r = 0; r < a.pool.size[0]; r++)
        for (int64_t s = 0; s < a.pool.size[1]; s++) {
            int64_t p = window_with(a.pool.window, 0, x.h, r, a.y.dim[2]);
            int64_t q = window_with(a.pool.window, 1, x.w, s, a.y.dim[3]);
            if (p >= 0 && q >= 0)
                sum += give(p, q);
        }
    return sum;
}

/* A window gives its gradient to its largest element. */
template <class T> struct give_to_largest {
    const tt__cuda_pool &a;
    const image_place &x;
    __device__ double operator()(int64_t p, int64_t q) const {
        const int64_t from = image_offset(a.y, x.n, x.c, p, q);
        return a.at[from] == x.h * a.x.dim[3] + x.w ? (double)load((const T *)a.y.p + from) : 0;
    }
};

template <class T> __global__ void max_pool_backward(tt__cuda_pool a, int64_t elements) {
    for (int64_t i = first_element(); i < elements; i += all_threads()) {
        const image_place x = place_in(a.x, i);
        store(pixel<T>(a.x, x.n, x.c, x.h, x.w), (wide<T>)given_by_windows(a, x, give_to_largest<T>{a, x}));
    }
}

/* ---- means ---- */

/* What a window has along a dimension: [begin, end) of the image, and its size with padding. */
struct pool_range {
    int64_t begin, end, padded;
};

__device__ inline pool_range range_of(const tt__pooling &pool, int d, int64_t at, int64_t size) {
    int64_t begin = at * pool.window.stride[d] - pool.window.padding[d], end = begin + pool.size[d];
    int64_t most = size + pool.window.padding[d];
    end = end < most ? end : most;
    return pool_range{begin > 0 ? begin : 0, end < size ? end : size, end - begin};
}

__device__ inline double range_divisor(const tt__pooling &pool, pool_range rows, pool_range columns) {
    if (pool.divisor)
        return (double)pool.divisor;
    return pool.exclude_padding ? (double)((rows.end - rows.begin) * (columns.end - columns.begin))
                                : (double)(rows.padded * columns.padded);
}

__device__ inline pool_range adaptive_range(int64_t at, int64_t count, int64_t size) {
    return pool_range{at * size / count, ((at + 1) * size + count - 1) / count, 0};
}

__device__ inline int64_t range_elements(pool_range rows, pool_range columns) {
    return (rows.end - rows.begin) * (columns.end - columns.begin);
}

template <class T>
__device__ double range_sum(const tt__cuda_image &x, int64_t n, int64_t c, pool_range rows, pool_range columns) {
    double sum = 0;
    for (int64_t h = rows.begin; h < rows.end; h++)
        for (int64_t w = columns.begin; w < columns.end; w++)
            sum += (double)load(pixel<T>(x, n, c, h, w));
    return sum;
}

template <class T> __global__ void avg_pool(tt__cuda_pool a, int64_t elements) {
    for (int64_t i = first_element(); i < elements; i += all_threads()) {
        const image_place y = place_in(a.y, i);
        pool_range rows = range_of(a.pool, 0, y.h, a.x.dim[2]), columns = range_of(a.pool, 1, y.w, a.x.dim[3]);
        double sum = range_sum<T>(a.x, y.n, y.c, rows, columns);
        store(pixel<T>(a.y, y.n, y.c, y.h, y.w), (wide<T>)(sum / range_divisor(a.pool, rows, columns)));
    }
}

/* A window gives its gradient to all of its elements, divided. */
template <class T> struct give_to_all {
    const tt__cuda_pool &a;
    const image_place &x;
    __device__ double operator()(int64_t p, int64_t q) const {
        pool_range rows = range_of(a.pool, 0, p, a.x.dim[2]), columns = range_of(a.pool, 1, q, a.x.dim[3]);
        return (double)load(pixel<T>(a.y, x.n, x.c, p, q)) / range_divisor(a.pool, rows, columns);
    }
};

template <class T> __global__ void avg_pool_backward(tt__cuda_pool a, int64_t elements) {
    for (int64_t i = first_element(); i < elements; i += all_threads()) {
        const image_place x = place_in(a.x, i);
        store(pixel<T>(a.x, x.n, x.c, x.h, x.w), (wide<T>)given_by_windows(a, x, give_to_all<T>{a, x}));
    }
}

template <class T> __global__ void adaptive_pool(tt__cuda_pool a, int64_t elements) {
    for (int64_t i = first_element(); i < elements; i += all_threads()) {
        const image_place y = place_in(a.y, i);
        pool_range rows = adaptive_range(y.h, a.y.dim[2], a.x.dim[2]);
        pool_range columns = adaptive_range(y.w, a.y.dim[3], a.x.dim[3]);
        double sum = range_sum<T>(a.x, y.n, y.c, rows, columns);
        store(pixel<T>(a.y, y.n, y.c, y.h, y.w), (wide<T>)(sum / (double)range_elements(rows, columns)));
    }
}

/* The sum over the windows that hold (h, w): from number h P / H on, while they begin before it ends. */
template <class T> __device__ double adaptive_sum(const tt__cuda_pool &a, const image_place &x) {
    const int64_t H = a.x.dim[2], W = a.x.dim[3], P = a.y.dim[2], Q = a.y.dim[3];
    double sum = 0;
    for (int64_t p = x.h * P / H; p < P && adaptive_range(p, P, H).begin <= x.h; p++)
        for (int64_t q = x.w * Q / W; q < Q && adaptive_range(q, Q, W).begin <= x.w; q++)
            sum += (double)load(pixel<T>(a.y, x.n, x.c, p, q)) /
                   (double)range_elements(adaptive_range(p, P, H), adaptive_range(q, Q, W));
    return sum;
}

template <class T> __global__ void adaptive_pool_backward(tt__cuda_pool a, int64_t elements) {
    for (int64_t i = first_element(); i < elements; i += all_threads()) {
        const image_place x = place_in(a.x, i);
        store(pixel<T>(a.x, x.n, x.c, x.h, x.w), (wide<T>)adaptive_sum<T>(a, x));
    }
}

/* ---- */

inline cudaError_t pool_launch(void (*kernel)(tt__cuda_pool, int64_t), cudaStream_t stream, const tt__cuda_pool *p,
                               const tt__cuda_image &written) {
    int64_t elements = image_elements(written);
    return elements ? launch(kernel, grid_for(elements), stream, *p, elements) : cudaSuccess;
}

template <class T> cudaError_t max_pool_run(cudaStream_t stream, const tt__cuda_pool *p) {
    return pool_launch(max_pool<T>, stream, p, p->y);
}
template <class T> cudaError_t max_pool_backward_run(cudaStream_t stream, const tt__cuda_pool *p) {
    return pool_launch(max_pool_backward<T>, stream, p, p->x);
}
template <class T> cudaError_t avg_pool_run(cudaStream_t stream, const tt__cuda_pool *p) {
    return pool_launch(avg_pool<T>, stream, p, p->y);
}
template <class T> cudaError_t avg_pool_backward_run(cudaStream_t stream, const tt__cuda_pool *p) {
    return pool_launch(avg_pool_backward<T>, stream, p, p->x);
}
template <class T> cudaError_t adaptive_pool_run(cudaStream_t stream, const tt__cuda_pool *p) {
    return pool_launch(adaptive_pool<T>, stream, p, p->y);
}
template <class T> cudaError_t adaptive_pool_backward_run(cudaStream_t stream, const tt__cuda_pool *p) {
    return pool_launch(adaptive_pool_backward<T>, stream, p, p->x);
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_max_pool2d(cudaStream_t stream, tt_dtype dtype,
                                const tt__cuda_pool *p){TT__FLOATS(dtype, tt::max_pool_run, stream, p)}

cudaError_t tt__cuda_max_pool2d_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_pool *p){
    TT__FLOATS(dtype, tt::max_pool_backward_run, stream, p)}

cudaError_t tt__cuda_avg_pool2d(cudaStream_t stream, tt_dtype dtype,
                                const tt__cuda_pool *p){TT__FLOATS(dtype, tt::avg_pool_run, stream, p)}

cudaError_t tt__cuda_avg_pool2d_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_pool *p){
    TT__FLOATS(dtype, tt::avg_pool_backward_run, stream, p)}

cudaError_t tt__cuda_adaptive_avg_pool2d(cudaStream_t stream, tt_dtype dtype,
                                         const tt__cuda_pool *p){TT__FLOATS(dtype, tt::adaptive_pool_run, stream, p)}

cudaError_t tt__cuda_adaptive_avg_pool2d_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_pool *p) {
    TT__FLOATS(dtype, tt::adaptive_pool_backward_run, stream, p)
}
}
