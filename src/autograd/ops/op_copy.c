/* Clone, contiguous, memory format, dtype, device: gradients are copied back in the same way. */
#include "autograd/record.h"

#include "base/error.h"

/* Give the gradient as it is; its layout doesn't matter. */
static tt_status pass_on_backward(tt_node *node) { return tt__grad_give(node, 0, tt__grad_of(node, 0)); }

static const tt__operator clone_op = {.name = "tt_clone", .backward = pass_on_backward};
static const tt__operator contiguous_op = {.name = "tt_contiguous", .backward = pass_on_backward};
static const tt__operator format_op = {.name = "tt_to_memory_format", .backward = pass_on_backward};

tt_tensor *tt_clone(tt_tensor *x) {
    if (!x || !tt__tensor_check("tt_clone", x))
        return NULL;
    return tt__recorded(&clone_op, tt__clone("tt_clone", x), TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE);
}

tt_tensor *tt_contiguous(tt_tensor *x) {
    if (!x || !tt__tensor_check("tt_contiguous", x))
        return NULL;
    if (x->contiguous)
        return x;
    tt_tensor *y = tt__clone_contiguous("tt_contiguous", x);
    return tt__recorded(&contiguous_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE);
}

/* ---- memory format */

static tt_tensor *channels_last(tt_tensor *x) {
    static const char who[] = "tt_to_memory_format";
    if (x->shape.ndim != 4)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected (N, C, H, W) for channels last, got %s", who,
                               TT__DESCRIBE(x));
    if (tt__is_channels_last(x) && tt__lies_as(x, TT_CHANNELS_LAST))
        return x;
    tt_tensor *y = tt__empty_in_format(who, x, x->shape, x->dtype, TT_CHANNELS_LAST);
    y = TT__MADE(who, y, tt__copy_out(who, y, x));
    return tt__recorded(&format_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE);
}

tt_tensor *tt_to_memory_format(tt_tensor *x, tt_memory_format format) {
    if (!x || !tt__tensor_check("tt_to_memory_format", x))
        return NULL;
    if (format == TT_CONTIGUOUS)
        return tt_contiguous(x);
    if (format != TT_CHANNELS_LAST)
        return tt__tensor_fail(TT_ERR_INVALID,
                               "tt_to_memory_format: expected TT_CONTIGUOUS or TT_CHANNELS_LAST, got %d", (int)format);
    return channels_last(x);
}

/* ---- dtype; integers end the history */

static tt_status to_backward(tt_node *node) {
    return tt__grad_give(node, 0, tt__to("tt_to", tt__grad_of(node, 0), node->edge[0].dtype));
}

static const tt__operator to_op = {.name = "tt_to", .backward = to_backward};

tt_tensor *tt_to(tt_tensor *x, tt_dtype dtype) {
    if (!x || !tt__tensor_check("tt_to", x))
        return NULL;
    tt_tensor *y = tt__to("tt_to", x, dtype);
    return y && tt__is_float(dtype) ? tt__recorded(&to_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE) : y;
}

/* ---- device */

static tt_status to_device_backward(tt_node *node) {
    return tt__grad_give(node, 0, tt__to_device("tt_to_device", tt__grad_of(node, 0), node->edge[0].device));
}

static const tt__operator to_device_op = {.name = "tt_to_device", .backward = to_device_backward};

tt_tensor *tt_to_device(tt_tensor *x, const tt_device *device) {
    if (!x || !tt__tensor_check("tt_to_device", x))
        return NULL;
    if (!device)
        return tt__tensor_fail(tt__fail_argument("tt_to_device: the device is NULL"), "%s", tt_last_error());
    if (device == tt__device_of(x))
        return x;
    tt_tensor *y = tt__to_device("tt_to_device", x, device);
    return tt__recorded(&to_device_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__NO_STATE);
}
