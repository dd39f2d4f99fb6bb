/* Convolutions go through a batch in pieces of a few images. What oneDNN reorders for itself and computes in between
 * then stays in the cache and takes a piece's memory rather than the batch's: its Winograd kernels so take 2/3 of the
 * time. Weights' gradients are summed over the pieces. */
#include "tensor/cpu/onednn.h"

#include "base/error.h"
#include "tensor/cpu/onednn_conv.h"
#include "tensor/parallel.h"
#include "tensor/pool.h"

enum {
    PIECE_BYTES = 1 << 20, /* of images and outputs, for each thread */
    PIECE_WEIGHTS = 16,    /* a piece's bytes are that many times its weights', which each piece reorders */
};

static int64_t image_bytes(const tt_tensor *x) {
    return x->shape.dim[0] ? x->numel / x->shape.dim[0] * (int64_t)tt_dtype_size(x->dtype) : 0;
}

static int64_t weight_bytes(const tt_tensor *w) { return w->numel * (int64_t)tt_dtype_size(w->dtype); }

/* Return how many images a piece has; as even as it goes. */
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

static tt_tensor images_of(const tt_tensor *x, int64_t first, int64_t count) {
    tt_shape shape = x->shape;
    shape.dim[0] = count;
    tt_tensor piece = tt__tensor_seen(x, shape, x->stride);
    piece.data = (char *)x->data + first * image_bytes(x);
    return piece;
}

static tt_status run_piece(tt__conv_call c, int64_t first, int64_t count) {
    tt_tensor x = images_of(c.x, first, count), y = images_of(c.y, first, count);
    c.x = &x;
    c.y = &y;
    return tt__onednn_conv_run(&c);
}

static void add_to(const tt_tensor *sum, const float *term) {
    float *s = sum->data;
    for (int64_t i = 0; i < sum->numel; i++)
        s[i] += term[i];
}

/* Run a later piece of a weights' gradient, and add what it gives. */
static tt_status add_piece(tt__conv_call c, int64_t first, int64_t count) {
    const tt_tensor *dw = c.w, *db = c.bias;
    float *room = tt__pool_alloc((size_t)(dw->numel + (db ? db->numel : 0)) * sizeof(float));
    if (!room)
        return tt__fail(TT_ERR_MEMORY, "conv2d: no memory for a gradient of weight %s", TT__SHAPE_TEXT(&dw->shape));
    tt_tensor w = tt__tensor_seen(dw, dw->shape, dw->stride), b = w;
    w.data = room;
    c.w = &w;
    if (db) {
        b = tt__tensor_seen(db, db->shape, db->stride);
        b.data = room + dw->numel;
        c.bias = &b;
    }
    tt_status status = run_piece(c, first, count);
    if (!status)
        add_to(dw, room);
    if (!status && db)
        add_to(db, room + dw->numel);
    tt__pool_free(room);
    return status;
}

static tt_status run_pieces(const tt__conv_call *c) {
    int64_t n = c->x->shape.dim[0], piece = images_a_piece(c);
    if (piece == n)
        return tt__onednn_conv_run(c);
    tt_status status = run_piece(*c, 0, piece);
    for (int64_t first = piece; first < n && !status; first += piece) {
        int64_t count = n - first < piece ? n - first : piece;
        status = c->direction == TT__CONV_WEIGHT ? add_piece(*c, first, count) : run_piece(*c, first, count);
    }
    return status;
}

tt_status tt__onednn_conv2d(tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                            const tt__conv *conv) {
    return run_pieces(&(tt__conv_call){TT__CONV_FORWARD, x, w, bias, y, conv});
}

tt_status tt__onednn_conv2d_backward_data(tt_tensor *dx, const tt_tensor *g, const tt_tensor *w, const tt__conv *conv) {
    return run_pieces(&(tt__conv_call){TT__CONV_DATA, dx, w, NULL, g, conv});
}

tt_status tt__onednn_conv2d_backward_weight(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                            const tt__conv *conv) {
    return run_pieces(&(tt__conv_call){TT__CONV_WEIGHT, x, dw, db, g, conv});
}
