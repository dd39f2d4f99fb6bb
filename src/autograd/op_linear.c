/* x (B,C)  weight (K,C)  bias (K)  ->  y (B,K) = x weight^T + bias.   B: all dimensions of x but the last, joined
 * dweight (K,C) = g^T x      dbias (K) = sum over B of g      dx (B,C) = g weight */
#include "autograd/ops.h"

#include "base/error.h"
#include "tensor/cpu/kernels.h"

#include <inttypes.h>
#include <string.h>

static const char who[] = "tt_linear";

static int64_t inner(const tt_tensor *x) { return x->shape.dim[x->shape.ndim - 1]; }

/* Each row of y starts as the bias, to which the product is added. */
static void spread_bias(const tt_tensor *bias, int64_t rows, tt_tensor *y) {
    size_t line = (size_t)bias->numel * tt_dtype_size(bias->dtype);
    for (int64_t b = 0; b < rows; b++)
        memcpy((char *)y->data + (size_t)b * line, bias->data, line);
}

static tt_status forward(const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias, tt_tensor *y) {
    int64_t C = inner(x), K = weight->shape.dim[0], B = K ? y->numel / K : 0;
    if (bias)
        spread_bias(bias, B, y);
    return tt__gemm(x->dtype, tt__matrix_rows(x->data, B, C), tt__matrix_transposed(tt__ops_matrix(weight)),
                    tt__matrix_rows(y->data, B, K), bias != NULL);
}

/* dbias: columns of g (B,K), summed. */
static void bias_backward(tt_dtype dtype, int64_t B, int64_t K, const void *g, tt__grad_to to) {
    if (dtype == TT_F32) {
        tt__reduce()->sum_rows(B, K, g, to.data, to.accumulate);
        return;
    }
    double *db = to.data;
    for (int64_t k = 0; k < K; k++) {
        double sum = to.accumulate ? db[k] : 0;
        for (int64_t b = 0; b < B; b++)
            sum += ((const double *)g)[b * K + k];
        db[k] = sum;
    }
}

static tt_status backward(tt__node *node, const tt_tensor *x, const tt_tensor *weight) {
    tt_dtype dtype = x->dtype;
    int64_t C = inner(x), K = weight->shape.dim[0], B = K ? node->grad->numel / K : 0;
    tt__matrix g = tt__matrix_rows(node->grad->data, B, K);
    tt__grad_to db = tt__grad_begin(node, 2);
    if (db.data)
        bias_backward(dtype, B, K, node->grad->data, db);
    tt__grad_to dw = tt__grad_begin(node, 1);
    if (dw.data)
        TT__TRY(tt__gemm(dtype, tt__matrix_transposed(g), tt__matrix_rows(x->data, B, C),
                         tt__matrix_rows(dw.data, K, C), dw.accumulate));
    tt__grad_to dx = tt__grad_begin(node, 0);
    if (dx.data)
        TT__TRY(tt__gemm(dtype, g, tt__ops_matrix(weight), tt__matrix_rows(dx.data, B, C), dx.accumulate));
    return TT_OK;
}

/* A weight in a layout that products can't read is copied. */
static tt_tensor *plain_weight(tt_tensor *weight) {
    tt__matrix m = tt__ops_matrix(weight);
    return tt__matrix_is_plain(&m) ? weight : tt__ops_contiguous(who, weight);
}

static tt_status linear_backward(tt__node *node) {
    tt_tensor *x = tt__ops_contiguous(who, node->input[0]);
    tt_tensor *weight = x ? plain_weight(node->input[1]) : NULL;
    tt_status status = weight ? backward(node, x, weight) : tt_last_status();
    tt__ops_done(weight, node->input[1]);
    tt__ops_done(x, node->input[0]);
    return status;
}

static bool check(const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias) {
    if (!TT__CHECK_FLOATS(who, {"x", x}, {"weight", weight}, {"bias", bias}))
        return false;
    if (weight->shape.ndim != 2)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected weight (K, C), got weight %s", who, TT__DESCRIBE(weight));
    else if (x->shape.ndim < 1 || inner(x) != weight->shape.dim[1])
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (..., %" PRId64 ") to match weight %s, got x %s", who,
                        weight->shape.dim[1], TT__DESCRIBE(weight), TT__DESCRIBE(x));
    else if (bias && (bias->shape.ndim != 1 || bias->shape.dim[0] != weight->shape.dim[0]))
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected bias (%" PRId64 ") to match weight %s, got bias %s", who,
                        weight->shape.dim[0], TT__DESCRIBE(weight), TT__DESCRIBE(bias));
    else
        return true;
    return false;
}

static tt_tensor *run(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    tt_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = weight->shape.dim[0];
    tt_tensor *y = tt__tensor_new(who, shape, x->dtype);
    if (y && forward(x, weight, bias, y)) {
        tt__tensor_fail(tt_last_status(), "%s: %s", who, tt_last_error());
        return tt__abandon(y);
    }
    return y;
}

tt_tensor *tt_linear(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    if (!x || !weight || !check(x, weight, bias))
        return NULL;
    tt_tensor *in = tt__ops_contiguous(who, x);
    tt_tensor *w = in ? plain_weight(weight) : NULL;
    tt_tensor *b = w && bias ? tt__ops_contiguous(who, bias) : NULL;
    tt_tensor *y = w && (b || !bias) ? run(in, w, b) : NULL;
    tt__ops_done(b, bias);
    tt__ops_done(w, weight);
    tt__ops_done(in, x);
    if (y && TT__WANTS_GRAD(x, weight, bias) && !TT__RECORD(who, linear_backward, y, x, weight, bias))
        return NULL;
    return y;
}
