/* Floats: the arithmetic of every operator as plain loops, in the types of common_loops.h. Sums are added up in double,
 * in the order of memory, and rounded once. Also defines the table, called TABLE. B batch, V classes. */
#define SUM double
#define FROM_SUM(s) FROM_F64(s)
#include "base/philox.h"
#include "tensor/ops/pointwise_parts.h"

#include <math.h>
#include <string.h>

#define ORDER WIDE
#define AS_ORDER(v) LOAD(v)
#define IS_NAN(o) ((o) != (o))
#include "tensor/reference/common_loops.h"
#include "tensor/reference/image_loops.h"
#include "tensor/reference/norm_loops.h"

/* ---- element by element */

static tt_status ref_scale(tt_tensor *y, const tt_tensor *x, double factor) {
    WIDE f = (WIDE)factor;
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = STORE(LOAD(AT(1, i)) * f);
    return TT_OK;
}

static tt_status ref_relu(tt_tensor *y, const tt_tensor *x) {
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = LOAD(AT(1, i)) < 0 ? STORE(0) : AT(1, i);
    return TT_OK;
}

static tt_status ref_relu_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    for (tt__iter it = TT__ITER_OVER(dx, y, g); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = LOAD(AT(1, i)) <= 0 ? STORE(0) : AT(2, i);
    return TT_OK;
}

/* ---- formulas, in double */

#define K(c) (c)
#define SELECT(condition, p, q) ((condition) ? (p) : (q))
#define EXP exp
#define LOG log
#define LOG1P log1p
#define SQRT sqrt
#define ABS fabs
#define TANH tanh
#define ERF erf
#define POW pow

/* One input. */
static double unary_value(const tt__unary *call, double x) {
    double a = call->a, b = call->b;
    (void)b;
    switch (call->op) {
#define UNARY_CASE(name, saves, forward, backward) \
    case TT__##name:                               \
        return forward;
        TT__UNARY_FORMULAS(UNARY_CASE)
        TT__UNARY_PLAIN_FORMULAS(UNARY_CASE)
#undef UNARY_CASE
    case TT__UNARY_OPS:
        break;
    }
    return a;
}

static double unary_gradient(const tt__unary *call, double v, double g) {
    double a = call->a, b = call->b;
    switch (call->op) {
#define UNARY_CASE(name, saves, forward, backward) \
    case TT__##name:                               \
        return backward;
        TT__UNARY_FORMULAS(UNARY_CASE)
        TT__UNARY_PLAIN_FORMULAS(UNARY_CASE)
#undef UNARY_CASE
    case TT__UNARY_OPS:
        break;
    }
    return b;
}

static tt_status ref_unary(tt_tensor *y, const tt_tensor *x, const tt__unary *call) {
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = FROM_F64(unary_value(call, (double)LOAD(AT(1, i))));
    return TT_OK;
}

