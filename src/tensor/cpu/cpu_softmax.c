/* Softmaxes, row by row; blocks of rows are shared among threads. */
#include "tensor/cpu/cpu_kernels.h"

#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"

#include <math.h>

typedef struct rows {
    int64_t n; /* elements of a row */
    const float *x, *g;
    const int64_t *target;
    tt__sum_exp *stats;
    float *y;
    float factor;
} rows;

/* Return the rows of a block, of about 32 Ki elements. */
static int64_t rows_a_block(int64_t n) { return n < 1 ? 32768 : n < 32768 ? 32768 / n : 1; }

static void softmax_rows(void *user, int64_t begin, int64_t end) {
    const rows *k = user;
    for (int64_t r = begin; r < end; r++) {
        const float *row = k->x + r * k->n;
        tt__softmax()->exp_scale(k->n, row, tt__softmax()->sum_exp(k->n, row), 1, k->y + r * k->n);
    }
}

tt_status tt__cpu_softmax_f32(tt_tensor *y, const tt_tensor *x) {
    rows k = {.n = tt__row_length(x), .x = x->data, .y = y->data};
    tt__parallel_for(x->numel / k.n, rows_a_block(k.n), softmax_rows, &k);
    return TT_OK;
}

static void softmax_backward_rows(void *user, int64_t begin, int64_t end) {
    const rows *k = user;
    for (int64_t at = begin * k->n; at < end * k->n; at += k->n)
        tt__softmax()->softmax_backward(k->n, k->x + at, k->g + at, k->y + at);
}

tt_status tt__cpu_softmax_backward_f32(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    rows k = {.n = tt__row_length(y), .x = y->data, .g = g->data, .y = dx->data};
    tt__parallel_for(y->numel / k.n, rows_a_block(k.n), softmax_backward_rows, &k);
    return TT_OK;
}

static void log_softmax_rows(void *user, int64_t begin, int64_t end) {
    const rows *k = user;
    for (int64_t r = begin; r < end; r++) {
        const float *row = k->x + r * k->n;
        tt__sum_exp s = tt__softmax()->sum_exp(k->n, row);
        tt__softmax()->shift(k->n, row, s.max, (float)log((double)s.sum), k->y + r * k->n);
    }
}

tt_status tt__cpu_log_softmax_f32(tt_tensor *y, const tt_tensor *x) {
    rows k = {.n = tt__row_length(x), .x = x->data, .y = y->data};
    tt__parallel_for(x->numel / k.n, rows_a_block(k.n), log_softmax_rows, &k);
    return TT_OK;
}

static void log_softmax_backward_rows(void *user, int64_t begin, int64_t end) {
    const rows *k = user;
    for (int64_t r = begin; r < end; r++) {
        const float *g = k->g + r * k->n;
        tt__softmax()->log_softmax_backward(k->n, k->x + r * k->n, g, (float)tt__reduce()->sum(k->n, g),
                                            k->y + r * k->n);
    }
}

tt_status tt__cpu_log_softmax_backward_f32(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    rows k = {.n = tt__row_length(y), .x = y->data, .g = g->data, .y = dx->data};
    tt__parallel_for(y->numel / k.n, rows_a_block(k.n), log_softmax_backward_rows, &k);
    return TT_OK;
}

/* ---- cross entropy: B rows of V classes; the sum over rows stays in order, as there are few */

static void stats_of_rows(void *user, int64_t begin, int64_t end) {
    const rows *k = user;
    for (int64_t b = begin; b < end; b++)
        k->stats[b] = tt__softmax()->sum_exp(k->n, k->x + b * k->n);
}

tt_status tt__cpu_cross_entropy_f32(tt_tensor *loss, tt_tensor *stats, const tt_tensor *x, const tt_tensor *t) {
    int64_t B = x->shape.dim[0], V = x->shape.dim[1];
    rows k = {.n = V, .x = x->data, .target = t->data, .stats = stats->data};
    tt__parallel_for(B, rows_a_block(V), stats_of_rows, &k);
    double sum = 0;
    for (int64_t b = 0; b < B; b++)
        sum += log((double)k.stats[b].sum) - (double)(k.x[b * V + k.target[b]] - k.stats[b].max);
    *(float *)loss->data = (float)(sum / (double)B);
    return TT_OK;
}

static void cross_entropy_backward_rows(void *user, int64_t begin, int64_t end) {
    const rows *k = user;
    for (int64_t b = begin; b < end; b++) {
        float *dx = k->y + b * k->n;
        tt__softmax()->exp_scale(k->n, k->x + b * k->n, k->stats[b], k->factor, dx);
        dx[k->target[b]] -= k->factor;
    }
}

tt_status tt__cpu_cross_entropy_backward_f32(tt_tensor *dx, const tt_tensor *x, const tt_tensor *t,
                                             const tt_tensor *stats, const tt_tensor *g) {
    int64_t B = x->shape.dim[0], V = x->shape.dim[1];
    rows k = {.n = V, .x = x->data, .target = t->data, .stats = stats->data, .y = dx->data};
    k.factor = *(const float *)g->data / (float)B;
    tt__parallel_for(B, rows_a_block(V), cross_entropy_backward_rows, &k);
    return TT_OK;
}
