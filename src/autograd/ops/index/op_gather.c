/* For each place p of index, and q the same with index[p] in dimension `dim`:
 *   y[p] = x[q]     dx[q] = sum of g[p], in row-major order of p */
#include "autograd/record.h"

#include "base/error.h"

static const char who[] = "tt_gather_dim";

/* State: the dimension. */
static tt_status gather_backward(tt_node *node) {
    const int *dim = tt__state(node);
    const tt_tensor *index = tt__saved(node, 0);
    tt_tensor *dx = index ? tt__grad_dest(node, 0) : NULL;
    if (!dx)
        return tt_last_status();
    TT__TRY(tt__fill_out(who, dx, 0));
    TT__TRY(tt__scatter_add_out(who, dx, tt__grad_of(node, 0), *dim, index));
    return tt__grad_give(node, 0, dx);
}

static const tt__operator gather_op = {.name = who, .backward = gather_backward};

tt_tensor *tt_gather_dim(tt_tensor *x, int dim, tt_tensor *index) {
    if (!x || !index || !tt__tensor_check(who, x) || !tt__tensor_check(who, index))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x));
    if (!tt__check_places(who, x, d, index, NULL))
        return NULL;
    tt_tensor *y = tt__empty_beside(who, x, index->shape, x->dtype);
    y = TT__MADE(who, y, tt__gather_out(who, y, x, d, index));
    return tt__recorded(&gather_op, y, TT__INPUTS(x), TT__SAVES({index, "index"}), TT__STATE(d));
}
