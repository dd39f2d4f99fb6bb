/* Normalisation of f32: batch_norm, and rows whose elements have a weight each (layer_norm, rms_norm). */
#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/cpu/cpu_kernels.h"
#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"

#include <math.h>

/* ---- batch_norm of (A,C,B). With channels last B is 1, and a channel is a column of (A,C). Otherwise a channel is A
 * rows of B elements. Threads share the channels to make sums, and rows or channels to make elements. */

/* Columns that are summed at once; elements that one thread takes at a time, about. */
enum { STRIP = 16, AT_ONCE = 1 << 15 };

typedef struct batch_call {
    int64_t A, C, B;
    const float *x, *g;
    float *y;           /* or dx */
    double *mean, *dev; /* (C), or the sums of the gradient */
    double *sum, *dot;
    const tt__channel *channel;                            /* B not 1: (C) */
    const float *mean_of, *scale_of, *shift_of, *slope_of; /* B 1: (C) each */
} batch_call;

static batch_call batch_call_of(const tt_tensor *x) {
    return (batch_call){.A = x->shape.dim[0], .C = x->shape.dim[1], .B = x->shape.dim[2], .x = x->data};
}

/* ---- sums, by channels */

static void moments_of(void *user, int64_t begin, int64_t end) {
    const batch_call *k = user;
    if (k->B == 1) {
        tt__batch_norm_loops()->column_moments(k->A, k->C, (int)(end - begin), k->x + begin, k->mean + begin,
                                               k->dev + begin);
        return;
    }
    for (int64_t c = begin; c < end; c++) {
        double sum = 0, squares = 0;
        for (int64_t a = 0; a < k->A; a++)
            sum += tt__reduce()->sum(k->B, k->x + (a * k->C + c) * k->B);
        k->mean[c] = sum / (double)(k->A * k->B);
        for (int64_t a = 0; a < k->A; a++)
            squares += tt__norm_loops()->deviations(k->B, k->x + (a * k->C + c) * k->B, k->mean[c]);
        k->dev[c] = squares;
    }
}

tt_status tt__cpu_batch_norm_stats_f32(const tt_tensor *x, double eps, tt_tensor *mean, tt_tensor *rstd) {
    batch_call k = batch_call_of(x);
    double *r = rstd->data;
    k.mean = mean->data;
    k.dev = r;
    tt__parallel_for(k.C, STRIP, moments_of, &k);
    for (int64_t c = 0; c < k.C; c++)
        r[c] = 1 / sqrt(r[c] / (double)(k.A * k.B) + eps);
    return TT_OK;
}

static void dots_of(void *user, int64_t begin, int64_t end) {
    const batch_call *k = user;
    if (k->B == 1) {
        tt__batch_norm_loops()->column_dots(k->A, k->C, (int)(end - begin), k->g + begin, k->x + begin, k->mean + begin,
                                            k->sum + begin, k->dot + begin);
        return;
    }
    for (int64_t c = begin; c < end; c++) {
        double sums[2] = {0, 0};
        for (int64_t a = 0; a < k->A; a++) {
            int64_t at = (a * k->C + c) * k->B;
            tt__batch_norm_loops()->dots(k->B, k->g + at, k->x + at, k->mean[c], sums);
        }
        k->sum[c] = sums[0];
        k->dot[c] = sums[1];
    }
}

/* ---- elements, by rows of C columns or of B elements */

static void affine_rows(void *user, int64_t begin, int64_t end) {
    const batch_call *k = user;
    for (int64_t r = begin; r < end; r++)
        if (k->B == 1)
            tt__batch_norm_loops()->column_affine(k->C, k->x + r * k->C, k->mean_of, k->scale_of, k->shift_of,
                                                  k->y + r * k->C);
        else
            tt__batch_norm_loops()->affine(k->B, k->x + r * k->B, &k->channel[r % k->C], k->y + r * k->B);
}

static void give_batch_rows(void *user, int64_t begin, int64_t end) {
    const batch_call *k = user;
    for (int64_t r = begin; r < end; r++)
        if (k->B == 1)
            tt__batch_norm_loops()->column_give(k->C, k->g + r * k->C, k->x + r * k->C, k->mean_of, k->scale_of,
                                                k->shift_of, k->slope_of, k->y + r * k->C);
        else
            tt__batch_norm_loops()->give(k->B, k->g + r * k->B, k->x + r * k->B, &k->channel[r % k->C],
                                         k->y + r * k->B);
}

static void run_rows(batch_call *k, void (*rows)(void *, int64_t, int64_t)) {
    int64_t count = k->B == 1 ? k->A : k->A * k->C, n = k->B == 1 ? k->C : k->B;
    tt__parallel_for(count, n < AT_ONCE ? AT_ONCE / n : 1, rows, k);
}

/* Store channel c's numbers as the loops want them: in one of C structs, or in four arrays of C that take as much
 * memory. */
