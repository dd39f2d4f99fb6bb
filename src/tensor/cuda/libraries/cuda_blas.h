/* Matrix products by cuBLASLt. It stores matrices by columns, so our y = a b is its y^T = b^T a^T: the operands change
 * places, and nothing is copied. f32 is multiplied in f32 (no TF32), f64 in f64, 16-bit floats in f32, and parts of a
 * sum are added in that type, in an order that a plan fixes. */
#ifndef TT_TENSOR_CUDA_CUDA_BLAS_H
#define TT_TENSOR_CUDA_CUDA_BLAS_H

#include "tensor/cuda/device/cuda_state.h"
#include "tensor/cuda/libraries/cuda_cublaslt.h"

#include <tutti/tensor.h>

/* A matrix in memory, or a batch of them: its lines are rows or, if `turned`, columns; `lead` elements from one to the
 * next, `step` from one matrix to the next (0: the same one). */
typedef struct tt__blas_matrix {
    void *p;
    int64_t lead, step;
    bool turned;
} tt__blas_matrix;

/* y (M,N) = a (M,K) b (K,N) + beta y + bias (N, or NULL), `batch` times; y isn't turned, and its step isn't 0 */
typedef struct tt__blas_product {
    tt_dtype dtype;
    int64_t M, N, K, batch;
    tt__blas_matrix y, a, b;
    const void *bias;
    double beta;
} tt__blas_product;

/* Enqueue a product. TT_ERR_UNSUPPORTED, without a recorded error: cuBLASLt is not used or doesn't take this one. */
tt_status tt__blas_multiply(tt__cuda_state *state, const tt__blas_product *product);

#endif
