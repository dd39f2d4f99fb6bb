/* Images x (N,C,H,W) made smaller or larger: max, average and adaptive pooling, interpolation. */
#include "autograd/ops/window.h"
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>

/* ---- max_pool2d: x (N,C,H,W) -> y (N,C,P,Q) = the largest of each window, at[..] its place in the image
 * dx[n][c][at[n][c][p][q]] += g[n][c][p][q] */

static const char max_pool2d_name[] = "tt_max_pool2d";

/* Saved: the places. */
static tt_status max_pool2d_backward(tt_node *node) {
    const tt_tensor *at = tt__saved(node, 0);
    if (!at)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__max_pool2d_backward_out(max_pool2d_name, dx, tt__grad_of(node, 0), at, tt__state(node)));
    return TT_OK;
}

static const tt__operator max_pool2d_op = {.name = max_pool2d_name, .backward = max_pool2d_backward};

static bool max_pool2d_check(const tt_max_pool2d_args *a, tt__pooling *pool, tt_shape *shape) {
    const tt__pair options[4] = {{"kernel_size", a->kernel_size, a->kernel_size_hw, 0, 1},
                                 {"stride", a->stride, a->stride_hw, 0, 0},
                                 {"padding", a->padding, a->padding_hw, 0, 0},
                                 {"dilation", a->dilation, a->dilation_hw, 1, 1}};
    if (!TT__CHECK_FLOATS(max_pool2d_name, {"x", a->x}) || !tt__check_image(max_pool2d_name, a->x) ||
        !tt__pooling_get(max_pool2d_name, a->x, options, a->ceil_mode, pool, shape))
        return false;
    if (a->x->shape.dim[2] <= INT32_MAX / a->x->shape.dim[3])
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected an image of at most %d elements, got x %s", max_pool2d_name, INT32_MAX,
                    TT__DESCRIBE(a->x));
    return false;
}

tt_tensor *tt_max_pool2d_with(const tt_max_pool2d_args *args, size_t size) {
    tt_max_pool2d_args a;
    TT__ARGS_COPY(a, args, size);
    tt__pooling pool = {0};
    tt_shape shape;
    if (!a.x || !max_pool2d_check(&a, &pool, &shape))
        return NULL;
    tt_memory_format format = tt__is_channels_last(a.x) ? TT_CHANNELS_LAST : TT_CONTIGUOUS;
    tt_tensor *y = tt__empty_in_format(max_pool2d_name, a.x, shape, a.x->dtype, format);
    tt_tensor *at = y ? tt__pool_places_beside(max_pool2d_name, a.x, shape, format) : NULL;
    if (!at)
        return tt__abandon(y);
    y = TT__MADE(max_pool2d_name, y, tt__max_pool2d_out(max_pool2d_name, y, at, a.x, &pool));
    y = tt__recorded(&max_pool2d_op, y, TT__INPUTS(a.x), TT__SAVES({at, "places"}), TT__STATE(pool));
    tt__abandon(at);
    return y;
}

/* ---- avg_pool2d: x (N,C,H,W) -> y (N,C,P,Q) = the sum of each window / its size       dx gathers g / size of the
 * windows it was in */

static const char avg_pool2d_name[] = "tt_avg_pool2d";

static tt_status avg_pool2d_backward(tt_node *node) {
    TT__GIVE(node, 0, dx, tt__avg_pool2d_backward_out(avg_pool2d_name, dx, tt__grad_of(node, 0), tt__state(node)));
    return TT_OK;
}

static const tt__operator avg_pool2d_op = {.name = avg_pool2d_name, .backward = avg_pool2d_backward};

static bool avg_pool2d_check(const tt_avg_pool2d_args *a, tt__pooling *pool, tt_shape *shape) {
    static const int64_t none[2] = {0, 0};
    const tt__pair options[4] = {{"kernel_size", a->kernel_size, a->kernel_size_hw, 0, 1},
                                 {"stride", a->stride, a->stride_hw, 0, 0},
                                 {"padding", a->padding, a->padding_hw, 0, 0},
                                 {"dilation", 1, none, 1, 1}};
    return TT__CHECK_FLOATS(avg_pool2d_name, {"x", a->x}) && tt__check_image(avg_pool2d_name, a->x) &&
           tt__pooling_get(avg_pool2d_name, a->x, options, a->ceil_mode, pool, shape);
}

