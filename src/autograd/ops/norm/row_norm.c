#include "autograd/ops/norm/row_norm.h"

#include "base/error.h"

#include <inttypes.h>

/* Saved: x, mean, rstd, weight. */
tt_status tt__row_norm_backward(tt_node *node) {
    bool weighted = tt__grad_wanted(node, 1), shifted = tt__grad_wanted(node, 2), moved = tt__grad_wanted(node, 0);
    tt__normed n = {tt__grad_of(node, 0), tt__saved(node, 0), tt__saved(node, 1), tt__saved(node, 2), NULL};
    if (!n.x || !n.mean || !n.rstd)
        return tt_last_status();
    if (node->save[3].tensor && !(n.weight = tt__saved(node, 3)))
        return tt_last_status();
    tt_tensor *dx = moved ? tt__grad_dest(node, 0) : NULL, *dw = weighted ? tt__grad_dest(node, 1) : NULL;
    tt_tensor *db = shifted ? tt__grad_dest(node, 2) : NULL;
    if ((moved && !dx) || (weighted && !dw) || (shifted && !db))
        return tt_last_status();
    TT__TRY(tt__row_norm_backward_out(node->op->name, &n, tt__state(node), dx, dw, db));
    if (moved)
        TT__TRY(tt__grad_give(node, 0, dx));
    if (weighted)
        TT__TRY(tt__grad_give(node, 1, dw));
    return shifted ? tt__grad_give(node, 2, db) : TT_OK;
}

static bool row_weight_check(const char *who, const char *name, const tt_tensor *given, const tt_shape *want) {
    if (!given || tt__shape_equal(&given->shape, want))
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected %s %s, got %s %s", who, name, TT__SHAPE_TEXT(want), name,
                    TT__DESCRIBE(given));
    return false;
}

tt_tensor *tt__row_normed(const tt__operator *op, tt_tensor *x, tt_tensor *weight, tt_tensor *bias, int64_t rows,
                          const tt_shape *weights, const tt__row_norm *norm) {
    const char *who = op->name;
    if (!row_weight_check(who, "weight", weight, weights) || !row_weight_check(who, "bias", bias, weights))
        return NULL;
    if (!(norm->eps >= 0))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected eps of at least 0, got %g", who, norm->eps);
    tt_tensor *mean = tt__norm_stats_beside(who, x, rows);
    tt_tensor *rstd = mean ? tt__norm_stats_beside(who, x, rows) : NULL;
    tt_tensor *y = rstd ? tt__empty_like(who, x) : NULL;
    y = TT__MADE(who, y, tt__row_norm_out(who, y, mean, rstd, x, weight, bias, norm));
    y = tt__recorded(op, y, TT__INPUTS(x, weight, bias),
                     TT__SAVES({x, "x"}, {mean, "mean"}, {rstd, "rstd"}, {weight, "weight"}), TT__STATE(*norm));
    tt__abandon(rstd);
    tt__abandon(mean);
    return y;
}

int64_t tt__rows_before(const char *who, const tt_tensor *x, const tt_shape *shape) {
    int before = x->shape.ndim - shape->ndim;
    bool fits = shape->ndim >= 1 && before >= 0;
    for (int d = 0; fits && d < shape->ndim; d++)
        fits = shape->dim[d] >= 1 && shape->dim[d] == x->shape.dim[before + d];
    if (!fits) {
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (..., normalized_shape), none of which is empty, got %s and x %s",
                        who, TT__SHAPE_TEXT(shape), TT__DESCRIBE(x));
        return -1;
    }
    int64_t rows = 1;
    for (int d = 0; d < before; d++)
        rows *= x->shape.dim[d];
    return rows;
}
