/* Along one dimension: y = the largest or smallest of x, i = its index     dx[i] = g, else 0
 * Of all elements: those that equal y share the gradient. */
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

/* ---- along one dimension. State: it. Saved: i. */

static tt_status extreme_backward(tt_node *node) {
    const int *dim = tt__state(node);
    const tt_tensor *index = tt__saved(node, 0);
    if (!index)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__extreme_backward_out(node->op->name, dx, index, tt__grad_of(node, 0), *dim));
    return TT_OK;
}

static const tt__operator max_op = {.name = "tt_max", .backward = extreme_backward};
static const tt__operator min_op = {.name = "tt_min", .backward = extreme_backward};

static tt_tensor *extreme_along(const tt__operator *op, const tt_max_args *o, const tt__reduction *r) {
    int dim = tt__dim_index(o->x->shape.ndim, o->dim.dim[0]);
    tt_tensor *y = tt__reduction_result(op->name, o->x, r, o->x->dtype);
    tt_tensor *index = y ? tt__index_like(op->name, y) : NULL;
    if (!index)
        return tt__abandon(y);
    y = tt__made(op->name, y, tt__extreme_out(op->name, y, index, o->x, dim, op == &max_op));
    y = tt__recorded(op, y, TT__INPUTS(o->x), TT__SAVES({index, "indices"}), TT__STATE(dim));
    if (y && o->indices)
        *o->indices = index;
    else
        tt__abandon(index);
    return y;
}

/* ---- of all elements. Saved: x, y. */

static tt_status extreme_all_backward(tt_node *node) {
    const tt_tensor *x = tt__saved(node, 0), *y = x ? tt__saved(node, 1) : NULL;
    if (!y)
        return tt_last_status();
    TT__GIVE(node, 0, dx, tt__share_equal_out(node->op->name, dx, x, y, tt__grad_of(node, 0)));
    return TT_OK;
}

static const tt__operator max_all_op = {.name = "tt_max", .backward = extreme_all_backward};
static const tt__operator min_all_op = {.name = "tt_min", .backward = extreme_all_backward};

/* Find it in x as one row. */
static tt_status extreme_of_all(const char *who, tt_tensor *y, const tt_tensor *x, bool largest) {
    tt_tensor *in = tt__contiguous_begin(who, x), *index = in ? tt__index_like(who, y) : NULL;
    tt_tensor row = in ? tt__tensor_seen(in, TT_SHAPE(in->numel), (const int64_t[]){1}) : (tt_tensor){0};
    tt_status status = index ? tt__extreme_out(who, y, index, &row, 0, largest) : tt_last_status();
    tt__abandon(index);
    tt__contiguous_done(in, x);
    return status;
}

static tt_tensor *extreme_all(const tt__operator *op, const tt_max_args *o, const tt__reduction *r) {
    tt_tensor *y = tt__reduction_result(op->name, o->x, r, o->x->dtype);
    y = TT__MADE(op->name, y, extreme_of_all(op->name, y, o->x, op == &max_all_op));
    return tt__recorded(op, y, TT__INPUTS(o->x), TT__SAVES({o->x, "x"}, {y, "its result"}), TT__NO_STATE);
}

/* ---- */

static tt_tensor *extreme_recorded(const tt_max_args *args, size_t size, const tt__operator *along,
                                   const tt__operator *all) {
    const char *who = along->name;
    tt_max_args o;
    tt__reduction r;
    TT__ARGS_COPY(o, args, size);
    if (o.indices)
        *o.indices = NULL;
    if (!o.x || !tt__tensor_check(who, o.x))
        return NULL;
    if (tt__reduction_of(who, &r, o.x, &o.dim, o.keepdim))
        return tt__made(who, NULL, tt_last_status());
    if (o.dim.ndim > 1 || (o.indices && o.dim.ndim != 1))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected one dimension%s, got %d", who,
                               o.indices ? ", as there are indices" : ", or none for all elements", o.dim.ndim);
    if (r.count == 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected elements to choose from, got %s", who, TT__DESCRIBE(o.x));
    return o.dim.ndim ? extreme_along(along, &o, &r) : extreme_all(all, &o, &r);
}

tt_tensor *tt_max_with(const tt_max_args *args, size_t size) {
    return extreme_recorded(args, size, &max_op, &max_all_op);
}

tt_tensor *tt_min_with(const tt_max_args *args, size_t size) {
    return extreme_recorded(args, size, &min_op, &min_all_op);
}
