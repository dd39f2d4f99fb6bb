/* Kernels of images: cuda_conv.cu, cuda_pool.cu, cuda_resize.cu. Convolutions run by cuDNN (cuda_dnn.h), or by our own
 * kernels where that is not used or doesn't take them. */
#include "tensor/cuda/cuda_kernels_images.h"
#include "tensor/cuda/libraries/cuda_dnn.h"
#include "tensor/cuda/ops/cuda_ops.h"

static tt__cuda_image cuda_image_of(const tt_tensor *x) {
    tt__cuda_image image = {.p = x->data};
    for (int d = 0; d < 4; d++) {
        image.dim[d] = x->shape.dim[d];
        image.stride[d] = x->stride[d];
    }
    return image;
}

/* ---- convolutions ---- */

static tt__cuda_conv cuda_conv_of(const tt_tensor *x, const tt_tensor *y, const tt_tensor *w, const tt_tensor *bias,
                                  const tt__conv *conv) {
    return (tt__cuda_conv){.x = cuda_image_of(x),
                           .y = cuda_image_of(y),
                           .w = w->data,
                           .bias = bias ? bias->data : NULL,
                           .inputs = w->shape.dim[1],
                           .outputs = w->shape.dim[0] / conv->groups,
                           .size = {w->shape.dim[2], w->shape.dim[3]},
                           .conv = *conv,
                           .parts = 1};
}

/* ---- by cuDNN ---- */

/* Do the elements lie in the order of the dimensions? */
static bool image_is_contiguous(const tt_tensor *x) {
    int64_t step = 1;
    for (int d = 3; d >= 0; d--) {
        if (x->shape.dim[d] != 1 && x->stride[d] != step)
            return false;
        step *= x->shape.dim[d];
    }
    return true;
}

/* x, y, w, or their gradients. */
static tt_status conv_by_dnn(tt__dnn_direction direction, const tt_tensor *x, const tt_tensor *y, const tt_tensor *w,
                             const tt__conv *conv) {
    tt__dnn_call call = {.direction = direction,
                         .dtype = x->dtype,
                         .channels_last = !image_is_contiguous(x) || !image_is_contiguous(y),
                         .x = x->data,
                         .y = y->data,
                         .w = w->data,
                         .window = conv->window};
    for (int d = 0; d < 4; d++) {
        call.x_dim[d] = x->shape.dim[d];
        call.y_dim[d] = y->shape.dim[d];
        call.w_dim[d] = w->shape.dim[d];
    }
    return tt__dnn_convolve(tt__cuda_of(x), &call);
}

/* A sum is rounded to its type before the bias is added, and again after it, as in PyTorch. */
static tt_status cuda_add_bias(tt_tensor *y, const tt_tensor *bias) {
    const tt__cuda_image image = cuda_image_of(y);
    TT__CUDA_ENQUEUE(y, "conv2d_add_bias", tt__cuda_conv2d_add_bias(stream, y->dtype, &image, bias->data));
}

static tt_status cuda_backward_bias(tt_tensor *db, const tt_tensor *g) {
    const tt__cuda_image image = cuda_image_of(g);
    TT__CUDA_ENQUEUE(db, "conv2d_backward_bias", tt__cuda_conv2d_backward_bias(stream, db->dtype, db->data, &image));
}

/* ---- our own kernels ---- */

static tt_status own_conv2d(tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                            const tt__conv *conv) {
    const tt__cuda_conv c = cuda_conv_of(x, y, w, bias, conv);
    TT__CUDA_ENQUEUE(y, "conv2d", tt__cuda_conv2d(stream, y->dtype, &c));
}

static tt_status own_conv2d_backward_data(tt_tensor *dx, const tt_tensor *g, const tt_tensor *w, const tt__conv *conv) {
    const tt__cuda_conv c = cuda_conv_of(dx, g, w, NULL, conv);
    TT__CUDA_ENQUEUE(dx, "conv2d_backward_data", tt__cuda_conv2d_backward_data(stream, dx->dtype, &c));
}

/* How many blocks are to share the sums of `weights` weights, of n terms each: few weights alone don't fill a GPU. */
static int64_t weight_parts(int64_t weights, int64_t n) {
    const int64_t TERMS = 1024, TILE = 1024, ENOUGH = 512;
    int64_t tiles = (weights + TILE - 1) / TILE, parts = n / TERMS, most = ENOUGH / tiles;
    parts = parts < most ? parts : most;
    return parts < 1 ? 1 : parts;
}

static tt_status own_conv2d_backward_weight(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                            const tt__conv *conv) {
    tt__cuda_conv c = cuda_conv_of(x, g, dw, db, conv);
    c.parts = weight_parts(dw->numel, g->numel / g->shape.dim[1]);
    tt__cuda_state *state = tt__cuda_of(dw);
    tt_status status = tt__cuda_enter(state);
    if (!status && c.parts > 1) {
        c.scratch = tt__cuda_scratch(state, (size_t)(c.parts * dw->numel) * sizeof *c.scratch);
        status = c.scratch ? TT_OK : tt__cuda_host->last_status();
    }
    if (!status)
        status = tt__cuda_done(tt__cuda_conv2d_backward_weight(tt__cuda_stream(state), dw->dtype, &c), dw,
                               "conv2d_backward_weight");
    tt__cuda_scratch_free(state, c.scratch);
    return status;
}

