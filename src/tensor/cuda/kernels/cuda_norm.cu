/* Normalisation: sums in double, elements in f32 (f64 of f64). Rows are read twice or three times, mostly
 * from cache. */
#include "tensor/cuda/kernels/cuda_code.cuh"

#include "tensor/cuda/cuda_kernels_layers.h"

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

/* dx = weight rstd (g - [dbias + normed dweight] / count); if mean and rstd are fixed, x does not matter, even if it is
 * infinite. */
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

/* ---- sums, one for each weight or channel: its terms are the elements of each groups-th row that have this weight.
 * Made in double, in an order that depends on shapes alone: sums of parts first, then the sum of these. ---- */

/* From so many adjacent terms on, neighbouring threads take neighbouring terms of a weight; below that, neighbouring
 * weights. */
constexpr int64_t TOGETHER = 32;

struct two_sums {
    double a, b;
};

struct join_two_sums {
    __device__ two_sums operator()(two_sums p, two_sums q) const { return {p.a + q.a, p.b + q.b}; }
};

/* The terms of a weight: number t is element `at`, of the row or channel `stat`. */
struct norm_terms {
    int64_t weights, terms, run, first, jump, stat, stat_jump;

    __device__ norm_terms(const tt__cuda_norm &n, int64_t k) {
        int64_t each = n.n / n.share;
        run = n.share;
        terms = n.R / n.groups * run;
        first = k / each * n.n + k % each * run;
        jump = n.groups * n.n;
        stat = k / each;
        stat_jump = n.by_channel ? 0 : n.groups;
    }
    __device__ int64_t end_of(int64_t part, int64_t parts) const {
        int64_t each = (terms + parts - 1) / parts, end = (part + 1) * each;
        return end < terms ? end : terms;
    }
    __device__ int64_t begin_of(int64_t part, int64_t parts) const {
        int64_t each = (terms + parts - 1) / parts, begin = part * each;
        return begin < terms ? begin : terms;
    }
};

/* The terms that are summed up: made of element `at`, whose mean is mean[stat]. */
template <class T> struct plain_term {
    __device__ two_sums operator()(const tt__cuda_norm &n, int64_t at, int64_t) const {
        return {(double)load((const T *)n.x + at), 0};
    }
};

template <class T> struct deviation_term {
    __device__ two_sums operator()(const tt__cuda_norm &n, int64_t at, int64_t stat) const {
        double d = (double)load((const T *)n.x + at) - n.mean[stat];
        return {d * d, 0};
    }
};

template <class T> struct gradient_term {
    __device__ two_sums operator()(const tt__cuda_norm &n, int64_t at, int64_t stat) const {
        double g = (double)load((const T *)n.g + at), x = (double)load((const T *)n.x + at);
        return {g, g * (x - n.mean[stat]) * n.rstd[stat]};
    }
};

/* A thread makes a part; neighbours have neighbouring weights. */
template <class Term> __global__ void norm_thread_parts(tt__cuda_norm n, tt__cuda_norm_room room, int64_t weights) {
    for (int64_t i = first_element(); i < room.parts * weights; i += all_threads()) {
        norm_terms k(n, i % weights);
        two_sums sum = {0, 0};
        for (int64_t t = k.begin_of(i / weights, room.parts); t < k.end_of(i / weights, room.parts); t++) {
            int64_t row = t / k.run;
            sum = join_two_sums()(sum, Term()(n, k.first + row * k.jump + t % k.run, k.stat + row * k.stat_jump));
        }
        room.part[2 * i] = sum.a;
        room.part[2 * i + 1] = sum.b;
    }
}

/* A block makes a part. */
template <class Term> __global__ void norm_block_parts(tt__cuda_norm n, tt__cuda_norm_room room, int64_t weights) {
    for (int64_t i = blockIdx.x; i < room.parts * weights; i += gridDim.x) {
        norm_terms k(n, i % weights);
        two_sums sum = {0, 0};
        int64_t end = k.end_of(i / weights, room.parts);
        for (int64_t t = k.begin_of(i / weights, room.parts) + threadIdx.x; t < end; t += THREADS) {
            int64_t row = t / k.run;
            sum = join_two_sums()(sum, Term()(n, k.first + row * k.jump + t % k.run, k.stat + row * k.stat_jump));
        }
        sum = block_reduce(sum, join_two_sums());
        if (threadIdx.x == 0) {
            room.part[2 * i] = sum.a;
            room.part[2 * i + 1] = sum.b;
        }
    }
}

