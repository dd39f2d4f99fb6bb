/* Convolutions, in the types of common_loops.h. Letters as in kernels.h: x (N,C,H,W), w (K,C/groups,R,S),
 * y (N,K,P,Q). Sums are added up in double and rounded once. */
#define AT4(x, a, b, c, d) \
    (((TYPE *)(x)->data)[(a) * (x)->stride[0] + (b) * (x)->stride[1] + (c) * (x)->stride[2] + (d) * (x)->stride[3]])

/* Return where tap `tap` of window number `at` lies along dimension d (0: H, 1: W); -1: in the padding. */
static int64_t window_place(const tt__window *win, int d, int64_t at, int64_t tap, int64_t size) {
    int64_t place = at * win->stride[d] - win->padding[d] + tap * win->dilation[d];
    return place >= 0 && place < size ? place : -1;
}

/* Return which of `count` windows has its tap `tap` at this place; -1: none. */
static int64_t window_at(const tt__window *win, int d, int64_t place, int64_t tap, int64_t count) {
    int64_t from = place + win->padding[d] - tap * win->dilation[d];
    return from >= 0 && from % win->stride[d] == 0 && from / win->stride[d] < count ? from / win->stride[d] : -1;
}

/* Return the product of x's channels from c0 on with w[k], at one place of y. */
static double conv_sum(const tt_tensor *x, const tt_tensor *w, const tt__conv *conv, int64_t n, int64_t c0, int64_t k,
                       int64_t p, int64_t q) {
    double total = 0;
    for (int64_t c = 0; c < w->shape.dim[1]; c++)
        for (int64_t r = 0; r < w->shape.dim[2]; r++)
            for (int64_t s = 0; s < w->shape.dim[3]; s++) {
                int64_t h = window_place(&conv->window, 0, p, r, x->shape.dim[2]),
                        v = window_place(&conv->window, 1, q, s, x->shape.dim[3]);
                if (h >= 0 && v >= 0)
                    total += (double)LOAD(AT4(x, n, c0 + c, h, v)) * (double)LOAD(AT4(w, k, c, r, s));
            }
    return total;
}

static tt_status ref_conv2d(tt_tensor *y, const tt_tensor *x, const tt_tensor *w, const tt_tensor *bias,
                            const tt__conv *conv) {
    int64_t outputs = w->shape.dim[0] / conv->groups;
    for (int64_t n = 0; n < y->shape.dim[0]; n++)
        for (int64_t k = 0; k < y->shape.dim[1]; k++)
            for (int64_t p = 0; p < y->shape.dim[2]; p++)
                for (int64_t q = 0; q < y->shape.dim[3]; q++) {
                    double start = bias ? (double)LOAD(((const TYPE *)bias->data)[k]) : 0;
                    AT4(y, n, k, p, q) =
                        FROM_F64(start + conv_sum(x, w, conv, n, k / outputs * w->shape.dim[1], k, p, q));
                }
    return TT_OK;
}

/* Return the sum over the outputs and taps that x[n][c][h][v] went into. */
static double conv_data_sum(const tt_tensor *g, const tt_tensor *w, const tt__conv *conv, int64_t n, int64_t c,
                            int64_t h, int64_t v) {
    int64_t channels = w->shape.dim[1], outputs = w->shape.dim[0] / conv->groups, first = c / channels * outputs;
    double total = 0;
    for (int64_t k = first; k < first + outputs; k++)
        for (int64_t r = 0; r < w->shape.dim[2]; r++)
            for (int64_t s = 0; s < w->shape.dim[3]; s++) {
                int64_t p = window_at(&conv->window, 0, h, r, g->shape.dim[2]),
                        q = window_at(&conv->window, 1, v, s, g->shape.dim[3]);
                if (p >= 0 && q >= 0)
                    total += (double)LOAD(AT4(g, n, k, p, q)) * (double)LOAD(AT4(w, k, c % channels, r, s));
            }
    return total;
}

static tt_status ref_conv2d_backward_data(tt_tensor *dx, const tt_tensor *g, const tt_tensor *w, const tt__conv *conv) {
    for (int64_t n = 0; n < dx->shape.dim[0]; n++)
        for (int64_t c = 0; c < dx->shape.dim[1]; c++)
            for (int64_t h = 0; h < dx->shape.dim[2]; h++)
                for (int64_t v = 0; v < dx->shape.dim[3]; v++)
                    AT4(dx, n, c, h, v) = FROM_F64(conv_data_sum(g, w, conv, n, c, h, v));
    return TT_OK;
}

/* Return the sum over all windows of channel c at tap (r, s), times the gradient of output k. */
static double conv_weight_sum(const tt_tensor *x, const tt_tensor *g, const tt__conv *conv, int64_t k, int64_t c,
                              int64_t r, int64_t s) {
    double total = 0;
    for (int64_t n = 0; n < g->shape.dim[0]; n++)
        for (int64_t p = 0; p < g->shape.dim[2]; p++)
            for (int64_t q = 0; q < g->shape.dim[3]; q++) {
                int64_t h = window_place(&conv->window, 0, p, r, x->shape.dim[2]),
                        v = window_place(&conv->window, 1, q, s, x->shape.dim[3]);
                if (h >= 0 && v >= 0)
                    total += (double)LOAD(AT4(g, n, k, p, q)) * (double)LOAD(AT4(x, n, c, h, v));
            }
    return total;
}

static void conv_bias_sums(tt_tensor *db, const tt_tensor *g) {
    for (int64_t k = 0; k < g->shape.dim[1]; k++) {
        double total = 0;
        for (int64_t n = 0; n < g->shape.dim[0]; n++)
            for (int64_t p = 0; p < g->shape.dim[2]; p++)
                for (int64_t q = 0; q < g->shape.dim[3]; q++)
                    total += (double)LOAD(AT4(g, n, k, p, q));
        ((TYPE *)db->data)[k] = FROM_F64(total);
    }
}

static tt_status ref_conv2d_backward_weight(tt_tensor *dw, tt_tensor *db, const tt_tensor *x, const tt_tensor *g,
                                            const tt__conv *conv) {
    int64_t channels = dw->shape.dim[1], outputs = dw->shape.dim[0] / conv->groups;
    for (int64_t k = 0; k < dw->shape.dim[0]; k++)
        for (int64_t c = 0; c < channels; c++)
            for (int64_t r = 0; r < dw->shape.dim[2]; r++)
                for (int64_t s = 0; s < dw->shape.dim[3]; s++)
                    AT4(dw, k, c, r, s) = FROM_F64(conv_weight_sum(x, g, conv, k, k / outputs * channels + c, r, s));
    if (db)
        conv_bias_sums(db, g);
    return TT_OK;
}

#define CONV_KERNELS                                                        \
    .conv2d = ref_conv2d, .conv2d_backward_data = ref_conv2d_backward_data, \
    .conv2d_backward_weight = ref_conv2d_backward_weight
