/* Rows along one dimension, n elements each:  y[i] = x[i] - lse,  lse = log sum exp x = max + log sum exp(x - max)
 * dx[i] = g[i] - exp(y[i]) * sum of g
 * Along another dimension than the last, the same is done on a transposed copy. */
#include "autograd/ops.h"
#include "tensor/cpu/kernels.h"

#include <math.h>

static const char who[] = "tt_log_softmax";

static void row_f64(int64_t n, const double *x, double *y) {
    double max = x[0], sum = 0;
    for (int64_t i = 1; i < n; i++)
        max = x[i] > max ? x[i] : max;
    for (int64_t i = 0; i < n; i++)
        sum += exp(x[i] - max);
    for (int64_t i = 0; i < n; i++)
        y[i] = x[i] - max - log(sum);
}

static void row_backward_f64(int64_t n, const double *y, const double *g, double *dx, bool accumulate) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++)
        sum += g[i];
    for (int64_t i = 0; i < n; i++)
        dx[i] = (accumulate ? dx[i] : 0) + g[i] - exp(y[i]) * sum;
}

/* x, y: `rows` of n, without gaps. */
static void forward(tt_dtype dtype, int64_t rows, int64_t n, const void *x, void *y) {
    for (int64_t r = 0; r < rows; r++) {
        if (dtype == TT_F32) {
            const float *row = (const float *)x + r * n;
            tt__sum_exp s = tt__softmax()->sum_exp(n, row);
            tt__softmax()->shift(n, row, s.max, (float)log((double)s.sum), (float *)y + r * n);
        } else {
            row_f64(n, (const double *)x + r * n, (double *)y + r * n);
        }
    }
}

static void backward(tt_dtype dtype, int64_t rows, int64_t n, const void *y, const void *g, tt__grad_to to) {
    for (int64_t r = 0; r < rows; r++) {
        if (dtype == TT_F32) {
            const float *gr = (const float *)g + r * n;
            tt__softmax()->log_softmax_backward(n, (const float *)y + r * n, gr, (float)tt__reduce()->sum(n, gr),
                                                (float *)to.data + r * n, to.accumulate);
        } else {
            row_backward_f64(n, (const double *)y + r * n, (const double *)g + r * n, (double *)to.data + r * n,
                             to.accumulate);
        }
    }
}

static int64_t row_length(const tt_tensor *x) { return x->shape.dim[x->shape.ndim - 1]; }

static tt_status log_softmax_backward(tt__node *node) {
    const tt_tensor *y = node->output;
    tt__grad_to to = tt__grad_begin(node, 0);
    if (to.data && y->numel)
        backward(y->dtype, y->numel / row_length(y), row_length(y), y->data, node->grad->data, to);
    return TT_OK;
}

/* Along the last dimension of x. */
static tt_tensor *along_last(tt_tensor *x) {
    tt_tensor *in = tt__ops_contiguous(who, x);
    tt_tensor *y = in ? tt__tensor_new(who, x->shape, x->dtype) : NULL;
    if (y && y->numel)
        forward(x->dtype, x->numel / row_length(x), row_length(x), in->data, y->data);
    tt__ops_done(in, x);
    if (y && TT__WANTS_GRAD(x) && !TT__RECORD(who, log_softmax_backward, y, x))
        return NULL;
    return y;
}

/* The dimension is exchanged with the last one, and back; each step is recorded. The tape holds what backward needs of the steps. */
static tt_tensor *along(tt_tensor *x, int dim) {
    tt_tensor *there = tt_transpose(x, dim, -1);
    tt_tensor *rows = there ? along_last(there) : NULL;
    tt_tensor *back = rows ? tt_transpose(rows, dim, -1) : NULL;
    tt_tensor *y = back ? tt_clone(back) : NULL;
    tt__abandon(back);
    tt__abandon(rows);
    tt__abandon(there);
    return y;
}

tt_tensor *tt_log_softmax(tt_tensor *x, int dim) {
    if (!x || !TT__CHECK_FLOATS(who, {"x", x}))
        return NULL;
    int d = tt__dim_index(x->shape.ndim, dim);
    if (d < 0)
        return tt__tensor_fail(TT_ERR_SHAPE, "%s: no dimension %d in %s", who, dim, TT__DESCRIBE(x));
    return d == x->shape.ndim - 1 ? along_last(x) : along(x, d);
}
