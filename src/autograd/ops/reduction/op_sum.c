/* sum: y = sum of x    dx = g, repeated           mean: y = sum of x / n    dx = g / n, repeated
 * n: the elements that become one. */
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

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
