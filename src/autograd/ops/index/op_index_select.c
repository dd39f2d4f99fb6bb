/* y[i] = x[index[i]] along one dimension; index (n).    dx[j] = sum of g[i] over i with index[i] == j, in rising
 * order */
#include "autograd/record.h"

#include "base/error.h"

static const char who[] = "tt_index_select";

/* State: the dimension. */
static tt_status index_select_backward(tt_node *node) {
    const int *dim = tt__state(node);
    const tt_tensor *index = tt__saved(node, 0);
    tt_tensor *dx = index ? tt__grad_dest(node, 0) : NULL;
    if (!dx)
        return tt_last_status();
    TT__TRY(tt__fill_out(who, dx, 0));
    TT__TRY(tt__index_add_out(who, dx, tt__grad_of(node, 0), *dim, index));
    return tt__grad_give(node, 0, dx);
}

static const tt__operator index_select_op = {.name = who, .backward = index_select_backward};

tt_tensor *tt_index_select(tt_tensor *x, int dim, tt_tensor *index) {
    if (!x || !index || !tt__tensor_check(who, x) || !tt__tensor_check(who, index))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x));
    if (index->shape.ndim != 1)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected index (n), got %s", who, TT__DESCRIBE(index));
    if (tt__check_index(who, x, d, index))
        return NULL;
    tt_shape shape = x->shape;
    shape.dim[d] = index->shape.dim[0];
    tt_tensor *y = tt__empty_beside(who, x, shape, x->dtype);
    y = TT__MADE(who, y, tt__index_select_out(who, y, x, d, index));
    return tt__recorded(&index_select_op, y, TT__INPUTS(x), TT__SAVES({index, "index"}), TT__STATE(d));
}
