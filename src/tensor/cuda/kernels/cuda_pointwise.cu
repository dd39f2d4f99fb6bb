/* Kernels that go element by element: a thread takes an element, then the next one a grid further on. */
#include "tensor/cuda/kernels/cuda_code.cuh"

#include "tensor/ops/pointwise_formulas.h"

namespace tt {

/* f(y, x, ...) for the places of each element in the first N arrays. */
template <int N, class F> __global__ void walk_kernel(tt__walk w, F f) {
    for (int64_t i = first_element(); i < w.n; i += all_threads())
        f(w, places<N>(w, i).at);
}

template <int N, class F> cudaError_t walk(cudaStream_t stream, const tt__walk *w, F f) {
    return w->n ? launch(walk_kernel<N, F>, grid_for(w->n), stream, *w, f) : cudaSuccess;
}

/* ---- values and conversions ---- */

/* As tt__int_of_f64(): cut, out of range the nearer end, NaN is 0. */
template <class T> __device__ T integer_of(double v) {
    const int64_t high = sizeof(T) == 8 ? INT64_MAX : ((int64_t)1 << (8 * sizeof(T) - (T(-1) < T(0)))) - 1;
    const int64_t low = T(-1) < T(0) ? -high - 1 : 0;
    int64_t whole = v >= 0x1p63 ? INT64_MAX : v < -0x1p63 ? INT64_MIN : v != v ? 0 : (int64_t)v;
    return (T)(whole < low ? low : whole > high ? high : whole);
}

template <class T> struct made_of {
    static __device__ void floating(T *p, double v) { *p = integer_of<T>(v); }
    static __device__ void integer(T *p, int64_t v) { *p = (T)v; }
};
#define TT__MADE_OF_FLOAT(type)                                                         \
    template <> struct made_of<type> {                                                  \
        static __device__ void floating(type *p, double v) { store(p, (wide<type>)v); } \
        static __device__ void integer(type *p, int64_t v) { store(p, (wide<type>)v); } \
    };
TT__MADE_OF_FLOAT(float)
TT__MADE_OF_FLOAT(double)
TT__MADE_OF_FLOAT(__half)
TT__MADE_OF_FLOAT(__nv_bfloat16)
template <> struct made_of<boolean> {
    static __device__ void floating(boolean *p, double v) { p->set = v != 0; }
    static __device__ void integer(boolean *p, int64_t v) { p->set = v != 0; }
};

template <class T> struct fill {
    double value;
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        made_of<T>::floating(element<T>(w, 0, at[0]), value);
    }
};

template <class T> cudaError_t fill_run(cudaStream_t stream, const tt__walk *w, double value) {
    return walk<1>(stream, w, fill<T>{value});
}

template <class T> __device__ inline bool is_floating() { return false; }
template <> __device__ inline bool is_floating<float>() { return true; }
template <> __device__ inline bool is_floating<double>() { return true; }
template <> __device__ inline bool is_floating<__half>() { return true; }
template <> __device__ inline bool is_floating<__nv_bfloat16>() { return true; }

template <class To, class From> struct convert {
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        To *y = element<To>(w, 0, at[0]);
        wide<From> x = load(element<From>(w, 1, at[1]));
        if (is_floating<From>())
            made_of<To>::floating(y, (double)x);
        else
            made_of<To>::integer(y, (int64_t)x);
    }
};

/* The same type: bits are moved, those of NaNs too. */
template <class T> struct convert<T, T> {
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        *element<T>(w, 0, at[0]) = *element<T>(w, 1, at[1]);
    }
};

template <class From> struct convert_from {
    template <class To> static cudaError_t run(cudaStream_t stream, const tt__walk *w) {
        return walk<2>(stream, w, convert<To, From>());
    }
    static cudaError_t to(tt_dtype dtype, cudaStream_t stream, const tt__walk *w) {
        if (dtype == TT_BOOL)
            return run<boolean>(stream, w);
        TT__NUMBERS(dtype, run, stream, w)
    }
};

template <class From> cudaError_t convert_to(tt_dtype to, cudaStream_t stream, const tt__walk *w) {
    return convert_from<From>::to(to, stream, w);
}

/* ---- arithmetic: integers wrap ---- */

template <class T> struct unsigned_of { typedef wide<T> type; };
template <> struct unsigned_of<int64_t> { typedef uint64_t type; };
template <> struct unsigned_of<int32_t> { typedef uint32_t type; };
template <> struct unsigned_of<int16_t> { typedef uint32_t type; };
template <> struct unsigned_of<int8_t> { typedef uint32_t type; };
template <> struct unsigned_of<uint8_t> { typedef uint32_t type; };

template <class T> struct arithmetic {
    tt__cuda_arithmetic op;
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        typedef typename unsigned_of<T>::type U;
        U a = (U)load(element<T>(w, 1, at[1])), b = (U)load(element<T>(w, 2, at[2]));
        store(element<T>(w, 0, at[0]), (wide<T>)(op == TT__CUDA_ADD ? a + b : op == TT__CUDA_SUB ? a - b : a * b));
    }
};

