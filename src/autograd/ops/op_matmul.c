/* Products of matrices: matmul, bmm, linear. */
#include "autograd/record.h"
#include "base/error.h"

#include <inttypes.h>

/* ---- matmul, bmm: a (...,M,K)  b (...,K,N)  ->  y (...,M,N) = a b
 *   da = g b^T     db = a^T g, summed over what was repeated
 * The dimensions before the last two, the batch, broadcast. An a of one dimension (K) is a row, and then y has no M;
 * such a b is a column, and y has no N. */

/* View an operand of one dimension as a matrix. */
static tt_tensor as_matrix(const tt_tensor *x, bool is_row) {
    int64_t K = x->shape.dim[0], step = x->stride[0];
    if (x->shape.ndim > 1)
        return tt__tensor_seen(x, x->shape, x->stride);
    if (is_row)
        return tt__tensor_seen(x, (tt_shape){.ndim = 2, .dim = {1, K}}, (const int64_t[]){K * step, step});
    return tt__tensor_seen(x, (tt_shape){.ndim = 2, .dim = {K, 1}}, (const int64_t[]){step, 1});
}

static tt_shape batch_of(const tt_tensor *x) {
    tt_shape batch = x->shape;
    batch.ndim -= 2;
    return batch;
}

/* View a matrix or a batch of them as one of `batch`, to which it broadcasts. */
static tt_tensor spread_batch(const tt_tensor *x, const tt_shape *batch) {
    int n = batch->ndim, row = x->shape.ndim - 2;
    tt_shape shape = *batch;
    int64_t stride[TT_MAX_DIMS] = {0};
    shape.dim[n] = x->shape.dim[row];
    shape.dim[n + 1] = x->shape.dim[row + 1];
    shape.ndim = n + 2;
    tt__shape_broadcast_strides(&x->shape, x->stride, &shape, stride);
    stride[n] = x->stride[row];
    stride[n + 1] = x->stride[row + 1];
    return tt__tensor_seen(x, shape, stride);
}

/* View matrices transposed. */
static tt_tensor flipped(const tt_tensor *x) {
    int row = x->shape.ndim - 2;
    tt_shape shape = x->shape;
    int64_t stride[TT_MAX_DIMS];
    for (int d = 0; d < row; d++)
        stride[d] = x->stride[d];
    shape.dim[row] = x->shape.dim[row + 1];
    shape.dim[row + 1] = x->shape.dim[row];
    stride[row] = x->stride[row + 1];
    stride[row + 1] = x->stride[row];
    return tt__tensor_seen(x, shape, stride);
}

/* The operands of a product as batches of matrices. */
typedef struct product {
    tt_tensor a, b;
    tt_shape batch;
    int row, column; /* 1: a, b has one dimension, and y one less */
} product;

/* Do a and b fit together? */
static bool read_product(product *p, const tt_tensor *a, const tt_tensor *b) {
    if (a->shape.ndim == 0 || b->shape.ndim == 0)
        return false;
    *p = (product){.row = a->shape.ndim == 1, .column = b->shape.ndim == 1};
    tt_tensor left = as_matrix(a, true), right = as_matrix(b, false);
    tt_shape a_batch = batch_of(&left), b_batch = batch_of(&right);
    if (left.shape.dim[left.shape.ndim - 1] != right.shape.dim[right.shape.ndim - 2] ||
        !tt__shape_broadcast(&a_batch, &b_batch, &p->batch))
        return false;
    p->a = spread_batch(&left, &p->batch);
    p->b = spread_batch(&right, &p->batch);
    return true;
}

/* View a result, or its gradient, as the batch of matrices that it is. */
static tt_tensor result_matrices(const product *p, const tt_tensor *y) {
    int n = p->batch.ndim;
    tt_shape shape = p->batch;
    int64_t stride[TT_MAX_DIMS] = {0};
    shape.ndim = n + 2;
    shape.dim[n] = p->a.shape.dim[n];
    shape.dim[n + 1] = p->b.shape.dim[n + 1];
    for (int d = 0; d < n; d++)
        stride[d] = y->stride[d];
    stride[n] = p->row ? shape.dim[n + 1] : y->stride[n];
    stride[n + 1] = p->column ? 1 : y->stride[n + 1 - p->row];
    return tt__tensor_seen(y, shape, stride);
}

static tt_shape result_shape(const product *p) {
    tt_shape shape = p->batch;
    int n = p->batch.ndim;
    if (!p->row)
        shape.dim[shape.ndim++] = p->a.shape.dim[n];
    if (!p->column)
        shape.dim[shape.ndim++] = p->b.shape.dim[n + 1];
    return shape;
}

