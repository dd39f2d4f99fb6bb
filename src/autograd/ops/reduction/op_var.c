/* y = sum of (x - m)^2 / (n - c)    dx = (x - m) * g * 2 / (n - c)
 * n: the elements that become one, m: their mean, c: the correction. */
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

#include <math.h>

static const char who[] = "tt_var";

typedef struct var_state {
    tt__reduction reduction;
    double correction;
} var_state;

static tt_status var_slope(tt_tensor *dx, const tt_tensor *x, const tt_tensor *g, const var_state *s) {
    double n = (double)s->reduction.count, divisor = n - s->correction;
    tt_tensor *mean = tt__reduction_result(who, x, &s->reduction, x->dtype);
    if (!mean || x->numel == 0)
        return mean ? TT_OK : tt_last_status();
    tt_tensor wide_mean = tt__reduction_spread(mean, &s->reduction, &x->shape);
    tt_tensor wide_g = tt__reduction_spread(g, &s->reduction, &x->shape);
    TT__TRY(tt__sum_spread_out(who, &wide_mean, x, 1 / n));
    TT__TRY(tt__sub_out(who, dx, x, &wide_mean));
    TT__TRY(tt__mul_out(who, dx, dx, &wide_g));
    return tt__scale_out(who, dx, dx, 2 / (divisor > 0 ? divisor : 0));
}

static tt_status var_backward(tt_node *node) {
    const tt_tensor *x = tt__saved(node, 0);
    if (!x)
        return tt_last_status();
    TT__GIVE(node, 0, dx, var_slope(dx, x, tt__grad_of(node, 0), tt__state(node)));
    return TT_OK;
}

static const tt__operator var_op = {.name = who, .backward = var_backward};

static tt_status var_forward(tt_tensor *y, const tt_tensor *x, const var_state *s) {
    if (x->numel == 0)
        return tt__fill_out(who, y, NAN);
    tt_tensor wide = tt__reduction_spread(y, &s->reduction, &x->shape);
    return tt__var_out(who, &wide, x, s->correction);
}

tt_tensor *tt_var_with(const tt_var_args *args, size_t size) {
    tt_var_args o;
    TT__ARGS_COPY(o, args, size);
    var_state s = {.correction = o.correction};
    if (!o.x || !TT__CHECK_FLOATS(who, {"x", o.x}))
        return NULL;
    if (tt__reduction_of(who, &s.reduction, o.x, &o.dim, o.keepdim))
        return tt__made(who, NULL, tt_last_status());
    tt_tensor *y = tt__reduction_result(who, o.x, &s.reduction, o.x->dtype);
    y = TT__MADE(who, y, var_forward(y, o.x, &s));
    return tt__recorded(&var_op, y, TT__INPUTS(o.x), TT__SAVES({o.x, "x"}), TT__STATE(s));
}
