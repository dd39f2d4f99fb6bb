/* Sorting rows, stable, NaN as the largest: indices of elements are moved, elements stay. Tiles are sorted first, then
 * merged in pairs: each element finds its place by counting those of the other run that go before it. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels.h"

namespace tt {

/* Does element i of the row come before element j, by their values alone? */
template <class T> __device__ bool sorts_before(const T *row, int64_t i, int64_t j, bool descending) {
    const wide<T> a = load(row + (descending ? j : i)), b = load(row + (descending ? i : j));
    return b != b ? a == a : a < b;
}

/* Tiles of THREADS elements: a thread for each. */
template <class T> __global__ void sort_tiles(tt__cuda_sort s) {
    for (int64_t i = first_element(); i < s.rows * s.n; i += all_threads()) {
        const int64_t line = i / s.n * s.n, me = i - line, begin = me / THREADS * THREADS;
        const int64_t end = begin + THREADS < s.n ? begin + THREADS : s.n;
        const T *row = (const T *)s.x + line;
        int64_t place = begin;
        for (int64_t k = begin; k < end; k++)
            place += k < me ? !sorts_before(row, me, k, s.descending) : sorts_before(row, k, me, s.descending);
        s.order[line + place] = me;
    }
}

/* How many of the n sorted elements go before `me`; equal ones too, if they come first? */
template <class T>
__device__ int64_t count_before(const T *row, const int64_t *sorted, int64_t n, int64_t me, bool equal,
                                bool descending) {
    int64_t low = 0, high = n;
    while (low < high) {
        const int64_t middle = (low + high) / 2;
        bool before = equal ? !sorts_before(row, me, sorted[middle], descending)
                            : sorts_before(row, sorted[middle], me, descending);
        if (before)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Merge runs of `run` elements in pairs. */
template <class T> __global__ void sort_merge(tt__cuda_sort s, int64_t run) {
    for (int64_t i = first_element(); i < s.rows * s.n; i += all_threads()) {
        const int64_t line = i / s.n * s.n, at = i - line, begin = at / (2 * run) * (2 * run);
        const int64_t middle = begin + run < s.n ? begin + run : s.n;
        const int64_t end = begin + 2 * run < s.n ? begin + 2 * run : s.n;
        const T *row = (const T *)s.x + line;
        const int64_t *from = s.order + line, me = from[at];
        const bool second = at >= middle;
        const int64_t others = second ? count_before(row, from + begin, middle - begin, me, true, s.descending)
                                      : count_before(row, from + middle, end - middle, me, false, s.descending);
        s.spare[line + (second ? begin + at - middle : at) + others] = me;
    }
}

template <class T> __global__ void take_sorted(tt__cuda_sort s) {
    for (int64_t i = first_element(); i < s.rows * s.k; i += all_threads()) {
        const int64_t row = i / s.k, from = s.order[row * s.n + i % s.k];
        s.indices[i] = from;
        ((T *)s.y)[i] = ((const T *)s.x)[row * s.n + from];
    }
}

template <class T> cudaError_t sort_run(cudaStream_t stream, const tt__cuda_sort *sort) {
    tt__cuda_sort s = *sort;
    if (!s.rows || !s.k)
        return cudaSuccess;
    cudaError_t error = launch(sort_tiles<T>, grid_for(s.rows * s.n), stream, s);
    for (int64_t run = THREADS; run < s.n && !error; run *= 2) {
        int64_t *merged = s.spare;
        error = launch(sort_merge<T>, grid_for(s.rows * s.n), stream, s, run);
        s.spare = s.order;
        s.order = merged;
    }
    return error ? error : launch(take_sorted<T>, grid_for(s.rows * s.k), stream, s);
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_sort_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_sort *sort) {
    if (dtype == TT_BOOL)
        return tt::sort_run<tt::boolean>(stream, sort);
    TT__NUMBERS(dtype, tt::sort_run, stream, sort)
}
}
