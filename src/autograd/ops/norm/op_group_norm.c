/* Rows are the groups of channels of each image; the elements of a channel share a weight: row_norm.h. */
#include "autograd/autocast.h"
#include "autograd/ops/norm/row_norm.h"

#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>

static const char who[] = "tt_group_norm";

static const tt__operator group_norm_op = {.name = who, .backward = tt__row_norm_backward};

static bool group_norm_check(const tt_group_norm_args *a) {
    const tt_shape *s = &a->x->shape;
    if (s->ndim < 2 || (a->x->numel == 0 && s->dim[0] != 0) || s->dim[1] < 1)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, C, ...) with C and the others at least 1, got x %s", who,
                        TT__DESCRIBE(a->x));
    else if (a->num_groups < 1 || s->dim[1] % a->num_groups)
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected num_groups to divide the channels of x %s, got %" PRId64, who,
                        TT__DESCRIBE(a->x), a->num_groups);
    else
        return true;
    return false;
}

tt_tensor *tt_group_norm_with(const tt_group_norm_args *args, size_t size) {
    tt_group_norm_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !TT__AUTOCAST(who, &a.x, &a.weight, &a.bias) ||
        !TT__CHECK_FLOATS(who, {"x", a.x}, {"weight", a.weight}, {"bias", a.bias}) || !group_norm_check(&a))
        return NULL;
    const tt_shape *s = &a.x->shape, channels = TT_SHAPE(s->dim[1]);
    tt__row_norm norm = {.eps = a.eps ? a.eps : 1e-5, .groups = a.num_groups, .share = 1};
    for (int d = 2; d < s->ndim; d++)
        norm.share *= s->dim[d];
    return tt__row_normed(&group_norm_op, a.x, a.weight, a.bias, s->dim[0] * a.num_groups, &channels, &norm);
}
