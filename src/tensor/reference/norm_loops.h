/* Normalisation, in the types of common_loops.h: see kernels.h. Computed in double, rounded once. */
#define NUMBERS(x) ((const double *)(x)->data)
#define ELEMENTS(x) ((TYPE *)(x)->data)

static double element_or(const tt_tensor *x, int64_t i, double none) { return x ? (double)LOAD(ELEMENTS(x)[i]) : none; }

/* ---- batches (A,C,B) */

/* Walk over the elements i of channel c. */
#define EACH_OF_CHANNEL(x, c)                       \
    for (int64_t a = 0; a < (x)->shape.dim[0]; a++) \
        for (int64_t i = (a * (x)->shape.dim[1] + (c)) * (x)->shape.dim[2], end = i + (x)->shape.dim[2]; i < end; i++)

static tt_status ref_batch_norm_stats(const tt_tensor *x, double eps, tt_tensor *mean, tt_tensor *rstd) {
    double count = (double)(x->shape.dim[0] * x->shape.dim[2]);
    for (int64_t c = 0; c < x->shape.dim[1]; c++) {
        double total = 0, squares = 0;
        EACH_OF_CHANNEL(x, c) total += element_or(x, i, 0);
        double m = total / count;
        EACH_OF_CHANNEL(x, c) {
            double d = element_or(x, i, 0) - m;
            squares += d * d;
        }
        ((double *)mean->data)[c] = m;
        ((double *)rstd->data)[c] = 1 / sqrt(squares / count + eps);
    }
    return TT_OK;
}

static tt_status ref_batch_norm_given(const tt_tensor *m, const tt_tensor *var, double eps, tt_tensor *mean,
                                      tt_tensor *rstd) {
    for (int64_t c = 0; c < m->numel; c++) {
        ((double *)mean->data)[c] = element_or(m, c, 0);
        ((double *)rstd->data)[c] = 1 / sqrt(element_or(var, c, 0) + eps);
    }
    return TT_OK;
}

static tt_status ref_batch_norm_running(tt_tensor *m, tt_tensor *var, const tt_tensor *mean, const tt_tensor *rstd,
                                        double eps, double momentum, int64_t count) {
    for (int64_t c = 0; c < m->numel; c++) {
        double r = NUMBERS(rstd)[c], unbiased = (1 / (r * r) - eps) * (double)count / (double)(count - 1);
        double old_m = element_or(m, c, 0), old_var = element_or(var, c, 0);
        ELEMENTS(m)[c] = FROM_F64((1 - momentum) * old_m + momentum * NUMBERS(mean)[c]);
        ELEMENTS(var)[c] = FROM_F64((1 - momentum) * old_var + momentum * unbiased);
    }
    return TT_OK;
}

static tt_status ref_batch_norm(tt_tensor *y, const tt_tensor *x, const tt_tensor *mean, const tt_tensor *rstd,
                                const tt_tensor *weight, const tt_tensor *bias) {
    for (int64_t c = 0; c < x->shape.dim[1]; c++) {
        double scale = NUMBERS(rstd)[c] * element_or(weight, c, 1), shift = element_or(bias, c, 0);
        EACH_OF_CHANNEL(x, c)
        ELEMENTS(y)[i] = FROM_F64((element_or(x, i, 0) - NUMBERS(mean)[c]) * scale + shift);
    }
    return TT_OK;
}

static tt_status ref_batch_norm_backward(const tt__normed *n, bool fixed, tt_tensor *dx, tt_tensor *dw, tt_tensor *db) {
    double count = (double)(n->x->shape.dim[0] * n->x->shape.dim[2]);
    for (int64_t c = 0; c < n->x->shape.dim[1]; c++) {
        double m = NUMBERS(n->mean)[c], r = NUMBERS(n->rstd)[c], scale = r * element_or(n->weight, c, 1);
        double sum = 0, dot = 0;
        EACH_OF_CHANNEL(n->x, c) {
            double g = element_or(n->g, i, 0);
            sum += g;
            dot += g * (element_or(n->x, i, 0) - m) * r;
        }
        if (dw)
            ELEMENTS(dw)[c] = FROM_F64(dot);
        if (db)
            ELEMENTS(db)[c] = FROM_F64(sum);
        if (!dx)
            continue;
        if (fixed) { /* x does not matter, even if it is infinite */
            EACH_OF_CHANNEL(n->x, c) ELEMENTS(dx)[i] = FROM_F64(scale * element_or(n->g, i, 0));
            continue;
        }
        EACH_OF_CHANNEL(n->x, c) {
            double normed = (element_or(n->x, i, 0) - m) * r;
            ELEMENTS(dx)[i] = FROM_F64(scale * (element_or(n->g, i, 0) - sum / count - normed * dot / count));
        }
    }
    return TT_OK;
}

