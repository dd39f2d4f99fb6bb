/* Elements at places that an index tensor names: gather, index_select, scatter, embedding. */
#include "autograd/leaf.h"
#include "autograd/record.h"
#include "base/args.h"
#include "base/error.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>

/* ---- gather: for each place p of index, and q the same with index[p] in dimension `dim`,
 *   y[p] = x[q]     dx[q] = sum of g[p], in row-major order of p */

static const char gather_name[] = "tt_gather_dim";

/* Add g to zeros at the places of index. State: the dimension. */
static tt_status give_added(tt_node *node, tt_status (*add)(const char *who, tt_tensor *y, const tt_tensor *g, int dim,
                                                            const tt_tensor *index)) {
    const int *dim = tt__state(node);
    const tt_tensor *index = tt__saved(node, 0);
    tt_tensor *dx = index ? tt__grad_dest(node, 0) : NULL;
    if (!dx)
        return tt_last_status();
    TT__TRY(tt__fill_out(node->op->name, dx, 0));
    TT__TRY(add(node->op->name, dx, tt__grad_of(node, 0), *dim, index));
    return tt__grad_give(node, 0, dx);
}

static tt_status gather_backward(tt_node *node) { return give_added(node, tt__scatter_add_out); }

static const tt__operator gather_op = {.name = gather_name, .backward = gather_backward};

tt_tensor *tt_gather_dim(tt_tensor *x, int dim, tt_tensor *index) {
    if (!x || !index || !tt__tensor_check(gather_name, x) || !tt__tensor_check(gather_name, index))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", gather_name, dim, TT__DESCRIBE(x));
    if (!tt__check_places(gather_name, x, d, index, NULL))
        return NULL;
    tt_tensor *y = tt__empty_beside(gather_name, x, index->shape, x->dtype);
    y = TT__MADE(gather_name, y, tt__gather_out(gather_name, y, x, d, index));
    return tt__recorded(&gather_op, y, TT__INPUTS(x), TT__SAVES({index, "index"}), TT__STATE(d));
}

/* ---- index_select: y[i] = x[index[i]] along one dimension; index (n)
 *   dx[j] = sum of g[i] over i with index[i] == j, in rising order */

static const char index_select_name[] = "tt_index_select";

static tt_status index_select_backward(tt_node *node) { return give_added(node, tt__index_add_out); }

static const tt__operator index_select_op = {.name = index_select_name, .backward = index_select_backward};

tt_tensor *tt_index_select(tt_tensor *x, int dim, tt_tensor *index) {
    if (!x || !index || !tt__tensor_check(index_select_name, x) || !tt__tensor_check(index_select_name, index))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", index_select_name, dim, TT__DESCRIBE(x));
    if (index->shape.ndim != 1)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected index (n), got %s", index_select_name, TT__DESCRIBE(index));
    if (tt__check_index(index_select_name, x, d, index))
        return NULL;
    tt_shape shape = x->shape;
    shape.dim[d] = index->shape.dim[0];
    tt_tensor *y = tt__empty_beside(index_select_name, x, shape, x->dtype);
    y = TT__MADE(index_select_name, y, tt__index_select_out(index_select_name, y, x, d, index));
    return tt__recorded(&index_select_op, y, TT__INPUTS(x), TT__SAVES({index, "index"}), TT__STATE(d));
}

/* ---- scatter: for each place p of index, and q the same with index[p] in dimension `dim`, in row-major order of p:
 *   scatter      y = x, then y[q] = src[p]      dx = g, then dx[q] = 0      dsrc[p] = g[q], beyond index 0
 *   scatter_add  y = x, then y[q] += src[p]     dx = g                      dsrc[p] = g[q], beyond index 0 */

typedef tt_status (*scatter_out)(const char *who, tt_tensor *y, const tt_tensor *src, int dim, const tt_tensor *index);

static tt_status give_scattered(tt_node *node, const tt_tensor *index, int dim) {
    const char *who = node->op->name;
    tt_tensor *dsrc = tt__grad_dest(node, 1);
    if (!dsrc)
        return tt_last_status();
    TT__TRY(tt__fill_out(who, dsrc, 0));
    tt_tensor part = tt__tensor_seen(dsrc, index->shape, dsrc->stride);
    TT__TRY(tt__gather_out(who, &part, tt__grad_of(node, 0), dim, index));
    return tt__grad_give(node, 1, dsrc);
}

