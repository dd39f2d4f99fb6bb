/* Sums. Long ones are made of sums of fixed blocks, added in order: the same bits for any number of threads. */
#include "tensor/cpu/cpu_kernels.h"

#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"

enum { BLOCK = 1 << 18, COLUMNS = 512 };

/* ---- one number of a whole array, or of two */

typedef struct partial_sums {
    const float *a, *b; /* b NULL: the sum of a; else of (a - b)^2 */
    double *of_block;
} partial_sums;

static void sum_block(void *user, int64_t begin, int64_t end) {
    const partial_sums *s = user;
    int64_t n = end - begin;
    s->of_block[begin / BLOCK] =
        s->b ? tt__reduce()->sum_square_diff(n, s->a + begin, s->b + begin) : tt__reduce()->sum(n, s->a + begin);
}

static tt_status sum_array(int64_t n, const float *a, const float *b, double *sum) {
    double one = 0;
    int64_t blocks = (n + BLOCK - 1) / BLOCK;
    partial_sums s = {a, b, blocks > 1 ? tt__pool_alloc((size_t)blocks * sizeof(double)) : &one};
    if (!s.of_block)
        return tt__fail(TT_ERR_MEMORY, "no memory to add up %lld numbers", (long long)n);
    tt__parallel_for(n, BLOCK, sum_block, &s);
    *sum = 0;
    for (int64_t i = 0; i < blocks; i++)
        *sum += s.of_block[i];
    if (blocks > 1)
        tt__pool_free(s.of_block);
    return TT_OK;
}

/* ---- sums of columns: x (rows, cols) */

typedef struct columns {
    int64_t rows, cols;
    const float *x;
    double factor;
    float *y;
} columns;

static void sum_columns(void *user, int64_t begin, int64_t end) {
    const columns *c = user;
    tt__reduce()->sum_rows(c->rows, end - begin, c->cols, c->x + begin, c->factor, c->y + begin);
}

bool tt__sums_leading(const tt_tensor *y, const tt_tensor *x, int64_t *cols) {
    int64_t n = 1;
    int d = x->shape.ndim - 1;
    for (; d >= 0 && (x->shape.dim[d] == 1 || y->stride[d] == n); d--)
        n *= x->shape.dim[d];
    for (; d >= 0; d--)
        if (x->shape.dim[d] != 1 && y->stride[d] != 0)
            return false;
    *cols = n;
    return x->contiguous;
}

/* ---- sums of rows: x (rows, cols) */

typedef struct row_sums {
    int64_t cols;
    const float *x;
    double factor;
    float *y;
} row_sums;

static void sum_each_row(void *user, int64_t begin, int64_t end) {
    const row_sums *s = user;
    for (int64_t r = begin; r < end; r++)
        s->y[r] = (float)(tt__reduce()->sum(s->cols, s->x + r * s->cols) * s->factor);
}

/* Is x contiguous, and does y, in x's shape, repeat along the last dimensions and have the others in row-major order?
 * Then *cols is the size of the last ones. */
static bool sums_trailing(const tt_tensor *y, const tt_tensor *x, int64_t *cols) {
    int64_t n = 1, rows = 1;
    int d = x->shape.ndim - 1;
    for (; d >= 0 && (x->shape.dim[d] == 1 || y->stride[d] == 0); d--)
        n *= x->shape.dim[d];
    for (; d >= 0; rows *= x->shape.dim[d], d--)
        if (x->shape.dim[d] != 1 && y->stride[d] != rows)
            return false;
    *cols = n;
    return x->contiguous && rows > 1;
}

/* ---- sums of channels: x (outer, channels, inner) */

typedef struct channel_sums {
    int64_t outer, channels, inner;
    const float *x;
    double factor;
    float *y;
} channel_sums;

static void sum_each_channel(void *user, int64_t begin, int64_t end) {
    const channel_sums *s = user;
    for (int64_t c = begin; c < end; c++) {
        double sum = 0;
        for (int64_t i = 0; i < s->outer; i++)
            sum += tt__reduce()->sum(s->inner, s->x + (i * s->channels + c) * s->inner);
        s->y[c] = (float)(sum * s->factor);
    }
}

/* Is x contiguous, and does y, in x's shape, repeat along all dimensions but one? Then fill in the sizes. */
static bool sums_channels(channel_sums *s, const tt_tensor *y, const tt_tensor *x) {
    int found = 0;
    *s = (channel_sums){.outer = 1, .channels = 1, .inner = 1};
    for (int d = 0; d < x->shape.ndim; d++) {
        bool channel = x->shape.dim[d] != 1 && y->stride[d] != 0;
        if (channel && (found++ || y->stride[d] != 1))
            return false;
        *(channel ? &s->channels : found ? &s->inner : &s->outer) *= x->shape.dim[d];
    }
    return found && x->contiguous;
}

tt_status tt__cpu_sum_f32(tt_tensor *y, const tt_tensor *x, double factor) {
    int64_t cols = 0;
    channel_sums channels;
    if (sums_trailing(y, x, &cols) && cols > 1) {
        row_sums s = {cols, x->data, factor, y->data};
        tt__parallel_for(x->numel / cols, cols < BLOCK / 8 ? BLOCK / 8 / cols : 1, sum_each_row, &s);
        return TT_OK;
    }
    if (!tt__sums_leading(y, x, &cols) && sums_channels(&channels, y, x)) {
        channels.x = x->data;
        channels.factor = factor;
        channels.y = y->data;
        tt__parallel_for(channels.channels, 1, sum_each_channel, &channels);
        return TT_OK;
    }
    if (!tt__sums_leading(y, x, &cols))
        return tt__reference_kernels[TT_F32]->sum(y, x, factor);
    if (cols > 1) {
        columns c = {x->numel / cols, cols, x->data, factor, y->data};
        tt__parallel_for(cols, c.rows >= 64 ? COLUMNS : cols, sum_columns, &c);
        return TT_OK;
    }
    double sum = 0;
    TT__TRY(sum_array(x->numel, x->data, NULL, &sum));
    *(float *)y->data = (float)(sum * factor);
    return TT_OK;
}

/* ---- mean squared error */

tt_status tt__cpu_mse_loss_f32(tt_tensor *loss, const tt_tensor *a, const tt_tensor *b) {
    double sum = 0;
    TT__TRY(sum_array(a->numel, a->data, b->data, &sum));
    *(float *)loss->data = (float)(sum / (double)a->numel);
    return TT_OK;
}

tt_status tt__cpu_mse_loss_backward_f32(tt_tensor *da, const tt_tensor *a, const tt_tensor *b, const tt_tensor *g) {
    float factor = (float)(2.0 / (double)a->numel) * *(const float *)g->data;
    tt__elementwise()->diff(a->numel, a->data, b->data, factor, da->data);
    return TT_OK;
}
