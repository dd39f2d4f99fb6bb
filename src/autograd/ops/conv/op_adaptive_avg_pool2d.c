/* x (N,C,H,W) -> y (N,C,P,Q) = the mean of rows floor(p H / P) .. ceil((p + 1) H / P) - 1, columns likewise
 * dx gathers g / size of the windows it was in */
#include "autograd/ops/conv/window.h"
#include "autograd/record.h"

#include "base/error.h"

#include <inttypes.h>

static const char who[] = "tt_adaptive_avg_pool2d";

static tt_status adaptive_avg_pool2d_backward(tt_node *node) {
    TT__GIVE(node, 0, dx, tt__adaptive_avg_pool2d_backward_out(who, dx, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator adaptive_avg_pool2d_op = {.name = who, .backward = adaptive_avg_pool2d_backward};

tt_tensor *tt_adaptive_avg_pool2d(tt_tensor *x, int64_t height, int64_t width) {
    if (!x || !TT__CHECK_FLOATS(who, {"x", x}) || !tt__check_image(who, x))
        return NULL;
    if (height < 1 || width < 1)
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected sizes of at least 1, got (%" PRId64 ", %" PRId64 ")", who,
                               height, width);
    tt_shape shape = {.ndim = 4, .dim = {x->shape.dim[0], x->shape.dim[1], height, width}};
    tt_tensor *y =
        tt__empty_in_format(who, x, shape, x->dtype, tt__is_channels_last(x) ? TT_CHANNELS_LAST : TT_CONTIGUOUS);
    y = TT__MADE(who, y, tt__adaptive_avg_pool2d_out(who, y, x));
    return tt__recorded(&adaptive_avg_pool2d_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE);
}
