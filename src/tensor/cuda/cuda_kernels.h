/* The kernels of a CUDA device, as C calls them: plain structs, pointers into the device's memory, a stream. Each
 * enqueues its work and returns; errors of the work itself come with a later call. The dtypes that a kernel has no code
 * for are left out of the device's table (device.c), so that none is asked for. */
#ifndef TT_TENSOR_CUDA_CUDA_KERNELS_H
#define TT_TENSOR_CUDA_CUDA_KERNELS_H

#include "tensor/kernels/calls.h"

#include <tutti/tensor.h>

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TT__WALK_ARRAYS = 4 };

/* Strided arrays of one shape, walked together: dimensions from the innermost on, joined where all arrays allow it.
 * Strides are in elements. */
typedef struct tt__walk {
    int64_t n; /* elements */
    int ndim;
    int64_t dim[TT_MAX_DIMS];
    int64_t step[TT__WALK_ARRAYS][TT_MAX_DIMS];
    void *p[TT__WALK_ARRAYS];
} tt__walk;

/* A matrix: element (i, j) is p[i * row + j * column]. */
typedef struct tt__cuda_matrix {
    void *p;
    int64_t row, column;
} tt__cuda_matrix;

/* y (M,N) = a (M,K) b (K,N) + beta y + bias (N, or NULL) */
typedef struct tt__cuda_product {
    int64_t M, N, K;
    tt__cuda_matrix y, a, b;
    const void *bias;
    double beta;
} tt__cuda_product;

/* y[i] = factor * sum of x over `inner`, for each element i of `outer`: walks of y and x, and of x alone. With `parts`
 * > 1, as many blocks share a sum, by way of `scratch` (outer.n * parts). */
typedef struct tt__cuda_sum {
    tt__walk outer, inner;
    double factor;
    int64_t parts;
    double *scratch;
} tt__cuda_sum;

/* How many blocks are to share each of `sums` sums of n terms. */
static inline int64_t tt__cuda_sum_parts(int64_t sums, int64_t n) {
    const int64_t TERMS = 1 << 14, ENOUGH = 1024;
    int64_t parts = sums < ENOUGH ? n / TERMS : 1;
    return parts < 1 ? 1 : parts > ENOUGH ? ENOUGH : parts;
}

/* pointwise.cu: arrays 0 is written; see tensor/kernels/kernels.h for each. */
cudaError_t tt__cuda_fill(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, double value);
cudaError_t tt__cuda_convert(cudaStream_t stream, tt_dtype to, tt_dtype from, const tt__walk *w);
cudaError_t tt__cuda_scale(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, double factor);

typedef enum tt__cuda_arithmetic { TT__CUDA_ADD, TT__CUDA_SUB, TT__CUDA_MUL } tt__cuda_arithmetic;
cudaError_t tt__cuda_arithmetic_run(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, tt__cuda_arithmetic op);

cudaError_t tt__cuda_relu(cudaStream_t stream, tt_dtype dtype, const tt__walk *w);
cudaError_t tt__cuda_relu_backward(cudaStream_t stream, tt_dtype dtype, const tt__walk *w);
cudaError_t tt__cuda_unary(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__unary *call);
cudaError_t tt__cuda_unary_backward(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__unary *call);
cudaError_t tt__cuda_binary(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__binary *call);
cudaError_t tt__cuda_binary_backward(cudaStream_t stream, tt_dtype dtype, const tt__walk *w, const tt__binary *call,
                                     int input);

/* reduce.cu */
cudaError_t tt__cuda_sum_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_sum *sum);

/* matmul.cu */
cudaError_t tt__cuda_matmul(cudaStream_t stream, tt_dtype dtype, const tt__cuda_product *product);

/* softmax.cu: contiguous, R rows of V. */
cudaError_t tt__cuda_log_softmax(cudaStream_t stream, tt_dtype dtype, void *y, const void *x, int64_t R, int64_t V);
cudaError_t tt__cuda_log_softmax_backward(cudaStream_t stream, tt_dtype dtype, void *dx, const void *y, const void *g,
                                          int64_t R, int64_t V);
cudaError_t tt__cuda_softmax(cudaStream_t stream, tt_dtype dtype, void *y, const void *x, int64_t R, int64_t V);
cudaError_t tt__cuda_softmax_backward(cudaStream_t stream, tt_dtype dtype, void *dx, const void *y, const void *g,
                                      int64_t R, int64_t V);

/* loss.cu: as in tensor/kernels/kernels.h. `rows`: scratch, (B) of double; backward: one. */
typedef struct tt__cuda_cross_entropy {
    void *loss, *stats, *dx;
    const void *x, *g;
    const int64_t *t;
    double *rows;
    int64_t B, V;
} tt__cuda_cross_entropy;
cudaError_t tt__cuda_cross_entropy_run(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cross_entropy *c);
cudaError_t tt__cuda_cross_entropy_backward(cudaStream_t stream, tt_dtype dtype, const tt__cuda_cross_entropy *c);

#ifdef __cplusplus
}
#endif

#endif