static tt_status ref_batch_norm_give(const tt__normed *n, const tt_tensor *sums, int64_t count, tt_tensor *dx) {
    int64_t C = n->x->shape.dim[1];
    for (int64_t c = 0; c < C; c++) {
        double m = NUMBERS(n->mean)[c], r = NUMBERS(n->rstd)[c], scale = r * element_or(n->weight, c, 1);
        double shift = NUMBERS(sums)[c] / (double)count, slope = NUMBERS(sums)[C + c] / (double)count;
        EACH_OF_CHANNEL(n->x, c) {
            double normed = (element_or(n->x, i, 0) - m) * r;
            ELEMENTS(dx)[i] = FROM_F64(scale * (element_or(n->g, i, 0) - shift - normed * slope));
        }
    }
    return TT_OK;
}

/* ---- rows (R,n) */

static int64_t row_weight(const tt__row_norm *norm, int64_t n, int64_t r, int64_t i) {
    return r % norm->groups * (n / norm->share) + i / norm->share;
}

static void row_stats(int64_t n, const TYPE *x, const tt__row_norm *norm, double *mean, double *rstd) {
    double total = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        total += (double)LOAD(x[i]);
    *mean = norm->no_mean ? 0 : total / (double)n;
    for (int64_t i = 0; i < n; i++) {
        double d = (double)LOAD(x[i]) - *mean;
        squares += d * d;
    }
    *rstd = 1 / sqrt(squares / (double)n + norm->eps);
}

static tt_status ref_row_norm(tt_tensor *y, tt_tensor *mean, tt_tensor *rstd, const tt_tensor *x,
                              const tt_tensor *weight, const tt_tensor *bias, const tt__row_norm *norm) {
    int64_t n = x->shape.dim[1];
    for (int64_t r = 0; r < x->shape.dim[0]; r++) {
        double m, s;
        row_stats(n, ELEMENTS(x) + r * n, norm, &m, &s);
        ((double *)mean->data)[r] = m;
        ((double *)rstd->data)[r] = s;
        for (int64_t i = 0; i < n; i++) {
            int64_t k = row_weight(norm, n, r, i);
            double normed = (element_or(x, r * n + i, 0) - m) * s;
            ELEMENTS(y)[r * n + i] = FROM_F64(normed * element_or(weight, k, 1) + element_or(bias, k, 0));
        }
    }
    return TT_OK;
}

static void row_give(const tt__normed *call, const tt__row_norm *norm, tt_tensor *dx, int64_t r) {
    int64_t n = dx->shape.dim[1];
    double m = NUMBERS(call->mean)[r], s = NUMBERS(call->rstd)[r], sum = 0, dot = 0;
    for (int64_t i = 0; i < n; i++) {
        double h = element_or(call->g, r * n + i, 0) * element_or(call->weight, row_weight(norm, n, r, i), 1);
        sum += norm->no_mean ? 0 : h;
        dot += h * (element_or(call->x, r * n + i, 0) - m) * s;
    }
    for (int64_t i = 0; i < n; i++) {
        double h = element_or(call->g, r * n + i, 0) * element_or(call->weight, row_weight(norm, n, r, i), 1);
        double normed = (element_or(call->x, r * n + i, 0) - m) * s;
        ELEMENTS(dx)[r * n + i] = FROM_F64(s * (h - sum / (double)n - normed * dot / (double)n));
    }
}

/* Sum up the gradients of weight and bias number k: elements [first, end) of each groups-th row. */
static void row_give_weight(const tt__normed *call, const tt__row_norm *norm, tt_tensor *dw, tt_tensor *db, int64_t k) {
    int64_t n = call->x->shape.dim[1], each = n / norm->share, first = k % each * norm->share;
    double sum = 0, dot = 0;
    for (int64_t r = k / each; r < call->x->shape.dim[0]; r += norm->groups)
        for (int64_t i = r * n + first; i < r * n + first + norm->share; i++) {
            double g = element_or(call->g, i, 0);
            sum += g;
            dot += g * (element_or(call->x, i, 0) - NUMBERS(call->mean)[r]) * NUMBERS(call->rstd)[r];
        }
    if (dw)
        ELEMENTS(dw)[k] = FROM_F64(dot);
    if (db)
        ELEMENTS(db)[k] = FROM_F64(sum);
}

static tt_status ref_row_norm_backward(const tt__normed *call, const tt__row_norm *norm, tt_tensor *dx, tt_tensor *dw,
                                       tt_tensor *db) {
    int64_t weights = dw || db ? norm->groups * (call->x->shape.dim[1] / norm->share) : 0;
    for (int64_t k = 0; k < weights; k++)
        row_give_weight(call, norm, dw, db, k);
    for (int64_t r = 0; dx && r < dx->shape.dim[0]; r++)
        row_give(call, norm, dx, r);
    return TT_OK;
}

#define NORM_KERNELS                                                                                                  \
    .batch_norm_stats = ref_batch_norm_stats, .batch_norm_given = ref_batch_norm_given,                               \
    .batch_norm_running = ref_batch_norm_running, .batch_norm = ref_batch_norm,                                       \
    .batch_norm_backward = ref_batch_norm_backward, .batch_norm_give = ref_batch_norm_give, .row_norm = ref_row_norm, \
    .row_norm_backward = ref_row_norm_backward
