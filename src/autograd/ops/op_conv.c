/* Convolutions: conv2d, conv1d, conv_transpose2d. N batch, C channels, K outputs, G groups. */
#include "autograd/ops/window.h"
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>

/* ---- conv2d: x (N,C,H,W)  weight (K,C/G,R,S)  bias (K)  ->  y (N,K,P,Q)
 *   y[n][k][p][q] = bias[k] + sum over c, r, s of x[n][c][p stride - padding + r dilation][..] weight[k][c][r][s]
 * dx: each element's gradient is gathered from the windows it was in; dweight, dbias: sums over n, p, q. */

static const char conv2d_name[] = "tt_conv2d";

/* Give the gradients of weight and bias, which one kernel makes together. */
static tt_status conv2d_give_weight(tt_node *node, const tt_tensor *x, const tt_tensor *g, const tt__conv *conv) {
    tt_tensor *dw = x ? tt__grad_dest(node, 1) : NULL, *db = NULL;
    if (!dw)
        return tt_last_status();
    bool bias = tt__grad_wanted(node, 2);
    if (bias && !(db = tt__grad_dest(node, 2)))
        return tt_last_status();
    TT__TRY(tt__conv2d_backward_weight_out(conv2d_name, dw, db, x, g, conv));
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
    TT__TRY(tt__sum_to_out(conv2d_name, &sums, g, 1));
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
    TT__GIVE(node, 0, dx, tt__conv2d_backward_data_out(conv2d_name, dx, g, weight, conv));
    return TT_OK;
}

static const tt__operator conv2d_op = {.name = conv2d_name, .backward = conv2d_backward};

/* Set conv's groups and window. `options`: stride, padding, dilation. */
static bool conv_options(const char *who, int64_t groups, const tt__pair options[3], tt__conv *conv) {
    *conv = (tt__conv){.groups = groups ? groups : 1};
    if (conv->groups < 1)
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected groups of at least 1, got %" PRId64, who, conv->groups);
    return conv->groups >= 1 && tt__pair_get(who, &options[0], conv->window.stride) &&
           tt__pair_get(who, &options[1], conv->window.padding) &&
           tt__pair_get(who, &options[2], conv->window.dilation);
}

/* The window's options of args, tt_conv2d_args or tt_conv_transpose2d_args. */
#define CONV_OPTIONS(args)                                                                                           \
    (const tt__pair[]) {                                                                                             \
        {"stride", (args)->stride, (args)->stride_hw, 1, 1}, {"padding", (args)->padding, (args)->padding_hw, 0, 0}, \
            {"dilation", (args)->dilation, (args)->dilation_hw, 1, 1},                                               \
    }

static bool conv_weight_check(const char *who, const tt_tensor *weight, int64_t groups) {
    const int64_t *w = weight->shape.dim;
    if (weight->shape.ndim == 4 && w[0] >= 1 && w[1] >= 1 && w[2] >= 1 && w[3] >= 1 && w[0] % groups == 0)
        return true;
    tt__tensor_fail(TT_ERR_SHAPE,
                    "%s: expected weight (K, C/groups, R, S), none empty, K a multiple of groups = %" PRId64
                    ", got weight %s",
                    who, groups, TT__DESCRIBE(weight));
    return false;
}

static bool conv2d_check(const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias, int64_t groups) {
    if (!TT__CHECK_FLOATS(conv2d_name, {"x", x}, {"weight", weight}, {"bias", bias}) ||
        !conv_weight_check(conv2d_name, weight, groups))
        return false;
    const int64_t *w = weight->shape.dim;
    if (x->shape.ndim != 4 || x->shape.dim[1] != w[1] * groups)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, %" PRId64 ", H, W) to match weight %s, got x %s", conv2d_name,
                        w[1] * groups, TT__DESCRIBE(weight), TT__DESCRIBE(x));
    else if (bias && (bias->shape.ndim != 1 || bias->shape.dim[0] != w[0]))
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected bias (%" PRId64 ") to match weight %s, got bias %s", conv2d_name,
                        w[0], TT__DESCRIBE(weight), TT__DESCRIBE(bias));
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
                        conv2d_name, TT__DESCRIBE(weight), conv->window.dilation[0], conv->window.dilation[1],
                        TT__DESCRIBE(x), conv->window.padding[0], conv->window.padding[1]);
    return y->dim[2] >= 1 && y->dim[3] >= 1;
}

