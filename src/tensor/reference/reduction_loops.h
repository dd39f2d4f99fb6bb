/* Reductions of floats, in double: included by float_loops.h. */

/* ---- variance */

static double variance_of(const tt_tensor *x, double correction) {
    double total = 0, n = 0, squares = 0;
    for (tt__iter it = TT__ITER_OVER(x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++, n++)
            total += (double)LOAD(AT(0, i));
    double mean = total / n;
    for (tt__iter it = TT__ITER_OVER(x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            double d = (double)LOAD(AT(0, i)) - mean;
            squares += d * d;
        }
    return squares / fmax(n - correction, 0);
}

static tt_status ref_var(tt_tensor *y, const tt_tensor *x, double correction) {
    tt_tensor to, from, part;
    divide_dimensions(y, x, &to, &from, &part);
    for (tt__iter it = TT__ITER_OVER(&to, &from); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            part.data = &AT(1, i);
            AT(0, i) = FROM_F64(variance_of(&part, correction));
        }
    return TT_OK;
}

/* ---- norms */

static double norm_term(double x, double p) { return p == 1 ? x : p == 2 ? x * x : p == 0 ? x != 0 : pow(x, p); }

static double norm_of(const tt_tensor *x, double p) {
    double total = 0;
    for (tt__iter it = TT__ITER_OVER(x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            double v = fabs((double)LOAD(AT(0, i)));
            if (!isinf(p))
                total += norm_term(v, p);
            else
                total = v > total || v != v ? v : total; /* no number is above NaN */
        }
    return p == 2 ? sqrt(total) : p == 0 || p == 1 || isinf(p) ? total : pow(total, 1 / p);
}

static tt_status ref_norm(tt_tensor *y, const tt_tensor *x, double p) {
    tt_tensor to, from, part;
    divide_dimensions(y, x, &to, &from, &part);
    for (tt__iter it = TT__ITER_OVER(&to, &from); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            part.data = &AT(1, i);
            AT(0, i) = FROM_F64(norm_of(&part, p));
        }
    return TT_OK;
}

/* How many elements have the absolute value y? */
static double count_largest(const tt_tensor *x, double y) {
    double n = 0;
    for (tt__iter it = TT__ITER_OVER(x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            n += fabs((double)LOAD(AT(0, i))) == y;
    return n;
}

/* The slope of the norm y at x; `largest`: how many have the absolute value y. At 0 it is 0. */
static double norm_slope(double x, double y, double p, double largest) {
    double v = fabs(x), sign = x > 0 ? 1 : x < 0 ? -1 : x;
    if (p == 0 || y == 0)
        return 0;
    if (isinf(p))
        return v == y ? sign / largest : 0;
    return p == 1 ? (x != x ? 0 : sign) : p == 2 ? x / y : v == 0 ? 0 : sign * pow(v / y, p - 1);
}

/* For a reduction's backward: the elements of x and dx that became one element of y. */
typedef struct reduced_rows {
    tt_tensor y, x, dx, g, part, part_dx;
} reduced_rows;

static reduced_rows reduced_rows_of(const tt_tensor *dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g) {
    reduced_rows r;
    tt_tensor none;
    divide_dimensions(y, x, &r.y, &r.x, &r.part);
    divide_dimensions(y, dx, &r.y, &r.dx, &r.part_dx);
    divide_dimensions(y, g, &r.y, &r.g, &none);
    return r;
}

static double row_value(const tt__iter *it, int64_t k, int which) {
    return (double)LOAD(((TYPE *)(void *)it->p[which])[k * it->step[which]]);
}

static void row_parts(reduced_rows *r, const tt__iter *it, int64_t k) {
    r->part.data = (TYPE *)(void *)it->p[1] + k * it->step[1];
    r->part_dx.data = (TYPE *)(void *)it->p[2] + k * it->step[2];
}

static void norm_row_backward(const reduced_rows *r, double norm, double gradient, double p) {
    double largest = isinf(p) ? count_largest(&r->part, norm) : 0;
    for (tt__iter it = TT__ITER_OVER(&r->part_dx, &r->part); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = FROM_F64(norm_slope((double)LOAD(AT(1, i)), norm, p, largest) * gradient);
}

static tt_status ref_norm_backward(tt_tensor *dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g,
                                   double p) {
    reduced_rows r = reduced_rows_of(dx, x, y, g);
    for (tt__iter row = TT__ITER_OVER(&r.y, &r.x, &r.dx, &r.g); row.more; tt__iter_next(&row))
        for (int64_t k = 0; k < row.n; k++) {
            row_parts(&r, &row, k);
            norm_row_backward(&r, row_value(&row, k, 0), row_value(&row, k, 3), p);
        }
    return TT_OK;
}

/* ---- largest and smallest */

static tt_status ref_extreme_backward(tt_tensor *dx, const tt_tensor *index, const tt_tensor *g, int dim) {
    ref_fill(dx, 0);
    for (int64_t line = 0; line < g->numel; line++)
        ((TYPE *)dx->data)[line_begin(dx, dim, line) + ((const int64_t *)index->data)[line] * dx->stride[dim]] =
            ((const TYPE *)g->data)[line];
    return TT_OK;
}

static bool same_number(double a, double b, bool nan_equals) { return a == b || (nan_equals && a != a && b != b); }

/* If no element equals the value, which may be NaN, all gradients are NaN: 0 / 0. */
static void share_row(const reduced_rows *r, double value, double gradient, bool nan_equals) {
    double count = 0;
    for (tt__iter it = TT__ITER_OVER(&r->part); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            count += same_number((double)LOAD(AT(0, i)), value, nan_equals);
    TYPE share = FROM_F64(count > 0 ? gradient / count : NAN), none = FROM_F64(count > 0 ? 0 : NAN);
    for (tt__iter it = TT__ITER_OVER(&r->part_dx, &r->part); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = same_number((double)LOAD(AT(1, i)), value, nan_equals) ? share : none;
}

static tt_status ref_share_equal(tt_tensor *dx, const tt_tensor *x, const tt_tensor *y, const tt_tensor *g,
                                 bool nan_equals) {
    reduced_rows r = reduced_rows_of(dx, x, y, g);
    for (tt__iter row = TT__ITER_OVER(&r.y, &r.x, &r.dx, &r.g); row.more; tt__iter_next(&row))
        for (int64_t k = 0; k < row.n; k++) {
            row_parts(&r, &row, k);
            share_row(&r, row_value(&row, k, 0), row_value(&row, k, 3), nan_equals);
        }
    return TT_OK;
}

/* ---- softmax: rows of n elements */

static tt_status ref_softmax(tt_tensor *y, const tt_tensor *x) {
    int64_t n = tt__row_length(x);
    for (int64_t at = 0; at < x->numel; at += n) {
        const TYPE *from = (const TYPE *)x->data + at;
        double max, total;
        max_and_sum(n, from, &max, &total);
        for (int64_t i = 0; i < n; i++)
            ((TYPE *)y->data)[at + i] = FROM_F64(exp((double)LOAD(from[i]) - max) / total);
    }
    return TT_OK;
}

static tt_status ref_softmax_backward(tt_tensor *dx, const tt_tensor *y, const tt_tensor *g) {
    int64_t n = tt__row_length(y);
    for (int64_t at = 0; at < y->numel; at += n) {
        const TYPE *row = (const TYPE *)y->data + at, *grad = (const TYPE *)g->data + at;
        double total = 0;
        for (int64_t i = 0; i < n; i++)
            total += (double)LOAD(row[i]) * (double)LOAD(grad[i]);
        for (int64_t i = 0; i < n; i++)
            ((TYPE *)dx->data)[at + i] = FROM_F64((double)LOAD(row[i]) * ((double)LOAD(grad[i]) - total));
    }
    return TT_OK;
}

#define REDUCTION_KERNELS                                                                                           \
    .var = ref_var, .norm = ref_norm, .norm_backward = ref_norm_backward, .extreme_backward = ref_extreme_backward, \
    .share_equal = ref_share_equal, .softmax = ref_softmax, .softmax_backward = ref_softmax_backward
