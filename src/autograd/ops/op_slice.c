/* Parts of one dimension, taken (narrow, slice, select, split, chunk, unbind) and joined (cat, stack). */
#include "autograd/record.h"
#include "base/error.h"

#include <inttypes.h>

/* ---- split, chunk, unbind: views that together are x. One record has all of them as results, so that backward writes
 * the gradient of x once; a part that got no gradient has zeros. */

typedef struct parts {
    int dim;
    int64_t size;  /* of each but the last */
    bool selected; /* one entry each, without the dimension */
} parts;

static tt_tensor *part_view(const char *who, const tt_tensor *x, const parts *p, int64_t i) {
    if (p->selected)
        return tt__select(who, x, p->dim, i);
    return tt__slice(who, x, p->dim, i * p->size, i * p->size + p->size, 1);
}

static tt_status split_backward(tt_node *node) {
    const char *who = node->op->name;
    tt_tensor *dx = tt__grad_dest(node, 0);
    if (!dx)
        return tt_last_status();
    for (int i = 0; i < node->outputs; i++) {
        const tt_tensor *g = tt__grad_of(node, i);
        tt_tensor *part = part_view(who, dx, tt__state(node), i);
        if (!part)
            return tt_last_status();
        TT__TRY(g ? tt__copy_out(who, part, g) : tt__fill_out(who, part, 0));
    }
    return tt__grad_give(node, 0, dx);
}

static const tt__operator split_op = {.name = "tt_split", .backward = split_backward};
static const tt__operator chunk_op = {.name = "tt_chunk", .backward = split_backward};
static const tt__operator unbind_op = {.name = "tt_unbind", .backward = split_backward};

static tt_status abandon_parts(tt_tensor **out, int64_t count) {
    for (int64_t i = 0; i < count; i++)
        out[i] = tt__abandon(out[i]);
    return tt_last_status();
}

/* Make the parts, and one record for all. */
static tt_status make_parts(const tt__operator *op, tt_tensor **out, int64_t count, tt_tensor *x, const parts *p) {
    for (int64_t i = 0; i < count; i++) {
        out[i] = part_view(op->name, x, p, i);
        if (!out[i])
            return abandon_parts(out, i);
    }
    if (!tt__wants_grad(1, &x))
        return TT_OK;
    tt_node *node = tt__node_new(op, 1, &x, (int)count, 0, p, sizeof *p);
    if (!node)
        return abandon_parts(out, count);
    for (int64_t i = 0; i < count; i++)
        tt__node_made(node, (int)i, out[i]);
    tt__node_unref(node);
    return TT_OK;
}

static tt_status check_split(const tt__operator *op, tt_tensor **out, const tt_tensor *x, int dim, int *d) {
    if (!x)
        return tt__tensor_first_error(op->name);
    if (!tt__tensor_check(op->name, x))
        return TT_ERR_STATE;
    if (!out)
        return tt__fail(TT_ERR_INVALID, "%s: `out` is NULL", op->name);
    *d = tt__dim_index(x->shape.ndim, dim);
    return *d < 0 ? tt__fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", op->name, dim, TT__DESCRIBE(x)) : TT_OK;
}

/* Return how many parts an empty dimension makes: the number that is asked for if PyTorch allows any. */
static int64_t parts_of_nothing(const tt__operator *op, int64_t count) {
    return op == &split_op ? 1 : op == &chunk_op ? count : 0;
}

/* Is `count` the number of parts of dimension p->dim of x? */
static tt_status check_part_count(const tt__operator *op, const tt_tensor *x, const parts *p, int64_t count) {
    int64_t n = x->shape.dim[p->dim], made = n ? (n - 1) / p->size + 1 : parts_of_nothing(op, count);
    if (count == made && made <= INT32_MAX)
        return TT_OK;
    return tt__fail(TT_ERR_SHAPE, "%s: dimension %d of %s makes %" PRId64 " parts, but %" PRId64 " are asked for",
                    op->name, p->dim, TT__DESCRIBE(x), made, count);
}

tt_status tt_split(tt_tensor **out, int64_t count, tt_tensor *x, int64_t split_size, int dim) {
    parts p = {.size = split_size};
    TT__TRY(check_split(&split_op, out, x, dim, &p.dim));
    if (split_size < 0 || (split_size == 0 && x->shape.dim[p.dim]))
        return tt__fail(TT_ERR_INVALID, "tt_split: expected parts of at least one entry, got %" PRId64, split_size);
    TT__TRY(check_part_count(&split_op, x, &p, count));
    return make_parts(&split_op, out, count, x, &p);
}

/* The parts have PyTorch's size. PyTorch may give fewer than asked for; that is an error here. */
tt_status tt_chunk(tt_tensor **out, int64_t chunks, tt_tensor *x, int dim) {
    parts p = {0};
    TT__TRY(check_split(&chunk_op, out, x, dim, &p.dim));
    if (chunks < 1)
        return tt__fail(TT_ERR_INVALID, "tt_chunk: expected at least one chunk, got %" PRId64, chunks);
    int64_t n = x->shape.dim[p.dim];
    p.size = n / chunks + (n % chunks != 0);
    TT__TRY(check_part_count(&chunk_op, x, &p, chunks));
    return make_parts(&chunk_op, out, chunks, x, &p);
}

