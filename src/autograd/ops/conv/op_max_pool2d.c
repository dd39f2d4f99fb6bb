/* x (N,C,H,W) -> y (N,C,P,Q) = the largest of each window, at[..] its place in the image
 * dx[n][c][at[n][c][p][q]] += g[n][c][p][q] */
#include "autograd/ops/conv/window.h"
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

static const char who[] = "tt_max_pool2d";

/* Saved: the places. */
static tt_status max_pool2d_backward(tt_node *node) {
    const tt_tensor *at = tt__saved(node, 0);
    if (!at)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__max_pool2d_backward_out(who, dx, tt__grad_of(node, 0), at, tt__state(node)));
    return TT_OK;
}

static const tt__operator max_pool2d_op = {.name = who, .backward = max_pool2d_backward};

static bool max_pool2d_check(const tt_max_pool2d_args *a, tt__pooling *pool, tt_shape *shape) {
    const tt__pair options[4] = {{"kernel_size", a->kernel_size, a->kernel_size_hw, 0, 1},
                                 {"stride", a->stride, a->stride_hw, 0, 0},
                                 {"padding", a->padding, a->padding_hw, 0, 0},
                                 {"dilation", a->dilation, a->dilation_hw, 1, 1}};
    if (!TT__CHECK_FLOATS(who, {"x", a->x}) || !tt__check_image(who, a->x) ||
        !tt__pooling_get(who, a->x, options, a->ceil_mode, pool, shape))
        return false;
    if (a->x->shape.dim[2] <= INT32_MAX / a->x->shape.dim[3])
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected an image of at most %d elements, got x %s", who, INT32_MAX,
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
    tt_tensor *y = tt__empty_in_format(who, a.x, shape, a.x->dtype, format);
    tt_tensor *at = y ? tt__pool_places_beside(who, a.x, shape, format) : NULL;
    if (!at)
        return tt__abandon(y);
    y = TT__MADE(who, y, tt__max_pool2d_out(who, y, at, a.x, &pool));
    y = tt__recorded(&max_pool2d_op, y, TT__INPUTS(a.x), TT__SAVES({at, "places"}), TT__STATE(pool));
    tt__abandon(at);
    return y;
}
