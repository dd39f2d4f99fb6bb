/* Matrix products. Element (i, j) of a matrix lies at data[i * row_step + j * col_step]; a transpose swaps the two. */
#ifndef TT_TENSOR_CPU_GEMM_H
#define TT_TENSOR_CPU_GEMM_H

#include "tensor/tensor.h"

typedef struct tt__matrix {
    void *data;
    int64_t rows, cols, row_step, col_step;
} tt__matrix;

static inline tt__matrix tt__matrix_transposed(tt__matrix m) {
    return (tt__matrix){m.data, m.cols, m.rows, m.col_step, m.row_step};
}

/* Row-major, without gaps. */
static inline tt__matrix tt__matrix_rows(void *data, int64_t rows, int64_t cols) {
    return (tt__matrix){data, rows, cols, cols, 1};
}

/* Can the f32 product read it where it is: is one of its steps 1 and the other no smaller than a line? */
bool tt__matrix_is_plain(const tt__matrix *m);

/* c (M,N) = a (M,K) b (K,N), or c += a b. All f32 or all f64. a and b are plain; c is row-major. */
tt_status tt__gemm(tt_dtype dtype, tt__matrix a, tt__matrix b, tt__matrix c, bool accumulate);

/* The f32 product by oneDNN (onednn.c), all sizes above 0. */
tt_status tt__gemm_onednn(const tt__matrix *a, const tt__matrix *b, const tt__matrix *c, bool accumulate);

#endif
