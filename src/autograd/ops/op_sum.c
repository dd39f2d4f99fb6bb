/* Sums along dimensions, and what is made of them: sum, mean, var, norm, softmax, log_softmax, cumsum. */
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"

#include <math.h>

/* ---- sum: y = sum of x    dx = g, repeated           mean: y = sum of x / n    dx = g / n, repeated
 * n: the elements that become one. */

typedef struct sum_state {
    tt__reduction reduction;
    double factor; /* 1, or 1/n for the mean */
} sum_state;

static tt_status spread_gradient(const char *who, tt_tensor *dx, const tt_tensor *g, const sum_state *s) {
    tt_tensor wide = tt__reduction_spread(g, &s->reduction, &dx->shape);
    return s->factor == 1 ? tt__copy_out(who, dx, &wide) : tt__scale_out(who, dx, &wide, s->factor);
}

static tt_status sum_backward(tt_node *node) {
    TT__GIVE(node, 0, dx, spread_gradient(node->op->name, dx, tt__grad_of(node, 0), tt__state(node)));
    return TT_OK;
}

static const tt__operator sum_op = {.name = "tt_sum", .backward = sum_backward};
static const tt__operator mean_op = {.name = "tt_mean", .backward = sum_backward};

/* The sum of no elements is 0, their mean 0/0: NaN, as in PyTorch. */
static tt_status sum_forward(const char *who, tt_tensor *y, const tt_tensor *x, const sum_state *s) {
    if (x->numel == 0)
        return tt__fill_out(who, y, 0 * s->factor);
    tt_tensor wide = tt__reduction_spread(y, &s->reduction, &x->shape);
    return tt__sum_spread_out(who, &wide, x, s->factor);
}

static tt_tensor *sum_recorded(const tt__operator *op, const tt_sum_args *o) {
    sum_state s = {.factor = 1};
    if (!o->x || !TT__CHECK_FLOATS(op->name, {"x", o->x}))
        return NULL;
    if (tt__reduction_of(op->name, &s.reduction, o->x, &o->dim, o->keepdim))
        return tt__made(op->name, NULL, tt_last_status());
    s.factor = op == &mean_op ? 1.0 / (double)s.reduction.count : 1;
    tt_tensor *y = tt__reduction_result(op->name, o->x, &s.reduction, o->x->dtype);
    y = TT__MADE(op->name, y, sum_forward(op->name, y, o->x, &s));
    return tt__recorded(op, y, TT__INPUTS(o->x), TT__NO_SAVES, TT__STATE(s));
}

tt_tensor *tt_sum_with(const tt_sum_args *args, size_t size) {
    tt_sum_args o;
    TT__ARGS_COPY(o, args, size);
    return sum_recorded(&sum_op, &o);
}

tt_tensor *tt_mean_with(const tt_sum_args *args, size_t size) {
    tt_sum_args o;
    TT__ARGS_COPY(o, args, size);
    return sum_recorded(&mean_op, &o);
}

/* ---- var: y = sum of (x - m)^2 / (n - c)    dx = (x - m) * g * 2 / (n - c)
 * n: the elements that become one, m: their mean, c: the correction. */

static const char var_name[] = "tt_var";

typedef struct var_state {
    tt__reduction reduction;
    double correction;
} var_state;

static tt_status var_slope(tt_tensor *dx, const tt_tensor *x, const tt_tensor *g, const var_state *s) {
    double n = (double)s->reduction.count, divisor = n - s->correction;
    tt_tensor *mean = tt__reduction_result(var_name, x, &s->reduction, x->dtype);
    if (!mean || x->numel == 0)
        return mean ? TT_OK : tt_last_status();
    tt_tensor wide_mean = tt__reduction_spread(mean, &s->reduction, &x->shape);
    tt_tensor wide_g = tt__reduction_spread(g, &s->reduction, &x->shape);
    TT__TRY(tt__sum_spread_out(var_name, &wide_mean, x, 1 / n));
    TT__TRY(tt__sub_out(var_name, dx, x, &wide_mean));
    TT__TRY(tt__mul_out(var_name, dx, dx, &wide_g));
    return tt__scale_out(var_name, dx, dx, 2 / (divisor > 0 ? divisor : 0));
}

