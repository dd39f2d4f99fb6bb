#include "tensor/ops.h"

#include "base/error.h"

tt_tensor tt__transposed(const tt_tensor *x) {
    tt_shape shape = {.ndim = 2, .dim = {x->shape.dim[1], x->shape.dim[0]}};
    return tt__tensor_seen(x, shape, (const int64_t[]){x->stride[1], x->stride[0]});
}

tt_tensor tt__as_rows(const tt_tensor *x) {
    int64_t cols = x->shape.ndim ? x->shape.dim[x->shape.ndim - 1] : 1;
    int64_t rows = 1;
    for (int d = 0; d + 1 < x->shape.ndim; d++)
        rows *= x->shape.dim[d];
    return tt__tensor_seen(x, (tt_shape){.ndim = 2, .dim = {rows, cols}}, (const int64_t[]){cols, 1});
}

/* Can a product read the matrix in place? */
static bool is_plain_matrix(const tt_tensor *m) { return tt__matrix_is_stored(m, 0) || tt__matrix_is_stored(m, 1); }

static tt_status run_plain(const char *who, tt__kernel_matmul run, tt_tensor *y, const tt_tensor *a, const tt_tensor *b,
                           double beta) {
    tt_tensor *pa = is_plain_matrix(a) ? (tt_tensor *)a : tt__clone_contiguous(who, a);
    tt_tensor *pb = !pa || is_plain_matrix(b) ? (tt_tensor *)b : tt__clone_contiguous(who, b);
    tt_status status = pa && pb ? run(y, pa, pb, beta) : tt_last_status();
    tt__contiguous_done(pb, b);
    tt__contiguous_done(pa, a);
    return status;
}

/* Multiply by way of a copy, where y's layout can't be written. */
static tt_status run_copied(const char *who, tt__kernel_matmul run, tt_tensor *y, const tt_tensor *a,
                            const tt_tensor *b, double beta) {
    tt_tensor *out = tt__clone_contiguous(who, y);
    tt_status status = out ? run_plain(who, run, out, a, b, beta) : tt_last_status();
    if (!status)
        status = tt__copy_out(who, y, out);
    tt__abandon(out);
    return status;
}

tt_status tt__matmul_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    tt__kernel_matmul run = TT__KERNEL(who, y, matmul);
    if (!run || !TT__SAME_DEVICE(who, y, a, b))
        return tt_last_status();
    if (y->numel == 0)
        return TT_OK;
    if (a->shape.dim[1] == 0) /* a sum of no terms */
        return beta == 0 ? tt__fill_out(who, y, 0) : TT_OK;
    return tt__matrix_is_stored(y, 0) ? run_plain(who, run, y, a, b, beta) : run_copied(who, run, y, a, b, beta);
}
