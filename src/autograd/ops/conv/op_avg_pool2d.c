/* x (N,C,H,W) -> y (N,C,P,Q) = the sum of each window / its size       dx gathers g / size of the windows it was in */
#include "autograd/ops/conv/window.h"
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

static const char who[] = "tt_avg_pool2d";

static tt_status avg_pool2d_backward(tt_node *node) {
    TT__GIVE(node, 0, dx, tt__avg_pool2d_backward_out(who, dx, tt__grad_of(node, 0), tt__state(node)));
    return TT_OK;
}

static const tt__operator avg_pool2d_op = {.name = who, .backward = avg_pool2d_backward};

static bool avg_pool2d_check(const tt_avg_pool2d_args *a, tt__pooling *pool, tt_shape *shape) {
    static const int64_t none[2] = {0, 0};
    const tt__pair options[4] = {{"kernel_size", a->kernel_size, a->kernel_size_hw, 0, 1},
                                 {"stride", a->stride, a->stride_hw, 0, 0},
                                 {"padding", a->padding, a->padding_hw, 0, 0},
                                 {"dilation", 1, none, 1, 1}};
    return TT__CHECK_FLOATS(who, {"x", a->x}) && tt__check_image(who, a->x) &&
           tt__pooling_get(who, a->x, options, a->ceil_mode, pool, shape);
}

tt_tensor *tt_avg_pool2d_with(const tt_avg_pool2d_args *args, size_t size) {
    tt_avg_pool2d_args a;
    TT__ARGS_COPY(a, args, size);
    tt__pooling pool = {.exclude_padding = a.exclude_padding, .divisor = a.divisor_override};
    tt_shape shape;
    if (!a.x || !avg_pool2d_check(&a, &pool, &shape))
        return NULL;
    tt_tensor *y =
        tt__empty_in_format(who, a.x, shape, a.x->dtype, tt__is_channels_last(a.x) ? TT_CHANNELS_LAST : TT_CONTIGUOUS);
    y = TT__MADE(who, y, tt__avg_pool2d_out(who, y, a.x, &pool));
    return tt__recorded(&avg_pool2d_op, y, TT__INPUTS(a.x), TT__NO_SAVES, TT__STATE(pool));
}