/* Write d (of an operand's shape) = x z, by way of a contiguous tensor where its rows have gaps. */
static tt_status operand_gradient(tt_node *node, int i, const product *p, const tt_tensor *x, const tt_tensor *z) {
    const char *who = node->op->name;
    tt_tensor *d = tt__grad_dest(node, i), *out = d;
    if (d && d->shape.ndim > 1 && d->stride[d->shape.ndim - 1] != 1)
        out = tt__empty_beside(who, d, d->shape, d->dtype);
    if (!out)
        return tt_last_status();
    tt_tensor matrix = as_matrix(out, i == 0), to = spread_batch(&matrix, &p->batch);
    TT__TRY(to.numel ? tt__bmm_out(who, &to, x, z) : tt__fill_out(who, out, 0)); /* a sum of no products */
    if (out != d)
        TT__TRY(tt__copy_out(who, d, out));
    return tt__grad_give(node, i, d);
}

/* Saved: a and b, if they are needed; otherwise their edges have their shapes. */
static tt_status matmul_backward(tt_node *node) {
    static const int64_t zero[TT_MAX_DIMS];
    const tt_tensor *g = tt__grad_of(node, 0);
    bool wants_a = tt__grad_wanted(node, 0), wants_b = tt__grad_wanted(node, 1);
    const tt_tensor *a = wants_b ? tt__saved(node, 0) : NULL, *b = wants_a ? tt__saved(node, 1) : NULL;
    if ((wants_b && !a) || (wants_a && !b))
        return tt_last_status();
    tt_tensor shape_a = tt__tensor_seen(g, node->edge[0].shape, zero);
    tt_tensor shape_b = tt__tensor_seen(g, node->edge[1].shape, zero);
    product p;
    if (!read_product(&p, a ? a : &shape_a, b ? b : &shape_b)) /* as in forward */
        return tt__fail(TT_ERR_STATE, "%s: the operands have other shapes than before", node->op->name);
    tt_tensor gradient = result_matrices(&p, g), at = flipped(&p.a), bt = flipped(&p.b);
    if (wants_b)
        TT__TRY(operand_gradient(node, 1, &p, &at, &gradient));
    return wants_a ? operand_gradient(node, 0, &p, &gradient, &bt) : TT_OK;
}

static const tt__operator matmul_op = {.name = "tt_matmul", .backward = matmul_backward};
static const tt__operator bmm_op = {.name = "tt_bmm", .backward = matmul_backward};

static tt_tensor *multiplied(const tt__operator *op, tt_tensor *a, tt_tensor *b, const product *p) {
    const char *who = op->name;
    tt_tensor *y = tt__empty_beside(who, a, result_shape(p), a->dtype);
    if (!y)
        return NULL;
    tt_tensor to = result_matrices(p, y);
    y = tt__made(who, y, tt__bmm_out(who, &to, &p->a, &p->b));
    return tt__recorded(op, y, TT__INPUTS(a, b),
                        TT__SAVES({b->requires_grad ? a : NULL, "a"}, {a->requires_grad ? b : NULL, "b"}),
                        TT__NO_STATE);
}

tt_tensor *tt_matmul(tt_tensor *a, tt_tensor *b) {
    static const char who[] = "tt_matmul";
    product p;
    if (!a || !b || !TT__AUTOCAST(who, &a, &b) || !TT__CHECK_FLOATS(who, {"a", a}, {"b", b}))
        return NULL;
    if (!read_product(&p, a, b))
        return tt__tensor_fail(
            TT_ERR_SHAPE,
            "%s: expected a (..., M, K) and b (..., K, N) whose other dimensions broadcast, got a %s, "
            "b %s",
            who, TT__DESCRIBE(a), TT__DESCRIBE(b));
    return multiplied(&matmul_op, a, b, &p);
}

tt_tensor *tt_bmm(tt_tensor *a, tt_tensor *b) {
    static const char who[] = "tt_bmm";
    product p;
    if (!a || !b || !TT__AUTOCAST(who, &a, &b) || !TT__CHECK_FLOATS(who, {"a", a}, {"b", b}))
        return NULL;
    if (a->shape.ndim != 3 || b->shape.ndim != 3 || a->shape.dim[0] != b->shape.dim[0] || !read_product(&p, a, b))
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: expected a (B, M, K) and b (B, K, N), got a %s, b %s", who,
                               TT__DESCRIBE(a), TT__DESCRIBE(b));
    return multiplied(&bmm_op, a, b, &p);
}

/* ---- linear: x (B...,C)  weight (K,C)  bias (K)  ->  y (B...,K) = x weight^T + bias, with B rows
 * dx (B...,C) = g weight     dweight (K,C) = g^T x     dbias (K) = sum of g over rows */

