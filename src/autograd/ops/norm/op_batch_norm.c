/* Per channel c of x (N,C,...), over the count elements of the others:
 *   y = (x - mean) rstd weight + bias, rstd = 1 / sqrt(var + eps)
 *   dbias = sum of g     dweight = sum of g (x - mean) rstd
 *   dx = weight rstd (g - (dbias + (x - mean) rstd dweight) / count); with given statistics: weight rstd g */
#include "autograd/autocast.h"
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

#include <inttypes.h>

static const char who[] = "tt_batch_norm";

/* Saved: x, mean, rstd, weight. State: were the statistics given? */
static tt_status batch_norm_backward(tt_node *node) {
    const bool *fixed = tt__state(node);
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
    TT__TRY(tt__batch_norm_backward_out(who, &n, *fixed, dx, dw, db));
    if (moved)
        TT__TRY(tt__grad_give(node, 0, dx));
    if (weighted)
        TT__TRY(tt__grad_give(node, 1, dw));
    return shifted ? tt__grad_give(node, 2, db) : TT_OK;
}

static const tt__operator batch_norm_op = {.name = who, .backward = batch_norm_backward};

static bool channel_check(const tt_tensor *x, const char *name, const tt_tensor *of) {
    if (!of || (of->shape.ndim == 1 && of->shape.dim[0] == x->shape.dim[1]))
        return true;
    tt__tensor_fail(TT_ERR_SHAPE, "%s: expected %s (%" PRId64 ") to match x %s, got %s %s", who, name, x->shape.dim[1],
                    TT__DESCRIBE(x), name, TT__DESCRIBE(of));
    return false;
}

static bool may_move(const tt_tensor *running) {
    tt_status status = running ? tt__tensor_check_writable(who, running) : TT_OK;
    if (status)
        tt__made(who, NULL, status);
    return !status;
}

static bool batch_norm_check(const tt_batch_norm_args *a) {
    const tt_tensor *x = a->x;
    if (!TT__CHECK_FLOATS(who, {"x", x}, {"weight", a->weight}, {"bias", a->bias}, {"running_mean", a->running_mean},
                          {"running_var", a->running_var}))
        return false;
    if (x->shape.ndim < 2 || x->shape.dim[1] < 1)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (N, C) or (N, C, ...) with C at least 1, got x %s", who,
                        TT__DESCRIBE(x));
    else if (!a->running_mean != !a->running_var || (!a->running_mean && !a->training))
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected .running_mean and .running_var, or .training without both", who);
    else if (a->training && x->numel / x->shape.dim[1] == 1)
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected more than one element a channel in training, got x %s", who,
                        TT__DESCRIBE(x));
    else if (!(a->eps >= 0) || !(a->momentum >= 0))
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected eps and momentum of at least 0, got %g and %g", who, a->eps,
                        a->momentum);
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
        return tt__batch_norm_given_out(who, a->running_mean, a->running_var, eps, mean, rstd);
    if (a->x->numel == 0) { /* an empty batch: running statistics stay, weights have gradients of 0 */
        TT__TRY(tt__fill_out(who, mean, 0));
        return tt__fill_out(who, rstd, 1);
    }
    TT__TRY(tt__batch_norm_stats_out(who, a->x, eps, mean, rstd));
    return a->running_mean ? tt__batch_norm_running_(who, a->running_mean, a->running_var, mean, rstd, eps, momentum,
                                                     a->x->numel / a->x->shape.dim[1])
                           : TT_OK;
}

tt_tensor *tt_batch_norm_with(const tt_batch_norm_args *args, size_t size) {
    tt_batch_norm_args a;
    TT__ARGS_COPY(a, args, size);
    tt_tensor *running[] = {a.running_mean, a.running_var}; /* their types count; they are written, so never cast */
    if (!a.x || !TT__AUTOCAST(who, &a.x, &a.weight, &a.bias, &running[0], &running[1]) || !batch_norm_check(&a))
        return NULL;
    int64_t channels = a.x->shape.dim[1];
    tt_tensor *mean = tt__norm_stats_beside(who, a.x, channels);
    tt_tensor *rstd = mean ? tt__norm_stats_beside(who, a.x, channels) : NULL;
    tt_tensor *y = rstd ? tt__empty_like(who, a.x) : NULL;
    y = TT__MADE(who, y, batch_norm_stats(&a, mean, rstd));
    y = TT__MADE(who, y, tt__batch_norm_out(who, y, a.x, mean, rstd, a.weight, a.bias));
    bool fixed = !a.training;
    y = tt__recorded(&batch_norm_op, y, TT__INPUTS(a.x, a.weight, a.bias),
                     TT__SAVES({a.x, "x"}, {mean, "mean"}, {rstd, "rstd"}, {a.weight, "weight"}), TT__STATE(fixed));
    tt__abandon(rstd);
    tt__abandon(mean);
    return y;
}
