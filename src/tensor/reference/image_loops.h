/* Images: convolutions, pooling, resizing, in the types of common_loops.h. Letters as in kernels.h: x (N,C,H,W),
 * w (K,C/groups,R,S), y (N,K,P,Q). Sums are added up in double and rounded once. */

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

/* ---- pooling */

/* Walk over the places (n, c, h, v) of an image. */
#define EACH4(x)                                            \
    for (int64_t n = 0; n < (x)->shape.dim[0]; n++)         \
        for (int64_t c = 0; c < (x)->shape.dim[1]; c++)     \
            for (int64_t h = 0; h < (x)->shape.dim[2]; h++) \
                for (int64_t v = 0; v < (x)->shape.dim[3]; v++)

/* Return the place, h W + v, of the largest element of window (p, q); of NaN, if one is. */
static int64_t max_place(const tt_tensor *x, const tt__pooling *pool, int64_t n, int64_t c, int64_t p, int64_t q) {
    int64_t H = x->shape.dim[2], W = x->shape.dim[3], best = -1;
    WIDE most = 0;
    for (int64_t r = 0; r < pool->size[0]; r++)
        for (int64_t s = 0; s < pool->size[1]; s++) {
            int64_t h = window_place(&pool->window, 0, p, r, H), v = window_place(&pool->window, 1, q, s, W);
            if (h < 0 || v < 0)
                continue;
            WIDE here = LOAD(AT4(x, n, c, h, v));
            if (best >= 0 && !(here > most) && here == here)
                continue;
            best = h * W + v;
            most = here;
        }
    return best;
}

static tt_status ref_max_pool2d(tt_tensor *y, tt_tensor *at, const tt_tensor *x, const tt__pooling *pool) {
    int64_t W = x->shape.dim[3];
    EACH4(y) {
        int64_t place = max_place(x, pool, n, c, h, v);
        const int64_t *stride = at->stride;
        ((int32_t *)at->data)[n * stride[0] + c * stride[1] + h * stride[2] + v * stride[3]] = (int32_t)place;
        AT4(y, n, c, h, v) = AT4(x, n, c, place / W, place % W);
    }
    return TT_OK;
}

/* Return the sum of the gradients of those windows whose largest element lies at (h, v). */
static double max_pool_sum(const tt_tensor *g, const tt_tensor *at, const tt__pooling *pool, int64_t n, int64_t c,
                           int64_t h, int64_t v, int64_t W) {
    double total = 0;
    const int64_t *stride = at->stride;
    for (int64_t r = 0; r < pool->size[0]; r++)
        for (int64_t s = 0; s < pool->size[1]; s++) {
            int64_t p = window_at(&pool->window, 0, h, r, g->shape.dim[2]);
            int64_t q = window_at(&pool->window, 1, v, s, g->shape.dim[3]);
            if (p >= 0 && q >= 0 &&
                ((const int32_t *)at->data)[n * stride[0] + c * stride[1] + p * stride[2] + q * stride[3]] == h * W + v)
                total += (double)LOAD(AT4(g, n, c, p, q));
        }
    return total;
}

static tt_status ref_max_pool2d_backward(tt_tensor *dx, const tt_tensor *g, const tt_tensor *at,
                                         const tt__pooling *pool) {
    EACH4(dx) AT4(dx, n, c, h, v) = FROM_F64(max_pool_sum(g, at, pool, n, c, h, v, dx->shape.dim[3]));
    return TT_OK;
}

/* ---- means */

/* What window number `at` has along dimension d: [begin, end) of the image, and its size with padding. */
typedef struct pool_span {
    int64_t begin, end, padded;
} pool_span;

static pool_span span_of(const tt__pooling *pool, int d, int64_t at, int64_t size) {
    int64_t begin = at * pool->window.stride[d] - pool->window.padding[d], end = begin + pool->size[d];
    int64_t most = size + pool->window.padding[d];
    end = end < most ? end : most;
    return (pool_span){begin > 0 ? begin : 0, end < size ? end : size, end - begin};
}

static double span_divisor(const tt__pooling *pool, pool_span rows, pool_span columns) {
    if (pool->divisor)
        return (double)pool->divisor;
    return pool->exclude_padding ? (double)((rows.end - rows.begin) * (columns.end - columns.begin))
                                 : (double)(rows.padded * columns.padded);
}

