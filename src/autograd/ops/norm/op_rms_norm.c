/* y = x rstd weight, rstd = 1 / sqrt(mean of x^2 + eps): as layer_norm, with a mean of 0. See row_norm.h. */
#include "autograd/autocast.h"
#include "autograd/ops/norm/row_norm.h"

#include "base/args.h"

static const char who[] = "tt_rms_norm";

static const tt__operator rms_norm_op = {.name = who, .backward = tt__row_norm_backward};

tt_tensor *tt_rms_norm_with(const tt_rms_norm_args *args, size_t size) {
    tt_rms_norm_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !TT__AUTOCAST(who, &a.x, &a.weight) || !TT__CHECK_FLOATS(who, {"x", a.x}, {"weight", a.weight}))
        return NULL;
    const tt__row_norm norm = {
        .eps = a.eps ? a.eps : tt__dtype_epsilon(a.x->dtype), .no_mean = true, .groups = 1, .share = 1};
    int64_t rows = tt__rows_before(who, a.x, &a.normalized_shape);
    return rows < 0 ? NULL : tt__row_normed(&rms_norm_op, a.x, a.weight, NULL, rows, &a.normalized_shape, &norm);
}
