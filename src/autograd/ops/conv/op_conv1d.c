/* x (N,C,L) weight (K,C/G,S): conv2d of images of one row. */
#include "autograd/autocast.h"
#include "autograd/record.h"

#include "base/args.h"

static const char who[] = "tt_conv1d";

static bool conv1d_check(const tt_conv1d_args *a) {
    if (!TT__CHECK_FLOATS(who, {"x", a->x}, {"weight", a->weight}, {"bias", a->bias}))
        return false;
    if (a->x->shape.ndim == 3 && a->weight->shape.ndim == 3)
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, C, L) and weight (K, C/groups, S), got x %s and weight %s", who,
                    TT__DESCRIBE(a->x), TT__DESCRIBE(a->weight));
    return false;
}

/* (a, b, c) as (a, b, 1, c), recorded. */
static tt_tensor *as_one_row(tt_tensor *x) {
    const int64_t *size = x->shape.dim;
    return tt_reshape(x, TT_SHAPE(size[0], size[1], 1, size[2]));
}

tt_tensor *tt_conv1d_with(const tt_conv1d_args *args, size_t size) {
    tt_conv1d_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !a.weight || !TT__AUTOCAST(who, &a.x, &a.weight, &a.bias) || !conv1d_check(&a))
        return NULL;
    tt_tensor *x = as_one_row(a.x), *weight = x ? as_one_row(a.weight) : NULL;
    tt_tensor *y = weight ? tt_conv2d(x, weight, .bias = a.bias, .stride_hw = {1, a.stride ? a.stride : 1},
                                      .padding_hw = {0, a.padding}, .dilation_hw = {1, a.dilation ? a.dilation : 1},
                                      .groups = a.groups)
                          : NULL;
    tt_tensor *row = y ? tt_reshape(y, TT_SHAPE(y->shape.dim[0], y->shape.dim[1], y->shape.dim[3])) : NULL;
    tt__abandon(y);
    tt__abandon(weight);
    tt__abandon(x);
    return row;
}
