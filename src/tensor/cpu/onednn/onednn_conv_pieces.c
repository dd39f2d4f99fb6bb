/* Convolutions go through a batch in pieces of a few images. oneDNN's reordered copies and scratchpads then have the
 * size of a piece, not of the batch, and stay in the cache; its Winograd kernels gain most. Weights' gradients are
 * summed over the pieces. */
#include "tensor/cpu/onednn/onednn.h"

#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/cpu/onednn/onednn_conv.h"

enum {
    PIECE_BYTES = 1 << 20, /* of images and outputs, for each thread */
    PIECE_WEIGHTS = 16,    /* a piece has that many times the bytes of the weights, which each piece reorders */
};

static int64_t image_bytes(const tt_tensor *x) {
    return x->shape.dim[0] ? x->numel / x->shape.dim[0] * (int64_t)tt_dtype_size(x->dtype) : 0;
}

static int64_t weight_bytes(const tt_tensor *w) { return w->numel * (int64_t)tt_dtype_size(w->dtype); }

/* Return how many images a piece has; pieces are as even as possible. */
static int64_t images_a_piece(const tt__conv_call *c) {
    int64_t n = c->x->shape.dim[0], each = image_bytes(c->x) + image_bytes(c->y);
    int64_t least = (int64_t)PIECE_BYTES * tt_get_num_threads(), by_weights = PIECE_WEIGHTS * weight_bytes(c->w);
    bool sums_are_exact = c->direction != TT__CONV_WEIGHT || c->x->dtype == TT_F32;
    if (n < 2 || each == 0 || !sums_are_exact)
        return n;
    int64_t most = (least > by_weights ? least : by_weights) / each + 1;
    int64_t pieces = (n + most - 1) / most;
    return (n + pieces - 1) / pieces;
}

static void add_to(const tt_tensor *sum, const float *term) {
    float *s = sum->data;
    for (int64_t i = 0; i < sum->numel; i++)
        s[i] += term[i];
}

/* Run a later piece of weights' gradients, and add what it gives. */
static tt_status add_piece(tt__conv_call c) {
    int64_t weights = c.w->numel, biases = c.bias ? c.bias->numel : 0;
    c.dw = tt__pool_alloc((size_t)(weights + biases) * sizeof *c.dw);
    if (!c.dw)
        return tt__fail(TT_ERR_MEMORY, "conv2d: no memory for a gradient of weight %s", TT__SHAPE_TEXT(&c.w->shape));
    c.db = c.dw + weights;
    tt_status status = tt__onednn_conv_run(&c);
    if (!status)
        add_to(c.w, c.dw);
    if (!status && c.bias)
        add_to(c.bias, c.db);
    tt__pool_free(c.dw);
    return status;
}

static tt_status run_pieces(tt__conv_call c) {
    int64_t n = c.x->shape.dim[0], piece = images_a_piece(&c);
    tt_status status = TT_OK;
    do {
        c.count = n - c.first < piece ? n - c.first : piece;
        status = c.direction == TT__CONV_WEIGHT && c.first ? add_piece(c) : tt__onednn_conv_run(&c);
        c.first += piece;
    } while (c.first < n && !status);
    return status;
}

/* ---- */

/* Does y have the size that oneDNN computes from x's? It does not if x is the result of a transposed convolution whose
 * output_padding is at least its stride: x has room for more windows than y has. */
static bool fits_onednn(const tt_tensor *x, const tt_tensor *w, const tt_tensor *y, const tt__conv *conv) {
    const tt__window *win = &conv->window;
    for (int d = 0; d < 2; d++) {
        int64_t reach = win->dilation[d] * (w->shape.dim[2 + d] - 1) + 1;
        if ((x->shape.dim[2 + d] + 2 * win->padding[d] - reach) / win->stride[d] + 1 != y->shape.dim[2 + d])
            return false;
    }
    return true;
}

/* Does some element of w meet nothing but padding? Its gradient is 0, but of bf16 oneDNN gives what stood in its memory
 * before. */
static bool has_idle_tap(const tt_tensor *x, const tt_tensor *w, const tt_tensor *y, const tt__conv *conv) {
    const tt__window *win = &conv->window;
    for (int d = 0; d < 2; d++)
        for (int64_t r = 0; r < w->shape.dim[2 + d]; r++) {
            int64_t at = r * win->dilation[d] - win->padding[d], windows = y->shape.dim[2 + d];
            while (windows > 0 && at < 0) {
                at += win->stride[d];
                windows--;
            }
            if (windows == 0 || at >= x->shape.dim[2 + d])
                return true;
        }
    return false;
}

/* Leave the function with the result of the plain loops where oneDNN can't be asked; for bf16 its caller converts. */
#define PLAIN_UNLESS_FIT(x, w, y, conv, kernel, ...)                                                               \
    do {                                                                                                           \
        if (!fits_onednn((x), (w), (y), (conv)))                                                                   \
            return (x)->dtype == TT_F32 ? tt__reference_kernels[TT_F32]->kernel(__VA_ARGS__) : TT_ERR_UNSUPPORTED; \
    } while (0)

tt_status tt__onednn_conv2d(tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                            const tt__conv *conv) {
    PLAIN_UNLESS_FIT(x, w, y, conv, conv2d, y, x, w, bias, conv);
    return run_pieces((tt__conv_call){TT__CONV_FORWARD, x, w, bias, y, conv, 0, 0, NULL, NULL});
}

tt_status tt__onednn_conv2d_backward_data(tt_tensor *dx, const tt_tensor *g, const tt_tensor *w, const tt__conv *conv) {
    PLAIN_UNLESS_FIT(dx, w, g, conv, conv2d_backward_data, dx, g, w, conv);
    return run_pieces((tt__conv_call){TT__CONV_DATA, dx, w, NULL, g, conv, 0, 0, NULL, NULL});
}

tt_status tt__onednn_conv2d_backward_weight(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                            const tt__conv *conv) {
    PLAIN_UNLESS_FIT(x, dw, g, conv, conv2d_backward_weight, dw, db, x, g, conv);
    if (x->dtype == TT_BF16 && has_idle_tap(x, dw, g, conv))
        return TT_ERR_UNSUPPORTED;
    return run_pieces((tt__conv_call){TT__CONV_WEIGHT, x, dw, db, g, conv, 0, 0, NULL, NULL});
}
