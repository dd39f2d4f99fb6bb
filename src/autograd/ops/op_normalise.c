/* Normalisations: layer_norm, rms_norm and group_norm, which normalise rows of x, and batch_norm.
 * Of a row:
 *   y = (x - mean) rstd weight + bias     dbias = sum of g     dweight = sum of g (x - mean) rstd
 *   dx = rstd (h - mean of h - (x - mean) rstd (mean of h (x - mean) rstd)), h = g weight */
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>

/* Saved: x, mean, rstd, weight. */
static tt_status normed_backward(tt_node *node, tt_status (*run)(const tt_node *node, const tt__normed *n,
                                                                 tt_tensor *dx, tt_tensor *dw, tt_tensor *db)) {
    bool weighted = tt__grad_wanted(node, 1), shifted = tt__grad_wanted(node, 2), moved = tt__grad_wanted(node, 0);
    tt__normed n = {tt__grad_of(node, 0), tt__saved(node, 0), tt__saved(node, 1), tt__saved(node, 2), NULL};
    if (!n.x || !n.mean || !n.rstd)
        return tt_last_status();
    if (node->save[3].tensor && !(n.weight = tt__saved(node, 3)))
        return tt_last_status();
    tt_tensor *dx = moved ? tt__grad_dest(node, 0) : NULL, *dw = weighted ? tt__grad_dest(node, 1) : NULL;
    tt_tensor *db = shifted ? tt__grad_dest(node, 2) : NULL;
    if ((moved && !dx) || (weighted && !dw) || (shifted && !db))
        return tt_last_status();
    TT__TRY(run(node, &n, dx, dw, db));
    if (moved)
        TT__TRY(tt__grad_give(node, 0, dx));
    if (weighted)
        TT__TRY(tt__grad_give(node, 1, dw));
    return shifted ? tt__grad_give(node, 2, db) : TT_OK;
}

static tt_status row_gradients(const tt_node *node, const tt__normed *n, tt_tensor *dx, tt_tensor *dw, tt_tensor *db) {
    return tt__row_norm_backward_out(node->op->name, n, tt__state(node), dx, dw, db);
}

static tt_status row_norm_backward(tt_node *node) { return normed_backward(node, row_gradients); }

static bool row_weight_check(const char *who, const char *name, const tt_tensor *given, const tt_shape *want) {
    if (!given || tt__shape_equal(&given->shape, want))
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected %s %s, got %s %s", who, name, TT__SHAPE_TEXT(want), name,
                    TT__DESCRIBE(given));
    return false;
}

/* Check the arguments, normalise x in `rows` rows, and record the call of `op`. `weights`: the shape of weight and
 * bias, which may be NULL. */
static tt_tensor *row_normed(const tt__operator *op, tt_tensor *x, tt_tensor *weight, tt_tensor *bias, int64_t rows,
                             const tt_shape *weights, const tt__row_norm *norm) {
    const char *who = op->name;
    if (!row_weight_check(who, "weight", weight, weights) || !row_weight_check(who, "bias", bias, weights))
        return NULL;
    if (!(norm->eps >= 0))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected eps of at least 0, got %g", who, norm->eps);
    tt_tensor *mean = tt__norm_stats_beside(who, x, rows);
    tt_tensor *rstd = mean ? tt__norm_stats_beside(who, x, rows) : NULL;
    tt_tensor *y = rstd ? tt__empty_like(who, x) : NULL;
    y = TT__MADE(who, y, tt__row_norm_out(who, y, mean, rstd, x, weight, bias, norm));
    y = tt__recorded(op, y, TT__INPUTS(x, weight, bias),
                     TT__SAVES({x, "x"}, {mean, "mean"}, {rstd, "rstd"}, {weight, "weight"}), TT__STATE(*norm));
    tt__abandon(rstd);
    tt__abandon(mean);
    return y;
}

/* Check that x ends in `shape`, and count the rows; -1 and TT_ERR_SHAPE: it doesn't. */
static int64_t rows_before(const char *who, const tt_tensor *x, const tt_shape *shape) {
    int before = x->shape.ndim - shape->ndim;
    bool fits = shape->ndim >= 1 && before >= 0;
    for (int d = 0; fits && d < shape->ndim; d++)
        fits = shape->dim[d] >= 1 && shape->dim[d] == x->shape.dim[before + d];
    if (!fits) {
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (..., normalized_shape), none of which is empty, got %s and x %s",
                        who, TT__SHAPE_TEXT(shape), TT__DESCRIBE(x));
        return -1;
    }
    int64_t rows = 1;
    for (int d = 0; d < before; d++)
        rows *= x->shape.dim[d];
    return rows;
}

/* ---- layer_norm: rows are the last dimensions of x, each element of which has a weight of its own */

