/* x (B...,C)  weight (K,C)  bias (K)  ->  y (B...,K) = x weight^T + bias, with B rows
 * dx (B...,C) = g weight     dweight (K,C) = g^T x     dbias (K) = sum of g over rows */
#include "autograd/autocast.h"
#include "autograd/record.h"

#include "base/error.h"

#include <inttypes.h>

static const char who[] = "tt_linear";

static int64_t linear_inner(const tt_tensor *x) { return x->shape.dim[x->shape.ndim - 1]; }

static tt_status linear_forward(tt_tensor *y, const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias) {
    tt_tensor *in = tt__contiguous_begin(who, x);
    if (!in)
        return tt_last_status();
    tt_tensor rows = tt__as_rows(in), out = tt__as_rows(y), wt = tt__transposed(weight);
    tt_status status =
        bias ? tt__matmul_bias_out(who, &out, &rows, &wt, bias) : tt__matmul_out(who, &out, &rows, &wt, 0);
    tt__contiguous_done(in, x);
    return status;
}

static tt_status give_weight(tt_node *node, const tt_tensor *g, const tt_tensor *x) {
    if (!x)
        return tt_last_status();
    tt_tensor *in = tt__contiguous_begin(who, x);
    if (!in)
        return tt_last_status();
    tt_tensor gt = tt__transposed(g), rows = tt__as_rows(in);
    TT__GIVE(node, 1, dw, tt__matmul_out(who, dw, &gt, &rows, 0));
    return TT_OK;
}

static tt_status give_x(tt_node *node, const tt_tensor *g, const tt_tensor *weight) {
    if (!weight)
        return tt_last_status();
    tt_tensor *dx = tt__grad_dest(node, 0);
    tt_tensor *out = !dx || dx->contiguous ? dx : tt__empty_beside(who, dx, dx->shape, dx->dtype);
    if (!out)
        return tt_last_status();
    tt_tensor rows = tt__as_rows(out);
    TT__TRY(tt__matmul_out(who, &rows, g, weight, 0));
    if (out != dx)
        TT__TRY(tt__copy_out(who, dx, out));
    return tt__grad_give(node, 0, dx);
}

/* Saved: x, weight. */
static tt_status linear_backward(tt_node *node) {
    tt_tensor *whole = tt__contiguous_begin(who, tt__grad_of(node, 0));
    if (!whole)
        return tt_last_status();
    tt_tensor g = tt__as_rows(whole);
    if (tt__grad_wanted(node, 2))
        TT__GIVE(node, 2, db, tt__sum_to_out(who, db, &g, 1));
    if (tt__grad_wanted(node, 1))
        TT__TRY(give_weight(node, &g, tt__saved(node, 0)));
    return tt__grad_wanted(node, 0) ? give_x(node, &g, tt__saved(node, 1)) : TT_OK;
}

static const tt__operator linear_op = {.name = who, .backward = linear_backward};

static bool linear_check(const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias) {
    if (!TT__CHECK_FLOATS(who, {"x", x}, {"weight", weight}, {"bias", bias}))
        return false;
    if (weight->shape.ndim != 2)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected weight (K, C), got weight %s", who, TT__DESCRIBE(weight));
    else if (x->shape.ndim < 1 || linear_inner(x) != weight->shape.dim[1])
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (..., %" PRId64 ") to match weight %s, got x %s", who,
                        weight->shape.dim[1], TT__DESCRIBE(weight), TT__DESCRIBE(x));
    else if (bias && (bias->shape.ndim != 1 || bias->shape.dim[0] != weight->shape.dim[0]))
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected bias (%" PRId64 ") to match weight %s, got bias %s", who,
                        weight->shape.dim[0], TT__DESCRIBE(weight), TT__DESCRIBE(bias));
    else
        return true;
    return false;
}

tt_tensor *tt_linear(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    if (!x || !weight || !TT__AUTOCAST(who, &x, &weight, &bias) || !linear_check(x, weight, bias))
        return NULL;
    tt_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = weight->shape.dim[0];
    tt_tensor *y = tt__empty_beside(who, x, shape, x->dtype);
    y = TT__MADE(who, y, linear_forward(y, x, weight, bias));
    return tt__recorded(
        &linear_op, y, TT__INPUTS(x, weight, bias),
        TT__SAVES({weight->requires_grad ? x : NULL, "x"}, {x->requires_grad ? weight : NULL, "weight"}), TT__NO_STATE);
}
