/* Slice and select: entries of one dimension; the gradient of the others is zero. */
#include "autograd/record.h"

#include "base/error.h"

typedef struct entries {
    bool selected; /* one, without its dimension */
    int dim;
    int64_t start, end, step;
} entries;

static tt_tensor *view_entries(const char *who, const tt_tensor *x, const entries *e) {
    return e->selected ? tt__select(who, x, e->dim, e->start) : tt__slice(who, x, e->dim, e->start, e->end, e->step);
}

static tt_status slice_backward(tt_node *node) {
    const char *who = node->op->name;
    tt_tensor *dx = tt__grad_dest(node, 0);
    tt_tensor *part = dx ? view_entries(who, dx, tt__state(node)) : NULL;
    if (!part)
        return tt_last_status();
    TT__TRY(tt__fill_out(who, dx, 0));
    TT__TRY(tt__copy_out(who, part, tt__grad_of(node, 0)));
    return tt__grad_give(node, 0, dx);
}

static const tt__operator slice_op = {.name = "tt_slice", .backward = slice_backward};
static const tt__operator select_op = {.name = "tt_select", .backward = slice_backward};

static tt_tensor *entries_recorded(const tt__operator *op, tt_tensor *x, entries e) {
    if (!x || !tt__tensor_check(op->name, x))
        return NULL;
    return tt__recorded(op, view_entries(op->name, x, &e), TT__INPUTS(x), TT__NO_SAVES, TT__STATE(e));
}

tt_tensor *tt_slice(tt_tensor *x, int dim, int64_t start, int64_t end, int64_t step) {
    return entries_recorded(&slice_op, x, (entries){.dim = dim, .start = start, .end = end, .step = step});
}

tt_tensor *tt_select(tt_tensor *x, int dim, int64_t index) {
    return entries_recorded(&select_op, x, (entries){.selected = true, .dim = dim, .start = index});
}
