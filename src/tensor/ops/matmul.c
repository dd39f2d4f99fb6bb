/* Matrix products: of one pair of matrices, with a bias, and of batches. */
#include "tensor/ops/ops.h"

#include "base/error.h"
#include "tensor/device/parallel.h"

#include <inttypes.h>
#include <stdatomic.h>

tt_tensor tt__transposed(const tt_tensor *x) {
    tt_shape shape = {.ndim = 2, .dim = {x->shape.dim[1], x->shape.dim[0]}};
    return tt__tensor_seen(x, shape, (const int64_t[]){x->stride[1], x->stride[0]});
}

tt_tensor tt__as_rows(const tt_tensor *x) {
    int64_t cols = x->shape.ndim ? x->shape.dim[x->shape.ndim - 1] : 1;
    int64_t rows = 1;
    for (int d = 0; d + 1 < x->shape.ndim; d++)
        rows *= x->shape.dim[d];
    return tt__tensor_seen(x, (tt_shape){.ndim = 2, .dim = {rows, cols}}, (const int64_t[]){cols, 1});
}

/* Can a product read the matrix in place? */
static bool is_plain_matrix(const tt_tensor *m) { return tt__matrix_is_stored(m, 0) || tt__matrix_is_stored(m, 1); }

static tt_status run_plain(const char *who, tt__kernel_matmul run, tt_tensor *y, const tt_tensor *a, const tt_tensor *b,
                           double beta) {
    tt_tensor *pa = is_plain_matrix(a) ? (tt_tensor *)a : tt__clone_contiguous(who, a);
    tt_tensor *pb = !pa || is_plain_matrix(b) ? (tt_tensor *)b : tt__clone_contiguous(who, b);
    tt_status status = pa && pb ? run(y, pa, pb, beta) : tt_last_status();
    tt__contiguous_done(pb, b);
    tt__contiguous_done(pa, a);
    return status;
}

/* Multiply by way of a copy, where y's layout can't be written. */
static tt_status run_copied(const char *who, tt__kernel_matmul run, tt_tensor *y, const tt_tensor *a,
                            const tt_tensor *b, double beta) {
    tt_tensor *out = tt__clone_contiguous(who, y);
    tt_status status = out ? run_plain(who, run, out, a, b, beta) : tt_last_status();
    if (!status)
        status = tt__copy_out(who, y, out);
    tt__abandon(out);
    return status;
}

tt_status tt__matmul_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b, double beta) {
    tt__kernel_matmul run = TT__KERNEL(who, y, matmul);
    if (!run || !TT__SAME_DEVICE(who, y, a, b))
        return tt_last_status();
    if (y->numel == 0)
        return TT_OK;
    if (a->shape.dim[1] == 0) /* a sum of no terms */
        return beta == 0 ? tt__fill_out(who, y, 0) : TT_OK;
    return tt__matrix_is_stored(y, 0) ? run_plain(who, run, y, a, b, beta) : run_copied(who, run, y, a, b, beta);
}

/* Multiply with the bias in one go, if the device has a kernel for that. TT_ERR_UNSUPPORTED: it has none. */
static tt_status run_with_bias(tt_tensor *y, const tt_tensor *a, const tt_tensor *b, const tt_tensor *bias) {
    const tt__kernels *table = tt__device_of(y)->kernels[y->dtype];
    bool plain = tt__matrix_is_stored(y, 0) && is_plain_matrix(a) && is_plain_matrix(b) && bias->contiguous;
    bool any = y->numel > 0 && a->shape.dim[1] > 0;
    return table && table->matmul_bias && plain && any ? table->matmul_bias(y, a, b, bias) : TT_ERR_UNSUPPORTED;
}

tt_status tt__matmul_bias_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b,
                              const tt_tensor *bias) {
    if (!TT__SAME_DEVICE(who, y, a, b, bias))
        return tt_last_status();
    tt_status status = run_with_bias(y, a, b, bias);
    if (status != TT_ERR_UNSUPPORTED)
        return status;
    tt_tensor rows = tt__tensor_seen(bias, y->shape, (const int64_t[]){0, bias->stride[0]});
    TT__TRY(tt__copy_out(who, y, &rows));
    return tt__matmul_out(who, y, a, b, 1);
}

/* ---- batches of matrices: the last two dimensions; those before them number the matrices */

