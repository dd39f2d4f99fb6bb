/* Elements moved and added by indices; running sums; checks of indices. */
#include "tensor/cuda/kernels/cuda_code.cuh"

#include "tensor/cuda/cuda_kernels.h"

namespace tt {

/* ---- elements moved: any type, by its size ---- */

template <class T> __global__ void gather(tt__walk w, int64_t step, int64_t n) {
    for (int64_t i = first_element(); i < w.n; i += all_threads()) {
        places<3> at(w, i);
        int64_t from = *element<int64_t>(w, 2, at.at[2]);
        *element<T>(w, 0, at.at[0]) = is_place(from, n) ? *element<T>(w, 1, at.at[1] + from * step) : 0;
    }
}

template <class T> cudaError_t gather_run(cudaStream_t stream, const tt__walk *w, int64_t step, int64_t n) {
    return w->n ? launch(gather<T>, grid_for(w->n), stream, *w, step, n) : cudaSuccess;
}

/* A thread for each line: places with the same destination are of one line, and the last one counts. */
template <class T> __global__ void scatter(tt__cuda_lines l) {
    for (int64_t i = first_element(); i < l.w.n; i += all_threads()) {
        places<3> at(l.w, i);
        for (int64_t k = 0; k < l.n; k++) {
            int64_t to = *element<int64_t>(l.w, 2, at.at[2] + k * l.index_step);
            if (is_place(to, l.places))
                *element<T>(l.w, 0, at.at[0] + to * l.step) = *element<T>(l.w, 1, at.at[1] + k * l.x_step);
        }
    }
}

template <class T> cudaError_t scatter_run(cudaStream_t stream, const tt__cuda_lines *l) {
    return l->w.n ? launch(scatter<T>, grid_for(l->w.n), stream, *l) : cudaSuccess;
}

template <class T> __global__ void triangle(tt__walk w, int64_t R, int64_t C, int64_t diagonal, bool upper) {
    for (int64_t i = first_element(); i < w.n; i += all_threads()) {
        places<2> at(w, i);
        int64_t above = i % C - i / C % R;
        bool stays = upper ? above >= diagonal : above <= diagonal;
        *element<T>(w, 0, at.at[0]) = stays ? *element<T>(w, 1, at.at[1]) : 0;
    }
}

template <class T>
cudaError_t triangle_run(cudaStream_t stream, const tt__walk *w, int64_t R, int64_t C, int64_t diagonal, bool upper) {
    return w->n ? launch(triangle<T>, grid_for(w->n), stream, *w, R, C, diagonal, upper) : cudaSuccess;
}

/* ---- sums of elements that indices send to one place: in the order of the indices, with the cpu's bits ---- */

/* What numbers are added up as: integers wrap. */
template <class T> struct sum_of_type { typedef uint64_t type; };
template <> struct sum_of_type<float> { typedef float type; };
template <> struct sum_of_type<double> { typedef double type; };
template <> struct sum_of_type<__half> { typedef float type; };
template <> struct sum_of_type<__nv_bfloat16> { typedef float type; };

/* sum + x, rounded to an element. */
template <class T> __device__ T added(T sum, const T *x) {
    typedef typename sum_of_type<T>::type W;
    T rounded;
    store(&rounded, (wide<T>)((W)load(&sum) + (W)load(x)));
    return rounded;
}

/* ---- an index for each element: a thread for each line ---- */

template <class T> __global__ void scatter_add(tt__cuda_lines l) {
    for (int64_t i = first_element(); i < l.w.n; i += all_threads()) {
        places<3> at(l.w, i);
        for (int64_t k = 0; k < l.n; k++) {
            int64_t to = *element<int64_t>(l.w, 2, at.at[2] + k * l.index_step);
            if (!is_place(to, l.places))
                continue;
            T *y = element<T>(l.w, 0, at.at[0] + to * l.step);
            *y = added(*y, element<T>(l.w, 1, at.at[1] + k * l.x_step));
        }
    }
}

template <class T> cudaError_t scatter_add_run(cudaStream_t stream, const tt__cuda_lines *l) {
    return l->w.n ? launch(scatter_add<T>, grid_for(l->w.n), stream, *l) : cudaSuccess;
}

/* ---- one index for all lines ---- */

__global__ void no_chains(tt__cuda_chains c) {
    for (int64_t i = first_element(); i < c.destinations; i += all_threads())
        c.last[i] = -1;
}

/* One block takes THREADS places at a time, in order: each place is chained to the previous one with the same
 * destination, of this turn or of an earlier one. */
__global__ void chain_places(tt__cuda_chains c) {
    __shared__ int64_t to[THREADS];
    int me = (int)threadIdx.x;
    for (int64_t begin = 0; begin < c.n; begin += THREADS) {
        int64_t place = begin + me;
        to[me] = place < c.n ? c.index[place * c.index_step] : -1;
        const bool mine = is_place(to[me], c.destinations);
        if (place < c.n && !mine)
            c.heads[place] = false;
        __syncthreads();
        int before = -1, after = -1;
        for (int k = 0; k < THREADS && mine; k++) {
            if (to[k] != to[me] || k == me)
                continue;
            if (k < me)
                before = k;
            else if (after < 0)
                after = k;
        }
        int64_t last = mine && before < 0 ? c.last[to[me]] : -1;
        if (mine) {
            c.next[place] = after < 0 ? -1 : begin + after;
            c.heads[place] = before < 0 && last < 0;
            if (last >= 0)
                c.next[last] = place;
        }
        __syncthreads(); /* all have read `last` */
        if (mine && after < 0)
            c.last[to[me]] = place;
        __syncthreads();
    }
}

/* A thread for each element of each chain. */
template <class T> __global__ void add_chains(tt__cuda_lines l, tt__cuda_chains c) {
    for (int64_t i = first_element(); i < l.w.n * c.n; i += all_threads()) {
        int64_t place = i / l.w.n;
        if (!c.heads[place])
            continue;
        places<2> at(l.w, i % l.w.n);
        T *y = element<T>(l.w, 0, at.at[0] + c.index[place * c.index_step] * l.step);
        T sum = *y;
        for (int64_t k = place; k >= 0; k = c.next[k])
            sum = added(sum, element<T>(l.w, 1, at.at[1] + k * l.x_step));
        *y = sum;
    }
}

template <class T> cudaError_t index_add_run(cudaStream_t stream, const tt__cuda_lines *l, const tt__cuda_chains *c) {
    if (!l->w.n || !c->n)
        return cudaSuccess;
    cudaError_t error = launch(no_chains, grid_for(c->destinations), stream, *c);
    error = error ? error : launch_blocks(chain_places, 1, stream, *c);
    return error ? error : launch(add_chains<T>, grid_for(l->w.n * c->n), stream, *l, *c);
}

/* ---- running sums: of floats in double, of integers in 64 bits ---- */

template <class T> struct running_sum { typedef uint64_t type; };
template <> struct running_sum<float> { typedef double type; };
template <> struct running_sum<double> { typedef double type; };
template <> struct running_sum<__half> { typedef double type; };
template <> struct running_sum<__nv_bfloat16> { typedef double type; };

/* Element k of a line, counted from the end that the sums begin at. */
__device__ inline int64_t place_in_line(const tt__cuda_lines &l, int64_t k, bool backwards) {
    return backwards ? l.n - 1 - k : k;
}

template <class T> __global__ void cumsum_threads(tt__cuda_lines l, bool backwards) {
    typedef typename running_sum<T>::type S;
    for (int64_t i = first_element(); i < l.w.n; i += all_threads()) {
        places<2> at(l.w, i);
        S sum = 0;
        for (int64_t k = 0; k < l.n; k++) {
            int64_t here = place_in_line(l, k, backwards);
            sum += (S)load(element<T>(l.w, 1, at.at[1] + here * l.x_step));
            store(element<T>(l.w, 0, at.at[0] + here * l.step), (wide<T>)sum);
        }
    }
}

/* The sum of the values of this thread and those before it in the block. */
template <class S> __device__ S block_running_sum(S value, S *part) {
    int me = (int)threadIdx.x;
    __syncthreads(); /* `part` may still be read */
    part[me] = value;
    for (int far = 1; far < THREADS; far *= 2) {
        __syncthreads();
        S before = me >= far ? part[me - far] : 0;
        __syncthreads();
        part[me] += before;
    }
    __syncthreads();
    return part[me];
}

/* Few lines: a block for each, THREADS elements at a time. */
template <class T> __global__ void cumsum_blocks(tt__cuda_lines l, bool backwards) {
    typedef typename running_sum<T>::type S;
    __shared__ S part[THREADS];
    for (int64_t i = blockIdx.x; i < l.w.n; i += gridDim.x) {
        places<2> at(l.w, i);
        S before = 0;
        for (int64_t begin = 0; begin < l.n; begin += THREADS) {
            int64_t k = begin + threadIdx.x, here = place_in_line(l, k, backwards);
            S x = k < l.n ? (S)load(element<T>(l.w, 1, at.at[1] + here * l.x_step)) : 0;
            S sum = before + block_running_sum(x, part);
            if (k < l.n)
                store(element<T>(l.w, 0, at.at[0] + here * l.step), (wide<T>)sum);
            before += part[THREADS - 1];
        }
    }
}

template <class T> cudaError_t cumsum_run(cudaStream_t stream, const tt__cuda_lines *l, bool backwards) {
    constexpr int64_t SHORT = THREADS / 4, MANY = THREADS * (int64_t)64;
    if (!l->w.n || !l->n)
        return cudaSuccess;
    if (l->n < SHORT || l->w.n >= MANY)
        return launch(cumsum_threads<T>, grid_for(l->w.n), stream, *l, backwards);
    return launch_blocks(cumsum_blocks<T>, grid_of(l->w.n), stream, *l, backwards);
}

/* ---- checks of indices that don't wait ---- */

/* One block is enough: a call checks its indices once, and they are seldom wrong. */
template <class T>
__global__ void expect_within(tt__walk w, int64_t low, int64_t high, int64_t but, tt__cuda_fault told,
                              tt__cuda_fault *fault) {
    int64_t first = w.n;
    for (int64_t i = threadIdx.x; i < w.n && i < first; i += THREADS) {
        const int64_t x = (int64_t)load(element<T>(w, 0, places<1>(w, i).at[0]));
        if ((x < low || x > high) && x != but)
            first = i;
    }
    first = block_reduce(first, join_min());
    if (threadIdx.x != 0 || first == w.n || fault->set)
        return;
    told.index = first;
    told.value = (int64_t)load(element<T>(w, 0, places<1>(w, first).at[0]));
    told.set = true;
    *fault = told;
}

template <class T>
cudaError_t expect_within_run(cudaStream_t stream, const tt__walk *w, int64_t low, int64_t high, int64_t but,
                              const tt__cuda_fault *told, tt__cuda_fault *fault) {
    return w->n ? launch_blocks(expect_within<T>, 1, stream, *w, low, high, but, *told, fault) : cudaSuccess;
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_gather(cudaStream_t stream, size_t size, const tt__walk *w, int64_t step,
                            int64_t n){TT__SIZES(size, tt::gather_run, stream, w, step, n)}

cudaError_t tt__cuda_scatter(cudaStream_t stream, size_t size,
                             const tt__cuda_lines *lines){TT__SIZES(size, tt::scatter_run, stream, lines)}

cudaError_t
    tt__cuda_triangle(cudaStream_t stream, size_t size, const tt__walk *w, int64_t R, int64_t C, int64_t diagonal,
                      bool upper){TT__SIZES(size, tt::triangle_run, stream, w, R, C, diagonal, upper)}

cudaError_t tt__cuda_scatter_add(cudaStream_t stream, tt_dtype dtype, const tt__cuda_lines *lines) {
    if (dtype == TT_BOOL)
        return tt::scatter_add_run<tt::boolean>(stream, lines);
    TT__NUMBERS(dtype, tt::scatter_add_run, stream, lines)
}

cudaError_t tt__cuda_index_add(cudaStream_t stream, tt_dtype dtype, const tt__cuda_lines *lines,
                               const tt__cuda_chains *chains) {
    if (dtype == TT_BOOL)
        return tt::index_add_run<tt::boolean>(stream, lines, chains);
    TT__NUMBERS(dtype, tt::index_add_run, stream, lines, chains)
}

cudaError_t tt__cuda_cumsum(cudaStream_t stream, tt_dtype dtype, const tt__cuda_lines *lines, bool backwards) {
    if (dtype == TT_BOOL)
        return tt::cumsum_run<tt::boolean>(stream, lines, backwards);
    TT__NUMBERS(dtype, tt::cumsum_run, stream, lines, backwards)
}

cudaError_t tt__cuda_expect_within(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, int64_t low, int64_t high,
                                   int64_t but, const tt__cuda_fault *told, tt__cuda_fault *fault) {
    TT__INTEGERS(dtype, tt::expect_within_run, stream, w, low, high, but, told, fault)
}
}