/* ---- cuDNN, else our own kernels ---- */

static tt_status cuda_conv2d(tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                             const tt__conv *conv) {
    tt_status status = conv_by_dnn(TT__DNN_MAKES_Y, x, y, w, conv);
    if (status == TT_ERR_UNSUPPORTED)
        return own_conv2d(y, x, w, bias, conv);
    return status || !bias ? status : cuda_add_bias(y, bias);
}

static tt_status cuda_conv2d_backward_data(tt_tensor *dx, const tt_tensor *g, const tt_tensor *w,
                                           const tt__conv *conv) {
    tt_status status = conv_by_dnn(TT__DNN_MAKES_DX, dx, g, w, conv);
    return status == TT_ERR_UNSUPPORTED ? own_conv2d_backward_data(dx, g, w, conv) : status;
}

static tt_status cuda_conv2d_backward_weight(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                             const tt__conv *conv) {
    tt_status status = conv_by_dnn(TT__DNN_MAKES_DW, x, g, dw, conv);
    if (status == TT_ERR_UNSUPPORTED)
        return own_conv2d_backward_weight(dw, db, x, g, conv);
    return status || !db ? status : cuda_backward_bias(db, g);
}

/* ---- pooling ---- */

static tt__cuda_pool cuda_pool_of(const tt_tensor *x, const tt_tensor *y, const tt_tensor *at,
                                  const tt__pooling *pool) {
    tt__cuda_pool p = {.x = cuda_image_of(x), .y = cuda_image_of(y), .at = at ? at->data : NULL};
    if (pool)
        p.pool = *pool;
    return p;
}

static tt_status cuda_max_pool2d(tt_tensor *y, tt_tensor *at, const tt_tensor *x, const tt__pooling *pool) {
    const tt__cuda_pool p = cuda_pool_of(x, y, at, pool);
    TT__CUDA_ENQUEUE(y, "max_pool2d", tt__cuda_max_pool2d(stream, y->dtype, &p));
}

static tt_status cuda_max_pool2d_backward(tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                          const tt__pooling *pool) {
    const tt__cuda_pool p = cuda_pool_of(dx, g, at, pool);
    TT__CUDA_ENQUEUE(dx, "max_pool2d_backward", tt__cuda_max_pool2d_backward(stream, dx->dtype, &p));
}

static tt_status cuda_avg_pool2d(tt_tensor *y, const tt_tensor *x, const tt__pooling *pool) {
    const tt__cuda_pool p = cuda_pool_of(x, y, NULL, pool);
    TT__CUDA_ENQUEUE(y, "avg_pool2d", tt__cuda_avg_pool2d(stream, y->dtype, &p));
}

static tt_status cuda_avg_pool2d_backward(tt_tensor *dx, const tt_tensor *g, const tt__pooling *pool) {
    const tt__cuda_pool p = cuda_pool_of(dx, g, NULL, pool);
    TT__CUDA_ENQUEUE(dx, "avg_pool2d_backward", tt__cuda_avg_pool2d_backward(stream, dx->dtype, &p));
}

static tt_status cuda_adaptive_avg_pool2d(tt_tensor *y, const tt_tensor *x) {
    const tt__cuda_pool p = cuda_pool_of(x, y, NULL, NULL);
    TT__CUDA_ENQUEUE(y, "adaptive_avg_pool2d", tt__cuda_adaptive_avg_pool2d(stream, y->dtype, &p));
}

static tt_status cuda_adaptive_avg_pool2d_backward(tt_tensor *dx, const tt_tensor *g) {
    const tt__cuda_pool p = cuda_pool_of(dx, g, NULL, NULL);
    TT__CUDA_ENQUEUE(dx, "adaptive_avg_pool2d_backward", tt__cuda_adaptive_avg_pool2d_backward(stream, dx->dtype, &p));
}

/* ---- another size ---- */

static tt_status cuda_resize(tt_tensor *y, const tt_tensor *x, const tt__resize *how) {
    const tt__cuda_image to = cuda_image_of(y), from = cuda_image_of(x);
    TT__CUDA_ENQUEUE(y, "resize", tt__cuda_resize(stream, y->dtype, &to, &from, how));
}

static tt_status cuda_resize_backward(tt_tensor *dx, const tt_tensor *g, const tt__resize *how) {
    const tt__cuda_image to = cuda_image_of(dx), from = cuda_image_of(g);
    TT__CUDA_ENQUEUE(dx, "resize_backward", tt__cuda_resize_backward(stream, dx->dtype, &to, &from, how));
}

void tt__cuda_conv_ops(tt__cuda_tables *t) {
    t->floats.conv2d = cuda_conv2d;
    t->floats.conv2d_backward_data = cuda_conv2d_backward_data;
    t->floats.conv2d_backward_weight = cuda_conv2d_backward_weight;
    t->floats.max_pool2d = cuda_max_pool2d;
    t->floats.max_pool2d_backward = cuda_max_pool2d_backward;
    t->floats.avg_pool2d = cuda_avg_pool2d;
    t->floats.avg_pool2d_backward = cuda_avg_pool2d_backward;
    t->floats.adaptive_avg_pool2d = cuda_adaptive_avg_pool2d;
    t->floats.adaptive_avg_pool2d_backward = cuda_adaptive_avg_pool2d_backward;
    t->floats.resize = cuda_resize;
    t->floats.resize_backward = cuda_resize_backward;
}