tt_tensor tt__matrix_number(const tt_tensor *x, int64_t i) {
    int row = x->shape.ndim - 2;
    int64_t at = 0;
    for (int d = row - 1; d >= 0; d--) {
        at += i % x->shape.dim[d] * x->stride[d];
        i /= x->shape.dim[d];
    }
    tt_shape shape = {.ndim = 2, .dim = {x->shape.dim[row], x->shape.dim[row + 1]}};
    tt_tensor matrix = tt__tensor_seen(x, shape, x->stride + row);
    matrix.data = (char *)x->data + at * (int64_t)tt_dtype_size(x->dtype);
    return matrix;
}

int64_t tt__batch_size(const tt_tensor *x) {
    int64_t n = 1;
    for (int d = 0; d < x->shape.ndim - 2; d++)
        n *= x->shape.dim[d];
    return n;
}

/* Is each matrix of the batch the same one? */
static bool repeats_one_matrix(const tt_tensor *x) {
    for (int d = 0; d < x->shape.ndim - 2; d++)
        if (x->stride[d] != 0 && x->shape.dim[d] != 1)
            return false;
    return true;
}

/* Does the batch repeat any of its matrices? */
static bool is_partly_repeated(const tt_tensor *x) {
    for (int d = 0; d < x->shape.ndim - 2; d++)
        if (x->stride[d] == 0 && x->shape.dim[d] != 1)
            return true;
    return false;
}

/* Do the batch and its matrices' rows (`along` 0) or columns (1) lie as one dimension with one stride? */
static bool batch_joins(const tt_tensor *x, int along) {
    int row = x->shape.ndim - 2;
    int64_t next = x->shape.dim[row + along] * x->stride[row + along];
    for (int d = row - 1; d >= 0; d--) {
        if (x->shape.dim[d] != 1 && x->stride[d] != next)
            return false;
        next *= x->shape.dim[d];
    }
    return true;
}

/* View x as one matrix, whose rows or columns are those of the whole batch. */
static tt_tensor batch_joined(const tt_tensor *x, int along) {
    tt_tensor matrix = tt__matrix_number(x, 0);
    tt_shape shape = matrix.shape;
    shape.dim[along] *= tt__batch_size(x);
    return tt__tensor_seen(&matrix, shape, matrix.stride);
}

typedef struct batch_product {
    tt__kernel_matmul run;
    tt_tensor *y;
    const tt_tensor *a, *b;
    double beta;
    _Atomic int status;
} batch_product;

static void multiply_some(void *user, int64_t begin, int64_t end) {
    batch_product *p = user;
    for (int64_t i = begin; i < end && !p->status; i++) {
        tt_tensor y = tt__matrix_number(p->y, i), a = tt__matrix_number(p->a, i), b = tt__matrix_number(p->b, i);
        tt_status status = p->run(&y, &a, &b, p->beta);
        if (status)
            p->status = (int)status;
    }
}

/* Multiply matrix by matrix: small ones side by side in threads, others one after the other, each in all threads. */
static tt_status multiply_each(const char *who, batch_product *p) {
    enum { SMALL = 1 << 21, BLOCK = 1 << 18 };
    int row = p->y->shape.ndim - 2;
    int64_t n = tt__batch_size(p->y), work = p->y->shape.dim[row] * p->y->shape.dim[row + 1] * p->a->shape.dim[row + 1];
    bool side_by_side = p->beta == 0 && work < SMALL && tt__device_is_host(tt__device_of(p->y));
    if (!side_by_side) {
        multiply_some(p, 0, n);
        return (tt_status)p->status;
    }
    tt__parallel_for(n, work < BLOCK ? BLOCK / work : 1, multiply_some, p);
    if (p->status) /* the error's text may be in another thread */
        return tt__fail((tt_status)p->status, "%s: a product of %" PRId64 " failed", who, n);
    return TT_OK;
}

/* View `sums`, which has each of y's matrices once, as y repeats them. */
static tt_tensor repeated_as(const tt_tensor *y, const tt_tensor *sums) {
    int64_t stride[TT_MAX_DIMS];
    for (int d = 0; d < y->shape.ndim; d++)
        stride[d] = d < y->shape.ndim - 2 && sums->shape.dim[d] == 1 ? 0 : sums->stride[d];
    return tt__tensor_seen(sums, y->shape, stride);
}

/* y's shape without what is repeated. */
static tt_shape unrepeated_shape(const tt_tensor *y) {
    tt_shape shape = y->shape;
    for (int d = 0; d < shape.ndim - 2; d++)
        if (y->stride[d] == 0)
            shape.dim[d] = 1;
    return shape;
}

/* Add up products of 16-bit floats in f32: in their own type each addition would be rounded to a few digits. `part`,
 * `wide`: memory for a product; `sums`: for all of y. */
