/* Variances, norms, any and all, of terms in double that are joined in an order that depends on shapes alone; and
 * extremes. */
#include "tensor/cuda/kernels/cuda_code.cuh"

#include "tensor/cuda/cuda_kernels.h"

namespace tt {

/* ---- results of terms: at() chooses the result, term() makes one of an x, join() begins with 0, end() is last ---- */

struct sum_terms {
    __device__ void at(const tt__cuda_reduction &, int64_t, double) {}
    __device__ double join(double a, double b) const { return a + b; }
    __device__ double end(double total) const { return total; }
};

struct mean_of_terms : sum_terms {
    double n;
    __device__ double term(double x) const { return x; }
    __device__ double end(double total) const { return total / n; }
};

struct variance_of_terms : sum_terms {
    double divisor, mean;
    __device__ void at(const tt__cuda_reduction &r, int64_t i, double) { mean = r.each[i]; }
    __device__ double term(double x) const { return (x - mean) * (x - mean); }
    __device__ double end(double total) const { return total / divisor; }
};

struct norm_of_terms : sum_terms {
    double p;
    __device__ double term(double x) const {
        double v = fabs(x);
        return p == (double)INFINITY || p == 1 ? v : p == 2 ? v * v : p == 0 ? (double)(v != 0) : pow(v, p);
    }
    __device__ double join(double a, double b) const {
        return p != (double)INFINITY ? a + b : b > a || b != b ? b : a; /* no number is above NaN */
    }
    __device__ double end(double total) const {
        return p == 2 ? sqrt(total) : p == 0 || p == 1 || p == (double)INFINITY ? total : pow(total, 1 / p);
    }
};

/* Has it an element that is 0 (`all`) or that is not? */
struct found_term {
    bool all;
    __device__ void at(const tt__cuda_reduction &, int64_t, double) {}
    __device__ double term(double x) const { return (double)((x == 0) == all); }
    __device__ double join(double a, double b) const { return a != 0 || b != 0 ? 1 : 0; }
    __device__ double end(double total) const { return (double)((total != 0) != all); }
};

/* How many have the absolute value y? */
struct count_largest : sum_terms {
    double y;
    __device__ void at(const tt__cuda_reduction &, int64_t, double value) { y = value; }
    __device__ double term(double x) const { return (double)(fabs(x) == y); }
};

__device__ inline bool same_number(double a, double b, bool nan_equals) {
    return a == b || (nan_equals && a != a && b != b);
}

struct count_equal : sum_terms {
    bool nan_equals;
    double y;
    __device__ void at(const tt__cuda_reduction &, int64_t, double value) { y = value; }
    __device__ double term(double x) const { return (double)same_number(x, y, nan_equals); }
};

/* ---- joining terms, by blocks or by threads, then the parts of a result ---- */

/* Terms first, first + step, ... of result i. VALUE: at() needs the y that is there. */
template <class T, class Of, bool VALUE>
__device__ double join_terms(const tt__cuda_reduction &r, Of &of, int64_t i, int64_t first, int64_t step) {
    places<2> at(r.outer, i);
    double joined = 0;
    of.at(r, i, VALUE ? (double)load(element<T>(r.outer, 0, at.at[0])) : 0);
    for (int64_t k = first; k < r.inner.n; k += step)
        joined = of.join(joined, of.term((double)load(element<T>(r.outer, 1, at.at[1] + places<1>(r.inner, k).at[0]))));
    return joined;
}

template <class Of> struct join_of {
    Of of;
    __device__ double operator()(double a, double b) const { return of.join(a, b); }
};

template <class T, class Of, bool VALUE> __global__ void join_threads(tt__cuda_reduction r, Of of) {
    for (int64_t i = first_element(); i < r.outer.n; i += all_threads())
        r.scratch[i] = join_terms<T, Of, VALUE>(r, of, i, 0, 1);
}

template <class T, class Of, bool VALUE> __global__ void join_blocks(tt__cuda_reduction r, Of of) {
    for (int64_t i = blockIdx.x; i < r.outer.n * r.parts; i += gridDim.x) {
        double mine =
            join_terms<T, Of, VALUE>(r, of, i / r.parts, i % r.parts * THREADS + threadIdx.x, r.parts * THREADS);
        mine = block_reduce(mine, join_of<Of>{of});
        if (threadIdx.x == 0)
            r.scratch[i] = mine;
    }
}

/* A block joins the parts of each result. */
template <class Y, class Of> __global__ void end_blocks(tt__cuda_reduction r, Of of, double *each) {
    for (int64_t i = blockIdx.x; i < r.outer.n; i += gridDim.x) {
        double joined = 0;
        for (int64_t k = threadIdx.x; k < r.parts; k += THREADS)
            joined = of.join(joined, r.scratch[i * r.parts + k]);
        joined = block_reduce(joined, join_of<Of>{of});
        if (threadIdx.x == 0 && each)
            each[i] = of.end(joined);
        else if (threadIdx.x == 0)
            store(element<Y>(r.outer, 0, places<1>(r.outer, i).at[0]), (wide<Y>)of.end(joined));
    }
}

template <class Y, class Of> __global__ void end_threads(tt__cuda_reduction r, Of of, double *each) {
    for (int64_t i = first_element(); i < r.outer.n; i += all_threads())
        if (each)
            each[i] = of.end(r.scratch[i]);
        else
            store(element<Y>(r.outer, 0, places<1>(r.outer, i).at[0]), (wide<Y>)of.end(r.scratch[i]));
}

/* Results go to y, or to `each`. */
template <class Y, class T, class Of, bool VALUE>
cudaError_t reduce_run(cudaStream_t stream, const tt__cuda_reduction *r, Of of, double *each) {
    constexpr int64_t FEW = 32;
    bool by_threads = r->parts == 1 && (r->inner.n < FEW || r->outer.n >= (int64_t)THREADS * BLOCKS);
    cudaError_t error = by_threads
                            ? launch(join_threads<T, Of, VALUE>, grid_for(r->outer.n), stream, *r, of)
                            : launch_blocks(join_blocks<T, Of, VALUE>, grid_of(r->outer.n * r->parts), stream, *r, of);
    if (error)
        return error;
    return r->parts == 1 ? launch(end_threads<Y, Of>, grid_for(r->outer.n), stream, *r, of, each)
                         : launch_blocks(end_blocks<Y, Of>, grid_of(r->outer.n), stream, *r, of, each);
}

template <class T> cudaError_t var_run(cudaStream_t stream, const tt__cuda_reduction *r, double correction) {
    mean_of_terms mean;
    variance_of_terms variance;
    double n = (double)r->inner.n, left = n - correction;
    mean.n = n;
    variance.divisor = left > 0 ? left : 0;
    variance.mean = 0;
    cudaError_t error = reduce_run<T, T, mean_of_terms, false>(stream, r, mean, r->each);
    return error ? error : reduce_run<T, T, variance_of_terms, false>(stream, r, variance, NULL);
}

template <class T> cudaError_t norm_run(cudaStream_t stream, const tt__cuda_reduction *r, double p) {
    norm_of_terms norm;
    norm.p = p;
    return reduce_run<T, T, norm_of_terms, false>(stream, r, norm, NULL);
}

template <class T> cudaError_t any_run(cudaStream_t stream, const tt__cuda_reduction *r, bool all) {
    return reduce_run<boolean, T, found_term, false>(stream, r, found_term{all}, NULL);
}

/* ---- backwards: each x gets the gradient of the result that it is a term of ---- */

/* The slope of the norm y at x; `largest`: how many have the absolute value y. At 0 it is 0. */
__device__ inline double norm_slope(double x, double y, double p, double largest) {
    double v = fabs(x), sign = x > 0 ? 1 : x < 0 ? -1 : x;
    if (p == 0 || y == 0)
        return 0;
    if (p == (double)INFINITY)
        return v == y ? sign / largest : 0;
    return p == 1 ? (x != x ? 0 : sign) : p == 2 ? x / y : v == 0 ? 0 : sign * pow(v / y, p - 1);
}

struct gradient_of_norm {
    double p;
    __device__ double operator()(double x, double y, double g, double largest) const {
        return norm_slope(x, y, p, largest) * g;
    }
};

/* If no element equals the result, which may be NaN, all gradients are NaN: 0 / 0. */
struct gradient_of_equals {
    bool nan_equals;
    __device__ double operator()(double x, double y, double g, double count) const {
        return !(count > 0) ? (double)NAN : same_number(x, y, nan_equals) ? g / count : 0;
    }
};

template <class T, class Gradient> __global__ void spread_back(tt__cuda_reduction r, Gradient gradient) {
    for (int64_t e = first_element(); e < r.outer.n * r.inner.n; e += all_threads()) {
        places<4> at(r.outer, e / r.inner.n);
        places<2> term(r.inner, e % r.inner.n);
        double x = (double)load(element<T>(r.outer, 1, at.at[1] + term.at[0]));
        double y = (double)load(element<T>(r.outer, 0, at.at[0])), g = (double)load(element<T>(r.outer, 3, at.at[3]));
        double d = gradient(x, y, g, r.each ? r.each[e / r.inner.n] : 0);
        store(element<T>(r.outer, 2, at.at[2] + term.at[1]), (wide<T>)d);
    }
}

template <class T, class Gradient>
cudaError_t spread_back_run(cudaStream_t stream, const tt__cuda_reduction *r, Gradient gradient) {
    return launch(spread_back<T, Gradient>, grid_for(r->outer.n * r->inner.n), stream, *r, gradient);
}

template <class T> cudaError_t norm_backward_run(cudaStream_t stream, const tt__cuda_reduction *r, double p) {
    cudaError_t error =
        r->each ? reduce_run<T, T, count_largest, true>(stream, r, count_largest(), r->each) : cudaSuccess;
    return error ? error : spread_back_run<T>(stream, r, gradient_of_norm{p});
}

template <class T> cudaError_t share_equal_run(cudaStream_t stream, const tt__cuda_reduction *r, bool nan_equals) {
    count_equal count;
    count.nan_equals = nan_equals;
    count.y = 0;
    cudaError_t error = reduce_run<T, T, count_equal, true>(stream, r, count, r->each);
    return error ? error : spread_back_run<T>(stream, r, gradient_of_equals{nan_equals});
}

/* ---- the largest or smallest of each line of elements, and where it is ---- */

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

cudaError_t tt__cuda_var(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r,
                         double correction){TT__FLOATS(dtype, tt::var_run, stream, r, correction)}

cudaError_t tt__cuda_vector_norm(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r,
                                 double p){TT__FLOATS(dtype, tt::norm_run, stream, r, p)}

cudaError_t tt__cuda_vector_norm_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r,
                                          double p){TT__FLOATS(dtype, tt::norm_backward_run, stream, r, p)}

cudaError_t tt__cuda_share_equal(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r,
                                 bool nan_equals){TT__FLOATS(dtype, tt::share_equal_run, stream, r, nan_equals)}

cudaError_t tt__cuda_any(cudaStream_t stream, tt_dtype dtype, const tt__cuda_reduction *r, bool all) {
    if (dtype == TT_BOOL)
        return tt::any_run<tt::boolean>(stream, r, all);
    TT__NUMBERS(dtype, tt::any_run, stream, r, all)
}

cudaError_t tt__cuda_extreme(cudaStream_t stream, tt_dtype dtype, const tt__cuda_extreme_lines *l, bool largest) {
    if (dtype == TT_BOOL)
        return tt::extreme_run<tt::boolean>(stream, l, largest);
    TT__NUMBERS(dtype, tt::extreme_run, stream, l, largest)
}

cudaError_t tt__cuda_extreme_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_extreme_lines *l) {
    TT__FLOATS(dtype, tt::extreme_backward_run, stream, l)
}
}
