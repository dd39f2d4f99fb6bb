/* weight (V,C)  index (...) in 0..V-1  ->  y (...,C) = the rows that index names
 * dweight[v] = sum of g over the places of index that hold v, in row-major order; 0 for the padding's row
 * Sparse: only the rows v that index holds, less the padding's. */
#include "autograd/record.h"
#include "autograd/sparse_grad.h"

#include "base/args.h"
#include "base/error.h"
#include "tensor/ops/ops.h"

#include <inttypes.h>

static const char who[] = "tt_embedding";

/* View x (...,C) as (rows, C), or an index (...) as (rows), where it is contiguous. */
static tt_tensor index_row(const tt_tensor *index) {
    tt_shape flat = {.ndim = 1, .dim = {index->numel}};
    return tt__tensor_seen(index, flat, (const int64_t[]){1});
}

/* y (rows, C) from, or dweight to, rows of a table. */
static tt_status with_rows(tt_status (*run)(const char *, tt_tensor *, const tt_tensor *, int, const tt_tensor *),
                           tt_tensor *y, const tt_tensor *x, const tt_tensor *index) {
    tt_tensor *places = tt__contiguous_begin(who, index);
    if (!places)
        return tt_last_status();
    tt_tensor row = index_row(places);
    tt_status status = run(who, y, x, 0, &row);
    tt__contiguous_done(places, index);
    return status;
}

typedef struct embedding_state {
    int64_t padding; /* its row; -1: none */
    bool sparse;
} embedding_state;

static tt_status embedding_backward_rows(tt_node *node, const tt_tensor *index, const tt_tensor *in, int64_t padding) {
    const tt_tensor *places = tt__contiguous_begin(who, index);
    if (!places)
        return tt_last_status();
    tt_tensor rows = tt__as_rows(in), flat = index_row(places), *numbers, *values;
    TT__TRY(tt__rows_coalesce(who, &flat, &rows, padding, &numbers, &values));
    return tt__grad_give_rows(node, 0, numbers, values);
}

static tt_status embedding_backward(tt_node *node) {
    const embedding_state *state = tt__state(node);
    const int64_t *padding = &state->padding;
    const tt_tensor *index = tt__saved(node, 0), *g = tt__grad_of(node, 0);
    tt_tensor *in = index ? tt__contiguous_begin(who, g) : NULL;
    if (in && state->sparse)
        return embedding_backward_rows(node, index, in, *padding);
    tt_tensor *dw = in ? tt__grad_dest(node, 0) : NULL;
    if (!dw)
        return tt_last_status();
    tt_tensor rows = tt__as_rows(in);
    TT__TRY(tt__fill_out(who, dw, 0));
    TT__TRY(with_rows(tt__index_add_out, dw, &rows, index));
    tt_tensor *row = *padding < 0 ? NULL : tt__select(who, dw, 0, *padding);
    if (*padding >= 0 && (!row || tt__fill_out(who, row, 0)))
        return tt_last_status();
    return tt__grad_give(node, 0, dw);
}

static const tt__operator embedding_op = {.name = who, .backward = embedding_backward};

static bool check_embedding(const tt_tensor *weight, const tt_tensor *index, const int64_t *padding) {
    if (!TT__CHECK_FLOATS(who, {"weight", weight}) || !tt__tensor_check(who, index))
        return false;
    int64_t V = weight->shape.dim[0];
    if (weight->shape.ndim != 2 || index->shape.ndim == TT_MAX_DIMS)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected weight (V, C) and indices of less than %d dimensions, got %s, %s",
                        who, TT_MAX_DIMS, TT__DESCRIBE(weight), TT__DESCRIBE(index));
    else if (padding && (*padding < -V || *padding >= V))
        tt__tensor_fail(TT_ERR_INVALID, "%s: expected padding_idx in %" PRId64 "..%" PRId64 ", got %" PRId64, who, -V,
                        V - 1, *padding);
    else
        return !tt__check_index(who, weight, 0, index);
    return false;
}

/* Rows go to a leaf as they are: no operator's backward takes them. */
static bool check_sparse(const tt_tensor *weight) {
    if (tt__is_recording() && tt__node_of(weight))
        tt__tensor_fail(TT_ERR_UNSUPPORTED,
                        "%s: .sparse is for weights that are leaves, got %s, the result of a recorded operator", who,
                        TT__DESCRIBE(weight));
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
    tt_tensor *y = tt__empty_beside(who, weight, shape, weight->dtype);
    if (!y)
        return NULL;
    tt_tensor rows = tt__as_rows(y);
    y = tt__made(who, y, with_rows(tt__index_select_out, &rows, weight, index));
    return tt__recorded(&embedding_op, y, TT__INPUTS(weight), TT__SAVES({index, "indices"}), TT__STATE(state));
}