static tt_status var_backward(tt_node *node) {
    const tt_tensor *x = tt__saved(node, 0);
    if (!x)
        return tt_last_status();
    TT__GIVE(node, 0, dx, var_slope(dx, x, tt__grad_of(node, 0), tt__state(node)));
    return TT_OK;
}

static const tt__operator var_op = {.name = var_name, .backward = var_backward};

static tt_status var_forward(tt_tensor *y, const tt_tensor *x, const var_state *s) {
    if (x->numel == 0)
        return tt__fill_out(var_name, y, NAN);
    tt_tensor wide = tt__reduction_spread(y, &s->reduction, &x->shape);
    return tt__var_out(var_name, &wide, x, s->correction);
}

tt_tensor *tt_var_with(const tt_var_args *args, size_t size) {
    tt_var_args o;
    TT__ARGS_COPY(o, args, size);
    var_state s = {.correction = o.correction};
    if (!o.x || !TT__CHECK_FLOATS(var_name, {"x", o.x}))
        return NULL;
    if (tt__reduction_of(var_name, &s.reduction, o.x, &o.dim, o.keepdim))
        return tt__made(var_name, NULL, tt_last_status());
    tt_tensor *y = tt__reduction_result(var_name, o.x, &s.reduction, o.x->dtype);
    y = TT__MADE(var_name, y, var_forward(y, o.x, &s));
    return tt__recorded(&var_op, y, TT__INPUTS(o.x), TT__SAVES({o.x, "x"}), TT__STATE(s));
}

/* ---- norm: y = (sum of |x|^p)^(1/p)    dx = sign(x) (|x| / y)^(p-1) g
 * p = 0: how many are not 0, no gradient. p infinite: the largest |x|; those that are share the gradient. */

static const char norm_name[] = "tt_norm";

typedef struct norm_state {
    tt__reduction reduction;
    double p;
} norm_state;

static tt_status norm_slope_out(tt_tensor *dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g,
                                const norm_state *s) {
    if (x->numel == 0)
        return TT_OK;
    tt_tensor wide_y = tt__reduction_spread(y, &s->reduction, &x->shape);
    tt_tensor wide_g = tt__reduction_spread(g, &s->reduction, &x->shape);
    return tt__norm_backward_out(norm_name, dx, x, &wide_y, &wide_g, s->p);
}

/* Saved: x, y. */
static tt_status norm_backward(tt_node *node) {
    const tt_tensor *x = tt__saved(node, 0), *y = x ? tt__saved(node, 1) : NULL;
    if (!y)
        return tt_last_status();
    tt_tensor *g = tt__contiguous_begin(norm_name, tt__grad_of(node, 0));
    if (!g)
        return tt_last_status();
    TT__GIVE(node, 0, dx, norm_slope_out(dx, x, y, g, tt__state(node)));
    return TT_OK;
}

static const tt__operator norm_op = {.name = norm_name, .backward = norm_backward};

static tt_status norm_forward(tt_tensor *y, const tt_tensor *x, const norm_state *s) {
    if (x->numel == 0)
        return tt__fill_out(norm_name, y, 0);
    tt_tensor wide = tt__reduction_spread(y, &s->reduction, &x->shape);
    return tt__norm_out(norm_name, &wide, x, s->p);
}

tt_tensor *tt_norm_with(const tt_norm_args *args, size_t size) {
    tt_norm_args o;
    TT__ARGS_COPY(o, args, size);
    norm_state s = {.p = o.p};
    if (!o.x || !TT__CHECK_FLOATS(norm_name, {"x", o.x}))
        return NULL;
    if (!(o.p >= 0))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected p of at least 0, or INFINITY, got %g", norm_name, o.p);
    if (tt__reduction_of(norm_name, &s.reduction, o.x, &o.dim, o.keepdim))
        return tt__made(norm_name, NULL, tt_last_status());
    tt_tensor *y = tt__reduction_result(norm_name, o.x, &s.reduction, o.x->dtype);
    y = TT__MADE(norm_name, y, norm_forward(y, o.x, &s));
    return tt__recorded(&norm_op, y, TT__INPUTS(o.x), TT__SAVES({o.x, "x"}, {y, "its result"}), TT__STATE(s));
}

