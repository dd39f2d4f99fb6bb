/* How cuBLASLt does a product: descriptions and an algorithm, kept for products of the same sizes, layouts and type. */
#ifndef TT_TENSOR_CUDA_CUDA_BLAS_PLAN_H
#define TT_TENSOR_CUDA_CUDA_BLAS_PLAN_H

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

/* All that an algorithm depends on; of pointers it is the alignment. No gaps: keys are compared as bytes. */
typedef struct tt__blas_key {
    int64_t dtype, M, N, K, batch;
    int64_t lead[3], step[3], alignment[3];     /* of y, a, b */
    int64_t a_turned, b_turned, bias_alignment; /* 0: no bias */
} tt__blas_key;

typedef struct tt__blas_plan {
    tt__blas_key key;
    uint64_t used; /* when, by the number of products; 0: there is no plan here */
    bool refused;  /* cuBLASLt has no algorithm */
    tt__lt_object desc, y, a, b;
    tt__lt_algorithm algorithm;
    size_t workspace;
} tt__blas_plan;

/* A key has a place in one row, where the plan that was used least recently gives way. */
enum { TT__BLAS_ROWS = 64, TT__BLAS_PLANS_IN_ROW = 4 };

typedef struct tt__blas_plans {
    const tt__lt *lt;
    tt__lt_object handle;
    size_t most_workspace;
    uint64_t products;
    tt__blas_plan plan[TT__BLAS_ROWS][TT__BLAS_PLANS_IN_ROW];
} tt__blas_plans;

/* Find the plan for a product, or make it; it is good until the next call. Not thread-safe. The result is
 * cublasStatus_t, and *function then the one that failed. */
int tt__blas_plan_for(tt__blas_plans *plans, const tt__blas_product *product, tt__blas_plan **plan,
                      const char **function);

#endif