/* Write a number to all places of y. */
static tt_status scatter_number(const char *who, tt_tensor *y, double value, int dim, const tt_tensor *index) {
    static const int64_t zero[TT_MAX_DIMS];
    tt_tensor *one = tt__empty_beside(who, y, TT_SCALAR, y->dtype);
    tt_status status = one ? tt__fill_out(who, one, value) : tt_last_status();
    if (!status) {
        tt_tensor src = tt__tensor_seen(one, index->shape, zero);
        status = tt__scatter_out(who, y, &src, dim, index);
    }
    tt__abandon(one);
    return status;
}

/* State: the dimension. */
static tt_status give_scattered_into(tt_node *node, const tt_tensor *index, int dim) {
    const char *who = node->op->name;
    tt_tensor *dx = tt__grad_dest(node, 0);
    if (!dx)
        return tt_last_status();
    TT__TRY(tt__copy_out(who, dx, tt__grad_of(node, 0)));
    TT__TRY(scatter_number(who, dx, 0, dim, index));
    return tt__grad_give(node, 0, dx);
}

static tt_status scattered_backward(tt_node *node, bool adds) {
    const int *dim = tt__state(node);
    const tt_tensor *index = tt__saved(node, 0);
    if (!index)
        return tt_last_status();
    if (node->inputs > 1 && tt__grad_wanted(node, 1))
        TT__TRY(give_scattered(node, index, *dim));
    if (!tt__grad_wanted(node, 0))
        return TT_OK;
    return adds ? tt__grad_give(node, 0, tt__grad_of(node, 0)) : give_scattered_into(node, index, *dim);
}

static tt_status scatter_backward(tt_node *node) { return scattered_backward(node, false); }

static tt_status scatter_add_backward(tt_node *node) { return scattered_backward(node, true); }

static const tt__operator scatter_op = {.name = "tt_scatter_dim", .backward = scatter_backward};
static const tt__operator scatter_value_op = {.name = "tt_scatter_value", .backward = scatter_backward};
static const tt__operator scatter_add_op = {.name = "tt_scatter_add", .backward = scatter_add_backward};

/* Return dimension `dim` of x if all fit together; -1, and an error unless one is NULL. */
static int check_scatter(const char *who, const tt_tensor *x, int dim, const tt_tensor *index, const tt_tensor *src) {
    if (!x || !index || !tt__tensor_check(who, x) || !tt__tensor_check(who, index) ||
        (src && !tt__tensor_check(who, src)))
        return -1;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x));
    return d >= 0 && tt__check_places(who, x, d, index, src) ? d : -1;
}

static tt_tensor *scattered(const tt__operator *op, scatter_out run, tt_tensor *x, int dim, tt_tensor *index,
                            tt_tensor *src) {
    int d = src ? check_scatter(op->name, x, dim, index, src) : -1;
    tt_tensor *y = d < 0 ? NULL : tt__clone(op->name, x);
    y = TT__MADE(op->name, y, run(op->name, y, src, d, index));
    return tt__recorded(op, y, TT__INPUTS(x, src), TT__SAVES({index, "index"}), TT__STATE(d));
}

tt_tensor *tt_scatter_dim(tt_tensor *x, int dim, tt_tensor *index, tt_tensor *src) {
    return scattered(&scatter_op, tt__scatter_out, x, dim, index, src);
}

tt_tensor *tt_scatter_add(tt_tensor *x, int dim, tt_tensor *index, tt_tensor *src) {
    return scattered(&scatter_add_op, tt__scatter_add_out, x, dim, index, src);
}

tt_tensor *tt_scatter_value(tt_tensor *x, int dim, tt_tensor *index, double value) {
    const char *who = scatter_value_op.name;
    int d = check_scatter(who, x, dim, index, NULL);
    tt_tensor *y = d < 0 ? NULL : tt__clone(who, x);
    y = TT__MADE(who, y, scatter_number(who, y, value, d, index));
    return tt__recorded(&scatter_value_op, y, TT__INPUTS(x), TT__SAVES({index, "index"}), TT__STATE(d));
}

/* ---- embedding: weight (V,C)  index (...) in 0..V-1  ->  y (...,C) = the rows that index names
 * dweight[v] = sum of g over the places of index that hold v, in row-major order; 0 for the padding's row
 * Sparse: only the rows v that index holds, less the padding's. */

static const char embedding_name[] = "tt_embedding";

/* View x (...,C) as (rows, C), or an index (...) as (rows), where it is contiguous. */
static tt_tensor index_row(const tt_tensor *index) {
    tt_shape flat = {.ndim = 1, .dim = {index->numel}};
    return tt__tensor_seen(index, flat, (const int64_t[]){1});
}