tt_status tt_unbind(tt_tensor **out, int64_t count, tt_tensor *x, int dim) {
    parts p = {.size = 1, .selected = true};
    TT__TRY(check_split(&unbind_op, out, x, dim, &p.dim));
    TT__TRY(check_part_count(&unbind_op, x, &p, count));
    return make_parts(&unbind_op, out, count, x, &p);
}

/* ---- slice, narrow and select: entries of one dimension; the gradient of the others is zero. */

typedef struct entries {
    enum { SLICED, NARROWED, SELECTED } how; /* selected: one entry, without its dimension */
    int dim;
    int64_t start, end, step; /* sliced */
    int64_t length;           /* narrowed */
} entries;

static tt_tensor *view_entries(const char *who, const tt_tensor *x, const entries *e) {
    return e->how == SELECTED   ? tt__select(who, x, e->dim, e->start)
           : e->how == NARROWED ? tt__narrow(who, x, e->dim, e->start, e->length)
                                : tt__slice(who, x, e->dim, e->start, e->end, e->step);
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
static const tt__operator narrow_op = {.name = "tt_narrow", .backward = slice_backward};
static const tt__operator select_op = {.name = "tt_select", .backward = slice_backward};

static tt_tensor *entries_recorded(const tt__operator *op, tt_tensor *x, entries e) {
    if (!x || !tt__tensor_check(op->name, x))
        return NULL;
    return tt__recorded(op, view_entries(op->name, x, &e), TT__INPUTS(x), TT__NO_SAVES, TT__STATE(e));
}

tt_tensor *tt_slice(tt_tensor *x, int dim, int64_t start, int64_t end, int64_t step) {
    return entries_recorded(&slice_op, x, (entries){.dim = dim, .start = start, .end = end, .step = step});
}

tt_tensor *tt_narrow(tt_tensor *x, int dim, int64_t start, int64_t length) {
    return entries_recorded(&narrow_op, x, (entries){.how = NARROWED, .dim = dim, .start = start, .length = length});
}

tt_tensor *tt_select(tt_tensor *x, int dim, int64_t index) {
    return entries_recorded(&select_op, x, (entries){.how = SELECTED, .dim = dim, .start = index});
}

/* ---- cat, stack: inputs joined in one tensor; each gets its part of the gradient. */

/* State: the dimension. */
static tt_status cat_backward(tt_node *node) {
    const int *dim = tt__state(node);
    const tt_tensor *g = tt__grad_of(node, 0);
    int64_t at = 0;
    for (int i = 0; i < node->inputs; i++) {
        int64_t length = node->edge[i].shape.dim[*dim];
        if (tt__grad_wanted(node, i))
            TT__TRY(tt__grad_give(node, i, tt__narrow(node->op->name, g, *dim, at, length)));
        at += length;
    }
    return TT_OK;
}

static tt_status stack_backward(tt_node *node) {
    const int *dim = tt__state(node);
    for (int i = 0; i < node->inputs; i++)
        if (tt__grad_wanted(node, i))
            TT__TRY(tt__grad_give(node, i, tt__select(node->op->name, tt__grad_of(node, 0), *dim, i)));
    return TT_OK;
}

static const tt__operator cat_op = {.name = "tt_cat", .backward = cat_backward};
static const tt__operator stack_op = {.name = "tt_stack", .backward = stack_backward};

/* Are there tensors, none of them NULL? False without an error if one is NULL: the call that gave NULL has recorded
 * one. */
static bool check_joined_list(const char *who, tt_tensor *const *x, int64_t count) {
    if (!x || count < 1 || count > INT32_MAX) {
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected a list of at least one tensor, got %s of %" PRId64, who,
                        x ? "one" : "NULL", count);
        return false;
    }
    for (int64_t i = 0; i < count; i++)
        if (!x[i] || !tt__tensor_check(who, x[i]))
            return false;
    return true;
}

typedef tt_tensor *(*join_fn)(const char *who, int count, tt_tensor *const *x, int dim);

static tt_tensor *joined_recorded(const tt__operator *op, join_fn join, tt_tensor *const *x, int64_t count, int dim) {
    if (!check_joined_list(op->name, x, count))
        return NULL;
    tt_tensor *const *in = tt__autocast_list(op->name, count, x);
    tt_tensor *y = in ? join(op->name, (int)count, in, dim) : NULL;
    int d = y ? tt__dim_index(y->shape.ndim, dim) : 0;
    y = tt__recorded(op, y, (int)count, in, TT__NO_SAVES, TT__STATE(d));
    tt__autocast_list_done(in, x);
    return y;
}

tt_tensor *tt_cat(tt_tensor *const *x, int64_t count, int dim) {
    return joined_recorded(&cat_op, tt__cat, x, count, dim);
}

tt_tensor *tt_stack(tt_tensor *const *x, int64_t count, int dim) {
    return joined_recorded(&stack_op, tt__stack, x, count, dim);
}
