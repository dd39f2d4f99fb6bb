/* a (M,K)  b (K,N)  ->  y (M,N) = a b.    da (M,K) = g b^T     db (K,N) = a^T g */
#include "autograd/ops.h"

#include "base/error.h"

static const char who[] = "tt_matmul";

/* x, or a copy if its layout can't be multiplied; for tt__ops_done(). */
static tt_tensor *plain(tt_tensor *x) {
    tt__matrix m = tt__ops_matrix(x);
    return tt__matrix_is_plain(&m) ? x : tt__clone(who, x);
}

static tt_status backward(tt__node *node, const tt_tensor *a, const tt_tensor *b) {
    tt__matrix ma = tt__ops_matrix(a), mb = tt__ops_matrix(b);
    tt__matrix g = tt__matrix_rows(node->grad->data, ma.rows, mb.cols);
    tt__grad_to db = tt__grad_begin(node, 1);
    if (db.data)
        TT__TRY(tt__gemm(a->dtype, tt__matrix_transposed(ma), g, tt__matrix_rows(db.data, mb.rows, mb.cols),
                         db.accumulate));
    tt__grad_to da = tt__grad_begin(node, 0);
    if (da.data)
        TT__TRY(tt__gemm(a->dtype, g, tt__matrix_transposed(mb), tt__matrix_rows(da.data, ma.rows, ma.cols),
                         da.accumulate));
    return TT_OK;
}

static tt_status matmul_backward(tt__node *node) {
    tt_tensor *a = plain(node->input[0]);
    tt_tensor *b = a ? plain(node->input[1]) : NULL;
    tt_status status = b ? backward(node, a, b) : tt_last_status();
    tt__ops_done(b, node->input[1]);
    tt__ops_done(a, node->input[0]);
    return status;
}

static tt_tensor *run(const tt_tensor *a, const tt_tensor *b) {
    tt_tensor *y = tt__tensor_new(who, TT_SHAPE(a->shape.dim[0], b->shape.dim[1]), a->dtype);
    if (y && tt__gemm(a->dtype, tt__ops_matrix(a), tt__ops_matrix(b), tt__ops_matrix(y), false)) {
        tt__tensor_fail(tt_last_status(), "%s: %s", who, tt_last_error());
        return tt__abandon(y);
    }
    return y;
}

tt_tensor *tt_matmul(tt_tensor *a, tt_tensor *b) {
    if (!a || !b || !TT__CHECK_FLOATS(who, {"a", a}, {"b", b}))
        return NULL;
    if (a->shape.ndim != 2 || b->shape.ndim != 2 || a->shape.dim[1] != b->shape.dim[0])
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected a (M, K) and b (K, N), got a %s, b %s", who, TT__DESCRIBE(a),
                               TT__DESCRIBE(b));
    tt_tensor *pa = plain(a);
    tt_tensor *pb = pa ? plain(b) : NULL;
    tt_tensor *y = pb ? run(pa, pb) : NULL;
    tt__ops_done(pb, b);
    tt__ops_done(pa, a);
    if (y && TT__WANTS_GRAD(a, b) && !TT__RECORD(who, matmul_backward, y, a, b))
        return NULL;
    return y;
}
