/* triu: y = x where column - row >= diagonal, else 0; tril: <= diagonal.      dx = g there, else 0 */
#include "autograd/record.h"

#include "base/error.h"

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
