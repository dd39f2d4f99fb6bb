/* The largest or smallest of each line of elements, and where it is. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels_reduction.h"

namespace tt {

/* A value and where it lies in its line. */
template <class V> struct candidate {
    V value;
    int64_t index; /* -1: none */
};

/* NaN comes before all, and of equal ones the first. */
template <class V, bool LARGEST> struct join_candidates {
    __device__ candidate<V> operator()(candidate<V> a, candidate<V> b) const {
        if (a.index < 0 || b.index < 0)
            return a.index < 0 ? b : a;
        bool a_is_nan = a.value != a.value, b_is_nan = b.value != b.value;
        if (a_is_nan || b_is_nan)
            return a_is_nan && (!b_is_nan || a.index < b.index) ? a : b;
        if (a.value == b.value)
            return a.index < b.index ? a : b;
        return (a.value > b.value) == LARGEST ? a : b;
    }
};

/* The best of x[first], x[first + stride], ... */
template <class T, bool LARGEST>
__device__ candidate<wide<T>> best_of(const T *x, int64_t n, int64_t step, int64_t first, int64_t stride) {
    candidate<wide<T>> best = {0, -1};
    for (int64_t k = first; k < n; k += stride)
        best = join_candidates<wide<T>, LARGEST>()(best, candidate<wide<T>>{load(x + k * step), k});
    return best;
}

template <class T> __device__ void store_best(const tt__cuda_extreme_lines &l, const places<3> &at, int64_t index) {
    if (l.lines.p[0]) /* argmax() wants no values */
        *element<T>(l.lines, 0, at.at[0]) = element<T>(l.lines, 2, at.at[2])[index * l.step];
    *element<int64_t>(l.lines, 1, at.at[1]) = index;
}

template <class T, bool LARGEST> __global__ void extreme_threads(tt__cuda_extreme_lines l) {
    for (int64_t i = first_element(); i < l.lines.n; i += all_threads()) {
        places<3> at(l.lines, i);
        store_best<T>(l, at, best_of<T, LARGEST>(element<T>(l.lines, 2, at.at[2]), l.n, l.step, 0, 1).index);
    }
}

template <class T, bool LARGEST> __global__ void extreme_blocks(tt__cuda_extreme_lines l) {
    for (int64_t i = blockIdx.x; i < l.lines.n; i += gridDim.x) {
        places<3> at(l.lines, i);
        candidate<wide<T>> best =
            best_of<T, LARGEST>(element<T>(l.lines, 2, at.at[2]), l.n, l.step, threadIdx.x, THREADS);
        best = block_reduce(best, join_candidates<wide<T>, LARGEST>());
        if (threadIdx.x == 0)
            store_best<T>(l, at, best.index);
    }
}

template <class T, bool LARGEST> cudaError_t extreme_of_lines(cudaStream_t stream, const tt__cuda_extreme_lines *l) {
    constexpr int64_t FEW = 32;
    if (!l->lines.n)
        return cudaSuccess;
    return l->n < FEW ? launch(extreme_threads<T, LARGEST>, grid_for(l->lines.n), stream, *l)
                      : launch_blocks(extreme_blocks<T, LARGEST>, grid_of(l->lines.n), stream, *l);
}

template <class T> cudaError_t extreme_run(cudaStream_t stream, const tt__cuda_extreme_lines *l, bool largest) {
    return largest ? extreme_of_lines<T, true>(stream, l) : extreme_of_lines<T, false>(stream, l);
}

template <class T> __global__ void extreme_backward(tt__cuda_extreme_lines l) {
    for (int64_t e = first_element(); e < l.lines.n * l.n; e += all_threads()) {
        places<3> at(l.lines, e / l.n);
        int64_t k = e % l.n;
        bool hit = *element<int64_t>(l.lines, 1, at.at[1]) == k;
        store(element<T>(l.lines, 2, at.at[2]) + k * l.step, hit ? load(element<T>(l.lines, 0, at.at[0])) : 0);
    }
}

template <class T> cudaError_t extreme_backward_run(cudaStream_t stream, const tt__cuda_extreme_lines *l) {
    return l->lines.n && l->n ? launch(extreme_backward<T>, grid_for(l->lines.n * l->n), stream, *l) : cudaSuccess;
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_extreme(cudaStream_t stream, tt_dtype dtype, const tt__cuda_extreme_lines *l, bool largest) {
    if (dtype == TT_BOOL)
        return tt::extreme_run<tt::boolean>(stream, l, largest);
    TT__NUMBERS(dtype, tt::extreme_run, stream, l, largest)
}

cudaError_t tt__cuda_extreme_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_extreme_lines *l) {
    TT__FLOATS(dtype, tt::extreme_backward_run, stream, l)
}
}