template <class T> cudaError_t arithmetic_run(cudaStream_t stream, const tt__walk *w, tt__cuda_arithmetic op) {
    return walk<3>(stream, w, arithmetic<T>{op});
}

template <class T> struct scale {
    wide<T> factor;
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        store(element<T>(w, 0, at[0]), (wide<T>)(load(element<T>(w, 1, at[1])) * factor));
    }
};

template <class T> cudaError_t scale_run(cudaStream_t stream, const tt__walk *w, double factor) {
    return walk<2>(stream, w, scale<T>{(wide<T>)factor});
}

template <class T> struct relu {
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        wide<T> x = load(element<T>(w, 1, at[1]));
        store(element<T>(w, 0, at[0]), x < 0 ? 0 : x);
    }
};

template <class T> cudaError_t relu_run(cudaStream_t stream, const tt__walk *w) {
    return walk<2>(stream, w, relu<T>());
}

template <class T> struct relu_backward {
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        wide<T> y = load(element<T>(w, 1, at[1])), g = load(element<T>(w, 2, at[2]));
        store(element<T>(w, 0, at[0]), y <= 0 ? 0 : g);
    }
};

template <class T> cudaError_t relu_backward_run(cudaStream_t stream, const tt__walk *w) {
    return walk<3>(stream, w, relu_backward<T>());
}

/* ---- the formulas of pointwise_formulas.h: in f32 for f32 and the 16-bit types, the "plain" ones in double ---- */

__device__ inline float exp_of(float x) { return expf(x); }
__device__ inline double exp_of(double x) { return exp(x); }
__device__ inline float log_of(float x) { return logf(x); }
__device__ inline double log_of(double x) { return log(x); }
__device__ inline float log1p_of(float x) { return log1pf(x); }
__device__ inline double log1p_of(double x) { return log1p(x); }
__device__ inline float sqrt_of(float x) { return sqrtf(x); }
__device__ inline double sqrt_of(double x) { return sqrt(x); }
__device__ inline float abs_of(float x) { return fabsf(x); }
__device__ inline double abs_of(double x) { return fabs(x); }
__device__ inline float tanh_of(float x) { return tanhf(x); }
__device__ inline double tanh_of(double x) { return tanh(x); }
__device__ inline float erf_of(float x) { return erff(x); }
__device__ inline double erf_of(double x) { return erf(x); }
__device__ inline double pow_of(double x, double y) { return pow(x, y); }

#define K(c) ((W)(c))
#define SELECT(condition, p, q) ((condition) ? (p) : (q))
#define EXP exp_of
#define LOG log_of
#define LOG1P log1p_of
#define SQRT sqrt_of
#define ABS abs_of
#define TANH tanh_of
#define ERF erf_of
#define POW pow_of
#include "tensor/ops/pointwise_parts.h"

/* The "plain" formulas, in double. */
__device__ inline double plain_value(const tt__unary &call, double x) {
    typedef double W;
    W a = call.a;
    switch (call.op) {
#define TT__UNARY_CASE(name, saves, forward, backward) \
    case TT__##name:                                   \
        return (W)(forward);
#define TT__UNARY_SLOPE_CASE(name, saves, forward, backward) \
    case TT__##name:                                         \
        return (W)(backward);
        TT__UNARY_PLAIN_FORMULAS(TT__UNARY_CASE)
    default:
        return a;
    }
}

__device__ inline double plain_slope(const tt__unary &call, double v, double g) {
    typedef double W;
    W a = call.a;
    switch (call.op) {
        TT__UNARY_PLAIN_FORMULAS(TT__UNARY_SLOPE_CASE)
    default:
        return a;
    }
}

__device__ inline double plain_value(const tt__binary &call, double x, double z) {
    typedef double W;
    switch (call.op) {
#define TT__BINARY_CASE(name, forward, dx, dz) \
    case TT__##name:                           \
        return (W)(forward);
#define TT__BINARY_SLOPE_CASE(name, forward, dx, dz) \
    case TT__##name:                                 \
        return input == 0 ? (W)(dx) : (W)(dz);
        TT__BINARY_PLAIN_FORMULAS(TT__BINARY_CASE)
    default:
        return call.a;
    }
}

__device__ inline double plain_slope(const tt__binary &call, int input, double x, double z, double g) {
    typedef double W;
    switch (call.op) {
        TT__BINARY_PLAIN_FORMULAS(TT__BINARY_SLOPE_CASE)
    default:
        return call.a;
    }
}

/* The others, in W. */
template <class W> __device__ W value_of(const tt__unary &call, W x) {
    W a = (W)call.a, b = (W)call.b;
    switch (call.op) {
        TT__UNARY_FORMULAS(TT__UNARY_CASE)
    default:
        return (W)plain_value(call, (double)x);
    }
}

