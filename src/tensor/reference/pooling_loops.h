/* Pooling, in the types of common_loops.h; x (N,C,H,W), y (N,C,P,Q). Sums are added up in double and rounded once. */

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

/* Return the rows (or columns) that number `at` of `count` has of `size`. */
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

#define POOLING_KERNELS                                                                                         \
    .max_pool2d = ref_max_pool2d, .max_pool2d_backward = ref_max_pool2d_backward, .avg_pool2d = ref_avg_pool2d, \
    .avg_pool2d_backward = ref_avg_pool2d_backward, .adaptive_avg_pool2d = ref_adaptive_avg_pool2d,             \
    .adaptive_avg_pool2d_backward = ref_adaptive_avg_pool2d_backward
