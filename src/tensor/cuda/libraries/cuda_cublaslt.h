/* cuBLASLt as Tutti calls it: the few types, values and functions that are used, under names of our own, since a
 * machine that builds may lack cublasLt.h. Where it is there, cuda_cublaslt.c compares sizes and values with it. */
#ifndef TT_TENSOR_CUDA_CUDA_CUBLASLT_H
#define TT_TENSOR_CUDA_CUDA_CUBLASLT_H

#include "tensor/cuda/device/cuda_state.h"

typedef struct tt__lt_algorithm {
    uint64_t data[8];
} tt__lt_algorithm;

typedef struct tt__lt_choice {
    tt__lt_algorithm algorithm;
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
} tt__lt_choice;

/* Objects of the library are opaque pointers: a handle, the description of a product, matrices' layouts, and what is
 * asked of an algorithm. */
typedef void *tt__lt_object;

enum { TT__LT_OK = 0, TT__LT_ARCH_MISMATCH = 8, TT__LT_NOT_SUPPORTED = 15 }; /* of cublasStatus_t */

enum { TT__LT_R_32F = 0, TT__LT_R_64F = 1, TT__LT_R_16F = 2, TT__LT_R_16BF = 14 }; /* of cudaDataType */
enum { TT__LT_COMPUTE_32F = 68, TT__LT_COMPUTE_64F = 70 };
enum { TT__LT_LAYOUT_BATCH_COUNT = 5, TT__LT_LAYOUT_BATCH_STEP = 6 };
enum { TT__LT_DESC_TURN_A = 3, TT__LT_DESC_TURN_B = 4, TT__LT_DESC_EPILOGUE = 7, TT__LT_DESC_BIAS = 8 };
enum { TT__LT_EPILOGUE_BIAS = 4 };
enum {
    TT__LT_WISH_WORKSPACE = 1,
    TT__LT_WISH_SCHEMES = 3,
    TT__LT_WISH_ALIGNMENT_A = 5,
    TT__LT_WISH_ALIGNMENT_B = 6,
    TT__LT_WISH_ALIGNMENT_C = 7,
    TT__LT_WISH_ALIGNMENT_D = 8
};
enum { TT__LT_SCHEME_COMPUTE_TYPE = 2 };

/* X(function, result, arguments), one line an entry point: cublasLt<function>. */
#define TT__LT_FUNCTIONS(X)                                                                                          \
    X(Create, int, (tt__lt_object * handle))                                                                         \
    X(Destroy, int, (tt__lt_object handle))                                                                          \
    X(GetStatusName, const char *, (int status))                                                                     \
    X(MatrixLayoutCreate, int, (tt__lt_object * layout, int type, uint64_t rows, uint64_t columns, int64_t lead))    \
    X(MatrixLayoutSetAttribute, int, (tt__lt_object layout, int attribute, const void *value, size_t size))          \
    X(MatrixLayoutDestroy, int, (tt__lt_object layout))                                                              \
    X(MatmulDescCreate, int, (tt__lt_object * desc, int compute, int scale))                                         \
    X(MatmulDescSetAttribute, int, (tt__lt_object desc, int attribute, const void *value, size_t size))              \
    X(MatmulDescDestroy, int, (tt__lt_object desc))                                                                  \
    X(MatmulPreferenceCreate, int, (tt__lt_object * wish))                                                           \
    X(MatmulPreferenceSetAttribute, int, (tt__lt_object wish, int attribute, const void *value, size_t size))        \
    X(MatmulPreferenceDestroy, int, (tt__lt_object wish))                                                            \
    X(MatmulAlgoGetHeuristic, int,                                                                                   \
      (tt__lt_object handle, tt__lt_object desc, tt__lt_object a, tt__lt_object b, tt__lt_object c, tt__lt_object d, \
       tt__lt_object wish, int most, tt__lt_choice *choices, int *count))                                            \
    X(Matmul, int,                                                                                                   \
      (tt__lt_object handle, tt__lt_object desc, const void *alpha, const void *a, tt__lt_object a_layout,           \
       const void *b, tt__lt_object b_layout, const void *beta, const void *c, tt__lt_object c_layout, void *d,      \
       tt__lt_object d_layout, const tt__lt_algorithm *algorithm, void *workspace, size_t bytes, cudaStream_t stream))

typedef struct tt__lt {
#define TT__LT_FIELD(function, result, arguments) result(*function) arguments;
    TT__LT_FUNCTIONS(TT__LT_FIELD)
#undef TT__LT_FIELD
} tt__lt;

/* Find the library, loaded once in the process. *lt = NULL: our own kernels multiply, since it is missing or too old,
 * or TT_CUDA_BLAS=own. An error, TT_ERR_NOT_FOUND: TT_CUDA_BLAS=cublaslt, and it is missing; TT_ERR_INVALID: the
 * variable has another value. */
tt_status tt__lt_find(const tt__lt **lt);

#endif
