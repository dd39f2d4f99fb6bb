/* Rows whose elements have a weight each (layer_norm, rms_norm). Threads share rows, and, for the gradients of weights,
 * columns. Plain loops serve where channels share weights. */
#include "tensor/cpu/cpu_norm.h"

#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"

#include <math.h>

/* Elements that one thread takes at a time, about; columns, of which each is read with a line of its own. */
enum { ELEMENTS = 1 << 14, COLUMNS = 64 };

typedef struct norm_call {
    int64_t rows, n;
    const float *x, *g, *weight, *bias;
    float *y, *dx, *dw, *db;
    double *mean, *rstd;
    double eps;
    bool no_mean;
} norm_call;

static float *norm_floats(const tt_tensor *x) { return x ? x->data : NULL; }

static int64_t rows_at_a_time(int64_t n) { return n < ELEMENTS ? ELEMENTS / n : 1; }

static void norm_rows(void *user, int64_t begin, int64_t end) {
    const norm_call *k = user;
    const tt__norm_kernels *loops = tt__norm_loops();
    for (int64_t r = begin; r < end; r++) {
        const float *x = k->x + r * k->n;
        double mean = k->no_mean ? 0 : tt__reduce()->sum(k->n, x) / (double)k->n;
        double rstd = 1 / sqrt(loops->deviations(k->n, x, mean) / (double)k->n + k->eps);
        k->mean[r] = mean;
        k->rstd[r] = rstd;
        loops->apply(k->n, x, (float)mean, (float)rstd, k->weight, k->bias, k->y + r * k->n);
    }
}

tt_status tt__cpu_row_norm_f32(tt_tensor *y, tt_tensor *mean, tt_tensor *rstd, const tt_tensor *x,
                               const tt_tensor *weight, const tt_tensor *bias, const tt__row_norm *norm) {
    if (norm->groups != 1 || norm->share != 1)
        return tt__reference_kernels[TT_F32]->row_norm(y, mean, rstd, x, weight, bias, norm);
    norm_call k = {.rows = x->shape.dim[0],
                   .n = x->shape.dim[1],
                   .x = x->data,
                   .weight = norm_floats(weight),
                   .bias = norm_floats(bias),
                   .y = y->data,
                   .mean = mean->data,
                   .rstd = rstd->data,
                   .eps = norm->eps,
                   .no_mean = norm->no_mean};
    tt__parallel_for(k.rows, rows_at_a_time(k.n), norm_rows, &k);
    return TT_OK;
}

static void give_rows(void *user, int64_t begin, int64_t end) {
    const norm_call *k = user;
    const tt__norm_kernels *loops = tt__norm_loops();
    for (int64_t r = begin; r < end; r++) {
        const float *x = k->x + r * k->n;
        float *dx = k->dx + r * k->n, mean = (float)k->mean[r], rstd = (float)k->rstd[r];
        double sums[2];
        loops->weigh(k->n, k->g + r * k->n, k->weight, x, mean, rstd, dx, sums);
        double shift = k->no_mean ? 0 : sums[0] / (double)k->n, slope = sums[1] / (double)k->n;
        loops->give(k->n, x, mean, rstd, (float)shift, (float)slope, dx);
    }
}

static void give_columns(void *user, int64_t begin, int64_t end) {
    const norm_call *k = user;
    tt__norm_loops()->give_weights(k->rows, end - begin, k->n, k->g + begin, k->x + begin, k->mean, k->rstd,
                                   k->dw ? k->dw + begin : NULL, k->db ? k->db + begin : NULL);
}

tt_status tt__cpu_row_norm_backward_f32(const tt__normed *n, const tt__row_norm *norm, tt_tensor *dx, tt_tensor *dw,
                                        tt_tensor *db) {
    if (norm->groups != 1 || norm->share != 1)
        return tt__reference_kernels[TT_F32]->row_norm_backward(n, norm, dx, dw, db);
    norm_call k = {.rows = n->x->shape.dim[0],
                   .n = n->x->shape.dim[1],
                   .x = n->x->data,
                   .g = n->g->data,
                   .weight = norm_floats(n->weight),
                   .dx = norm_floats(dx),
                   .dw = norm_floats(dw),
                   .db = norm_floats(db),
                   .mean = n->mean->data,
                   .rstd = n->rstd->data,
                   .no_mean = norm->no_mean};
    if (dw || db)
        tt__parallel_for(k.n, COLUMNS, give_columns, &k);
    if (dx)
        tt__parallel_for(k.rows, rows_at_a_time(k.n), give_rows, &k);
    return TT_OK;
}