tt_tensor *tt_conv2d_with(const tt_conv2d_args *args, size_t size) {
    tt_conv2d_args a;
    TT__ARGS_COPY(a, args, size);
    tt__conv conv;
    tt_shape shape;
    if (!a.x || !a.weight || !TT__AUTOCAST(conv2d_name, &a.x, &a.weight, &a.bias) ||
        !conv_options(conv2d_name, a.groups, CONV_OPTIONS(&a), &conv) ||
        !conv2d_check(a.x, a.weight, a.bias, conv.groups) || !conv2d_shape(a.x, a.weight, &conv, &shape))
        return NULL;
    bool last = tt__is_channels_last(a.x) || tt__is_channels_last(a.weight);
    tt_tensor *y = tt__empty_in_format(conv2d_name, a.x, shape, a.x->dtype, last ? TT_CHANNELS_LAST : TT_CONTIGUOUS);
    y = TT__MADE(conv2d_name, y, tt__conv2d_out(conv2d_name, y, a.x, a.weight, a.bias, &conv));
    return tt__recorded(
        &conv2d_op, y, TT__INPUTS(a.x, a.weight, a.bias),
        TT__SAVES({a.weight->requires_grad ? a.x : NULL, "x"}, {a.x->requires_grad ? a.weight : NULL, "weight"}),
        TT__STATE(conv));
}

/* ---- conv1d: x (N,C,L) weight (K,C/G,S), as conv2d of images of one row. */

static const char conv1d_name[] = "tt_conv1d";

static bool conv1d_check(const tt_conv1d_args *a) {
    if (!TT__CHECK_FLOATS(conv1d_name, {"x", a->x}, {"weight", a->weight}, {"bias", a->bias}))
        return false;
    if (a->x->shape.ndim == 3 && a->weight->shape.ndim == 3)
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, C, L) and weight (K, C/groups, S), got x %s and weight %s",
                    conv1d_name, TT__DESCRIBE(a->x), TT__DESCRIBE(a->weight));
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
    if (!a.x || !a.weight || !TT__AUTOCAST(conv1d_name, &a.x, &a.weight, &a.bias) || !conv1d_check(&a))
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

/* ---- conv_transpose2d: the gradient of conv2d with respect to its image, as an operator: x takes the place of its
 * output's gradient.
 *   x (N,K,P,Q)  weight (K,C/G,R,S)  bias (C)  ->  y (N,C,H,W), H = (P - 1) stride - 2 padding + dilation (R - 1) + 1
 *                                                              + output_padding
 * So dx = conv2d(g, weight), dweight is that of conv2d whose image is g and whose output's gradient is x, and dbias is
 * the sum of g over all other dimensions. */

static const char transposed_name[] = "tt_conv_transpose2d";

/* View x (C) as (1,C,1,1), spread along the others by strides of 0. */
static tt_tensor as_channels(const tt_tensor *x) {
    tt_shape shape = {.ndim = 4, .dim = {1, x->shape.dim[0], 1, 1}};
    return tt__tensor_seen(x, shape, (const int64_t[]){0, x->stride[0], 0, 0});
}

