/* Sums of normalisation, one for each weight or channel: its terms are the elements of each groups-th row that have
 * this weight. Made in double, in an order that depends on shapes alone: parts of them first, then the sums of the parts. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels_norm.h"

namespace tt {

/* Terms that lie together: from so many on, threads of a block take neighbours among them; else of weights. */
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

/* What is summed up: of element `at`, whose mean is mean[stat]. */
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

/* What becomes of the sums of weight or channel k. */
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
