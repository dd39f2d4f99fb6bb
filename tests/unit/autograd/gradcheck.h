/* Gradients compared with finite differences, in f64, and results and gradients of one device and element type with
 * those of another. A case is a function of up to three tensors; its result is made a scalar by a weighted sum, so that
 * every element's gradient is another. */
#ifndef GRADCHECK_H
#define GRADCHECK_H

#include <math.h>
#include <stddef.h>
#include <tutti/autograd.h>
#include <tutti/functional.h>

enum { GRADCHECK_INPUTS = 3 };

/* The way in which an input reaches the function. */
typedef enum gradcheck_mode {
    GRADCHECK_LEAF,          /* the leaf itself */
    GRADCHECK_STRIDED,       /* a transposed view of a leaf, where it has two dimensions or more */
    GRADCHECK_TWICE,         /* a result that is used twice: its gradients are added up */
    GRADCHECK_CHANNELS_LAST, /* the leaf itself, which lies so in memory, where it has four dimensions */
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

/* Where and in what it is computed. */
typedef struct gradcheck_kind {
    const char *device;
    tt_dtype dtype;
    tt_dtype rounded; /* values are rounded to this type first */
} gradcheck_kind;

/* `shape` of the values of input k. */
static inline tt_tensor *gradcheck_tensor(tt_shape shape, int k, const gradcheck_kind *kind) {
    tt_tensor *x = tt_empty(shape, TT_F32);
    for (int64_t i = 0; i < tt_tensor_numel(x); i++)
        tt_tensor_f32(x)[i] = (float)gradcheck_value(k, i);
    return tt_to_device(tt_to(tt_to(x, kind->rounded), kind->dtype), tt_device_get(kind->device));
}

/* n of input k's values, on the CPU. */
static inline tt_tensor *gradcheck_row(int64_t n, int k, tt_dtype dtype) {
    return gradcheck_tensor(TT_SHAPE(n), k, &(gradcheck_kind){"cpu", dtype, TT_F32});
}

static inline tt_tensor *gradcheck_leaf_of(const gradcheck_case *c, int k, gradcheck_mode mode,
                                           const gradcheck_kind *kind) {
    tt_shape shape = c->shape[k];
    if (mode == GRADCHECK_STRIDED && shape.ndim >= 2) {
        int64_t d = shape.dim[0];
        shape.dim[0] = shape.dim[1];
        shape.dim[1] = d;
    }
    tt_tensor *x = gradcheck_tensor(shape, k, kind);
    if (mode == GRADCHECK_CHANNELS_LAST && shape.ndim == 4)
        x = tt_to_memory_format(x, TT_CHANNELS_LAST);
    return tt_requires_grad_(x, true);
}

static inline tt_tensor *gradcheck_leaf(const gradcheck_case *c, int k, tt_dtype dtype, gradcheck_mode mode) {
    return gradcheck_leaf_of(c, k, mode, &(gradcheck_kind){"cpu", dtype, TT_F32});
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

static inline tt_tensor *gradcheck_loss_of(tt_tensor *y, tt_dtype rounded) {
    if (!y)
        return NULL;
    const gradcheck_kind kind = {tt_device_name(tt_tensor_device(y)), tt_tensor_dtype(y), rounded};
    return tt_sum(tt_mul(y, gradcheck_tensor(tt_tensor_shape(y), 7, &kind)));
}

static inline tt_tensor *gradcheck_loss(const gradcheck_case *c, tt_tensor *const *leaf, gradcheck_mode mode) {
    return gradcheck_loss_of(gradcheck_apply(c, leaf, mode), TT_F32);
}

static inline double gradcheck_loss_value(const gradcheck_case *c, tt_tensor *const *leaf, gradcheck_mode mode) {
    TT_AUTO_SCOPE;
    TT_NO_GRAD;
    double v = NAN;
    return tt_item(gradcheck_loss(c, leaf, mode), &v) ? NAN : v;
}

/* Do both lie in memory in the same order? */
static inline bool gradcheck_same_order(const tt_tensor *x, const tt_tensor *y) {
    for (int d = 0; d < tt_tensor_dim(x); d++)
        if (tt_tensor_size(x, d) != 1 && tt_tensor_stride(x, d) != tt_tensor_stride(y, d))
            return false;
    return tt_tensor_dim(x) == tt_tensor_dim(y);
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
        if (!g || !gradcheck_same_order(leaf[k], tt_grad(leaf[k])))
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

/* On the host, contiguous, f64. */
static inline const double *gradcheck_numbers(tt_tensor *x) {
    return tt_tensor_data(tt_contiguous(tt_to(tt_to_device(x, tt_device_get("cpu")), TT_F64)));
}

static inline double gradcheck_difference(tt_tensor *x, tt_tensor *y) {
    const double *p = gradcheck_numbers(x), *q = gradcheck_numbers(y);
    double worst = p && q ? 0 : NAN;
    for (int64_t i = 0; p && q && i < tt_tensor_numel(x); i++) {
        double error = fabs(p[i] - q[i]) / (1 + fabs(q[i]));
        if (!(error <= worst))
            worst = error;
    }
    return worst;
}

/* The worst difference of what two kinds give: results and gradients, which lie in the same order of memory. NaN if
 * something failed. */
static inline double gradcheck_compare(const gradcheck_case *c, gradcheck_mode mode, const gradcheck_kind *one,
                                       const gradcheck_kind *other) {
    TT_AUTO_SCOPE;
    const gradcheck_kind *kind[2] = {one, other};
    tt_tensor *leaf[2][GRADCHECK_INPUTS], *y[2];
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < c->n; k++)
            leaf[i][k] = gradcheck_leaf_of(c, k, mode, kind[i]);
        y[i] = gradcheck_apply(c, leaf[i], mode);
        if (!y[i] || tt_backward(gradcheck_loss_of(y[i], kind[i]->rounded)))
            return NAN;
    }
    TT_NO_GRAD;
    double worst = gradcheck_same_order(y[0], y[1]) ? gradcheck_difference(y[0], y[1]) : NAN;
    for (int k = 0; k < c->n; k++) {
        double error = gradcheck_difference(tt_grad(leaf[0][k]), tt_grad(leaf[1][k]));
        bool ordered = gradcheck_same_order(tt_grad(leaf[0][k]), tt_grad(leaf[1][k]));
        if (!ordered || !(error <= worst))
            worst = ordered ? error : NAN;
    }
    return worst;
}

/* The worst difference between f32 and f64. */
static inline double gradcheck_f32_worst(const gradcheck_case *c, gradcheck_mode mode) {
    return gradcheck_compare(c, mode, &(gradcheck_kind){"cpu", TT_F32, TT_F32},
                             &(gradcheck_kind){"cpu", TT_F64, TT_F32});
}

#endif
