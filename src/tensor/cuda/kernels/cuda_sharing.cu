/* Sums over the memory of several ranks, in the order of comm/reduce/reduce_tree.c: with p the largest power of two
 * not above N, the first 2(N-p) ranks fold in pairs, which leaves p units, joined as a balanced tree. Products and sums
 * are rounded one by one, as on the host. */
#include "tensor/cuda/kernels/cuda_code.cuh"
#include "tensor/cuda/cuda_kernels_optim.h"

namespace tt {

#ifdef __CUDA_ARCH__
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }
#else
inline float rounded_product(float a, float b) { return a * b; }
inline double rounded_product(double a, double b) { return a * b; }
#endif

__host__ __device__ constexpr int power_below(int n) { return n < 2 ? 1 : 2 * power_below(n / 2); }

/* The sum of units FIRST .. FIRST + COUNT - 1 of N ranks' numbers. */
template <int N, int FIRST, int COUNT> struct units {
    template <class W> __device__ static W sum(const W *x) {
        return units<N, FIRST, COUNT / 2>::sum(x) + units<N, FIRST + COUNT / 2, COUNT / 2>::sum(x);
    }
};
template <int N, int UNIT> struct units<N, UNIT, 1> {
    template <class W> __device__ static W sum(const W *x) {
        constexpr int FOLDED = N - power_below(N);
        return UNIT < FOLDED ? x[2 * UNIT < N ? 2 * UNIT : 0] + x[2 * UNIT + 1 < N ? 2 * UNIT + 1 : 0]
                             : x[UNIT + FOLDED < N ? UNIT + FOLDED : 0];
    }
};

/* 16 bytes of elements, moved at once. */
template <class T> struct alignas(16) pack {
    T x[16 / sizeof(T)];
};

template <class T, int N> __device__ void sum_element(T *const *of, int64_t i, wide<T> scale, bool scaled) {
    wide<T> x[N];
    for (int r = 0; r < N; r++) {
        x[r] = load(of[r] + i);
        x[r] = scaled ? rounded_product(x[r], scale) : x[r];
    }
    const wide<T> sum = units<N, 0, power_below(N)>::sum(x);
    for (int r = 0; r < N; r++)
        store(of[r] + i, sum);
}

template <class T, int N> __device__ void sum_pack(T *const *of, int64_t i, wide<T> scale, bool scaled) {
    constexpr int PACKED = 16 / sizeof(T);
    pack<T> packs[N], sums;
    for (int r = 0; r < N; r++)
        packs[r] = ((const pack<T> *)of[r])[i];
    for (int k = 0; k < PACKED; k++) {
        wide<T> x[N];
        for (int r = 0; r < N; r++) {
            x[r] = load(&packs[r].x[k]);
            x[r] = scaled ? rounded_product(x[r], scale) : x[r];
        }
        store(&sums.x[k], units<N, 0, power_below(N)>::sum(x));
    }
    for (int r = 0; r < N; r++)
        ((pack<T> *)of[r])[i] = sums;
}

/* `packed`: all memory begins at a multiple of 16 bytes. */
template <class T, int N>
__global__ void sum_peers(tt__device_sum s, int64_t count, double factor, int scaled, int packed) {
    constexpr int PACKED = 16 / sizeof(T);
    T *of[N];
    for (int r = 0; r < N; r++)
        of[r] = (T *)s.of[r];
    const int64_t packs = packed ? count / PACKED : 0;
    const wide<T> scale = (wide<T>)factor;
    for (int64_t i = first_element(); i < packs; i += all_threads())
        sum_pack<T, N>(of, i, scale, scaled);
    for (int64_t i = packs * PACKED + first_element(); i < count; i += all_threads())
        sum_element<T, N>(of, i, scale, scaled);
}

template <class T, int N> cudaError_t sum_peers_run(cudaStream_t stream, const tt__device_sum *given) {
    tt__device_sum s = *given;
    uintptr_t bits = 0;
    for (int r = 0; r < N; r++) {
        s.of[r] = (T *)s.of[r] + s.first;
        bits |= (uintptr_t)s.of[r];
    }
    return launch(sum_peers<T, N>, grid_for(((int64_t)s.count * sizeof(T) + 15) / 16), stream, s, (int64_t)s.count,
                  1.0 / N, s.average ? 1 : 0, bits % 16 ? 0 : 1);
}

template <class T> cudaError_t sum_peers_of(cudaStream_t stream, const tt__device_sum *sum) {
    switch (sum->n) {
    case 2:
        return sum_peers_run<T, 2>(stream, sum);
    case 3:
        return sum_peers_run<T, 3>(stream, sum);
    case 4:
        return sum_peers_run<T, 4>(stream, sum);
    case 5:
        return sum_peers_run<T, 5>(stream, sum);
    case 6:
        return sum_peers_run<T, 6>(stream, sum);
    case 7:
        return sum_peers_run<T, 7>(stream, sum);
    case TT__DEVICE_PEERS:
        return sum_peers_run<T, TT__DEVICE_PEERS>(stream, sum);
    default:
        return cudaErrorInvalidValue;
    }
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_sum_peers(cudaStream_t stream, const tt__device_sum *sum) {
    if (!sum->count)
        return cudaSuccess;
    TT__FLOATS(sum->dtype, tt::sum_peers_of, stream, sum)
}
}