static tt_status conv_transpose2d_forward(tt_tensor *y, const tt_tensor *x, const tt_tensor *weight,
                                          const tt_tensor *bias, const tt__conv *conv) {
    TT__TRY(tt__conv2d_backward_data_out(transposed_name, y, x, weight, conv));
    if (!bias)
        return TT_OK;
    tt_tensor wide = as_channels(bias);
    return tt__add_out(transposed_name, y, y, &wide);
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
        TT__TRY(tt__sum_to_out(transposed_name, &sums, g, 1));
        TT__TRY(tt__grad_give(node, 2, db));
    }
    if (tt__grad_wanted(node, 1)) {
        const tt_tensor *x = tt__saved(node, 0);
        if (!x)
            return tt_last_status();
        TT__GIVE(node, 1, dw, tt__conv2d_backward_weight_out(transposed_name, dw, NULL, g, x, conv));
    }
    if (!tt__grad_wanted(node, 0))
        return TT_OK;
    const tt_tensor *weight = tt__saved(node, 1);
    if (!weight)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__conv2d_out(transposed_name, dx, g, weight, NULL, conv));
    return TT_OK;
}

static const tt__operator conv_transpose2d_op = {.name = transposed_name, .backward = conv_transpose2d_backward};

static bool transposed_options(const tt_conv_transpose2d_args *a, tt__conv *conv, int64_t *extra) {
    const tt__pair output_padding = {"output_padding", a->output_padding, a->output_padding_hw, 0, 0};
    if (!conv_options(transposed_name, a->groups, CONV_OPTIONS(a), conv) ||
        !tt__pair_get(transposed_name, &output_padding, extra))
        return false;
    for (int d = 0; d < 2; d++)
        if (extra[d] >= conv->window.stride[d] && extra[d] >= conv->window.dilation[d]) {
            tt__tensor_fail(TT_ERR_INVALID, "%s: expected output_padding smaller than stride or dilation, got %" PRId64,
                            transposed_name, extra[d]);
            return false;
        }
    return true;
}

static bool transposed_check(const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias, int64_t groups) {
    if (!TT__CHECK_FLOATS(transposed_name, {"x", x}, {"weight", weight}, {"bias", bias}) ||
        !conv_weight_check(transposed_name, weight, groups))
        return false;
    const int64_t *w = weight->shape.dim;
    if (x->shape.ndim != 4 || x->shape.dim[1] != w[0] || x->shape.dim[2] < 1 || x->shape.dim[3] < 1)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, %" PRId64 ", H, W) to match weight %s, got x %s",
                        transposed_name, w[0], TT__DESCRIBE(weight), TT__DESCRIBE(x));
    else if (bias && (bias->shape.ndim != 1 || bias->shape.dim[0] != w[1] * groups))
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected bias (%" PRId64 ") to match weight %s, got bias %s",
                        transposed_name, w[1] * groups, TT__DESCRIBE(weight), TT__DESCRIBE(bias));
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
    tt__tensor_fail(TT_ERR_SHAPE, "%s: x %s and weight %s give a result of (%" PRId64 ", %" PRId64 ")", transposed_name,
                    TT__DESCRIBE(x), TT__DESCRIBE(weight), y->dim[2], y->dim[3]);
    return false;
}

tt_tensor *tt_conv_transpose2d_with(const tt_conv_transpose2d_args *args, size_t size) {
    tt_conv_transpose2d_args a;
    TT__ARGS_COPY(a, args, size);
    tt__conv conv = {0};
    int64_t extra[2];
    tt_shape shape;
    if (!a.x || !a.weight || !TT__AUTOCAST(transposed_name, &a.x, &a.weight, &a.bias) ||
        !transposed_options(&a, &conv, extra) || !transposed_check(a.x, a.weight, a.bias, conv.groups) ||
        !transposed_shape(a.x, a.weight, &conv, extra, &shape))
        return NULL;
    bool last = tt__is_channels_last(a.x) || tt__is_channels_last(a.weight);
    tt_tensor *y =
        tt__empty_in_format(transposed_name, a.x, shape, a.x->dtype, last ? TT_CHANNELS_LAST : TT_CONTIGUOUS);
    y = TT__MADE(transposed_name, y, conv_transpose2d_forward(y, a.x, a.weight, a.bias, &conv));
    return tt__recorded(
        &conv_transpose2d_op, y, TT__INPUTS(a.x, a.weight, a.bias),
        TT__SAVES({a.weight->requires_grad ? a.x : NULL, "x"}, {a.x->requires_grad ? a.weight : NULL, "weight"}),
        TT__STATE(conv));
}