template <class W> __device__ W slope_of(const tt__unary &call, W v, W g) {
    W a = (W)call.a, b = (W)call.b;
    switch (call.op) {
        TT__UNARY_FORMULAS(TT__UNARY_SLOPE_CASE)
    default:
        return (W)plain_slope(call, (double)v, (double)g);
    }
}

template <class W> __device__ W value_of(const tt__binary &call, W x, W z) {
    W a = (W)call.a;
    switch (call.op) {
        TT__BINARY_FORMULAS(TT__BINARY_CASE)
    default:
        return (W)plain_value(call, (double)x, (double)z);
    }
}

template <class W> __device__ W slope_of(const tt__binary &call, int input, W x, W z, W g) {
    W a = (W)call.a;
    switch (call.op) {
        TT__BINARY_FORMULAS(TT__BINARY_SLOPE_CASE)
    default:
        return (W)plain_slope(call, input, (double)x, (double)z, (double)g);
    }
}

/* One kernel a type, whatever the formula: all threads take the same branch. */
template <class T> struct unary {
    tt__unary call;
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        store(element<T>(w, 0, at[0]), value_of(call, load(element<T>(w, 1, at[1]))));
    }
};

template <class T> struct unary_backward {
    tt__unary call;
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        wide<T> v = load(element<T>(w, 1, at[1])), g = load(element<T>(w, 2, at[2]));
        store(element<T>(w, 0, at[0]), slope_of(call, v, g));
    }
};

template <class T> struct binary {
    tt__binary call;
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        wide<T> x = load(element<T>(w, 1, at[1])), z = load(element<T>(w, 2, at[2]));
        store(element<T>(w, 0, at[0]), value_of(call, x, z));
    }
};

template <class T> struct binary_backward {
    tt__binary call;
    int input;
    __device__ void operator()(const tt__walk &w, const int64_t *at) const {
        wide<T> x = load(element<T>(w, 1, at[1])), z = load(element<T>(w, 2, at[2])), g = load(element<T>(w, 3, at[3]));
        store(element<T>(w, 0, at[0]), slope_of(call, input, x, z, g));
    }
};

template <class T> cudaError_t unary_run(cudaStream_t stream, const tt__walk *w, const tt__unary *call) {
    return walk<2>(stream, w, unary<T>{*call});
}
template <class T> cudaError_t unary_backward_run(cudaStream_t stream, const tt__walk *w, const tt__unary *call) {
    return walk<3>(stream, w, unary_backward<T>{*call});
}
template <class T> cudaError_t binary_run(cudaStream_t stream, const tt__walk *w, const tt__binary *call) {
    return walk<3>(stream, w, binary<T>{*call});
}
template <class T>
cudaError_t binary_backward_run(cudaStream_t stream, const tt__walk *w, const tt__binary *call, int input) {
    return walk<4>(stream, w, binary_backward<T>{*call, input});
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_fill(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, double value) {
    if (dtype == TT_BOOL)
        return tt::fill_run<tt::boolean>(stream, w, value);
    TT__NUMBERS(dtype, tt::fill_run, stream, w, value)
}

cudaError_t tt__cuda_convert(cudaStream_t stream, tt_dtype to, tt_dtype from, const tt__walk *w) {
    if (from == TT_BOOL)
        return tt::convert_to<tt::boolean>(to, stream, w);
    TT__NUMBERS(from, tt::convert_to, to, stream, w)
}

cudaError_t tt__cuda_scale(cudaStream_t stream, tt_dtype dtype, const tt__walk *w,
                           double factor){TT__FLOATS(dtype, tt::scale_run, stream, w, factor)}

cudaError_t tt__cuda_arithmetic_run(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, tt__cuda_arithmetic op) {
    if (dtype == TT_BOOL)
        return tt::arithmetic_run<tt::boolean>(stream, w, op);
    TT__NUMBERS(dtype, tt::arithmetic_run, stream, w, op)
}

cudaError_t tt__cuda_relu(cudaStream_t stream, tt_dtype dtype,
                          const tt__walk *w){TT__FLOATS(dtype, tt::relu_run, stream, w)}

cudaError_t tt__cuda_relu_backward(cudaStream_t stream, tt_dtype dtype,
                                   const tt__walk *w){TT__FLOATS(dtype, tt::relu_backward_run, stream, w)}

cudaError_t tt__cuda_unary(cudaStream_t stream, tt_dtype dtype, const tt__walk *w,
                           const tt__unary *call){TT__FLOATS(dtype, tt::unary_run, stream, w, call)}

cudaError_t tt__cuda_unary_backward(cudaStream_t stream, tt_dtype dtype, const tt__walk *w,
                                    const tt__unary *call){TT__FLOATS(dtype, tt::unary_backward_run, stream, w, call)}

cudaError_t tt__cuda_binary(cudaStream_t stream, tt_dtype dtype, const tt__walk *w,
                            const tt__binary *call){TT__FLOATS(dtype, tt::binary_run, stream, w, call)}

cudaError_t tt__cuda_binary_backward(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__binary *call,
                                     int input) {
    TT__FLOATS(dtype, tt::binary_backward_run, stream, w, call, input)
}
}
