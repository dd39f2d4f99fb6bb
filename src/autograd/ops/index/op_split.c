/* Split, chunk, unbind: views that together are x. One record has all of them as results, so that backward writes the
 * gradient of x once; a part that got no gradient has zeros. */
#include "autograd/record.h"

#include "base/error.h"

#include <inttypes.h>

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

/* Return how many parts an empty dimension makes: what is asked for, where PyTorch gives any number. */
static int64_t parts_of_nothing(const tt__operator *op, int64_t count) {
    return op == &split_op ? 1 : op == &chunk_op ? count : 0;
}

/* Is `count` the number of parts that dimension p->dim of x has? */
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

/* The parts have the size that PyTorch gives them; there may be fewer than asked for, which is an error. */
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
