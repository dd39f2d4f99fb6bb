/* Order within rows, for every element type; part of common_loops.h, which says what TYPE and the rest are. */
#include "base/error.h"
#include "tensor/core/pool.h"

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

/* Does element i of the row stand before element j, as values alone tell? */
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

#define ORDER_KERNELS .triangle = ref_triangle, .cumsum = ref_cumsum, .sort = ref_sort
