/* Along one dimension: y = the largest or smallest of x, i = its index     dx[i] = g, else 0
 * Over all elements, and with tt_amax() and tt_amin() along any dimensions, the elements that equal y share the
 * gradient. */
#include "autograd/record.h"

#include "base/args.h"
#include "base/error.h"

/* ---- along one dimension. State: the dimension. Saved: i. */

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
    if (r->count == 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected elements to choose from, got %s", op->name,
                               TT__DESCRIBE(o->x));
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

/* ---- along any dimensions. State: the dimensions. Saved: x, y. */

static tt_status extreme_values_backward(tt_node *node);
static const tt__operator max_all_op = {.name = "tt_max", .backward = extreme_values_backward};
static const tt__operator min_all_op = {.name = "tt_min", .backward = extreme_values_backward};
static const tt__operator amax_op = {.name = "tt_amax", .backward = extreme_values_backward};
static const tt__operator amin_op = {.name = "tt_amin", .backward = extreme_values_backward};

static tt_status share_among_equals(tt_tensor *dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g,
                                    const tt__reduction *r, const tt__operator *op) {
    if (x->numel == 0)
        return TT_OK;
    tt_tensor wide_y = tt__reduction_spread(y, r, &x->shape), wide_g = tt__reduction_spread(g, r, &x->shape);
    bool nan_equals = op == &max_all_op || op == &min_all_op; /* as in PyTorch */
    return tt__share_equal_out(op->name, dx, x, &wide_y, &wide_g, nan_equals);
}

static tt_status extreme_values_backward(tt_node *node) {
    const char *who = node->op->name;
    const tt_tensor *x = tt__saved(node, 0), *y = x ? tt__saved(node, 1) : NULL;
    tt_tensor *g = y ? tt__contiguous_begin(who, tt__grad_of(node, 0)) : NULL;
    if (!g)
        return tt_last_status();
    TT__GIVE(node, 0, dx, share_among_equals(dx, x, y, g, tt__state(node), node->op));
    return TT_OK;
}

/* View x with the dimensions that are reduced behind the others. */
static tt_tensor reduced_last(const tt_tensor *x, const tt__reduction *r) {
    tt_shape shape = {.ndim = 0};
    int64_t stride[TT_MAX_DIMS];
    for (unsigned reduced = 0; reduced < 2; reduced++)
        for (int d = 0; d < x->shape.ndim; d++)
            if ((r->dims >> d & 1) == reduced) {
                stride[shape.ndim] = x->stride[d];
                shape.dim[shape.ndim++] = x->shape.dim[d];
            }
    return tt__tensor_seen(x, shape, stride);
}

/* Find the extremes, with each result's elements as a row. */
static tt_status extreme_of_rows(const char *who, tt_tensor *y, const tt_tensor *x, const tt__reduction *r,
                                 bool largest) {
    if (x->numel == 0)
        return TT_OK;
    tt_tensor sorted = reduced_last(x, r), *in = tt__contiguous_begin(who, &sorted);
    tt_tensor *index = in ? tt__index_like(who, y) : NULL;
    tt_tensor rows = in ? tt__tensor_seen(in, TT_SHAPE(in->numel / r->count, r->count), (const int64_t[]){r->count, 1})
                        : (tt_tensor){0};
    tt_status status = index ? tt__extreme_out(who, y, index, &rows, 1, largest) : tt_last_status();
    tt__abandon(index);
    tt__contiguous_done(in, &sorted);
    return status;
}

static tt_tensor *extreme_values(const tt__operator *op, tt_tensor *x, const tt__reduction *r, bool largest) {
    if (r->count == 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected elements to choose from, got %s", op->name, TT__DESCRIBE(x));
    tt_tensor *y = tt__reduction_result(op->name, x, r, x->dtype);
    y = TT__MADE(op->name, y, extreme_of_rows(op->name, y, x, r, largest));
    return tt__recorded(op, y, TT__INPUTS(x), TT__SAVES({x, "x"}, {y, "its result"}), TT__STATE(*r));
}

static tt_tensor *extreme_values_recorded(const tt__operator *op, const tt_sum_args *args, size_t size) {
    tt_sum_args o;
    tt__reduction r;
    TT__ARGS_COPY(o, args, size);
    if (!o.x || !tt__tensor_check(op->name, o.x))
        return NULL;
    if (tt__reduction_of(op->name, &r, o.x, &o.dim, o.keepdim))
        return tt__made(op->name, NULL, tt_last_status());
    return extreme_values(op, o.x, &r, op == &amax_op);
}

tt_tensor *tt_amax_with(const tt_sum_args *args, size_t size) { return extreme_values_recorded(&amax_op, args, size); }
tt_tensor *tt_amin_with(const tt_sum_args *args, size_t size) { return extreme_values_recorded(&amin_op, args, size); }

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
        return tt__tensor_fail(TT_ERR_INVALID, "%s: expected one dimension%s, got %d%s", who,
                               o.indices ? ", as there are indices" : ", or none for all elements", o.dim.ndim,
                               o.indices          ? ""
                               : along == &max_op ? "; tt_amax() takes several"
                                                  : "; tt_amin() takes several");
    if (o.dim.ndim == 0)
        return extreme_values(all, o.x, &r, all == &max_all_op);
    return extreme_along(along, &o, &r);
}

tt_tensor *tt_max_with(const tt_max_args *args, size_t size) {
    return extreme_recorded(args, size, &max_op, &max_all_op);
}

tt_tensor *tt_min_with(const tt_max_args *args, size_t size) {
    return extreme_recorded(args, size, &min_op, &min_all_op);
}