static const char layer_norm_name[] = "tt_layer_norm";

static const tt__operator layer_norm_op = {.name = layer_norm_name, .backward = row_norm_backward};

tt_tensor *tt_layer_norm_with(const tt_layer_norm_args *args, size_t size) {
    tt_layer_norm_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !TT__AUTOCAST(layer_norm_name, &a.x, &a.weight, &a.bias) ||
        !TT__CHECK_FLOATS(layer_norm_name, {"x", a.x}, {"weight", a.weight}, {"bias", a.bias}))
        return NULL;
    const tt__row_norm norm = {.eps = a.eps ? a.eps : 1e-5, .groups = 1, .share = 1};
    int64_t rows = rows_before(layer_norm_name, a.x, &a.normalized_shape);
    return rows < 0 ? NULL : row_normed(&layer_norm_op, a.x, a.weight, a.bias, rows, &a.normalized_shape, &norm);
}

/* ---- rms_norm: as layer_norm, with a mean of 0: y = x rstd weight, rstd = 1 / sqrt(mean of x^2 + eps) */

static const char rms_norm_name[] = "tt_rms_norm";

static const tt__operator rms_norm_op = {.name = rms_norm_name, .backward = row_norm_backward};

tt_tensor *tt_rms_norm_with(const tt_rms_norm_args *args, size_t size) {
    tt_rms_norm_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !TT__AUTOCAST(rms_norm_name, &a.x, &a.weight) ||
        !TT__CHECK_FLOATS(rms_norm_name, {"x", a.x}, {"weight", a.weight}))
        return NULL;
    const tt__row_norm norm = {
        .eps = a.eps ? a.eps : tt__dtype_epsilon(a.x->dtype), .no_mean = true, .groups = 1, .share = 1};
    int64_t rows = rows_before(rms_norm_name, a.x, &a.normalized_shape);
    return rows < 0 ? NULL : row_normed(&rms_norm_op, a.x, a.weight, NULL, rows, &a.normalized_shape, &norm);
}

/* ---- group_norm: rows are the groups of channels of each image; the elements of a channel share a weight */

static const char group_norm_name[] = "tt_group_norm";

static const tt__operator group_norm_op = {.name = group_norm_name, .backward = row_norm_backward};

static bool group_norm_check(const tt_group_norm_args *a) {
    const tt_shape *s = &a->x->shape;
    if (s->ndim < 2 || (a->x->numel == 0 && s->dim[0] != 0) || s->dim[1] < 1)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, C, ...) with C and the others at least 1, got x %s",
                        group_norm_name, TT__DESCRIBE(a->x));
    else if (a->num_groups < 1 || s->dim[1] % a->num_groups)
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected num_groups to divide the channels of x %s, got %" PRId64,
                        group_norm_name, TT__DESCRIBE(a->x), a->num_groups);
    else
        return true;
    return false;
}

tt_tensor *tt_group_norm_with(const tt_group_norm_args *args, size_t size) {
    tt_group_norm_args a;
    TT__ARGS_COPY(a, args, size);
    if (!a.x || !TT__AUTOCAST(group_norm_name, &a.x, &a.weight, &a.bias) ||
        !TT__CHECK_FLOATS(group_norm_name, {"x", a.x}, {"weight", a.weight}, {"bias", a.bias}) || !group_norm_check(&a))
        return NULL;
    const tt_shape *s = &a.x->shape, channels = TT_SHAPE(s->dim[1]);
    tt__row_norm norm = {.eps = a.eps ? a.eps : 1e-5, .groups = a.num_groups, .share = 1};
    for (int d = 2; d < s->ndim; d++)
        norm.share *= s->dim[d];
    return row_normed(&group_norm_op, a.x, a.weight, a.bias, s->dim[0] * a.num_groups, &channels, &norm);
}

/* ---- batch_norm: per channel c of x (N,C,...), over the count elements of the others:
 *   y = (x - mean) rstd weight + bias, rstd = 1 / sqrt(var + eps)
 *   dbias = sum of g     dweight = sum of g (x - mean) rstd
 *   dx = weight rstd (g - (dbias + (x - mean) rstd dweight) / count); with given statistics: weight rstd g */

static const char batch_norm_name[] = "tt_batch_norm";

/* State: were the statistics given? */
static tt_status channel_gradients(const tt_node *node, const tt__normed *n, tt_tensor *dx, tt_tensor *dw,
                                   tt_tensor *db) {
    const bool *fixed = tt__state(node);
    return tt__batch_norm_backward_out(batch_norm_name, n, *fixed, dx, dw, db);
}

static tt_status batch_norm_backward(tt_node *node) { return normed_backward(node, channel_gradients); }

