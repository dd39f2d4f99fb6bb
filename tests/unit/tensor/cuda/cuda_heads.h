/* What tests of attention by cuDNN have in common: attentions of heads, with their gradients. After cuda_compare.h. */
#ifndef TT_TESTS_UNIT_CUDA_HEADS_H
#define TT_TESTS_UNIT_CUDA_HEADS_H

enum { RESULTS = 4 };

/* y, and the gradients of q, k and v. */
typedef struct attended {
    tt_tensor *of[RESULTS];
} attended;

typedef struct heads_case {
    const char *name;
    int ndim;
    int64_t B, H, T, S, D, Dv;
    bool causal, side_by_side; /* the latter: heads beside each other in rows, as layers have them */
    double scale;
} heads_case;

static inline tt_tensor *ripples(tt_shape shape, double step, tt_dtype dtype) {
    tt_tensor *x = tt_zeros(shape, TT_F64);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        ((double *)tt_tensor_data(x))[i] = sin(step * (double)(i + 1)) * 0.75;
    return tt_to(x, dtype);
}

static inline tt_tensor *heads_input(const heads_case *c, int64_t rows, int64_t columns, double step, tt_dtype dtype) {
    if (c->ndim == 4)
        return c->side_by_side ? tt_transpose(ripples(S(c->B, rows, c->H, columns), step, dtype), 1, 2)
                               : ripples(S(c->B, c->H, rows, columns), step, dtype);
    return c->ndim == 3 ? ripples(S(c->B, rows, columns), step, dtype) : ripples(S(rows, columns), step, dtype);
}

/* False: an error. */
static inline bool attend_with(const tt_device *device, const heads_case *c, tt_dtype dtype, tt_tensor *mask,
                               attended *a) {
    tt_tensor *in[3] = {heads_input(c, c->T, c->D, 0.3, dtype), heads_input(c, c->S, c->D, 0.7, dtype),
                        heads_input(c, c->S, c->Dv, 1.1, dtype)};
    for (int i = 0; i < 3; i++) {
        in[i] = tt_to_device(in[i], device);
        if (!in[i])
            return false;
        in[i] = tt_detach(in[i]);
        tt_requires_grad_(in[i], true);
    }
    a->of[0] = tt_scaled_dot_product_attention(in[0], in[1], in[2], .is_causal = c->causal, .scale = c->scale,
                                               .attn_mask = mask ? tt_to_device(mask, device) : NULL);
    tt_tensor *y = a->of[0], *g = y ? tt_to_device(ripples(tt_tensor_shape(y), 1.7, dtype), device) : NULL;
    if (!g || tt_backward(tt_sum(tt_mul(y, g))))
        return false;
    for (int i = 0; i < 3; i++)
        a->of[1 + i] = tt_grad(in[i]);
    return true;
}

/* Another one for each number: what hasn't been seen has no plan yet. */
static inline heads_case case_of(int64_t number) {
    return (heads_case){"numbered", 4, 1, 2, 2 + number % 40, 2 + number / 40, 8, 8, true, false, 0};
}

#endif
