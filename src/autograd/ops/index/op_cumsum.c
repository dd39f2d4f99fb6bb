/* y[i] = x[0] + ... + x[i] along one dimension      dx[i] = g[i] + ... + g[n-1] */
#include "autograd/record.h"

#include "base/error.h"

static const char who[] = "tt_cumsum";

/* State: the dimension. */
static tt_status cumsum_backward(tt_node *node) {
    const int *dim = tt__state(node);
    TT__GIVE(node, 0, dx, tt__cumsum_out(who, dx, tt__grad_of(node, 0), *dim, true));
    return TT_OK;
}

static const tt__operator cumsum_op = {.name = who, .backward = cumsum_backward};

tt_tensor *tt_cumsum(tt_tensor *x, int dim) {
    if (!x || !TT__CHECK_FLOATS(who, {"x", x}))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x));
    tt_tensor *y = tt__empty_like(who, x);
    y = TT__MADE(who, y, tt__cumsum_out(who, y, x, d, false));
    return tt__recorded(&cumsum_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(d));
}
