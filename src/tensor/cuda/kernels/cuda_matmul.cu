/* Matrix products without a library: y (M,N) = a (M,K) b (K,N) + beta y + bias. A block makes a tile of y: it stages
 * tiles of a and b in shared memory, and each thread has a few elements of y in registers. The plain way where cuBLASLt
 * is missing, and for what it doesn't take. f32 and 16-bit floats are added up in f32, f64 in f64, along K in order. */
#include "tensor/cuda/kernels/cuda_code.cuh"

namespace tt {

constexpr int TILE = 32, DEPTH = 16;        /* of y; along K */
constexpr int EACH = TILE * TILE / THREADS; /* elements of y of a thread */

template <class T, class W> __global__ void matmul(tt__cuda_product p) {
    __shared__ W a[TILE][DEPTH + 1], b[DEPTH][TILE + 1];
    const T *A = (const T *)p.a.p, *B = (const T *)p.b.p, *bias = (const T *)p.bias;
    T *Y = (T *)p.y.p;
    int64_t across = (p.N + TILE - 1) / TILE, tiles = across * ((p.M + TILE - 1) / TILE);
    for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        int64_t top = tile / across * TILE, left = tile % across * TILE;
        W sum[EACH];
        for (int e = 0; e < EACH; e++)
            sum[e] = 0;
        for (int64_t k0 = 0; k0 < p.K; k0 += DEPTH) {
            __syncthreads(); /* the tiles before may still be read */
            for (int e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
                int64_t i = top + e / DEPTH, k = k0 + e % DEPTH;
                a[e / DEPTH][e % DEPTH] = i < p.M && k < p.K ? (W)load(A + i * p.a.row + k * p.a.column) : 0;
            }
            for (int e = threadIdx.x; e < TILE * DEPTH; e += THREADS) {
                int64_t k = k0 + e / TILE, j = left + e % TILE;
                b[e / TILE][e % TILE] = k < p.K && j < p.N ? (W)load(B + k * p.b.row + j * p.b.column) : 0;
            }
            __syncthreads();
            for (int k = 0; k < DEPTH; k++)
                for (int e = 0; e < EACH; e++) {
                    int at = e * THREADS + threadIdx.x;
                    sum[e] += a[at / TILE][k] * b[k][at % TILE];
                }
        }
        for (int e = 0; e < EACH; e++) {
            int at = e * THREADS + threadIdx.x;
            int64_t i = top + at / TILE, j = left + at % TILE;
            if (i >= p.M || j >= p.N)
                continue;
            T *y = Y + i * p.y.row + j * p.y.column;
            W value = sum[e] + (bias ? (W)load(bias + j) : 0);
            store(y, (wide<T>)(p.beta == 0 ? value : value + (W)p.beta * (W)load(y)));
        }
    }
}

template <class T> cudaError_t matmul_run(cudaStream_t stream, const tt__cuda_product *p) {
    int64_t tiles = ((p->M + TILE - 1) / TILE) * ((p->N + TILE - 1) / TILE);
    if (!tiles)
        return cudaSuccess;
    return launch_blocks(matmul<T, wide<T>>, tiles < 65535 ? tiles : 65535, stream, *p);
}

} /* namespace tt */

extern "C" {

cudaError_t tt__cuda_matmul(cudaStream_t stream, tt_dtype dtype, const tt__cuda_product *product) {
    TT__FLOATS(dtype, tt::matmul_run, stream, product)
}
}
