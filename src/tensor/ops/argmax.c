#include "tensor/ops/ops.h"

tt_tensor *tt_argmax(tt_tensor *x, int dim) {
    static const char who[] = "tt_argmax";
    if (!x || !tt__tensor_check(who, x))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0 || x->shape.dim[d] == 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d with elements in %s", who, dim, TT__DESCRIBE(x));
    tt_shape shape = {.ndim = x->shape.ndim - 1};
    for (int k = 0; k < shape.ndim; k++)
        shape.dim[k] = x->shape.dim[k < d ? k : k + 1];
    tt_tensor *y = tt__empty_beside(who, x, shape, TT_I64);
    return y && tt__argmax_out(who, y, x, d) ? tt__abandon(y) : y;
}
