/* Rows are the last dimensions of x, each element of which has a weight of its own: row_norm.h. */
#include "autograd/autocast.h"
#include "autograd/ops/norm/row_norm.h"

#include "base/args.h"

static const char who[] = "tt_layer_norm";

static const tt__operator layer_norm_op = {.name = who, .backward = tt__row_norm_backward};

tt_tensor *tt_layer_norm_with(const tt_layer_norm_args *args, size_t size) {
    tt_layer_norm_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !TT__AUTOCAST(who, &a.x, &a.weight, &a.bias) ||
        !TT__CHECK_FLOATS(who, {"x", a.x}, {"weight", a.weight}, {"bias", a.bias}))
        return NULL;
    const tt__row_norm norm = {.eps = a.eps ? a.eps : 1e-5, .groups = 1, .share = 1};
    int64_t rows = tt__rows_before(who, a.x, &a.normalized_shape);
    return rows < 0 ? NULL : tt__row_normed(&layer_norm_op, a.x, a.weight, a.bias, rows, &a.normalized_shape, &norm);
}