static const tt__operator batch_norm_op = {.name = batch_norm_name, .backward = batch_norm_backward};

static bool channel_check(const tt_tensor *x, const char *name, const tt_tensor *of) {
    if (!of || (of->shape.ndim == 1 && of->shape.dim[0] == x->shape.dim[1]))
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected %s (%" PRId64 ") to match x %s, got %s %s", batch_norm_name, name,
                    x->shape.dim[1], TT__DESCRIBE(x), name, TT__DESCRIBE(of));
    return false;
}

static bool may_move(const tt_tensor *running) {
    tt_status status = running ? tt__tensor_check_writable(batch_norm_name, running) : TT_OK;
    if (status)
        tt__made(batch_norm_name, NULL, status);
    return !status;
}

static bool batch_norm_check(const tt_batch_norm_args *a) {
    const tt_tensor *x = a->x;
    if (!TT__CHECK_FLOATS(batch_norm_name, {"x", x}, {"weight", a->weight}, {"bias", a->bias},
                          {"running_mean", a->running_mean}, {"running_var", a->running_var}))
        return false;
    if (x->shape.ndim < 2 || x->shape.dim[1] < 1)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, C) or (N, C, ...) with C at least 1, got x %s",
                        batch_norm_name, TT__DESCRIBE(x));
    else if (!a->running_mean != !a->running_var || (!a->running_mean && !a->training))
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected .running_mean and .running_var, or .training without both",
                        batch_norm_name);
    else if (a->training && x->numel / x->shape.dim[1] == 1)
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected more than one element a channel in training, got x %s",
                        batch_norm_name, TT__DESCRIBE(x));
    else if (!(a->eps >= 0) || !(a->momentum >= 0))
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected eps and momentum of at least 0, got %g and %g", batch_norm_name,
                        a->eps, a->momentum);
    else
        return channel_check(x, "weight", a->weight) && channel_check(x, "bias", a->bias) &&
               channel_check(x, "running_mean", a->running_mean) && channel_check(x, "running_var", a->running_var) &&
               (!a->training || (may_move(a->running_mean) && may_move(a->running_var)));
    return false;
}

/* Find mean and rstd; in training, move the running statistics towards them. */
static tt_status batch_norm_stats(const tt_batch_norm_args *a, tt_tensor *mean, tt_tensor *rstd) {
    double eps = a->eps ? a->eps : 1e-5, momentum = a->momentum ? a->momentum : 0.1;
    if (!a->training)
        return tt__batch_norm_given_out(batch_norm_name, a->running_mean, a->running_var, eps, mean, rstd);
    if (a->x->numel == 0) { /* an empty batch: running statistics stay, weights have gradients of 0 */
        TT__TRY(tt__fill_out(batch_norm_name, mean, 0));
        return tt__fill_out(batch_norm_name, rstd, 1);
    }
    TT__TRY(tt__batch_norm_stats_out(batch_norm_name, a->x, eps, mean, rstd));
    return a->running_mean ? tt__batch_norm_running_(batch_norm_name, a->running_mean, a->running_var, mean, rstd, eps,
                                                     momentum, a->x->numel / a->x->shape.dim[1])
                           : TT_OK;
}

tt_tensor *tt_batch_norm_with(const tt_batch_norm_args *args, size_t size) {
    tt_batch_norm_args a;
    TT__ARGS_COPY(a, args, size);
    /* autocast looks at their types, but casts only these copies of the pointers */
    tt_tensor *running[] = {a.running_mean, a.running_var};
    if (!a.x || !TT__AUTOCAST(batch_norm_name, &a.x, &a.weight, &a.bias, &running[0], &running[1]) ||
        !batch_norm_check(&a))
        return NULL;
    int64_t channels = a.x->shape.dim[1];
    tt_tensor *mean = tt__norm_stats_beside(batch_norm_name, a.x, channels);
    tt_tensor *rstd = mean ? tt__norm_stats_beside(batch_norm_name, a.x, channels) : NULL;
    tt_tensor *y = rstd ? tt__empty_like(batch_norm_name, a.x) : NULL;
    y = TT__MADE(batch_norm_name, y, batch_norm_stats(&a, mean, rstd));
    y = TT__MADE(batch_norm_name, y, tt__batch_norm_out(batch_norm_name, y, a.x, mean, rstd, a.weight, a.bias));
    bool fixed = !a.training;
    y = tt__recorded(&batch_norm_op, y, TT__INPUTS(a.x, a.weight, a.bias),
                     TT__SAVES({a.x, "x"}, {mean, "mean"}, {rstd, "rstd"}, {a.weight, "weight"}), TT__STATE(fixed));
    tt__abandon(rstd);
    tt__abandon(mean);
    return y;
}