/* What the sums of weight or channel k become. */
struct norm_mean {
    __device__ void operator()(const tt__cuda_norm &n, int64_t terms, const tt__cuda_norm_room &, int64_t k, int64_t,
                               two_sums sum) const {
        n.mean[k] = sum.a / (double)terms;
    }
};

struct norm_rstd {
    __device__ void operator()(const tt__cuda_norm &n, int64_t terms, const tt__cuda_norm_room &, int64_t k, int64_t,
                               two_sums sum) const {
        n.rstd[k] = 1 / sqrt(sum.a / (double)terms + n.eps);
    }
};

template <class T> struct norm_gradient {
    __device__ void operator()(const tt__cuda_norm &n, int64_t, const tt__cuda_norm_room &room, int64_t k,
                               int64_t weights, two_sums sum) const {
        if (n.db)
            store((T *)n.db + k, (wide<T>)sum.a);
        if (n.dw)
            store((T *)n.dw + k, (wide<T>)sum.b);
        room.total[k] = sum.a;
        room.total[weights + k] = sum.b;
    }
};

template <class Use>
__global__ void norm_of_parts(tt__cuda_norm n, tt__cuda_norm_room room, int64_t weights, int64_t terms) {
    for (int64_t k = blockIdx.x; k < weights; k += gridDim.x) {
        two_sums sum = {0, 0};
        for (int64_t p = threadIdx.x; p < room.parts; p += THREADS) {
            const double *part = room.part + 2 * (p * weights + k);
            sum = join_two_sums()(sum, two_sums{part[0], part[1]});
        }
        sum = block_reduce(sum, join_two_sums());
        if (threadIdx.x == 0)
            Use()(n, terms, room, k, weights, sum);
    }
}

template <class Term, class Use>
cudaError_t norm_sums(cudaStream_t stream, const tt__cuda_norm *n, const tt__cuda_norm_room *room) {
    int64_t weights = tt__cuda_norm_weights(n), parts = room->parts * weights;
    cudaError_t error = n->share < TOGETHER
                            ? launch(norm_thread_parts<Term>, grid_for(parts), stream, *n, *room, weights)
                            : launch_blocks(norm_block_parts<Term>, grid_of(parts), stream, *n, *room, weights);
    return error ? error
                 : launch_blocks(norm_of_parts<Use>, grid_of(weights), stream, *n, *room, weights,
                                 tt__cuda_norm_terms(n));
}

template <class T>
cudaError_t norm_stats_run(cudaStream_t stream, const tt__cuda_norm *n, const tt__cuda_norm_room *r) {
    cudaError_t error = norm_sums<plain_term<T>, norm_mean>(stream, n, r);
    return error ? error : norm_sums<deviation_term<T>, norm_rstd>(stream, n, r);
}

template <class T>
cudaError_t norm_gradients_run(cudaStream_t stream, const tt__cuda_norm *n, const tt__cuda_norm_room *r) {
    return norm_sums<gradient_term<T>, norm_gradient<T>>(stream, n, r);
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

cudaError_t tt__cuda_norm_move(cudaStream_t stream, tt_dtype dtype,
                               const tt__cuda_norm_running *r){TT__FLOATS(dtype, tt::norm_move_run, stream, r)}

int64_t tt__cuda_norm_parts(const tt__cuda_norm *n) {
    const int64_t ENOUGH = 1 << 17, TERMS = 64;
    int64_t weights = tt__cuda_norm_weights(n), terms = tt__cuda_norm_terms(n);
    if (n->share >= tt::TOGETHER)
        return tt__cuda_sum_parts(weights, terms);
    int64_t parts = terms / TERMS, most = ENOUGH / weights;
    parts = parts < most ? parts : most;
    return parts < 1 ? 1 : parts;
}

cudaError_t tt__cuda_norm_stats(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n,
                                const tt__cuda_norm_room *room){TT__FLOATS(dtype, tt::norm_stats_run, stream, n, room)}

cudaError_t tt__cuda_norm_gradients(cudaStream_t stream, tt_dtype dtype, const tt__cuda_norm *n,
                                    const tt__cuda_norm_room *room) {
    TT__FLOATS(dtype, tt::norm_gradients_run, stream, n, room)
}
}