/* y (rows, C) from, or dweight to, rows of a table. */
static tt_status with_rows(tt_status (*run)(const char *, tt_tensor *, const tt_tensor *, int, const tt_tensor *),
                           tt_tensor *y, const tt_tensor *x, const tt_tensor *index) {
    tt_tensor *places = tt__contiguous_begin(embedding_name, index);
    if (!places)
        return tt_last_status();
    tt_tensor row = index_row(places);
    tt_status status = run(embedding_name, y, x, 0, &row);
    tt__contiguous_done(places, index);
    return status;
}

typedef struct embedding_state {
    int64_t padding; /* its row; -1: none */
    bool sparse;
} embedding_state;

static tt_status embedding_backward_rows(tt_node *node, const tt_tensor *index, const tt_tensor *in, int64_t padding) {
    const tt_tensor *places = tt__contiguous_begin(embedding_name, index);
    if (!places)
        return tt_last_status();
    tt_tensor rows = tt__as_rows(in), flat = index_row(places), *numbers, *values;
    TT__TRY(tt__rows_coalesce(embedding_name, &flat, &rows, padding, &numbers, &values));
    return tt__grad_give_rows(node, 0, numbers, values);
}

static tt_status embedding_backward(tt_node *node) {
    const embedding_state *state = tt__state(node);
    const int64_t *padding = &state->padding;
    const tt_tensor *index = tt__saved(node, 0), *g = tt__grad_of(node, 0);
    tt_tensor *in = index ? tt__contiguous_begin(embedding_name, g) : NULL;
    if (in && state->sparse)
        return embedding_backward_rows(node, index, in, *padding);
    tt_tensor *dw = in ? tt__grad_dest(node, 0) : NULL;
    if (!dw)
        return tt_last_status();
    tt_tensor rows = tt__as_rows(in);
    TT__TRY(tt__fill_out(embedding_name, dw, 0));
    TT__TRY(with_rows(tt__index_add_out, dw, &rows, index));
    tt_tensor *row = *padding < 0 ? NULL : tt__select(embedding_name, dw, 0, *padding);
    if (*padding >= 0 && (!row || tt__fill_out(embedding_name, row, 0)))
        return tt_last_status();
    return tt__grad_give(node, 0, dw);
}

static const tt__operator embedding_op = {.name = embedding_name, .backward = embedding_backward};

static bool check_embedding(const tt_tensor *weight, const tt_tensor *index, const int64_t *padding) {
    if (!TT__CHECK_FLOATS(embedding_name, {"weight", weight}) || !tt__tensor_check(embedding_name, index))
        return false;
    int64_t V = weight->shape.dim[0];
    if (weight->shape.ndim != 2 || index->shape.ndim == TT_MAX_DIMS)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected weight (V, C) and indices of less than %d dimensions, got %s, %s",
                        embedding_name, TT_MAX_DIMS, TT__DESCRIBE(weight), TT__DESCRIBE(index));
    else if (padding && (*padding < -V || *padding >= V))
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected padding_idx in %" PRId64 "..%" PRId64 ", got %" PRId64,
                        embedding_name, -V, V - 1, *padding);
    else
        return !tt__check_index(embedding_name, weight, 0, index);
    return false;
}

/* May weight have sparse gradients? Only a leaf takes them, no operator's backward. */
static bool check_sparse(const tt_tensor *weight) {
    if (tt__is_recording() && tt__node_of(weight))
        tt__tensor_fail(TT_ERR_UNSUPPORTED,
                        "%s: .sparse is for weights that are leaves, got %s, the result of a recorded operator",
                        embedding_name, TT__DESCRIBE(weight));
    else
        return true;
    return false;
}

tt_tensor *tt_embedding_with(const tt_embedding_args *args, size_t size) {
    tt_embedding_args a;
    TT__ARGS_COPY(a, args, size);
    tt_tensor *weight = a.weight, *index = a.indices;
    if (!weight || !index || !check_embedding(weight, index, a.padding_idx) || (a.sparse && !check_sparse(weight)))
        return NULL;
    int64_t V = weight->shape.dim[0];
    const embedding_state state = {.padding = a.padding_idx ? (*a.padding_idx + V) % V : -1, .sparse = a.sparse};
    tt_shape shape = index->shape;
    shape.dim[shape.ndim++] = weight->shape.dim[1];
    tt_tensor *y = tt__empty_beside(embedding_name, weight, shape, weight->dtype);
    if (!y)
        return NULL;
    tt_tensor rows = tt__as_rows(y);
    y = tt__made(embedding_name, y, with_rows(tt__index_select_out, &rows, weight, index));
    return tt__recorded(&embedding_op, y, TT__INPUTS(weight), TT__SAVES({index, "indices"}), TT__STATE(state));
}
