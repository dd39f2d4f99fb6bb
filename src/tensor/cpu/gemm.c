#include "tensor/cpu/gemm.h"

#include <string.h>

/* The reference, and what f64 uses. */
static void gemm_f64(tt__matrix a, tt__matrix b, tt__matrix c, bool accumulate) {
    for (int64_t i = 0; i < c.rows; i++) {
        for (int64_t j = 0; j < c.cols; j++) {
            double sum = 0;
            for (int64_t k = 0; k < a.cols; k++)
                sum += ((const double *)a.data)[i * a.row_step + k * a.col_step] *
                       ((const double *)b.data)[k * b.row_step + j * b.col_step];
            double *out = (double *)c.data + i * c.row_step + j;
            *out = accumulate ? *out + sum : sum;
        }
    }
}

bool tt__matrix_is_plain(const tt__matrix *m) {
    bool by_rows = (m->col_step == 1 || m->cols == 1) && (m->row_step >= m->cols || m->rows == 1);
    bool by_cols = (m->row_step == 1 || m->rows == 1) && (m->col_step >= m->rows || m->cols == 1);
    return by_rows || by_cols;
}

tt_status tt__gemm(tt_dtype dtype, tt__matrix a, tt__matrix b, tt__matrix c, bool accumulate) {
    if (c.rows == 0 || c.cols == 0)
        return TT_OK;
    if (dtype == TT_F32 && a.cols > 0)
        return tt__gemm_onednn(&a, &b, &c, accumulate);
    if (dtype == TT_F64)
        gemm_f64(a, b, c, accumulate);
    else if (!accumulate) /* a sum of no terms */
        memset(c.data, 0, (size_t)(c.rows * c.cols) * sizeof(float));
    return TT_OK;
}
