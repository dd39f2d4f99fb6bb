/* View, reshape, flatten, transpose, narrow, contiguous, clone, to: the elements stay, so gradients go back the way the elements came. */
#include "autograd/node.h"

#include <string.h>

/* A tensor in the layout of `node`'s input gradient that stands where the gradient goes: a stack shell, no storage of its own. */
static tt_tensor shell(const tt_tensor *like, void *data) {
    tt_tensor x = {.data = data, .dtype = like->dtype, .numel = like->numel, .shape = like->shape, .contiguous = true};
    tt__shape_strides(&x.shape, x.stride);
    return x;
}

static void give(tt__grad_to to, tt_tensor *dst, const tt_tensor *src) {
    if (to.accumulate)
        tt__accumulate(dst, src);
    else
        tt__copy(dst, src);
}

/* Same elements in the same row-major order: view, reshape, flatten, contiguous, clone. */
static tt_status same_order_backward(tt__node *node) {
    tt__grad_to to = tt__grad_begin(node, 0);
    if (to.data) {
        tt_tensor dst = shell(node->output, to.data);
        give(to, &dst, node->grad);
    }
    return TT_OK;
}

static tt_tensor *recorded(const char *name, tt__backward_fn backward, tt_tensor *y, tt_tensor *x) {
    if (y && TT__WANTS_GRAD(x) && !TT__RECORD(name, backward, y, x))
        return NULL;
    return y;
}

tt_tensor *tt_view(tt_tensor *x, tt_shape shape) {
    return x ? recorded("tt_view", same_order_backward, tt__view("tt_view", x, shape), x) : NULL;
}

tt_tensor *tt_reshape(tt_tensor *x, tt_shape shape) {
    return x ? recorded("tt_reshape", same_order_backward, tt__reshape("tt_reshape", x, shape), x) : NULL;
}

tt_tensor *tt_flatten(tt_tensor *x, int start_dim) {
    if (!x)
        return NULL;
    int from = x->shape.ndim == 0 && (start_dim == 0 || start_dim == -1) ? 0 : tt__dim_index(x->shape.ndim, start_dim);
    if (from < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "tt_flatten: no dimension %d in %s", start_dim, TT__DESCRIBE(x));
    tt_shape shape = {.ndim = from + 1};
    int64_t joined = 1;
    for (int d = 0; d < from; d++)
        shape.dim[d] = x->shape.dim[d];
    for (int d = from; d < x->shape.ndim; d++)
        joined *= x->shape.dim[d];
    shape.dim[from] = joined;
    return recorded("tt_flatten", same_order_backward, tt__reshape("tt_flatten", x, shape), x);
}

tt_tensor *tt_contiguous(tt_tensor *x) {
    if (!x || x->contiguous)
        return x;
    return recorded("tt_contiguous", same_order_backward, tt__clone("tt_contiguous", x), x);
}

tt_tensor *tt_clone(tt_tensor *x) {
    return x ? recorded("tt_clone", same_order_backward, tt__clone("tt_clone", x), x) : NULL;
}

/* The gradient of y = x with dimensions a and b exchanged goes into dx seen the same way. */
static tt_status transpose_backward(tt__node *node) {
    tt__grad_to to = tt__grad_begin(node, 0);
    if (!to.data)
        return TT_OK;
    int64_t a = node->number[0], b = node->number[1];
    tt_tensor dst = shell(node->input[0], to.data);
    int64_t stride = dst.stride[a];
    dst.stride[a] = dst.stride[b];
    dst.stride[b] = stride;
    dst.shape = node->output->shape;
    give(to, &dst, node->grad);
    return TT_OK;
}

tt_tensor *tt_transpose(tt_tensor *x, int a, int b) {
    tt_tensor *y = x ? tt__transpose("tt_transpose", x, a, b) : NULL;
    if (!y || !TT__WANTS_GRAD(x))
        return y;
    tt__node *node = TT__RECORD("tt_transpose", transpose_backward, y, x);
    if (!node)
        return NULL;
    node->number[0] = tt__dim_index(x->shape.ndim, a);
    node->number[1] = tt__dim_index(x->shape.ndim, b);
    return y;
}

/* Outside the range the gradient is zero. */
static tt_status narrow_backward(tt__node *node) {
    tt__grad_to to = tt__grad_begin(node, 0);
    if (!to.data)
        return TT_OK;
    int64_t d = node->number[0], start = node->number[1];
    tt_tensor dst = shell(node->input[0], to.data);
    size_t size = tt_dtype_size(dst.dtype);
    if (!to.accumulate)
        memset(to.data, 0, (size_t)dst.numel * size);
    dst.shape = node->output->shape;
    dst.data = (char *)to.data + (size_t)(start * dst.stride[d]) * size;
    give(to, &dst, node->grad);
    return TT_OK;
}

tt_tensor *tt_narrow(tt_tensor *x, int dim, int64_t start, int64_t length) {
    tt_tensor *y = x ? tt__narrow("tt_narrow", x, dim, start, length) : NULL;
    if (!y || !TT__WANTS_GRAD(x))
        return y;
    tt__node *node = TT__RECORD("tt_narrow", narrow_backward, y, x);
    if (!node)
        return NULL;
    node->number[0] = tt__dim_index(x->shape.ndim, dim);
    node->number[1] = start;
    return y;
}

/* Between f32 and f64 the gradient is converted back. */
static tt_status to_backward(tt__node *node) {
    tt__grad_to to = tt__grad_begin(node, 0);
    if (!to.data)
        return TT_OK;
    tt_tensor *grad = tt__to("tt_to", node->grad, node->input[0]->dtype);
    if (!grad)
        return tt_last_status();
    tt_tensor dst = shell(node->input[0], to.data);
    give(to, &dst, grad);
    tt__abandon(grad);
    return TT_OK;
}

tt_tensor *tt_to(tt_tensor *x, tt_dtype dtype) {
    tt_tensor *y = x ? tt__to("tt_to", x, dtype) : NULL;
    return y && tt__is_float(dtype) ? recorded("tt_to", to_backward, y, x) : y;
}
