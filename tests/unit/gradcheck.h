/* Gradients compared with finite differences, in f64, and f32 results with f64 ones. A case is a function of up to
 * three tensors; its result is made a scalar by a weighted sum, so that every element's gradient is another. */
#ifndef GRADCHECK_H
#define GRADCHECK_H

#include <math.h>
#include <stddef.h>
#include <tutti/autograd.h>

enum { GRADCHECK_INPUTS = 3 };

/* The way in which an input reaches the function. */
typedef enum gradcheck_mode {
    GRADCHECK_LEAF,    /* the leaf itself */
    GRADCHECK_STRIDED, /* a transposed view of a leaf, where it has two dimensions or more */
    GRADCHECK_TWICE,   /* a result that is used twice: its gradients are added up */
    GRADCHECK_MODES
} gradcheck_mode;

typedef struct gradcheck_case {
    const char *name;
    tt_tensor *(*f)(tt_tensor *const *in);
    int n;
    tt_shape shape[GRADCHECK_INPUTS];
} gradcheck_case;

/* Element i of input k: between -1 and 1, no two alike, none near the kinks of the functions. */
static inline double gradcheck_value(int k, int64_t i) {
    return (double)((i * 37 + k * 53 + 19) % 211) / 105.3 - 1.0017;
}

static inline tt_tensor *gradcheck_leaf(const gradcheck_case *c, int k, tt_dtype dtype, gradcheck_mode mode) {
    tt_shape shape = c->shape[k];
    if (mode == GRADCHECK_STRIDED && shape.ndim >= 2) {
        int64_t d = shape.dim[0];
        shape.dim[0] = shape.dim[1];
        shape.dim[1] = d;
    }
    tt_tensor *x = tt_empty(shape, dtype);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++) {
        float v = (float)gradcheck_value(k, i);
        if (dtype == TT_F32)
            ((float *)tt_tensor_data(x))[i] = v;
        else
            ((double *)tt_tensor_data(x))[i] = (double)v;
    }
    return tt_requires_grad_(x, true);
}

static inline tt_tensor *gradcheck_apply(const gradcheck_case *c, tt_tensor *const *leaf, gradcheck_mode mode) {
    tt_tensor *in[GRADCHECK_INPUTS] = {NULL};
    for (int k = 0; k < c->n; k++) {
        in[k] = leaf[k];
        if (mode == GRADCHECK_STRIDED && tt_tensor_dim(leaf[k]) >= 2)
            in[k] = tt_transpose(leaf[k], 0, 1);
        else if (mode == GRADCHECK_TWICE)
            in[k] = tt_scale(leaf[k], 1.0);
    }
    tt_tensor *y = c->f(in);
    return mode == GRADCHECK_TWICE ? tt_add(y, c->f(in)) : y;
}

static inline tt_tensor *gradcheck_loss(const gradcheck_case *c, tt_tensor *const *leaf, gradcheck_mode mode) {
    tt_tensor *y = gradcheck_apply(c, leaf, mode);
    tt_tensor *weight = y ? tt_empty(tt_tensor_shape(y), tt_tensor_dtype(y)) : NULL;
    for (int64_t i = 0; i < tt_tensor_numel(weight); i++) {
        float w = (float)gradcheck_value(7, i);
        if (tt_tensor_dtype(y) == TT_F32)
            ((float *)tt_tensor_data(weight))[i] = w;
        else
            ((double *)tt_tensor_data(weight))[i] = (double)w;
    }
    return tt_sum(tt_mul(y, weight));
}

static inline double gradcheck_loss_value(const gradcheck_case *c, tt_tensor *const *leaf, gradcheck_mode mode) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    double v = NAN;
    return tt_item(gradcheck_loss(c, leaf, mode), &v) ? NAN : v;
}

/* The worst |analytic - numeric| / (1 + |numeric|) over all elements of all inputs; NaN if something failed. */
static inline double gradcheck_worst(const gradcheck_case *c, gradcheck_mode mode) {
    TT_AUTO_SCOPE;
    const double eps = 1e-5;
    tt_tensor *leaf[GRADCHECK_INPUTS];
    double worst = 0;
    for (int k = 0; k < c->n; k++)
        leaf[k] = gradcheck_leaf(c, k, TT_F64, mode);
    if (tt_backward(gradcheck_loss(c, leaf, mode)))
        return NAN;
    for (int k = 0; k < c->n; k++) {
        double *x = tt_tensor_data(leaf[k]), *g = tt_tensor_data(tt_grad(leaf[k]));
        if (!g)
            return NAN;
        for (int64_t i = 0; i < tt_tensor_numel(leaf[k]); i++) {
            double before = x[i];
            x[i] = before + eps;
            double up = gradcheck_loss_value(c, leaf, mode);
            x[i] = before - eps;
            double down = gradcheck_loss_value(c, leaf, mode);
            x[i] = before;
            double numeric = (up - down) / (2 * eps), error = fabs(g[i] - numeric) / (1 + fabs(numeric));
            if (!(error <= worst))
                worst = error;
        }
    }
    return worst;
}

/* The worst difference between f32 and f64: results and gradients. NaN if something failed. */
static inline double gradcheck_f32_worst(const gradcheck_case *c, gradcheck_mode mode) {
    TT_AUTO_SCOPE;
    tt_tensor *a[GRADCHECK_INPUTS], *b[GRADCHECK_INPUTS];
    for (int k = 0; k < c->n; k++) {
        a[k] = gradcheck_leaf(c, k, TT_F32, mode);
        b[k] = gradcheck_leaf(c, k, TT_F64, mode);
    }
    tt_tensor *ya = tt_contiguous(gradcheck_apply(c, a, mode)), *yb = tt_contiguous(gradcheck_apply(c, b, mode));
    if (!ya || !yb || tt_backward(gradcheck_loss(c, a, mode)) || tt_backward(gradcheck_loss(c, b, mode)))
        return NAN;
    double worst = 0;
    for (int k = -1; k < c->n; k++) { /* -1: the result */
        const float *p = tt_tensor_data(k < 0 ? ya : tt_grad(a[k]));
        const double *q = tt_tensor_data(k < 0 ? yb : tt_grad(b[k]));
        for (int64_t i = 0; i < tt_tensor_numel(k < 0 ? ya : a[k]); i++) {
            double error = fabs((double)p[i] - q[i]) / (1 + fabs(q[i]));
            if (!(error <= worst))
                worst = error;
        }
    }
    return worst;
}

#endif