static tt_status ref_unary_backward(tt_tensor *dx, const tt_tensor *v, const tt_tensor *g, const tt__unary *call) {
    for (tt__iter it = TT__ITER_OVER(dx, v, g); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = FROM_F64(unary_gradient(call, (double)LOAD(AT(1, i)), (double)LOAD(AT(2, i))));
    return TT_OK;
}

/* Two inputs. */
static double binary_value(const tt__binary *call, double x, double z) {
    double a = call->a;
    switch (call->op) {
#define BINARY_CASE(name, forward, dx, dz) \
    case TT__##name:                       \
        return forward;
        TT__BINARY_FORMULAS(BINARY_CASE)
        TT__BINARY_PLAIN_FORMULAS(BINARY_CASE)
#undef BINARY_CASE
    case TT__BINARY_OPS:
        break;
    }
    return a;
}

static double binary_gradient(const tt__binary *call, int input, double x, double z, double g) {
    double a = call->a;
    switch (call->op) {
#define BINARY_CASE(name, forward, dx, dz) \
    case TT__##name:                       \
        return input == 0 ? (dx) : (dz);
        TT__BINARY_FORMULAS(BINARY_CASE)
        TT__BINARY_PLAIN_FORMULAS(BINARY_CASE)
#undef BINARY_CASE
    case TT__BINARY_OPS:
        break;
    }
    return a;
}

static tt_status ref_binary(tt_tensor *y, const tt_tensor *x, const tt_tensor *z, const tt__binary *call) {
    for (tt__iter it = TT__ITER_OVER(y, x, z); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = FROM_F64(binary_value(call, (double)LOAD(AT(1, i)), (double)LOAD(AT(2, i))));
    return TT_OK;
}

static tt_status ref_binary_backward(tt_tensor *d, const tt_tensor *x, const tt_tensor *z, const tt_tensor *g,
                                     const tt__binary *call, int input) {
    for (tt__iter it = TT__ITER_OVER(d, x, z, g); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = FROM_F64(
                binary_gradient(call, input, (double)LOAD(AT(1, i)), (double)LOAD(AT(2, i)), (double)LOAD(AT(3, i))));
    return TT_OK;
}

/* ---- dropout */

static bool dropout_keeps(const tt__dropout *call, int64_t i) {
    uint32_t words[4];
    tt__philox(call->key, (uint64_t)i / 4, words);
    return words[i % 4] >= call->limit;
}

static tt_status ref_dropout(tt_tensor *y, const tt_tensor *x, const tt__dropout *call) {
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            bool keeps = dropout_keeps(call, &AT(0, i) - (TYPE *)y->data);
            AT(0, i) = keeps ? FROM_F64((double)LOAD(AT(1, i)) * call->scale) : STORE(0);
        }
    return TT_OK;
}

/* ---- sums */

static double sum_of(const tt_tensor *x) {
    double total = 0;
    for (tt__iter it = TT__ITER_OVER(x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            total += (double)LOAD(AT(0, i));
    return total;
}

static tt_status ref_sum(tt_tensor *y, const tt_tensor *x, double factor) {
    tt_tensor to, from, part;
    divide_dimensions(y, x, &to, &from, &part);
    for (tt__iter it = TT__ITER_OVER(&to, &from); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            part.data = &AT(1, i);
            AT(0, i) = FROM_F64(sum_of(&part) * factor);
        }
    return TT_OK;
}

/* ---- matrix product */

static tt_status ref_matmul(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    int64_t M = y->shape.dim[0], N = y->shape.dim[1], K = a->shape.dim[1];
    for (int64_t i = 0; i < M; i++)
        for (int64_t j = 0; j < N; j++) {
            const TYPE *row = (const TYPE *)a->data + i * a->stride[0],
                       *column = (const TYPE *)b->data + j * b->stride[1];
            TYPE *out = (TYPE *)y->data + i * y->stride[0] + j * y->stride[1];
            double total = beta == 0 ? 0 : (double)LOAD(*out);
            for (int64_t k = 0; k < K; k++)
                total += (double)LOAD(row[k * a->stride[1]]) * (double)LOAD(column[k * b->stride[0]]);
            *out = FROM_F64(total);
        }
    return TT_OK;
}

/* ---- softmax: rows of n elements */

/* Compute the maximum and the sum of exp(x - max). They are never joined to log sum exp x: next to a large maximum no
 * digits are left for the rest. */
static void max_and_sum(int64_t n, const TYPE *x, double *max, double *total) {
    *max = (double)LOAD(x[0]);
    for (int64_t i = 1; i < n; i++)
        *max = (double)LOAD(x[i]) > *max ? (double)LOAD(x[i]) : *max;
    *total = 0;
    for (int64_t i = 0; i < n; i++)
        *total += exp((double)LOAD(x[i]) - *max);
}

static tt_status ref_log_softmax(tt_tensor *y, const tt_tensor *x) {
    int64_t n = tt__row_length(x);
    for (int64_t at = 0; at < x->numel; at += n) {
        const TYPE *from = (const TYPE *)x->data + at;
        double max, total;
        max_and_sum(n, from, &max, &total);
        for (int64_t i = 0; i < n; i++)
            ((TYPE *)y->data)[at + i] = FROM_F64((double)LOAD(from[i]) - max - log(total));
    }
    return TT_OK;
}

static tt_status ref_log_softmax_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    int64_t n = tt__row_length(y);
    for (int64_t at = 0; at < y->numel; at += n) {
        const TYPE *row = (const TYPE *)y->data + at, *grad = (const TYPE *)g->data + at;
        double total = 0;
        for (int64_t i = 0; i < n; i++)
            total += (double)LOAD(grad[i]);
        for (int64_t i = 0; i < n; i++)
            ((TYPE *)dx->data)[at + i] = FROM_F64((double)LOAD(grad[i]) - exp((double)LOAD(row[i])) * total);
    }
    return TT_OK;
}

/* ---- losses; element 0 of a scalar is its only one */

static void set_scalar(tt_tensor *y, double value) { *(TYPE *)y->data = FROM_F64(value); }

static double scalar(const tt_tensor *x) { return (double)LOAD(*(const TYPE *)x->data); }

static tt_status ref_cross_entropy(tt_tensor *loss, tt_tensor *stats, const tt_tensor *x, const tt_tensor *t) {
    int64_t B = x->shape.dim[0], V = x->shape.dim[1];
    const int64_t *target = t->data;
    double total = 0;
    for (int64_t b = 0; b < B; b++) {
        const TYPE *row = (const TYPE *)x->data + b * V;
        TYPE *s = (TYPE *)stats->data + 2 * b;
        double max, exps;
        max_and_sum(V, row, &max, &exps);
        s[0] = FROM_F64(max);
        s[1] = FROM_F64(exps);
        total += log(exps) - ((double)LOAD(row[target[b]]) - max);
    }
    set_scalar(loss, total / (double)B);
    return TT_OK;
}

static tt_status ref_cross_entropy_backward(tt_tensor *dx, const tt_tensor *x, const tt_tensor *t,
                                            const tt_tensor *stats, const tt_tensor *g) {
    int64_t B = x->shape.dim[0], V = x->shape.dim[1];
    const int64_t *target = t->data;
    double factor = scalar(g) / (double)B;
    for (int64_t b = 0; b < B; b++) {
        const TYPE *row = (const TYPE *)x->data + b * V, *s = (const TYPE *)stats->data + 2 * b;
        for (int64_t v = 0; v < V; v++) {
            double p = exp((double)LOAD(row[v]) - (double)LOAD(s[0])) / (double)LOAD(s[1]);
            ((TYPE *)dx->data)[b * V + v] = FROM_F64((p - (v == target[b])) * factor);
        }
    }
    return TT_OK;
}

static tt_status ref_nll_loss(tt_tensor *loss, const tt_tensor *x, const tt_tensor *t) {
    int64_t B = x->shape.dim[0], V = x->shape.dim[1];
    double total = 0;
    for (int64_t b = 0; b < B; b++)
        total -= (double)LOAD(((const TYPE *)x->data)[b * V + ((const int64_t *)t->data)[b]]);
    set_scalar(loss, total / (double)B);
    return TT_OK;
}

static tt_status ref_nll_loss_backward(tt_tensor *dx, const tt_tensor *t, const tt_tensor *g) {
    int64_t B = dx->shape.dim[0], V = dx->shape.dim[1];
    TYPE *d = dx->data, each = FROM_F64(-scalar(g) / (double)B);
    for (int64_t i = 0; i < dx->numel; i++)
        d[i] = STORE(0);
    for (int64_t b = 0; b < B; b++)
        d[b * V + ((const int64_t *)t->data)[b]] = each;
    return TT_OK;
}

static tt_status ref_mse_loss(tt_tensor *loss, const tt_tensor *a, const tt_tensor *b) {
    double total = 0;
    for (int64_t i = 0; i < a->numel; i++) {
        double d = (double)(WIDE)(LOAD(((const TYPE *)a->data)[i]) - LOAD(((const TYPE *)b->data)[i]));
        total += d * d;
    }
    set_scalar(loss, total / (double)a->numel);
    return TT_OK;
}

static tt_status ref_mse_loss_backward(tt_tensor *da, const tt_tensor *a, const tt_tensor *b, const tt_tensor *g) {
    WIDE factor = (WIDE)(2.0 / (double)a->numel) * (WIDE)scalar(g);
    for (int64_t i = 0; i < a->numel; i++)
        ((TYPE *)da->data)[i] = STORE((LOAD(((const TYPE *)a->data)[i]) - LOAD(((const TYPE *)b->data)[i])) * factor);
    return TT_OK;
}

/* ---- losses over rows of V classes */

static double class_weight(const tt_tensor *w, int64_t v) { return w ? (double)LOAD(((const TYPE *)w->data)[v]) : 1; }

static tt_status ref_nll_rows(tt_tensor *loss, tt_tensor *share, const tt_tensor *x, const tt_tensor *t,
                              const tt_tensor *w, const tt__nll *call) {
    int64_t R = x->shape.dim[0], V = x->shape.dim[1];
    for (int64_t r = 0; r < R; r++) {
        const TYPE *row = (const TYPE *)x->data + r * V;
        int64_t target = ((const int64_t *)t->data)[r];
        bool counts = target != call->ignore;
        double weight = counts ? class_weight(w, target) : 0, all = 0;
        for (int64_t v = 0; v < V && counts && call->smoothing != 0; v++)
            all += class_weight(w, v) * (double)LOAD(row[v]);
        double hit = counts ? weight * (double)LOAD(row[target]) : 0;
        ((TYPE *)share->data)[r] = FROM_F64(weight);
        ((TYPE *)loss->data)[r] = FROM_F64((call->smoothing - 1) * hit - call->smoothing / (double)V * all);
    }
    return TT_OK;
}

static tt_status ref_nll_rows_backward(tt_tensor *dx, const tt_tensor *t, const tt_tensor *w, const tt_tensor *g,
                                       const tt__nll *call) {
    int64_t R = dx->shape.dim[0], V = dx->shape.dim[1];
    for (int64_t r = 0; r < R; r++) {
        TYPE *row = (TYPE *)dx->data + r * V;
        int64_t target = ((const int64_t *)t->data)[r];
        double gradient = target == call->ignore ? 0 : (double)LOAD(((const TYPE *)g->data)[r]);
        double each = call->smoothing == 0 ? 0 : call->smoothing / (double)V * gradient; /* 0, even of NaN */
        for (int64_t v = 0; v < V; v++)
            row[v] = FROM_F64(-(each == 0 ? 0 : each * class_weight(w, v)));
        if (target != call->ignore)
            row[target] = FROM_F64(-(each + (1 - call->smoothing) * gradient) * class_weight(w, target));
    }
    return TT_OK;
}

#include "tensor/reference/attention_loops.h"
#include "tensor/reference/reduction_loops.h"
#include "tensor/reference/rnn_loops.h"

const tt__kernels TABLE = {
    COMMON_KERNELS,
    IMAGE_KERNELS,
    NORM_KERNELS,
    REDUCTION_KERNELS,
    RNN_KERNELS,
    ATTENTION_KERNELS,
    .scale = ref_scale,
    .relu = ref_relu,
    .relu_backward = ref_relu_backward,
    .sum = ref_sum,
    .matmul = ref_matmul,
    .log_softmax = ref_log_softmax,
    .log_softmax_backward = ref_log_softmax_backward,
    .cross_entropy = ref_cross_entropy,
    .cross_entropy_backward = ref_cross_entropy_backward,
    .nll_loss = ref_nll_loss,
    .nll_loss_backward = ref_nll_loss_backward,
    .mse_loss = ref_mse_loss,
    .mse_loss_backward = ref_mse_loss_backward,
    .unary = ref_unary,
    .unary_backward = ref_unary_backward,
    .binary = ref_binary,
    .binary_backward = ref_binary_backward,
    .dropout = ref_dropout,
    .nll_rows = ref_nll_rows,
    .nll_rows_backward = ref_nll_rows_backward,
};