static void set_channel(const batch_call *k, float *room, int64_t c, tt__channel numbers) {
    if (k->B != 1) {
        ((tt__channel *)(void *)room)[c] = numbers;
        return;
    }
    room[c] = numbers.mean;
    room[k->C + c] = numbers.scale;
    room[2 * k->C + c] = numbers.shift;
    room[3 * k->C + c] = numbers.slope;
}

static void use_channels(batch_call *k, const float *room) {
    k->channel = (const tt__channel *)(const void *)room;
    k->mean_of = room;
    k->scale_of = room + k->C;
    k->shift_of = room + 2 * k->C;
    k->slope_of = room + 3 * k->C;
}

static tt_status no_room(void) { return tt__fail(TT_ERR_MEMORY, "no memory for the channels of batch_norm"); }

tt_status tt__cpu_batch_norm_f32(tt_tensor *y, const tt_tensor *x, const tt_tensor *mean, const tt_tensor *rstd,
                                 const tt_tensor *weight, const tt_tensor *bias) {
    batch_call k = batch_call_of(x);
    float *room = tt__pool_alloc((size_t)k.C * sizeof(tt__channel));
    if (!room)
        return no_room();
    for (int64_t c = 0; c < k.C; c++) {
        double scale = ((const double *)rstd->data)[c] * (weight ? (double)((const float *)weight->data)[c] : 1);
        float shift = bias ? ((const float *)bias->data)[c] : 0;
        set_channel(&k, room, c, (tt__channel){(float)((const double *)mean->data)[c], (float)scale, shift, 0});
    }
    k.y = y->data;
    use_channels(&k, room);
    run_rows(&k, affine_rows);
    tt__pool_free(room);
    return TT_OK;
}

/* Write the gradients of weight and bias, and the channels' numbers for dx: scale g if the statistics are `fixed`, else
 * those of batch_norm_give. */
static void give_sums(batch_call *k, const tt__normed *n, bool fixed, float *room, tt_tensor *dw, tt_tensor *db) {
    double count = (double)(k->A * k->B);
    for (int64_t c = 0; c < k->C; c++) {
        double r = ((const double *)n->rstd->data)[c];
        double scale = r * (n->weight ? (double)((const float *)n->weight->data)[c] : 1);
        if (dw)
            ((float *)dw->data)[c] = (float)(k->dot[c] * r);
        if (db)
            ((float *)db->data)[c] = (float)k->sum[c];
        tt__channel give = {(float)k->mean[c], (float)scale, (float)(k->sum[c] / count),
                            (float)(k->dot[c] * r * r / count)};
        set_channel(k, room, c, fixed ? (tt__channel){.scale = (float)scale} : give);
    }
}

tt_status tt__cpu_batch_norm_backward_f32(const tt__normed *n, bool fixed, tt_tensor *dx, tt_tensor *dw,
                                          tt_tensor *db) {
    batch_call k = batch_call_of(n->x);
    size_t sums = 2 * (size_t)k.C * sizeof(double);
    char *room = tt__pool_alloc(sums + (size_t)k.C * sizeof(tt__channel));
    if (!room)
        return no_room();
    float *channels = (float *)(void *)(room + sums);
    k.g = n->g->data;
    k.mean = n->mean->data;
    k.sum = (double *)(void *)room;
    k.dot = k.sum + k.C;
    tt__parallel_for(k.C, STRIP, dots_of, &k);
    give_sums(&k, n, fixed, channels, dw, db);
    if (dx) {
        k.y = dx->data;
        k.x = fixed ? k.g : k.x;
        use_channels(&k, channels);
        run_rows(&k, fixed ? affine_rows : give_batch_rows);
    }
    tt__pool_free(room);
    return TT_OK;
}

tt_status tt__cpu_batch_norm_give_f32(const tt__normed *n, const tt_tensor *sums, int64_t count, tt_tensor *dx) {
    batch_call k = batch_call_of(n->x);
    float *room = tt__pool_alloc((size_t)k.C * sizeof(tt__channel));
    if (!room)
        return no_room();
    const double *sum = sums->data, *dot = sum + k.C;
    for (int64_t c = 0; c < k.C; c++) {
        double mean = ((const double *)n->mean->data)[c], r = ((const double *)n->rstd->data)[c];
        double scale = r * (n->weight ? (double)((const float *)n->weight->data)[c] : 1);
        set_channel(&k, room, c,
                    (tt__channel){(float)mean, (float)scale, (float)(sum[c] / (double)count),
                                  (float)(dot[c] * r / (double)count)});
    }
    k.g = n->g->data;
    k.y = dx->data;
    use_channels(&k, room);
    run_rows(&k, give_batch_rows);
    tt__pool_free(room);
    return TT_OK;
}

/* ---- rows. Threads share them, and, for the gradients of weights, columns. Plain loops serve where channels share
 * weights. */

/* About how many elements one thread takes at a time; how many columns, each of which is read from a cache line of its
 * own. */
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
