/* N batch, C channels, K outputs, G groups; x (N,C,H,W)  weight (K,C/G,R,S)  bias (K)  ->  y (N,K,P,Q)
 *   y[n][k][p][q] = bias[k] + sum over c, r, s of x[n][c][p stride - padding + r dilation][..] weight[k][c][r][s]
 * dx: each element's gradient is gathered from the windows it was in; dweight, dbias: sums over n, p, q. */
#include "autograd/autocast.h"
#include "autograd/ops/conv/window.h"
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>

static const char who[] = "tt_conv2d";

/* Give the gradients of weight and bias, which one kernel makes together. */
static tt_status conv2d_give_weight(tt_node *node, const tt_tensor *x, const tt_tensor *g, const tt__conv *conv) {
    tt_tensor *dw = x ? tt__grad_dest(node, 1) : NULL, *db = NULL;
    if (!dw)
        return tt_last_status();
    bool bias = tt__grad_wanted(node, 2);
    if (bias && !(db = tt__grad_dest(node, 2)))
        return tt_last_status();
    TT__TRY(tt__conv2d_backward_weight_out(who, dw, db, x, g, conv));
    TT__TRY(tt__grad_give(node, 1, dw));
    return bias ? tt__grad_give(node, 2, db) : TT_OK;
}

/* View g (N,K,P,Q) summed to (K) as db broadcast over it. */
static tt_status conv2d_give_bias(tt_node *node, const tt_tensor *g) {
    tt_tensor *db = tt__grad_dest(node, 2);
    if (!db)
        return tt_last_status();
    tt_shape shape = {.ndim = 4, .dim = {1, db->shape.dim[0], 1, 1}};
    tt_tensor sums = tt__tensor_seen(db, shape, (const int64_t[]){0, db->stride[0], 0, 0});
    TT__TRY(tt__sum_to_out(who, &sums, g, 1));
    return tt__grad_give(node, 2, db);
}

/* Saved: x, weight. */
static tt_status conv2d_backward(tt_node *node) {
    const tt__conv *conv = tt__state(node);
    const tt_tensor *g = tt__grad_of(node, 0);
    if (tt__grad_wanted(node, 1))
        TT__TRY(conv2d_give_weight(node, tt__saved(node, 0), g, conv));
    else if (tt__grad_wanted(node, 2))
        TT__TRY(conv2d_give_bias(node, g));
    if (!tt__grad_wanted(node, 0))
        return TT_OK;
    const tt_tensor *weight = tt__saved(node, 1);
    if (!weight)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__conv2d_backward_data_out(who, dx, g, weight, conv));
    return TT_OK;
}

static const tt__operator conv2d_op = {.name = who, .backward = conv2d_backward};

static bool conv2d_options(const tt_conv2d_args *a, tt__conv *conv) {
    *conv = (tt__conv){.groups = a->groups ? a->groups : 1};
    if (conv->groups < 1)
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected groups of at least 1, got %" PRId64, who, conv->groups);
    return conv->groups >= 1 &&
           tt__pair_get(who, &(tt__pair){"stride", a->stride, a->stride_hw, 1, 1}, conv->window.stride) &&
           tt__pair_get(who, &(tt__pair){"padding", a->padding, a->padding_hw, 0, 0}, conv->window.padding) &&
           tt__pair_get(who, &(tt__pair){"dilation", a->dilation, a->dilation_hw, 1, 1}, conv->window.dilation);
}

static bool conv2d_check(const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias, int64_t groups) {
    if (!TT__CHECK_FLOATS(who, {"x", x}, {"weight", weight}, {"bias", bias}))
        return false;
    const int64_t *w = weight->shape.dim;
    if (weight->shape.ndim != 4 || w[0] < 1 || w[1] < 1 || w[2] < 1 || w[3] < 1 || w[0] % groups)
        tt__tensor_fail(TT_ERR_SHAPE,
                        "%s: expected weight (K, C/groups, R, S), none empty, K a multiple of groups = %" PRId64
                        ", got weight %s",
                        who, groups, TT__DESCRIBE(weight));
    else if (x->shape.ndim != 4 || x->shape.dim[1] != w[1] * groups)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, %" PRId64 ", H, W) to match weight %s, got x %s", who,
                        w[1] * groups, TT__DESCRIBE(weight), TT__DESCRIBE(x));
    else if (bias && (bias->shape.ndim != 1 || bias->shape.dim[0] != w[0]))
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected bias (%" PRId64 ") to match weight %s, got bias %s", who, w[0],
                        TT__DESCRIBE(weight), TT__DESCRIBE(bias));
    else
        return true;
    return false;
}

/* Set y's shape. */
static bool conv2d_shape(const tt_tensor *x, const tt_tensor *weight, const tt__conv *conv, tt_shape *y) {
    *y = (tt_shape){.ndim = 4, .dim = {x->shape.dim[0], weight->shape.dim[0]}};
    for (int d = 0; d < 2; d++) {
        int64_t reach = (weight->shape.dim[2 + d] - 1) * conv->window.dilation[d] + 1;
        y->dim[2 + d] =
            tt__window_count(x->shape.dim[2 + d], reach, conv->window.stride[d], conv->window.padding[d], false);
    }
    if (y->dim[2] < 1 || y->dim[3] < 1)
        tt__tensor_fail(TT_ERR_SHAPE,
                        "%s: weight %s with dilation (%" PRId64 ", %" PRId64
                        ") is larger than x %s with padding (%" PRId64 ", %" PRId64 ")",
                        who, TT__DESCRIBE(weight), conv->window.dilation[0], conv->window.dilation[1], TT__DESCRIBE(x),
                        conv->window.padding[0], conv->window.padding[1]);
    return y->dim[2] >= 1 && y->dim[3] >= 1;
}

tt_tensor *tt_conv2d_with(const tt_conv2d_args *args, size_t size) {
    tt_conv2d_args a;
    TT__ARGS_COPY(a, args, size);
    tt__conv conv;
    tt_shape shape;
    if (!a.x || !a.weight || !TT__AUTOCAST(who, &a.x, &a.weight, &a.bias) || !conv2d_options(&a, &conv) ||
        !conv2d_check(a.x, a.weight, a.bias, conv.groups) || !conv2d_shape(a.x, a.weight, &conv, &shape))
        return NULL;
    bool last = tt__is_channels_last(a.x) || tt__is_channels_last(a.weight);
    tt_tensor *y = tt__empty_in_format(who, a.x, shape, a.x->dtype, last ? TT_CHANNELS_LAST : TT_CONTIGUOUS);
    y = TT__MADE(who, y, tt__conv2d_out(who, y, a.x, a.weight, a.bias, &conv));
    return tt__recorded(
        &conv2d_op, y, TT__INPUTS(a.x, a.weight, a.bias),
        TT__SAVES({a.weight->requires_grad ? a.x : NULL, "x"}, {a.x->requires_grad ? a.weight : NULL, "weight"}),
        TT__STATE(conv));
}
