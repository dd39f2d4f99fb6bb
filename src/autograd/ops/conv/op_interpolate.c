/* x (N,C,H,W) -> y (N,C,H',W'): each element of y is the nearest of x, or of four around it the mean, weighted by how
 * near they are along both axes. dx is the sum of g by the same weights. */
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

static const char who[] = "tt_interpolate";

static tt_status interpolate_backward(tt_node *node) {
    const tt__resize *how = tt__state(node);
    TT__GIVE(node, 0, dx, tt__resize_backward_out(who, dx, tt__grad_of(node, 0), how));
    return TT_OK;
}

static const tt__operator interpolate_op = {.name = who, .backward = interpolate_backward};

static bool check_interpolate(const tt_interpolate_args *a) {
    const tt_tensor *x = a->x;
    if (!TT__CHECK_FLOATS(who, {"x", x}))
        return false;
    bool sized = a->size.ndim == 2 && a->size.dim[0] > 0 && a->size.dim[1] > 0;
    if (x->shape.ndim != 4 || !sized || x->shape.dim[2] == 0 || x->shape.dim[3] == 0)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected images (N, C, H, W) with elements and a size (H, W), got %s and %s",
                        who, TT__DESCRIBE(x), TT__SHAPE_TEXT(&a->size));
    else if ((unsigned)a->mode > TT_BILINEAR)
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected TT_NEAREST or TT_BILINEAR, got %d", who, (int)a->mode);
    else if (a->mode == TT_NEAREST && a->align_corners)
        tt__tensor_fail(TT_ERR_INVALID, "%s: align_corners is for TT_BILINEAR only", who);
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
    tt_tensor *y = tt__empty_resized(who, x, a.size.dim[0], a.size.dim[1]);
    y = TT__MADE(who, y, tt__resize_out(who, y, x, &how));
    return tt__recorded(&interpolate_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(how));
}
