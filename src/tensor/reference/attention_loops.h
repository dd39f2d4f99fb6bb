/* Scaled dot product attention, a row of q at a time; part of float_loops.h, which says what TYPE and the rest are.
 *   q (T,D)  k (S,D)  v (S,Dv)  ->  s[j] = scale q.k[j] + mask[j]   p = softmax of s   y = sum of p[j] v[j]
 *   dv[j] = sum of p[j] g     ds[j] = p[j] (g.v[j] - mean) scale, where mean = sum of p[j] g.v[j]
 *   dq = sum of ds[j] k[j]    dk[j] = sum of ds[j] q
 * stats (T,2): max of s, sum of exp(s - max); 0 and infinity for a row that sees nothing, whose y is 0. */

static TYPE *row_at(const tt_tensor *x, int64_t i) { return (TYPE *)x->data + i * x->stride[0]; }

/* Masks and stats are f64 beside f64, else f32. */
static double wide_get(const tt_tensor *x, int64_t row, int64_t column) {
    int64_t at = row * x->stride[0] + column * x->stride[1];
    return x->dtype == TT_F64 ? ((const double *)x->data)[at] : (double)((const float *)x->data)[at];
}

static void wide_set(tt_tensor *x, int64_t row, int64_t column, double value) {
    int64_t at = row * x->stride[0] + column * x->stride[1];
    if (x->dtype == TT_F64)
        ((double *)x->data)[at] = value;
    else
        ((float *)x->data)[at] = (float)value;
}

static double row_dot(const TYPE *a, const TYPE *b, int64_t n) {
    double total = 0;
    for (int64_t i = 0; i < n; i++)
        total += (double)LOAD(a[i]) * (double)LOAD(b[i]);
    return total;
}

static void add_scaled_row(TYPE *to, double factor, const TYPE *from, int64_t n) {
    for (int64_t i = 0; i < n; i++)
        to[i] = FROM_F64((double)LOAD(to[i]) + factor * (double)LOAD(from[i]));
}

/* How many of k row t sees. */
static int64_t seen_by(const struct tt__attention *in, int64_t t) {
    int64_t S = in->k->shape.dim[0];
    return in->causal && t + 1 < S ? t + 1 : S;
}

static double score(const struct tt__attention *in, int64_t t, int64_t j) {
    double s = in->scale * row_dot(row_at(in->q, t), row_at(in->k, j), in->q->shape.dim[1]);
    return in->mask ? s + wide_get(in->mask, t, j) : s;
}

static tt_status ref_attention(tt_tensor *y, tt_tensor *stats, const struct tt__attention *in) {
    int64_t Dv = in->v->shape.dim[1];
    for (int64_t t = 0; t < in->q->shape.dim[0]; t++) {
        int64_t n = seen_by(in, t);
        double max = -INFINITY, sum = 0;
        bool sees = false;
        for (int64_t j = 0; j < n; j++) {
            double s = score(in, t, j);
            max = fmax(max, s);
            sees = sees || s != -INFINITY;
        }
        for (int64_t j = 0; j < n && sees; j++)
            sum += exp(score(in, t, j) - max);
        max = sees ? max : 0;
        sum = sees ? sum : INFINITY;
        wide_set(stats, t, 0, max);
        wide_set(stats, t, 1, sum);
        for (int64_t c = 0; c < Dv; c++) {
            double total = 0;
            for (int64_t j = 0; j < n; j++)
                total += exp(score(in, t, j) - max) / sum * (double)LOAD(row_at(in->v, j)[c]);
            row_at(y, t)[c] = FROM_F64(total);
        }
    }
    return TT_OK;
}

static void clear_rows(tt_tensor *x) {
    for (int64_t i = 0; i < x->shape.dim[0]; i++)
        for (int64_t c = 0; c < x->shape.dim[1]; c++)
            row_at(x, i)[c] = STORE(0);
}

/* The sum of p[j] g.v[j] over the n keys that row t sees. It equals g.y, but computed from the terms that it is
 * subtracted from, it cancels exactly if the row sees one key. */
static double mean_gradient(const struct tt__attention *in, const TYPE *g, const tt_tensor *stats, int64_t t,
                            int64_t n) {
    double total = 0;
    for (int64_t j = 0; j < n; j++) {
        double p = exp(score(in, t, j) - wide_get(stats, t, 0)) / wide_get(stats, t, 1);
        total += p * row_dot(g, row_at(in->v, j), in->v->shape.dim[1]);
    }
    return total;
}

static tt_status ref_attention_backward(tt_tensor *dq, tt_tensor *dk, tt_tensor *dv, const tt_tensor *stats,
                                        const tt_tensor *g, const struct tt__attention *in) {
    int64_t D = in->q->shape.dim[1], Dv = in->v->shape.dim[1];
    clear_rows(dq);
    clear_rows(dk);
    clear_rows(dv);
    for (int64_t t = 0; t < in->q->shape.dim[0]; t++) {
        double max = wide_get(stats, t, 0), sum = wide_get(stats, t, 1);
        int64_t n = seen_by(in, t);
        double mean = mean_gradient(in, row_at(g, t), stats, t, n);
        for (int64_t j = 0; j < n; j++) {
            double p = exp(score(in, t, j) - max) / sum;
            double ds = p * (row_dot(row_at(g, t), row_at(in->v, j), Dv) - mean) * in->scale;
            add_scaled_row(row_at(dv, j), p, row_at(g, t), Dv);
            add_scaled_row(row_at(dq, t), ds, row_at(in->k, j), D);
            add_scaled_row(row_at(dk, j), ds, row_at(in->q, t), D);
        }
    }
    return TT_OK;
}

#define ATTENTION_KERNELS .attention = ref_attention, .attention_backward = ref_attention_backward
