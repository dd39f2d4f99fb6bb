/* Operators between whole tensors, the same on all ranks, and their parts. In each pair one's backward is the other's
 * forward.
 *
 *   copy     y = x on every rank              dx = sum over ranks of dy
 *   reduce   y = sum over ranks of x          dx = dy
 *   scatter  y (R,C/n) = columns of x (R,C)   dx = columns of all ranks' dy
 *   gather   y (R,nC) = columns of all ranks  dx = this rank's columns of dy */
#include "autograd/record.h"
#include "base/error.h"
#include "parallel/tensor_parallel/tensor_parallel.h"
#include "tensor/core/tensor.h"
#include "tensor/ops/ops.h"

#include <tutti/parallel.h>
#include <tutti/tensor_parallel.h>

/* ---- without a record; errors begin with `who`, which is also the collectives' call site ---- */

static tt_tensor *summed(const char *who, tt_tensor *x, tt_group *group) {
    tt_tensor *sum = tt__clone_contiguous(who, x);
    if (!sum || tt__tp_all_reduce(who, group, sum, TT_SUM))
        return tt__abandon(sum);
    return sum;
}

/* View x (..., C) as (rows, C). */
static tt_tensor *own_columns(const char *who, tt_tensor *x, tt_group *group) {
    int64_t own = tt_tensor_size(x, -1) / tt_get_world_size(group);
    tt_tensor *part = tt_narrow(x, x->shape.ndim - 1, own * tt_get_rank(group), own);
    tt_tensor *y = part ? tt__clone_contiguous(who, part) : NULL;
    tt__abandon(part);
    return y;
}

/* Gather x (rows, C) of n ranks: (n, rows, C), returned as (rows, n C). */
static tt_tensor *all_columns(const char *who, tt_tensor *x, tt_group *group) {
    int64_t n = tt_get_world_size(group), columns = tt_tensor_size(x, -1);
    int64_t rows = columns ? x->numel / columns : 0;
    tt_tensor *own = tt__clone_contiguous(who, x);
    tt_tensor *parts = own ? tt__empty_beside(who, own, TT_SHAPE(n, rows, columns), x->dtype) : NULL;
    tt_tensor *seen = parts ? tt_view(own, TT_SHAPE(rows, columns)) : NULL;
    if (!seen)
        return NULL;
    if (tt_tensor_all_gather_with(
            TT_ARGS(tt_tensor_all_gather_args, .group = group, .x = seen, .out = parts, .file = who))) {
        tt__fail_prefix("%s", who);
        return NULL;
    }
    tt_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = n * columns;
    tt_tensor *joined = tt_contiguous(tt_transpose(parts, 0, 1));
    return joined ? tt_view(joined, shape) : NULL;
}

/* One of the calls above. tp_run() calls it in a scope of its own and gives the result to the outer scope. */
typedef tt_tensor *(*tp_call)(const char *who, tt_tensor *x, tt_group *group);

static tt_tensor *in_scope(tp_call call, const char *who, tt_tensor *x, tt_group *group) {
    bool no_grad = tt_no_grad_begin();
    int scope = tt_scope_begin();
    tt_tensor *y = call(who, x, group), *kept = y ? tt__tensor_detached(who, y) : NULL;
    tt_scope_end(scope);
    tt_no_grad_end(no_grad);
    y = kept ? tt__tensor_alias(who, kept, kept->shape, kept->stride, 0) : NULL;
    tt__tensor_unref(kept);
    return y;
}

/* ---- recorded ---- */

/* What a record keeps. */
typedef struct tp_state {
    tt_group *group;
} tp_state;

static tt_status give_call(tt_node *node, tp_call call) {
    const tp_state *state = tt__state(node);
    tt_tensor *dx = call(node->op->name, tt__grad_of(node, 0), state->group);
    return dx ? tt__grad_give(node, 0, dx) : tt_last_status();
}

static tt_status copy_to_ranks_backward(tt_node *node) { return give_call(node, summed); }
static tt_status reduce_ranks_backward(tt_node *node) { return tt__grad_give(node, 0, tt__grad_of(node, 0)); }
static tt_status scatter_columns_backward(tt_node *node) { return give_call(node, all_columns); }
static tt_status gather_columns_backward(tt_node *node) { return give_call(node, own_columns); }

static const tt__operator copy_to_ranks_op = {.name = "tt_tp_copy", .backward = copy_to_ranks_backward};
static const tt__operator reduce_op = {.name = "tt_tp_reduce", .backward = reduce_ranks_backward};
static const tt__operator scatter_columns_op = {.name = "tt_tp_scatter", .backward = scatter_columns_backward};
static const tt__operator gather_columns_op = {.name = "tt_tp_gather", .backward = gather_columns_backward};

static bool tp_check(const char *who, const tt_tensor *x, const tt_group *group, bool by_columns, int64_t parts) {
    if (!x || !tt__tensor_check(who, x))
        return false;
    if (!group)
        return tt__tensor_fail(TT_ERR_INVALID, "%s: `group` is NULL", who), false;
    if (by_columns && (x->shape.ndim < 1 || tt_tensor_size(x, -1) % parts))
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (..., C) with C a multiple of the %lld ranks, got %s", who,
                               (long long)parts, TT__DESCRIBE(x)),
               false;
    return true;
}

static tt_tensor *tp_apply(const tt__operator *op, tp_call call, tt_tensor *x, tt_group *group) {
    if (tt_get_world_size(group) == 1)
        return x;
    tt_tensor *y = in_scope(call, op->name, x, group);
    if (!y)
        return tt__tensor_fail(tt_last_status(), "%s", tt_last_error());
    return tt__recorded(op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE((tp_state){group}));
}

/* y shares x's memory. */
tt_tensor *tt_tp_copy(tt_tensor *x, tt_group *group) {
    if (!tp_check(copy_to_ranks_op.name, x, group, false, 1))
        return NULL;
    if (tt_get_world_size(group) == 1 || !tt__wants_grad(1, &x))
        return x;
    tt_tensor *y = tt__tensor_alias(copy_to_ranks_op.name, x, x->shape, x->stride, 0);
    return tt__recorded(&copy_to_ranks_op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE((tp_state){group}));
}

tt_tensor *tt_tp_reduce(tt_tensor *x, tt_group *group) {
    return tp_check(reduce_op.name, x, group, false, 1) ? tp_apply(&reduce_op, summed, x, group) : NULL;
}

tt_tensor *tt_tp_scatter(tt_tensor *x, tt_group *group) {
    return tp_check(scatter_columns_op.name, x, group, true, tt_get_world_size(group))
               ? tp_apply(&scatter_columns_op, own_columns, x, group)
               : NULL;
}

tt_tensor *tt_tp_gather(tt_tensor *x, tt_group *group) {
    return tp_check(gather_columns_op.name, x, group, true, 1) ? tp_apply(&gather_columns_op, all_columns, x, group)
                                                               : NULL;
}

tt_status tt__tp_all_reduce(const char *who, tt_group *group, tt_tensor *x, tt_reduce_op op) {
    return tt_tensor_all_reduce_with(TT_ARGS(tt_tensor_all_reduce_args, .group = group, .x = x, .op = op, .file = who))
               ? tt__fail_prefix("%s", who)
               : TT_OK;
}