/* ---- rows along one dimension:
 *   softmax:      y[i] = exp x[i] / sum exp x         dx[i] = y[i] * (g[i] - sum of g * y)
 *   log_softmax:  y[i] = x[i] - log sum exp x         dx[i] = g[i] - exp(y[i]) * sum of g
 * Along another dimension than the last one, x is seen with the two exchanged. */

/* View x with dimension d last. */
static tt_tensor rows_along(const tt_tensor *x, int d) {
    int last = x->shape.ndim - 1;
    tt_shape shape = x->shape;
    int64_t stride[TT_MAX_DIMS];
    for (int k = 0; k <= last; k++)
        stride[k] = x->stride[k];
    shape.dim[d] = x->shape.dim[last];
    shape.dim[last] = x->shape.dim[d];
    stride[d] = x->stride[last];
    stride[last] = x->stride[d];
    return tt__tensor_seen(x, shape, stride);
}

typedef tt_status (*softmax_out)(const char *who, tt_tensor *y, const tt_tensor *x);
typedef tt_status (*softmax_backward_out)(const char *who, tt_tensor *dx, const tt_tensor *y, const tt_tensor *g);

/* State: the dimension. Saved: y. */
static tt_status softmax_give(tt_node *node, softmax_backward_out run) {
    const int *d = tt__state(node);
    const tt_tensor *y = tt__saved(node, 0);
    tt_tensor *dx = y ? tt__grad_dest(node, 0) : NULL;
    if (!dx)
        return tt_last_status();
    tt_tensor to = rows_along(dx, *d), from = rows_along(y, *d), g = rows_along(tt__grad_of(node, 0), *d);
    TT__TRY(run(node->op->name, &to, &from, &g));
    return tt__grad_give(node, 0, dx);
}

static tt_status softmax_backward(tt_node *node) { return softmax_give(node, tt__softmax_backward_out); }

static tt_status log_softmax_backward(tt_node *node) { return softmax_give(node, tt__log_softmax_backward_out); }

static tt_tensor *softmax_recorded(const tt__operator *op, softmax_out run, tt_tensor *x, int dim) {
    if (!x || !TT__CHECK_FLOATS(op->name, {"x", x}))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", op->name, dim, TT__DESCRIBE(x));
    tt_tensor *y = tt__empty_like(op->name, x);
    if (!y)
        return NULL;
    tt_tensor to = rows_along(y, d), from = rows_along(x, d);
    y = tt__made(op->name, y, run(op->name, &to, &from));
    return tt__recorded(op, y, TT__INPUTS(x), TT__SAVES({y, "its result"}), TT__STATE(d));
}

static const tt__operator softmax_op = {.name = "tt_softmax", .backward = softmax_backward};
static const tt__operator log_softmax_op = {.name = "tt_log_softmax", .backward = log_softmax_backward};

tt_tensor *tt_softmax(tt_tensor *x, int dim) { return softmax_recorded(&softmax_op, tt__softmax_out, x, dim); }

tt_tensor *tt_log_softmax(tt_tensor *x, int dim) {
    return softmax_recorded(&log_softmax_op, tt__log_softmax_out, x, dim);
}

/* ---- cumsum: y[i] = x[0] + ... + x[i] along one dimension      dx[i] = g[i] + ... + g[n-1] */

static const char cumsum_name[] = "tt_cumsum";

/* State: the dimension. */
static tt_status cumsum_backward(tt_node *node) {
    const int *dim = tt__state(node);
    TT__GIVE(node, 0, dx, tt__cumsum_out(cumsum_name, dx, tt__grad_of(node, 0), *dim, true));
    return TT_OK;
}

static const tt__operator cumsum_op = {.name = cumsum_name, .backward = cumsum_backward};

tt_tensor *tt_cumsum(tt_tensor *x, int dim) {
    if (!x || !TT__CHECK_FLOATS(cumsum_name, {"x", x}))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", cumsum_name, dim, TT__DESCRIBE(x));
    tt_tensor *y = tt__empty_like(cumsum_name, x);
    y = TT__MADE(cumsum_name, y, tt__cumsum_out(cumsum_name, y, x, d, false));
    return tt__recorded(&cumsum_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(d));
}