static double span_sum(const tt_tensor *x, int64_t n, int64_t c, pool_span rows, pool_span columns) {
    double total = 0;
    for (int64_t h = rows.begin; h < rows.end; h++)
        for (int64_t v = columns.begin; v < columns.end; v++)
            total += (double)LOAD(AT4(x, n, c, h, v));
    return total;
}

static tt_status ref_avg_pool2d(tt_tensor *y, const tt_tensor *x, const tt__pooling *pool) {
    EACH4(y) {
        pool_span rows = span_of(pool, 0, h, x->shape.dim[2]), columns = span_of(pool, 1, v, x->shape.dim[3]);
        AT4(y, n, c, h, v) = FROM_F64(span_sum(x, n, c, rows, columns) / span_divisor(pool, rows, columns));
    }
    return TT_OK;
}

static double avg_pool_sum(const tt_tensor *dx, const tt_tensor *g, const tt__pooling *pool, int64_t n, int64_t c,
                           int64_t h, int64_t v) {
    double total = 0;
    for (int64_t r = 0; r < pool->size[0]; r++)
        for (int64_t s = 0; s < pool->size[1]; s++) {
            int64_t p = window_at(&pool->window, 0, h, r, g->shape.dim[2]);
            int64_t q = window_at(&pool->window, 1, v, s, g->shape.dim[3]);
            if (p >= 0 && q >= 0)
                total += (double)LOAD(AT4(g, n, c, p, q)) / span_divisor(pool, span_of(pool, 0, p, dx->shape.dim[2]),
                                                                         span_of(pool, 1, q, dx->shape.dim[3]));
        }
    return total;
}

static tt_status ref_avg_pool2d_backward(tt_tensor *dx, const tt_tensor *g, const tt__pooling *pool) {
    EACH4(dx) AT4(dx, n, c, h, v) = FROM_F64(avg_pool_sum(dx, g, pool, n, c, h, v));
    return TT_OK;
}

/* ---- means of a given number of windows */

/* Return which of `size` rows (or columns) window number `at` of `count` has. */
static pool_span adaptive_span(int64_t at, int64_t count, int64_t size) {
    return (pool_span){.begin = at * size / count, .end = ((at + 1) * size + count - 1) / count};
}

static int64_t span_length(pool_span s) { return s.end - s.begin; }

static tt_status ref_adaptive_avg_pool2d(tt_tensor *y, const tt_tensor *x) {
    EACH4(y) {
        pool_span rows = adaptive_span(h, y->shape.dim[2], x->shape.dim[2]);
        pool_span columns = adaptive_span(v, y->shape.dim[3], x->shape.dim[3]);
        double size = (double)(span_length(rows) * span_length(columns));
        AT4(y, n, c, h, v) = FROM_F64(span_sum(x, n, c, rows, columns) / size);
    }
    return TT_OK;
}

/* Return the sum over the windows that hold (h, v): from number h P / H on, while they begin before it ends. */
static double adaptive_sum(const tt_tensor *dx, const tt_tensor *g, int64_t n, int64_t c, int64_t h, int64_t v) {
    int64_t H = dx->shape.dim[2], W = dx->shape.dim[3], P = g->shape.dim[2], Q = g->shape.dim[3];
    double total = 0;
    for (int64_t p = h * P / H; p < P && adaptive_span(p, P, H).begin <= h; p++)
        for (int64_t q = v * Q / W; q < Q && adaptive_span(q, Q, W).begin <= v; q++) {
            int64_t size = span_length(adaptive_span(p, P, H)) * span_length(adaptive_span(q, Q, W));
            total += (double)LOAD(AT4(g, n, c, p, q)) / (double)size;
        }
    return total;
}

static tt_status ref_adaptive_avg_pool2d_backward(tt_tensor *dx, const tt_tensor *g) {
    EACH4(dx) AT4(dx, n, c, h, v) = FROM_F64(adaptive_sum(dx, g, n, c, h, v));
    return TT_OK;
}

/* ---- resizing. An axis of y with `out` places is mapped onto one of x with `in`: place i lies between x's entries
 * `low` and `high`, `weight` of the way. */

typedef struct lerp {
    int64_t low, high;
    WIDE weight;
} lerp;

