/* y = (sum of |x|^p)^(1/p)    dx = sign(x) (|x| / y)^(p-1) g
 * p = 0: how many are not 0, no gradient. p infinite: the largest |x|; those that are share the gradient. */
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

static const char who[] = "tt_norm";

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
    return tt__norm_backward_out(who, dx, x, &wide_y, &wide_g, s->p);
}

/* Saved: x, y. */
static tt_status norm_backward(tt_node *node) {
    const tt_tensor *x = tt__saved(node, 0), *y = x ? tt__saved(node, 1) : NULL;
    if (!y)
        return tt_last_status();
    tt_tensor *g = tt__contiguous_begin(who, tt__grad_of(node, 0));
    if (!g)
        return tt_last_status();
    TT__GIVE(node, 0, dx, norm_slope_out(dx, x, y, g, tt__state(node)));
    return TT_OK;
}

static const tt__operator norm_op = {.name = who, .backward = norm_backward};

static tt_status norm_forward(tt_tensor *y, const tt_tensor *x, const norm_state *s) {
    if (x->numel == 0)
        return tt__fill_out(who, y, 0);
    tt_tensor wide = tt__reduction_spread(y, &s->reduction, &x->shape);
    return tt__norm_out(who, &wide, x, s->p);
}

tt_tensor *tt_norm_with(const tt_norm_args *args, size_t size) {
    tt_norm_args o;
    TT__ARGS_COPY(o, args, size);
    norm_state s = {.p = o.p};
    if (!o.x || !TT__CHECK_FLOATS(who, {"x", o.x}))
        return NULL;
    if (!(o.p >= 0))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected p of at least 0, or INFINITY, got %g", who, o.p);
    if (tt__reduction_of(who, &s.reduction, o.x, &o.dim, o.keepdim))
        return tt__made(who, NULL, tt_last_status());
    tt_tensor *y = tt__reduction_result(who, o.x, &s.reduction, o.x->dtype);
    y = TT__MADE(who, y, norm_forward(y, o.x, &s));
    return tt__recorded(&norm_op, y, TT__INPUTS(o.x), TT__SAVES({o.x, "x"}, {y, "its result"}), TT__STATE(s));
}
