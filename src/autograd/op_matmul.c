/* a (M,K)  b (K,N)  ->  y (M,N) = a b.    da (M,K) = g b^T     db (K,N) = a^T g */
#include "autograd/record.h"

#include "base/error.h"

static const char who[] = "tt_matmul";

static tt_status give_a(tt_node *node, const tt_tensor *g, const tt_tensor *b) {
    if (!b)
        return tt_last_status();
    tt_tensor bt = tt__transposed(b);
    TT__GIVE(node, 0, da, tt__matmul_out(who, da, g, &bt, 0));
    return TT_OK;
}

static tt_status give_b(tt_node *node, const tt_tensor *g, const tt_tensor *a) {
    if (!a)
        return tt_last_status();
    tt_tensor at = tt__transposed(a);
    TT__GIVE(node, 1, db, tt__matmul_out(who, db, &at, g, 0));
    return TT_OK;
}

static tt_status matmul_backward(tt_node *node) {
    const tt_tensor *g = tt__grad_of(node, 0);
    if (tt__grad_wanted(node, 1))
        TT__TRY(give_b(node, g, tt__saved(node, 0)));
    return tt__grad_wanted(node, 0) ? give_a(node, g, tt__saved(node, 1)) : TT_OK;
}

static const tt__operator matmul_op = {.name = who, .backward = matmul_backward};

tt_tensor *tt_matmul(tt_tensor *a, tt_tensor *b) {
    if (!a || !b || !TT__CHECK_FLOATS(who, {"a", a}, {"b", b}))
        return NULL;
    if (a->shape.ndim != 2 || b->shape.ndim != 2 || a->shape.dim[1] != b->shape.dim[0])
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected a (M, K) and b (K, N), got a %s, b %s", who, TT__DESCRIBE(a),
                               TT__DESCRIBE(b));
    tt_tensor *y = tt__empty_beside(who, a, TT_SHAPE(a->shape.dim[0], b->shape.dim[1]), a->dtype);
    y = TT__MADE(who, y, tt__matmul_out(who, y, a, b, 0));
    return tt__recorded(&matmul_op, y, TT__INPUTS(a, b),
                        TT__SAVES({b->requires_grad ? a : NULL, "a"}, {a->requires_grad ? b : NULL, "b"}),
                        TT__NO_STATE);
}