static lerp lerp_of(int64_t i, int64_t in, int64_t out, const struct tt__resize *how) {
    if (in == out)
        return (lerp){i, i, 0};
    WIDE at, step = how->align_corners ? (out > 1 ? (WIDE)(in - 1) / (WIDE)(out - 1) : 0) : (WIDE)in / (WIDE)out;
    if (how->nearest) {
        int64_t low = (int64_t)((WIDE)i * step);
        return (lerp){low < in ? low : in - 1, in - 1, 0};
    }
    at = how->align_corners ? (WIDE)i * step : ((WIDE)i + (WIDE)0.5) * step - (WIDE)0.5;
    at = at > 0 ? at : 0;
    int64_t low = (int64_t)at < in ? (int64_t)at : in - 1;
    return (lerp){low, low + 1 < in ? low + 1 : low, at - (WIDE)low};
}

/* Where image c of image n begins. */
static TYPE *plane_of(const tt_tensor *x, int64_t n, int64_t c) {
    return (TYPE *)x->data + n * x->stride[0] + c * x->stride[1];
}

static void resize_row(const tt_tensor *y, TYPE *to, const tt_tensor *x, const TYPE *from, lerp row,
                       const struct tt__resize *how) {
    const TYPE *low = from + row.low * x->stride[2], *high = from + row.high * x->stride[2];
    for (int64_t w = 0; w < y->shape.dim[3]; w++) {
        lerp k = lerp_of(w, x->shape.dim[3], y->shape.dim[3], how);
        int64_t a = k.low * x->stride[3], b = k.high * x->stride[3];
        WIDE left = 1 - k.weight, top = 1 - row.weight;
        if (how->nearest)
            to[w * y->stride[3]] = low[a];
        else
            to[w * y->stride[3]] = STORE(top * (left * LOAD(low[a]) + k.weight * LOAD(low[b])) +
                                         row.weight * (left * LOAD(high[a]) + k.weight * LOAD(high[b])));
    }
}

static tt_status ref_resize(tt_tensor *y, const tt_tensor *x, const struct tt__resize *how) {
    int64_t H = y->shape.dim[2];
    for (int64_t i = 0; i < y->shape.dim[0] * y->shape.dim[1] * H; i++) {
        int64_t n = i / H / y->shape.dim[1], c = i / H % y->shape.dim[1], h = i % H;
        resize_row(y, plane_of(y, n, c) + h * y->stride[2], x, plane_of(x, n, c), lerp_of(h, x->shape.dim[2], H, how),
                   how);
    }
    return TT_OK;
}

static void add_share(TYPE *to, WIDE share) { *to = STORE(LOAD(*to) + share); }

static void resize_row_backward(const tt_tensor *dx, TYPE *to, const tt_tensor *g, const TYPE *from, lerp row,
                                const struct tt__resize *how) {
    TYPE *low = to + row.low * dx->stride[2], *high = to + row.high * dx->stride[2];
    for (int64_t w = 0; w < g->shape.dim[3]; w++) {
        lerp k = lerp_of(w, dx->shape.dim[3], g->shape.dim[3], how);
        int64_t a = k.low * dx->stride[3], b = k.high * dx->stride[3];
        WIDE v = LOAD(from[w * g->stride[3]]), top = (1 - row.weight) * v, bottom = row.weight * v;
        add_share(low + a, top * (1 - k.weight));
        if (how->nearest)
            continue;
        add_share(low + b, top * k.weight);
        add_share(high + a, bottom * (1 - k.weight));
        add_share(high + b, bottom * k.weight);
    }
}

static tt_status ref_resize_backward(tt_tensor *dx, const tt_tensor *g, const struct tt__resize *how) {
    int64_t H = g->shape.dim[2];
    for (int64_t i = 0; i < g->shape.dim[0] * g->shape.dim[1] * H; i++) {
        int64_t n = i / H / g->shape.dim[1], c = i / H % g->shape.dim[1], h = i % H;
        resize_row_backward(dx, plane_of(dx, n, c), g, plane_of(g, n, c) + h * g->stride[2],
                            lerp_of(h, dx->shape.dim[2], H, how), how);
    }
    return TT_OK;
}

#define IMAGE_KERNELS                                                                               \
    .conv2d = ref_conv2d, .conv2d_backward_data = ref_conv2d_backward_data,                         \
    .conv2d_backward_weight = ref_conv2d_backward_weight, .max_pool2d = ref_max_pool2d,             \
    .max_pool2d_backward = ref_max_pool2d_backward, .avg_pool2d = ref_avg_pool2d,                   \
    .avg_pool2d_backward = ref_avg_pool2d_backward, .adaptive_avg_pool2d = ref_adaptive_avg_pool2d, \
    .adaptive_avg_pool2d_backward = ref_adaptive_avg_pool2d_backward, .resize = ref_resize,         \
    .resize_backward = ref_resize_backward
