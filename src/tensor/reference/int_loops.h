/* Integers and bools: the loops of common_loops.h, and the search for values out of range. Also defines the table,
 * called TABLE. */
#define SUM WIDE
#define FROM_SUM(s) STORE(s)
#define ORDER TYPE
#define AS_ORDER(v) (v)
#define IS_NAN(o) ((void)(o), false)
#include "tensor/reference/common_loops.h"

static tt_status ref_find_outside(const tt_tensor *x, int64_t low, int64_t high, int64_t *index, int64_t *value) {
    int64_t at = 0;
    *index = -1;
    const tt_tensor *only[] = {x};
    for (tt__iter it = tt__iter_row_major(1, only); it.more; tt__iter_next(&it))
        for (int64_t i = 0; i < it.n; i++, at++) {
            int64_t v = (int64_t)AT(0, i);
            if (v >= low && v <= high)
                continue;
            *index = at;
            *value = v;
            return TT_OK;
        }
    return TT_OK;
}

const tt__kernels TABLE = {COMMON_KERNELS, .find_outside = ref_find_outside};