static tt_status add_up_wide(const char *who, const batch_product *p, tt_tensor *part, tt_tensor *wide,
                             tt_tensor *sums) {
    int64_t n = tt__batch_size(p->y);
    tt_tensor all = repeated_as(p->y, sums), once = tt__tensor_seen(p->y, sums->shape, p->y->stride);
    TT__TRY(tt__fill_out(who, sums, 0));
    for (int64_t i = 0; i < n; i++) {
        tt_tensor to = tt__matrix_number(&all, i), a = tt__matrix_number(p->a, i), b = tt__matrix_number(p->b, i);
        TT__TRY(p->run(part, &a, &b, 0));
        TT__TRY(tt__copy_out(who, wide, part));
        TT__TRY(tt__add_out(who, &to, &to, wide));
    }
    return tt__copy_out(who, &once, sums);
}

static tt_status multiply_wide(const char *who, const batch_product *p) {
    int row = p->y->shape.ndim - 2;
    tt_shape matrix = {.ndim = 2, .dim = {p->y->shape.dim[row], p->y->shape.dim[row + 1]}};
    tt_tensor *part = tt__empty_beside(who, p->y, matrix, p->y->dtype);
    tt_tensor *wide = part ? tt__empty_beside(who, p->y, matrix, TT_F32) : NULL;
    tt_tensor *sums = wide ? tt__empty_beside(who, p->y, unrepeated_shape(p->y), TT_F32) : NULL;
    tt_status status = sums ? add_up_wide(who, p, part, wide, sums) : tt_last_status();
    tt__abandon(sums);
    tt__abandon(wide);
    tt__abandon(part);
    return status;
}

/* Multiply all matrices at once, if the device has a kernel for that. TT_ERR_UNSUPPORTED: it has none. */
static tt_status multiply_at_once(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    const tt__kernels *table = tt__device_of(y)->kernels[y->dtype];
    bool can = table && table->matmul_batch && tt__batch_size(y) > 1 && !is_partly_repeated(y);
    return can ? table->matmul_batch(y, a, b) : TT_ERR_UNSUPPORTED;
}

/* Where b is one matrix, or y the sum of all products, a batch may be one large product. */
static tt_status multiply_batch(const char *who, tt__kernel_matmul run, tt_tensor *y, const tt_tensor *a,
                                const tt_tensor *b) {
    if (repeats_one_matrix(b) && batch_joins(a, 0) && batch_joins(y, 0)) {
        tt_tensor to = batch_joined(y, 0), rows = batch_joined(a, 0), one = tt__matrix_number(b, 0);
        return run(&to, &rows, &one, 0);
    }
    if (repeats_one_matrix(y) && batch_joins(a, 1) && batch_joins(b, 0)) {
        tt_tensor to = tt__matrix_number(y, 0), rows = batch_joined(a, 1), columns = batch_joined(b, 0);
        return run(&to, &rows, &columns, 0);
    }
    tt_status status = multiply_at_once(y, a, b);
    if (status != TT_ERR_UNSUPPORTED)
        return status;
    batch_product p = {.run = run, .y = y, .a = a, .b = b, .beta = is_partly_repeated(y) ? 1 : 0};
    if (p.beta != 0 && tt_dtype_size(y->dtype) == 2)
        return multiply_wide(who, &p);
    if (p.beta != 0)
        TT__TRY(tt__fill_out(who, y, 0));
    return multiply_each(who, &p);
}

/* Can products read all matrices in place? Return x, or a contiguous copy of it. */
static tt_tensor *plain_batch(const char *who, const tt_tensor *x) {
    tt_tensor first = tt__matrix_number(x, 0);
    return is_plain_matrix(&first) ? (tt_tensor *)x : tt__clone_contiguous(who, x);
}

tt_status tt__bmm_out(const char *who, tt_tensor *y, const tt_tensor *a, const tt_tensor *b) {
    tt__kernel_matmul run = TT__KERNEL(who, y, matmul);
    if (!run || !TT__SAME_DEVICE(who, y, a, b))
        return tt_last_status();
    if (y->numel == 0 || a->numel == 0)
        return y->numel ? tt__fill_out(who, y, 0) : TT_OK;
    tt_tensor *pa = plain_batch(who, a), *pb = pa ? plain_batch(who, b) : NULL;
    tt_status status = pb ? multiply_batch(who, run, y, pa, pb) : tt_last_status();
    tt__contiguous_done(pb, b);
    tt__contiguous_done(pa, a);
    return status;
}
