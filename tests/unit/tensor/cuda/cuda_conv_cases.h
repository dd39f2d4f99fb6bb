/* What the tests of convolutions on the CUDA device have in common: cases, and each beside the cpu's. After
 * cuda_compare.h. */
#ifndef TT_TESTS_UNIT_CUDA_CONV_CASES_H
#define TT_TESTS_UNIT_CUDA_CONV_CASES_H

/* Numbers between -1 and 1 in steps of a sixteenth, not in order: products and a few dozens of them added up are exact
 * in f32, and nearly so in 16 bits. */
static inline tt_tensor *mixed(tt_shape shape, int factor, tt_dtype dtype) {
    int64_t n = 1;
    for (int d = 0; d < shape.ndim; d++)
        n *= shape.dim[d];
    tt_tensor *x = tt_zeros(shape, TT_F32);
    for (int64_t i = 0; i < n; i++)
        tt_tensor_f32(x)[i] = (float)((i * factor + 3) % 33 - 16) / 16;
    return tt_to(x, dtype);
}

/* Gradients of y that differ from each other. */
static inline tt_tensor *slopes(tt_tensor *y) { return mixed(tt_tensor_shape(y), 5, tt_tensor_dtype(y)); }

typedef struct conv_case {
    const char *name;
    int64_t N, C, H, W, K, R, S;
    int64_t groups, stride[2], padding[2], dilation[2];
} conv_case;

static const conv_case conv_cases[] = {
    {"3 x 3", 2, 3, 7, 6, 4, 3, 3, 1, {1, 1}, {0, 0}, {1, 1}},
    {"one by one", 2, 5, 4, 4, 35, 1, 1, 1, {1, 1}, {0, 0}, {1, 1}},
    {"padding and strides", 1, 2, 9, 8, 3, 3, 2, 1, {2, 3}, {1, 2}, {1, 1}},
    {"dilation", 2, 2, 9, 10, 3, 3, 2, 1, {1, 2}, {2, 1}, {2, 3}},
    {"groups", 2, 6, 5, 5, 4, 3, 3, 2, {1, 1}, {1, 1}, {1, 1}},
    {"a group a channel", 2, 4, 6, 5, 8, 3, 3, 4, {2, 2}, {1, 1}, {1, 1}},
    {"one pixel", 1, 1, 1, 1, 1, 1, 1, 1, {1, 1}, {0, 0}, {1, 1}},
    {"one channel", 2, 1, 6, 5, 4, 3, 3, 1, {1, 1}, {1, 1}, {1, 1}},
    {"images of one pixel", 2, 5, 1, 1, 7, 3, 3, 1, {1, 1}, {2, 2}, {1, 1}},
    {"results of one pixel", 2, 5, 3, 3, 7, 3, 3, 1, {1, 1}, {0, 0}, {1, 1}},
    {"many taps", 1, 7, 6, 6, 2, 5, 5, 1, {1, 1}, {2, 2}, {1, 1}},
};

typedef struct conv_results {
    tt_tensor *y, *dx, *dw, *db;
} conv_results;

static inline conv_results run_conv(const conv_case *c, tt_tensor *x, tt_tensor *w, tt_tensor *b) {
    conv_results r = {0};
    tt_requires_grad_(x, true);
    tt_requires_grad_(w, true);
    if (b)
        tt_requires_grad_(b, true);
    r.y = tt_conv2d(x, w, .bias = b, .groups = c->groups, .stride_hw = {c->stride[0], c->stride[1]},
                    .padding_hw = {c->padding[0], c->padding[1]}, .dilation_hw = {c->dilation[0], c->dilation[1]});
    tt_tensor *g = r.y ? tt_to_device(slopes(r.y), tt_tensor_device(r.y)) : NULL;
    if (!r.y || tt_backward(tt_sum(tt_mul(r.y, g))))
        fail_msg("%s: %s", c->name, tt_last_error());
    r.dx = tt_grad(x);
    r.dw = tt_grad(w);
    r.db = b ? tt_grad(b) : NULL;
    return r;
}

static inline tt_tensor *far_leaf(tt_tensor *x) { return x ? tt_detach(there(x)) : NULL; }

/* The same values with rows that have gaps and dimensions out of order; it must be copied on the way. */
static inline tt_tensor *out_of_order(tt_tensor *x) {
    return tt_detach(tt_transpose(tt_contiguous(tt_transpose(x, 1, 3)), 1, 3));
}

static inline void compare_conv(const conv_case *c, tt_dtype dtype, bool bias, bool channels_last, bool turned) {
    TT_AUTO_SCOPE;
    tt_tensor *x = mixed(S(c->N, c->C, c->H, c->W), 7, dtype);
    tt_tensor *w = mixed(S(c->K, c->C / c->groups, c->R, c->S), 10, dtype), *b = bias ? mixed(S(c->K), 4, dtype) : NULL;
    conv_results far, near;
    tt_tensor *far_x = far_leaf(x), *far_w = far_leaf(w);
    far_x = turned          ? out_of_order(far_x)
            : channels_last ? tt_detach(tt_to_memory_format(far_x, TT_CHANNELS_LAST))
                            : far_x;
    far_w = turned ? out_of_order(far_w) : far_w;
    near = run_conv(c, x, w, b);
    far = run_conv(c, far_x, far_w, far_leaf(b));
    expect_close(c->name, dtype, far.y, near.y);
    expect_close(c->name, dtype, far.dx, near.dx);
    expect_close(c->name, dtype, far.dw, near.dw);
    if (bias)
        expect_close(c->name, dtype, far.db, near.db);
}

enum { CONV_CASES = sizeof conv_cases / sizeof *conv_cases };

#endif