static const char linear_name[] = "tt_linear";

static int64_t linear_inner(const tt_tensor *x) { return x->shape.dim[x->shape.ndim - 1]; }

static tt_status linear_forward(tt_tensor *y, const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias) {
    tt_tensor *in = tt__contiguous_begin(linear_name, x);
    if (!in)
        return tt_last_status();
    tt_tensor rows = tt__as_rows(in), out = tt__as_rows(y), wt = tt__transposed(weight);
    tt_status status = bias ? tt__matmul_bias_out(linear_name, &out, &rows, &wt, bias)
                            : tt__matmul_out(linear_name, &out, &rows, &wt, 0);
    tt__contiguous_done(in, x);
    return status;
}

static tt_status give_weight(tt_node *node, const tt_tensor *g, const tt_tensor *x) {
    if (!x)
        return tt_last_status();
    tt_tensor *in = tt__contiguous_begin(linear_name, x);
    if (!in)
        return tt_last_status();
    tt_tensor gt = tt__transposed(g), rows = tt__as_rows(in);
    TT__GIVE(node, 1, dw, tt__matmul_out(linear_name, dw, &gt, &rows, 0));
    return TT_OK;
}

static tt_status give_x(tt_node *node, const tt_tensor *g, const tt_tensor *weight) {
    if (!weight)
        return tt_last_status();
    tt_tensor *dx = tt__grad_dest(node, 0);
    tt_tensor *out = !dx || dx->contiguous ? dx : tt__empty_beside(linear_name, dx, dx->shape, dx->dtype);
    if (!out)
        return tt_last_status();
    tt_tensor rows = tt__as_rows(out);
    TT__TRY(tt__matmul_out(linear_name, &rows, g, weight, 0));
    if (out != dx)
        TT__TRY(tt__copy_out(linear_name, dx, out));
    return tt__grad_give(node, 0, dx);
}

/* Saved: x, weight. */
static tt_status linear_backward(tt_node *node) {
    tt_tensor *whole = tt__contiguous_begin(linear_name, tt__grad_of(node, 0));
    if (!whole)
        return tt_last_status();
    tt_tensor g = tt__as_rows(whole);
    if (tt__grad_wanted(node, 2))
        TT__GIVE(node, 2, db, tt__sum_to_out(linear_name, db, &g, 1));
    if (tt__grad_wanted(node, 1))
        TT__TRY(give_weight(node, &g, tt__saved(node, 0)));
    return tt__grad_wanted(node, 0) ? give_x(node, &g, tt__saved(node, 1)) : TT_OK;
}

static const tt__operator linear_op = {.name = linear_name, .backward = linear_backward};

static bool linear_check(const tt_tensor *x, const tt_tensor *weight, const tt_tensor *bias) {
    if (!TT__CHECK_FLOATS(linear_name, {"x", x}, {"weight", weight}, {"bias", bias}))
        return false;
    if (weight->shape.ndim != 2)
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected weight (K, C), got weight %s", linear_name, TT__DESCRIBE(weight));
    else if (x->shape.ndim < 1 || linear_inner(x) != weight->shape.dim[1])
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected x (..., %" PRId64 ") to match weight %s, got x %s", linear_name,
                        weight->shape.dim[1], TT__DESCRIBE(weight), TT__DESCRIBE(x));
    else if (bias && (bias->shape.ndim != 1 || bias->shape.dim[0] != weight->shape.dim[0]))
        tt__tensor_fail(TT_ERR_SHAPE, "%s: expected bias (%" PRId64 ") to match weight %s, got bias %s", linear_name,
                        weight->shape.dim[0], TT__DESCRIBE(weight), TT__DESCRIBE(bias));
    else
        return true;
    return false;
}

tt_tensor *tt_linear(tt_tensor *x, tt_tensor *weight, tt_tensor *bias) {
    if (!x || !weight || !TT__AUTOCAST(linear_name, &x, &weight, &bias) || !linear_check(x, weight, bias))
        return NULL;
    tt_shape shape = x->shape;
    shape.dim[shape.ndim - 1] = weight->shape.dim[0];
    tt_tensor *y = tt__empty_beside(linear_name, x, shape, x->dtype);
    y = TT__MADE(linear_name, y, linear_forward(y, x, weight, bias));
    return tt__recorded(
        &linear_op, y, TT__INPUTS(x, weight, bias),
        TT__SAVES({weight->requires_grad ? x : NULL, "x"}, {x->requires_grad ? weight : NULL, "weight"}), TT__NO_STATE);
}
