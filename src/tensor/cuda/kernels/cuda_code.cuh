/* Helpers of kernels. Kernels are compiled by nvcc for GPUs, and by any C++ compiler against tests/support/fake_cuda,
 * which runs them on the host. */
#ifndef TT_TENSOR_CUDA_CUDA_CODE_CUH
#define TT_TENSOR_CUDA_CUDA_CODE_CUH

#include "tensor/cuda/cuda_kernels.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace tt {

#ifdef __CUDACC__
constexpr int THREADS = 256, BLOCKS = 4096; /* threads of a block; most blocks of a grid whose threads loop */

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), int64_t blocks, cudaStream_t stream, Arguments... arguments) {
    kernel<<<(unsigned)blocks, THREADS, 0, stream>>>(Parameters(arguments)...);
    return cudaGetLastError();
}

/* Launch a kernel whose threads wait for each other. */
template <class... Parameters, class... Arguments>
cudaError_t launch_blocks(void (*kernel)(Parameters...), int64_t blocks, cudaStream_t stream, Arguments... arguments) {
    return launch(kernel, blocks, stream, arguments...);
}
#else
constexpr int THREADS = 32, BLOCKS = 3;

template <class... Parameters, class... Arguments>
cudaError_t launch(void (*kernel)(Parameters...), int64_t blocks, cudaStream_t stream, Arguments... arguments) {
    return fake_launch((unsigned)blocks, THREADS, false, stream, [=] { kernel(Parameters(arguments)...); });
}

template <class... Parameters, class... Arguments>
cudaError_t launch_blocks(void (*kernel)(Parameters...), int64_t blocks, cudaStream_t stream, Arguments... arguments) {
    return fake_launch((unsigned)blocks, THREADS, true, stream, [=] { kernel(Parameters(arguments)...); });
}
#endif

/* The grid for so many blocks of work: at most BLOCKS, which loop. */
inline int64_t grid_of(int64_t blocks) { return blocks < BLOCKS ? blocks : BLOCKS; }

/* The grid for n elements, one a thread. */
inline int64_t grid_for(int64_t n) { return grid_of((n + THREADS - 1) / THREADS); }

/* ---- element types: what lies in memory, and what is computed with ---- */

struct boolean {
    uint8_t set;
};

template <class T> struct number { typedef T wide; };
template <> struct number<__half> { typedef float wide; };
template <> struct number<__nv_bfloat16> { typedef float wide; };
template <> struct number<boolean> { typedef int wide; };

template <class T> using wide = typename number<T>::wide;

template <class T> __device__ wide<T> load(const T *p) { return (wide<T>)*p; }
template <> __device__ inline float load<__half>(const __half *p) { return __half2float(*p); }
template <> __device__ inline float load<__nv_bfloat16>(const __nv_bfloat16 *p) { return __bfloat162float(*p); }

template <> __device__ inline int load<boolean>(const boolean *p) { return p->set != 0; }

template <class T> __device__ void store(T *p, wide<T> value) { *p = (T)value; }
template <> __device__ inline void store<__half>(__half *p, float value) { *p = __float2half_rn(value); }
template <> __device__ inline void store<__nv_bfloat16>(__nv_bfloat16 *p, float value) {
    *p = __float2bfloat16_rn(value);
}
template <> __device__ inline void store<boolean>(boolean *p, int value) { p->set = value != 0; }

/* Call RUN<T>(...) with the T of a dtype. */
#define TT__FLOAT_CASES(run, ...)        \
    case TT_F32:                         \
        return run<float>(__VA_ARGS__);  \
    case TT_F64:                         \
        return run<double>(__VA_ARGS__); \
    case TT_F16:                         \
        return run<__half>(__VA_ARGS__); \
    case TT_BF16:                        \
        return run<__nv_bfloat16>(__VA_ARGS__);
#define TT__INTEGER_CASES(run, ...)       \
    case TT_I64:                          \
        return run<int64_t>(__VA_ARGS__); \
    case TT_I32:                          \
        return run<int32_t>(__VA_ARGS__); \
    case TT_I16:                          \
        return run<int16_t>(__VA_ARGS__); \
    case TT_I8:                           \
        return run<int8_t>(__VA_ARGS__);  \
    case TT_U8:                           \
        return run<uint8_t>(__VA_ARGS__);
#define TT__FLOATS(dtype, run, ...)       \
    switch (dtype) {                      \
        TT__FLOAT_CASES(run, __VA_ARGS__) \
    default:                              \
        return cudaErrorInvalidValue;     \
    }
#define TT__INTEGERS(dtype, run, ...)       \
    switch (dtype) {                        \
        TT__INTEGER_CASES(run, __VA_ARGS__) \
    default:                                \
        return cudaErrorInvalidValue;       \
    }
#define TT__NUMBERS(dtype, run, ...)        \
    switch (dtype) {                        \
        TT__FLOAT_CASES(run, __VA_ARGS__)   \
        TT__INTEGER_CASES(run, __VA_ARGS__) \
    default:                                \
        return cudaErrorInvalidValue;       \
    }

/* Call RUN<T>(...) with a T of `size` bytes, for kernels that only move elements. */
#define TT__SIZES(size, run, ...)          \
    switch (size) {                        \
    case 1:                                \
        return run<uint8_t>(__VA_ARGS__);  \
    case 2:                                \
        return run<uint16_t>(__VA_ARGS__); \
    case 4:                                \
        return run<uint32_t>(__VA_ARGS__); \
    case 8:                                \
        return run<uint64_t>(__VA_ARGS__); \
    default:                               \
        return cudaErrorInvalidValue;      \
    }

/* ---- places ---- */

/* Is this one of n places? Others have been reported (tt__cuda_expect_within()); skip them. */
__device__ inline bool is_place(int64_t i, int64_t n) { return (uint64_t)i < (uint64_t)n; }

/* Number of this thread in the grid, and how many there are. */
__device__ inline int64_t first_element() { return (int64_t)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ inline int64_t all_threads() { return (int64_t)gridDim.x * blockDim.x; }

/* Where element i of a walk lies in each of the first N arrays. */
template <int N> struct places {
    int64_t at[N];

    __device__ places(const tt__walk &w, int64_t i) {
        for (int k = 0; k < N; k++)
            at[k] = 0;
        for (int d = 0; d < w.ndim; d++) {
            int64_t here = d + 1 == w.ndim ? i : i % w.dim[d];
            i /= w.dim[d];
            for (int k = 0; k < N; k++)
                at[k] += here * w.step[k][d];
        }
    }
};

template <class T> __device__ T *element(const tt__walk &w, int k, int64_t at) { return (T *)w.p[k] + at; }

/* ---- reductions of a block: every thread gets the result, the same bits in each run ---- */

template <class V, class Join> __device__ V block_reduce(V value, Join join) {
    __shared__ V part[THREADS];
    __syncthreads(); /* `part` may still be read for the reduction before */
    part[threadIdx.x] = value;
    for (int half = THREADS / 2; half > 0; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            part[threadIdx.x] = join(part[threadIdx.x], part[threadIdx.x + half]);
    }
    __syncthreads();
    return part[0];
}

struct join_sum {
    template <class V> __device__ V operator()(V a, V b) const { return a + b; }
};
struct join_min {
    __device__ int64_t operator()(int64_t a, int64_t b) const { return a < b ? a : b; }
};
/* NaN is the largest. */
struct join_max {
    template <class V> __device__ V operator()(V a, V b) const { return a > b || a != a ? a : b; }
};

} /* namespace tt */

#endif
