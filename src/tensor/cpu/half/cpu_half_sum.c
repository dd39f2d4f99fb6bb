/* Sums of f16 and bf16. Where columns are added up (a bias's gradient), some of them are widened at a time, so that
 * what is wide stays in the cache. */
#include "tensor/cpu/half/cpu_half.h"

#include "base/error.h"
#include "tensor/core/pool.h"
#include "tensor/cpu/cpu_reduce.h"
#include "tensor/cpu/half/wide.h"
#include "tensor/cpu/levels.h"
#include "tensor/device/parallel.h"

#include <stdatomic.h>

enum { WIDE_NUMBERS = 1 << 15, LEAST_COLUMNS = 32, MOST_COLUMNS = 512 };

typedef struct half_columns {
    int64_t rows, cols;
    const tt__half_loops *loops;
    const uint16_t *x;
    double factor;
    uint16_t *y;
    atomic_bool no_memory;
} half_columns;

static void sum_half_columns(void *user, int64_t begin, int64_t end) {
    half_columns *c = user;
    int64_t n = end - begin;
    float sums[MOST_COLUMNS], *wide = tt__pool_alloc((size_t)(c->rows * n) * sizeof *wide);
    if (!wide) {
        c->no_memory = true;
        return;
    }
    for (int64_t r = 0; r < c->rows; r++)
        c->loops->widen(n, c->x + r * c->cols + begin, wide + r * n);
    tt__reduce()->sum_rows(c->rows, n, n, wide, c->factor, sums);
    c->loops->narrow(n, sums, c->y + begin);
    tt__pool_free(wide);
}

static int64_t columns_at_once(int64_t rows) {
    int64_t n = WIDE_NUMBERS / rows / LEAST_COLUMNS * LEAST_COLUMNS;
    return n < LEAST_COLUMNS ? LEAST_COLUMNS : n > MOST_COLUMNS ? MOST_COLUMNS : n;
}

tt_status tt__cpu_sum_half(tt_tensor *y, const tt_tensor *x, double factor) {
    int64_t cols = 0;
    if (tt__sums_leading(y, x, &cols) && cols > 1 && x->numel > cols) {
        half_columns c = {.rows = x->numel / cols, .cols = cols, .x = x->data, .factor = factor, .y = y->data};
        c.loops = tt__half_loops_of(x->dtype);
        tt__parallel_for(cols, columns_at_once(c.rows), sum_half_columns, &c);
        return c.no_memory ? tt__fail(TT_ERR_MEMORY, "no memory for columns of %lld numbers in f32", (long long)c.rows)
                           : TT_OK;
    }
    tt__wide w[3];
    tt_status status = tt__wide_three(w, y, x, NULL);
    if (!status)
        status = TT__F32_KERNEL(&w[0].seen, sum)(&w[0].seen, &w[1].seen, factor);
    return tt__wide_end(status, 3, w);
}
