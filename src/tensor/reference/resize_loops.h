/* Images of another size; part of float_loops.h, which says what TYPE and the rest are. An axis of y with `out` places
 * is mapped onto one of x with `in`: place i lies between x's entries `low` and `high`, `weight` of the way. */
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

#define RESIZE_KERNELS .resize = ref_resize, .resize_backward = ref_resize_backward