tt_tensor *tt_avg_pool2d_with(const tt_avg_pool2d_args *args, size_t size) {
    tt_avg_pool2d_args a;
    TT__ARGS_COPY(a, args, size);
    tt__pooling pool = {.exclude_padding = a.exclude_padding, .divisor = a.divisor_override};
    tt_shape shape;
    if (!a.x || !avg_pool2d_check(&a, &pool, &shape))
        return NULL;
    tt_tensor *y = tt__empty_in_format(avg_pool2d_name, a.x, shape, a.x->dtype,
                                       tt__is_channels_last(a.x) ? TT_CHANNELS_LAST : TT_CONTIGUOUS);
    y = TT__MADE(avg_pool2d_name, y, tt__avg_pool2d_out(avg_pool2d_name, y, a.x, &pool));
    return tt__recorded(&avg_pool2d_op, y, TT__INPUTS(a.x), TT__NO_SAVES, TT__STATE(pool));
}

/* ---- adaptive_avg_pool2d: x (N,C,H,W) -> y (N,C,P,Q) = the mean of rows floor(p H / P) .. ceil((p + 1) H / P) - 1 and
 * of such columns
 * dx gathers g / size of the windows it was in */

static const char adaptive_name[] = "tt_adaptive_avg_pool2d";

static tt_status adaptive_avg_pool2d_backward(tt_node *node) {
    TT__GIVE(node, 0, dx, tt__adaptive_avg_pool2d_backward_out(adaptive_name, dx, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator adaptive_avg_pool2d_op = {.name = adaptive_name, .backward = adaptive_avg_pool2d_backward};

tt_tensor *tt_adaptive_avg_pool2d(tt_tensor *x, int64_t height, int64_t width) {
    if (!x || !TT__CHECK_FLOATS(adaptive_name, {"x", x}) || !tt__check_image(adaptive_name, x))
        return NULL;
    if (height < 1 || width < 1)
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected sizes of at least 1, got (%" PRId64 ", %" PRId64 ")",
                               adaptive_name, height, width);
    tt_shape shape = {.ndim = 4, .dim = {x->shape.dim[0], x->shape.dim[1], height, width}};
    tt_tensor *y = tt__empty_in_format(adaptive_name, x, shape, x->dtype,
                                       tt__is_channels_last(x) ? TT_CHANNELS_LAST : TT_CONTIGUOUS);
    y = TT__MADE(adaptive_name, y, tt__adaptive_avg_pool2d_out(adaptive_name, y, x));
    return tt__recorded(&adaptive_avg_pool2d_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE);
}

/* ---- interpolate: x (N,C,H,W) -> y (N,C,H',W'). Each element of y is the nearest of x, or a mean of the four around
 * it, weighted by how near they are along both axes. dx is the sum of g by the same weights. */

static const char interpolate_name[] = "tt_interpolate";

static tt_status interpolate_backward(tt_node *node) {
    const tt__resize *how = tt__state(node);
    TT__GIVE(node, 0, dx, tt__resize_backward_out(interpolate_name, dx, tt__grad_of(node, 0), how));
    return TT_OK;
}

static const tt__operator interpolate_op = {.name = interpolate_name, .backward = interpolate_backward};

static bool check_interpolate(const tt_interpolate_args *a) {
    const tt_tensor *x = a->x;
    if (!TT__CHECK_FLOATS(interpolate_name, {"x", x}))
        return false;
    bool sized = a->size.ndim == 2 && a->size.dim[0] > 0 && a->size.dim[1] > 0;
    if (x->shape.ndim != 4 || !sized || x->shape.dim[2] == 0 || x->shape.dim[3] == 0)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected images (N, C, H, W) with elements and a size (H, W), got %s and %s",
                        interpolate_name, TT__DESCRIBE(x), TT__SHAPE_TEXT(&a->size));
    else if ((unsigned)a->mode > TT_BILINEAR)
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected TT_NEAREST or TT_BILINEAR, got %d", interpolate_name,
                        (int)a->mode);
    else if (a->mode == TT_NEAREST && a->align_corners)
        tt__tensor_fail(TT_ERR_INVALID, "%s: align_corners is for TT_BILINEAR only", interpolate_name);
    else
        return true;
    return false;
}

tt_tensor *tt_interpolate_with(const tt_interpolate_args *args, size_t size) {
    tt_interpolate_args a;
    TT__ARGS_COPY(a, args, size);
    tt_tensor *x = a.x;
    if (!x || !check_interpolate(&a))
        return NULL;
    const tt__resize how = {.nearest = a.mode == TT_NEAREST, .align_corners = a.align_corners};
    tt_tensor *y = tt__empty_resized(interpolate_name, x, a.size.dim[0], a.size.dim[1]);
    y = TT__MADE(interpolate_name, y, tt__resize_out(interpolate_name, y, x, &how));
    return tt__recorded(&interpolate_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(how));
}
