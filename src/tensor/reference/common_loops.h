/* Loops that every element type has. The file that includes this defines
 *   TYPE         an element in memory
 *   WIDE         what is computed with
 *   LOAD(v)      an element, as WIDE            STORE(w)     WIDE, rounded to an element
 *   FROM_I64(i), FROM_F64(f)   an element made of a number of another type
 *   SUM          what many are added up in, and SUM made an element by FROM_SUM(s)
 *   ORDER, AS_ORDER(v), IS_NAN(o)   what elements are compared as */
#include "base/error.h"
#include "tensor/core/element.h"
#include "tensor/core/pool.h"
#include "tensor/kernels/kernels.h"
#include "tensor/shape/iter.h"

#define AT(k, i) (((TYPE *)(void *)it.p[k])[(i)*it.step[k]])

static tt_status ref_fill(tt_tensor *y, double value) {
    TYPE element = FROM_F64(value);
    for (tt__iter it = TT__ITER_OVER(y); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = element;
    return TT_OK;
}

static tt_status ref_copy(tt_tensor *y, const tt_tensor *x) {
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = AT(1, i);
    return TT_OK;
}

static tt_status ref_convert(tt_tensor *y, const tt_tensor *x) {
    int64_t size = (int64_t)tt_dtype_size(x->dtype);
    bool is_float = tt__is_float(x->dtype);
    for (tt__iter it = TT__ITER_OVER(y, x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            const void *p = it.p[1] + i * it.step[1] * size;
            AT(0, i) = is_float ? FROM_F64(tt__load_f64(x->dtype, p)) : FROM_I64(tt__load_i64(x->dtype, p));
        }
    return TT_OK;
}

#define BINARY(name, op)                                                                \
    static tt_status ref_##name(tt_tensor *y, const tt_tensor *a, const tt_tensor *b) { \
        for (tt__iter it = TT__ITER_OVER(y, a, b); it.more; tt__iter_next(&it))         \
            for (int64_t i = 0; i < it.n; i++)                                          \
                AT(0, i) = STORE(LOAD(AT(1, i)) op LOAD(AT(2, i)));                     \
        return TT_OK;                                                                   \
    }
BINARY(add, +)
BINARY(sub, -)
BINARY(mul, *)
#undef BINARY

/* Return where line number `line` along dimension d begins, in elements: the other dimensions are counted in row-major
 * order. */
static int64_t line_begin(const tt_tensor *x, int d, int64_t line) {
    int64_t at = 0;
    for (int k = x->shape.ndim - 1; k >= 0; k--) {
        if (k == d)
            continue;
        at += line % x->shape.dim[k] * x->stride[k];
        line /= x->shape.dim[k];
    }
    return at;
}

/* ---- reductions: any, extremes */

/* Divide the dimensions: those along which y is repeated are reduced; the others number the results. */
static void divide_dimensions(const tt_tensor *y, const tt_tensor *x, tt_tensor *kept_y, tt_tensor *kept_x,
                              tt_tensor *reduced) {
    *kept_y = *y;
    *kept_x = *reduced = *x;
    kept_y->shape.ndim = kept_x->shape.ndim = reduced->shape.ndim = 0;
    for (int d = 0; d < x->shape.ndim; d++) {
        tt_tensor *to = y->stride[d] == 0 && x->shape.dim[d] != 1 ? reduced : kept_x;
        int at = to->shape.ndim++;
        to->shape.dim[at] = x->shape.dim[d];
        to->stride[at] = x->stride[d];
        if (to == reduced)
            continue;
        kept_y->shape.dim[at] = x->shape.dim[d];
        kept_y->stride[at] = y->stride[d];
        kept_y->shape.ndim = at + 1;
    }
}

/* Is some element 0 (`zero`), or not 0 (otherwise)? */
static bool has_element(const tt_tensor *x, bool zero) {
    for (tt__iter it = TT__ITER_OVER(x); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            if ((AS_ORDER(AT(0, i)) == 0) == zero)
                return true;
    return false;
}

static tt_status ref_any(const tt_tensor *x, bool all, tt_tensor *y) {
    tt_tensor to, from, part;
    divide_dimensions(y, x, &to, &from, &part);
    for (tt__iter it = TT__ITER_OVER(&to, &from); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++) {
            part.data = &AT(1, i);
            *(bool *)(void *)(it.p[0] + i * it.step[0]) = has_element(&part, all) != all;
        }
    return TT_OK;
}

static int64_t extreme_of(const TYPE *x, int64_t n, int64_t step, bool largest) {
    int64_t best = 0;
    for (int64_t i = 1; i < n; i++) {
        ORDER v = AS_ORDER(x[i * step]), b = AS_ORDER(x[best * step]);
        if (!IS_NAN(b) && ((largest ? v > b : v < b) || IS_NAN(v)))
            best = i;
    }
    return best;
}

static tt_status ref_extreme(tt_tensor *y, tt_tensor *index, const tt_tensor *x, int dim, bool largest) {
    for (int64_t line = 0; line < y->numel; line++) {
        const TYPE *from = (const TYPE *)x->data + line_begin(x, dim, line);
        int64_t best = extreme_of(from, x->shape.dim[dim], x->stride[dim], largest);
        ((int64_t *)index->data)[line] = best;
        ((TYPE *)y->data)[line] = from[best * x->stride[dim]];
    }
    return TT_OK;
}

/* ---- choices */

static bool compare_elements(TYPE a, TYPE b, tt__comparison op) {
    ORDER p = AS_ORDER(a), q = AS_ORDER(b);
    switch (op) {
    case TT__EQ:
        return p == q;
    case TT__NE:
        return p != q;
    case TT__LT:
        return p < q;
    case TT__LE:
        return p <= q;
    case TT__GT:
        return p > q;
    case TT__GE:
        return p >= q;
    }
    return false;
}

static tt_status ref_compare(const tt_tensor *a, const tt_tensor *b, tt__comparison op, tt_tensor *y) {
    for (tt__iter it = TT__ITER_OVER(y, a, b); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            *(bool *)(void *)(it.p[0] + i * it.step[0]) = compare_elements(AT(1, i), AT(2, i), op);
    return TT_OK;
}

/* Element i of array k, bools. */
#define BOOL_AT(k, i) (*(const uint8_t *)(it.p[k] + (i)*it.step[k]) != 0)

static tt_status ref_where(tt_tensor *y, const tt_tensor *condition, const tt_tensor *a, const tt_tensor *b) {
    for (tt__iter it = TT__ITER_OVER(y, condition, a, b); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = BOOL_AT(1, i) ? AT(2, i) : AT(3, i);
    return TT_OK;
}

static tt_status ref_masked_fill(tt_tensor *y, const tt_tensor *x, const tt_tensor *mask, bool when, double value) {
    TYPE element = FROM_F64(value);
    for (tt__iter it = TT__ITER_OVER(y, x, mask); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = BOOL_AT(2, i) == when ? element : AT(1, i);
    return TT_OK;
}

/* NaN counts as largest. */
static tt_status ref_argmax(const tt_tensor *x, int dim, tt_tensor *y) {
    for (int64_t line = 0; line < y->numel; line++)
        ((int64_t *)y->data)[line] =
            extreme_of((const TYPE *)x->data + line_begin(x, dim, line), x->shape.dim[dim], x->stride[dim], true);
    return TT_OK;
}

/* ---- indexing */

static int64_t place_at(const tt__iter *it, int k, int64_t i) {
    return ((const int64_t *)(const void *)it->p[k])[i * it->step[k]];
}

/* View entry `i` of dimension `dim`; a value to walk over. */
static tt_tensor entry_of(const tt_tensor *x, int dim, int64_t i) {
    tt_tensor entry = *x;
    entry.shape.dim[dim] = 1;
    entry.data = (TYPE *)x->data + i * x->stride[dim];
    return entry;
}

static int64_t number_at(const tt_tensor *index, int64_t i) {
    return ((const int64_t *)index->data)[i * index->stride[0]];
}

static tt_status ref_index_select(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    for (int64_t n = 0; n < y->shape.dim[dim]; n++) {
        tt_tensor to = entry_of(y, dim, n), from = entry_of(x, dim, number_at(index, n));
        for (tt__iter it = TT__ITER_OVER(&to, &from); it.more; tt__iter_next(&it))
            for (int64_t i = 0; i < it.n; i++)
                AT(0, i) = AT(1, i);
    }
    return TT_OK;
}

static tt_status ref_index_add(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    for (int64_t n = 0; n < x->shape.dim[dim]; n++) {
        tt_tensor to = entry_of(y, dim, number_at(index, n)), from = entry_of(x, dim, n);
        for (tt__iter it = TT__ITER_OVER(&to, &from); it.more; tt__iter_next(&it))
            for (int64_t i = 0; i < it.n; i++)
                AT(0, i) = STORE(LOAD(AT(0, i)) + LOAD(AT(1, i)));
    }
    return TT_OK;
}

/* View x in the shape of `index` at entry 0 of dimension `dim`: index[p] strides of that dimension further lies q. */
static tt_tensor first_entries(const tt_tensor *x, int dim, const tt_tensor *index) {
    tt_tensor first = *x;
    first.shape = index->shape;
    first.stride[dim] = 0;
    return first;
}

static tt_status ref_gather(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) {
    tt_tensor from = first_entries(x, dim, index);
    for (tt__iter it = TT__ITER_OVER(y, index, &from); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++)
            AT(0, i) = (&AT(2, i))[place_at(&it, 1, i) * x->stride[dim]];
    return TT_OK;
}

/* x may be larger than index, whose shape is walked: its first entries count. */
#define SCATTER(name, value)                                                                         \
    static tt_status ref_##name(tt_tensor *y, const tt_tensor *x, int dim, const tt_tensor *index) { \
        tt_tensor first = first_entries(y, dim, index);                                              \
        const tt_tensor *walked[] = {&first, index, x};                                              \
        for (tt__iter it = tt__iter_row_major(3, walked); it.more; tt__iter_next(&it))               \
            for (int64_t i = 0; i < it.n; i++) {                                                     \
                TYPE *to = &AT(0, i) + place_at(&it, 1, i) * y->stride[dim];                         \
                *to = value;                                                                         \
            }                                                                                        \
        return TT_OK;                                                                                \
    }
SCATTER(scatter, AT(2, i))
SCATTER(scatter_add, STORE(LOAD(*to) + LOAD(AT(2, i))))
#undef SCATTER

/* ---- order within rows */

/* Lines along the last dimension are rows of matrices, counted row by row. */
static tt_status ref_triangle(tt_tensor *y, const tt_tensor *x, int64_t diagonal, bool upper) {
    int last = x->shape.ndim - 1;
    int64_t R = x->shape.dim[last - 1], C = x->shape.dim[last];
    for (int64_t line = 0; line < (C ? x->numel / C : 0); line++) {
        const TYPE *from = (const TYPE *)x->data + line_begin(x, last, line);
        TYPE *to = (TYPE *)y->data + line_begin(y, last, line);
        for (int64_t c = 0; c < C; c++) {
            int64_t at = c - line % R;
            to[c * y->stride[last]] = (upper ? at >= diagonal : at <= diagonal) ? from[c * x->stride[last]] : STORE(0);
        }
    }
    return TT_OK;
}

static tt_status ref_cumsum(tt_tensor *y, const tt_tensor *x, int dim, bool backwards) {
    int64_t n = x->shape.dim[dim];
    for (int64_t line = 0; line < (n ? x->numel / n : 0); line++) {
        const TYPE *from = (const TYPE *)x->data + line_begin(x, dim, line);
        TYPE *to = (TYPE *)y->data + line_begin(y, dim, line);
        SUM sum = 0;
        for (int64_t k = 0; k < n; k++) {
            int64_t i = backwards ? n - 1 - k : k;
            sum += (SUM)LOAD(from[i * x->stride[dim]]);
            to[i * y->stride[dim]] = FROM_SUM(sum);
        }
    }
    return TT_OK;
}

/* ---- sorting: indices into a row are moved, elements stay */

/* Does element i of the row come before element j, by their values alone? */
static bool goes_before(const TYPE *row, int64_t i, int64_t j, bool descending) {
    ORDER a = AS_ORDER(row[descending ? j : i]), b = AS_ORDER(row[descending ? i : j]);
    return IS_NAN(b) ? !IS_NAN(a) : a < b;
}

/* Put i behind all of sorted[0..n-1] that it doesn't go before. */
static void insert_sorted(const TYPE *row, int64_t *sorted, int64_t n, int64_t i, bool descending) {
    for (; n > 0 && goes_before(row, i, sorted[n - 1], descending); n--)
        sorted[n] = sorted[n - 1];
    sorted[n] = i;
}

/* Merge from[begin..middle) and from[middle..end), each sorted, into `to`. */
static void merge_runs(const TYPE *row, const int64_t *from, int64_t *to, int64_t begin, int64_t middle, int64_t end,
                       bool descending) {
    int64_t a = begin, b = middle;
    for (int64_t k = begin; k < end; k++) {
        bool second = b < end && (a == middle || goes_before(row, from[b], from[a], descending));
        to[k] = from[second ? b++ : a++];
    }
}

/* Sort the indices of a row of n; `room` for 2 n. Return where they are. */
static const int64_t *sort_row(const TYPE *row, int64_t n, int64_t *room, bool descending) {
    enum { RUN = 16 };
    int64_t *from = room, *to = room + n;
    for (int64_t i = 0; i < n; i++)
        insert_sorted(row, from + i / RUN * RUN, i % RUN, i, descending);
    for (int64_t run = RUN; run < n; run *= 2) {
        for (int64_t begin = 0; begin < n; begin += 2 * run) {
            int64_t middle = begin + run < n ? begin + run : n, end = begin + 2 * run < n ? begin + 2 * run : n;
            merge_runs(row, from, to, begin, middle, end, descending);
        }
        int64_t *other = from;
        from = to;
        to = other;
    }
    return from;
}

/* Find the first k of a row of n, for a small k. */
static const int64_t *first_of_row(const TYPE *row, int64_t n, int64_t k, int64_t *room, bool descending) {
    for (int64_t i = 0; i < n; i++)
        if (i < k || goes_before(row, i, room[k - 1], descending))
            insert_sorted(row, room, i < k ? i : k - 1, i, descending);
    return room;
}

static tt_status ref_sort(tt_tensor *y, tt_tensor *indices, const tt_tensor *x, bool descending) {
    enum { SMALL = 32 };
    int64_t n = tt__row_length(x), k = tt__row_length(y);
    int64_t *room = tt__pool_alloc((size_t)n * 2 * sizeof *room);
    if (!room)
        return tt__fail(TT_ERR_MEMORY, "no memory to sort %lld elements", (long long)n);
    for (int64_t r = 0; r < (k ? y->numel / k : 0); r++) {
        const TYPE *row = (const TYPE *)x->data + r * n;
        const int64_t *order =
            k <= SMALL ? first_of_row(row, n, k, room, descending) : sort_row(row, n, room, descending);
        for (int64_t i = 0; i < k; i++) {
            ((int64_t *)indices->data)[r * k + i] = order[i];
            ((TYPE *)y->data)[r * k + i] = row[order[i]];
        }
    }
    tt__pool_free(room);
    return TT_OK;
}

#define COMMON_KERNELS                                                                                          \
    .fill = ref_fill, .copy = ref_copy, .convert = ref_convert, .add = ref_add, .sub = ref_sub, .mul = ref_mul, \
    .argmax = ref_argmax, .index_select = ref_index_select, .index_add = ref_index_add, .gather = ref_gather,   \
    .scatter = ref_scatter, .scatter_add = ref_scatter_add, .triangle = ref_triangle, .cumsum = ref_cumsum,     \
    .sort = ref_sort, .any = ref_any, .extreme = ref_extreme, .compare = ref_compare, .where = ref_where,       \
    .masked_fill = ref_masked_fill
