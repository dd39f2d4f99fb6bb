/* The gradient of conv2d with respect to its image, as an operator: x takes the place of its output's gradient.
 *   x (N,K,P,Q)  weight (K,C/G,R,S)  bias (C)  ->  y (N,C,H,W), H = (P - 1) stride - 2 padding + dilation (R - 1) + 1
 *                                                              + output_padding
 * So dx = conv2d(g, weight), dweight is that of conv2d whose image is g and whose output's gradient is x, and dbias is
 * the sum of g over all other dimensions. */
#include "autograd/autocast.h"
#include "autograd/ops/conv/window.h"
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>

static const char who[] = "tt_conv_transpose2d";

/* View x (C) as (1,C,1,1), spread along the others by strides of 0. */
static tt_tensor as_channels(const tt_tensor *x) {
    tt_shape shape = {.ndim = 4, .dim = {1, x->shape.dim[0], 1, 1}};
    return tt__tensor_seen(x, shape, (const int64_t[]){0, x->stride[0], 0, 0});
}

static tt_status conv_transpose2d_forward(tt_tensor *y, const tt_tensor *x, const tt_tensor *weight,
                                          const tt_tensor *bias, const tt__conv *conv) {
    TT__TRY(tt__conv2d_backward_data_out(who, y, x, weight, conv));
    if (!bias)
        return TT_OK;
    tt_tensor wide = as_channels(bias);
    return tt__add_out(who, y, y, &wide);
}

/* Saved: x, weight. */
static tt_status conv_transpose2d_backward(tt_node *node) {
    const tt__conv *conv = tt__state(node);
    const tt_tensor *g = tt__grad_of(node, 0);
    if (tt__grad_wanted(node, 2)) {
        tt_tensor *db = tt__grad_dest(node, 2);
        if (!db)
            return tt_last_status();
        tt_tensor sums = as_channels(db);
        TT__TRY(tt__sum_to_out(who, &sums, g, 1));
        TT__TRY(tt__grad_give(node, 2, db));
    }
    if (tt__grad_wanted(node, 1)) {
        const tt_tensor *x = tt__saved(node, 0);
        if (!x)
            return tt_last_status();
        TT__GIVE(node, 1, dw, tt__conv2d_backward_weight_out(who, dw, NULL, g, x, conv));
    }
    if (!tt__grad_wanted(node, 0))
        return TT_OK;
    const tt_tensor *weight = tt__saved(node, 1);
    if (!weight)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__conv2d_out(who, dx, g, weight, NULL, conv));
    return TT_OK;
}

static const tt__operator conv_transpose2d_op = {.name = who, .backward = conv_transpose2d_backward};

static bool transposed_options(const tt_conv_transpose2d_args *a, tt__conv *conv, int64_t *extra) {
    tt__window *win = &conv->window;
    conv->groups = a->groups ? a->groups : 1;
    if (conv->groups < 1)
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected groups of at least 1, got %" PRId64, who, conv->groups);
    if (conv->groups < 1 || !tt__pair_get(who, &(tt__pair){"stride", a->stride, a->stride_hw, 1, 1}, win->stride) ||
        !tt__pair_get(who, &(tt__pair){"padding", a->padding, a->padding_hw, 0, 0}, win->padding) ||
        !tt__pair_get(who, &(tt__pair){"dilation", a->dilation, a->dilation_hw, 1, 1}, win->dilation) ||
        !tt__pair_get(who, &(tt__pair){"output_padding", a->output_padding, a->output_padding_hw, 0, 0}, extra))
        return false;
    for (int d = 0; d < 2; d++)
        if (extra[d] >= win->stride[d] && extra[d] >= win->dilation[d]) {
            tt__tensor_fail(TT_ERR_INVALID, "%s: expected output_padding smaller than stride or dilation, got %" PRId64,
                            who, extra[d]);
            return false;
        }
    return true;
}

static bool transposed_check(const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias, int64_t groups) {
    if (!TT__CHECK_FLOATS(who, {"x", x}, {"weight", weight}, {"bias", bias}))
        return false;
    const int64_t *w = weight->shape.dim;
    if (weight->shape.ndim != 4 || w[0] < 1 || w[1] < 1 || w[2] < 1 || w[3] < 1 || w[0] % groups)
        tt__tensor_fail(TT_ERR_SHAPE,
                        "%s: expected weight (K, C/groups, R, S), none empty, K a multiple of groups = %" PRId64
                        ", got weight %s",
                        who, groups, TT__DESCRIBE(weight));
    else if (x->shape.ndim != 4 || x->shape.dim[1] != w[0] || x->shape.dim[2] < 1 || x->shape.dim[3] < 1)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, %" PRId64 ", H, W) to match weight %s, got x %s", who, w[0],
                        TT__DESCRIBE(weight), TT__DESCRIBE(x));
    else if (bias && (bias->shape.ndim != 1 || bias->shape.dim[0] != w[1] * groups))
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected bias (%" PRId64 ") to match weight %s, got bias %s", who,
                        w[1] * groups, TT__DESCRIBE(weight), TT__DESCRIBE(bias));
    else
        return true;
    return false;
}

static bool transposed_shape(const tt_tensor *x, const tt_tensor *weight, const tt__conv *conv, const int64_t *extra,
                             tt_shape *y) {
    *y = (tt_shape){.ndim = 4, .dim = {x->shape.dim[0], weight->shape.dim[1] * conv->groups}};
    for (int d = 0; d < 2; d++)
        y->dim[2 + d] = (x->shape.dim[2 + d] - 1) * conv->window.stride[d] - 2 * conv->window.padding[d] +
                        conv->window.dilation[d] * (weight->shape.dim[2 + d] - 1) + 1 + extra[d];
    if (y->dim[2] >= 1 && y->dim[3] >= 1)
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: x %s and weight %s give a result of (%" PRId64 ", %" PRId64 ")", who,
                    TT__DESCRIBE(x), TT__DESCRIBE(weight), y->dim[2], y->dim[3]);
    return false;
}

tt_tensor *tt_conv_transpose2d_with(const tt_conv_transpose2d_args *args, size_t size) {
    tt_conv_transpose2d_args a;
    TT__ARGS_COPY(a, args, size);
    tt__conv conv = {0};
    int64_t extra[2];
    tt_shape shape;
    if (!a.x || !a.weight || !TT__AUTOCAST(who, &a.x, &a.weight, &a.bias) || !transposed_options(&a, &conv, extra) ||
        !transposed_check(a.x, a.weight, a.bias, conv.groups) || !transposed_shape(a.x, a.weight, &conv, extra, &shape))
        return NULL;
    bool last = tt__is_channels_last(a.x) || tt__is_channels_last(a.weight);
    tt_tensor *y = tt__empty_in_format(who, a.x, shape, a.x->dtype, last ? TT_CHANNELS_LAST : TT_CONTIGUOUS);
    y = TT__MADE(who, y, conv_transpose2d_forward(y, a.x, a.weight, a.bias, &conv));
    return tt__recorded(
        &conv_transpose2d_op, y, TT__INPUTS(a.x, a.weight, a.bias),
        TT__SAVES({a.weight->requires_grad ? a.x : NULL, "x"}, {a.x->requires_grad ? a.weight : NULL, "weight"}),
        TT__STATE(conv));
}
