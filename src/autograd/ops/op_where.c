/* Operators that choose between elements by a mask: where, masked_fill, triu, tril.
 * where:         y = condition ? a : b      da = condition ? g : 0    db = condition ? 0 : g
 * masked_fill:   y = mask ? value : x       dx = mask ? 0 : g         (summed over what was repeated) */
#include "autograd/ops/op_pointwise.h"
#include "autograd/record.h"
#include "base/error.h"

/* Give input i: g, but 0 where the saved mask is `when`. */
static tt_status give_unmasked(tt_node *node, int i, bool when) {
    const char *who = node->op->name;
    const tt_tensor *mask = tt__saved(node, 0);
    tt_tensor *g = tt__grad_of(node, 0), *rest = mask ? tt__empty_like(who, g) : NULL;
    if (!rest || tt__masked_fill_out(who, rest, g, mask, when, 0))
        return tt_last_status();
    return tt__broadcast_give(node, i, rest, 1);
}

static bool three_shapes(const char *who, const tt_tensor *condition, const tt_tensor *a, const tt_tensor *b,
                         tt_shape *shape) {
    tt_shape two;
    if (tt__shape_broadcast(&a->shape, &b->shape, &two) && tt__shape_broadcast(&condition->shape, &two, shape))
        return true;
    tt__tensor_fail(TT_ERR_SHAPE,
                    "%s: expected shapes that broadcast (equal, or 1, counted from the last), got %s, %s and %s", who,
                    TT__DESCRIBE(condition), TT__DESCRIBE(a), TT__DESCRIBE(b));
    return false;
}

/* Make the result of `shape`: in x's order of memory where it has that shape. */
static tt_tensor *result_beside(const char *who, const tt_tensor *x, tt_shape shape) {
    return tt__shape_equal(&x->shape, &shape) ? tt__empty_like(who, x) : tt__empty_beside(who, x, shape, x->dtype);
}

/* ---- where */

static tt_status where_backward(tt_node *node) {
    if (tt__grad_wanted(node, 0))
        TT__TRY(give_unmasked(node, 0, false));
    return tt__grad_wanted(node, 1) ? give_unmasked(node, 1, true) : TT_OK;
}

static const tt__operator where_op = {.name = "tt_where", .backward = where_backward};

tt_tensor *tt_where(tt_tensor *condition, tt_tensor *a, tt_tensor *b) {
    const char *who = where_op.name;
    tt_shape shape;
    if (!condition || !a || !b || !TT__AUTOCAST(who, &a, &b) || !tt__check_alike(who, a, b) ||
        !tt__check_mask(who, "condition", condition, a) || !three_shapes(who, condition, a, b, &shape))
        return NULL;
    tt_tensor *y = result_beside(who, tt__shape_equal(&b->shape, &shape) ? b : a, shape);
    y = TT__MADE(who, y, tt__where_out(who, y, condition, a, b));
    return tt__recorded(&where_op, y, TT__INPUTS(a, b), TT__SAVES({condition, "condition"}), TT__NO_STATE);
}

/* ---- masked_fill */

static tt_status masked_fill_backward(tt_node *node) { return give_unmasked(node, 0, true); }

static const tt__operator masked_fill_op = {.name = "tt_masked_fill", .backward = masked_fill_backward};

tt_tensor *tt_masked_fill(tt_tensor *x, tt_tensor *mask, double value) {
    const char *who = masked_fill_op.name;
    tt_shape shape;
    if (!x || !mask || !tt__tensor_check(who, x) || !tt__check_mask(who, "mask", mask, x) ||
        !three_shapes(who, mask, x, x, &shape))
        return NULL;
    if (!tt__dtype_holds(x->dtype, value))
        return tt__tensor_fail(TT_ERR_INVALID, "%s: %g does not fit %s", who, value, TT__DESCRIBE(x));
    tt_tensor *y = result_beside(who, x, shape);
    y = TT__MADE(who, y, tt__masked_fill_out(who, y, x, mask, true, value));
    return tt__recorded(&masked_fill_op, y, TT__INPUTS(x), TT__SAVES({mask, "mask"}), TT__NO_STATE);
}

/* ---- triu: y = x where column - row >= diagonal, else 0; tril: <= diagonal.      dx = g there, else 0 */

typedef struct triangle {
    bool upper;
    int64_t diagonal;
} triangle;

static tt_status triangle_backward(tt_node *node) {
    const triangle *t = tt__state(node);
    TT__GIVE(node, 0, dx, tt__triangle_out(node->op->name, dx, tt__grad_of(node, 0), t->diagonal, t->upper));
    return TT_OK;
}

static const tt__operator triu_op = {.name = "tt_triu", .backward = triangle_backward};
static const tt__operator tril_op = {.name = "tt_tril", .backward = triangle_backward};

static tt_tensor *triangle_of(const tt__operator *op, tt_tensor *x, triangle t) {
    const char *who = op->name;
    if (!x || !tt__tensor_check(who, x))
        return NULL;
    if (x->shape.ndim < 2)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected matrices (..., R, C), got %s", who, TT__DESCRIBE(x));
    tt_tensor *y = tt__empty_like(who, x);
    y = TT__MADE(who, y, tt__triangle_out(who, y, x, t.diagonal, t.upper));
    return tt__recorded(op, y, TT__INPUTS(x), TT__NO_SAVES, TT__STATE(t));
}

tt_tensor *tt_triu(tt_tensor *x, int64_t diagonal) { return triangle_of(&triu_op, x, (triangle){true, diagonal}); }

tt_tensor *tt_tril(tt_tensor *x, int64_t diagonal) { return triangle_of(&tril_op, x, (triangle){false, diagonal}); }
